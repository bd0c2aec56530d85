"""The baseline: no draft, on the very code that the methods run on."""

from __future__ import annotations

from collections.abc import Sequence

from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import DrafterInputs


class VanillaDrafter:
    """Proposes the bare root."""

    def __init__(self, inputs: DrafterInputs) -> None:
        pass

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """The pending token only."""
        return TokenTree.chain(context[-1])

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Nothing to learn."""
