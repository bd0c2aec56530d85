"""The baseline: a drafter that drafts nothing, so that the baseline runs the same code as the other methods."""

from __future__ import annotations

from collections.abc import Sequence

from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import DrafterInputs


class VanillaDrafter:
    """Proposes the bare root.

    The tree is the pending token alone, so each step emits one token:

    >>> VanillaDrafter(DrafterInputs((1, 2, 3), vocab_size=10)).propose((1, 2, 3), budget=4).tokens
    (3,)
    """

    def __init__(self, inputs: DrafterInputs) -> None:
        pass

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """The pending token alone."""
        return TokenTree.chain(context[-1])

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Nothing to learn."""
