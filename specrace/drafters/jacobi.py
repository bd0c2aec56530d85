"""Jacobi decoding: a block of guesses, replaced at each step by what the target said at their own positions.

After Santilli et al. (2023), the blockwise form with a cache. A decoder of its own, not lookahead with N = 2.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar

from specrace.core.note import Note, NoteRow
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import Material


class JacobiDrafter:
    """A chain of guesses, at first drawn (seeded) from the prompt."""

    needs_target_outputs: ClassVar[str] = "its next guesses are the model's tokens after the rejected ones"

    def __init__(self, material: Material) -> None:
        self.prompt = material.prompt
        self.random = random.Random(material.seed)
        self.guesses: list[int] = []

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """The block, filled up to `budget`."""
        while len(self.guesses) < budget:
            self.guesses.append(self.random.choice(self.prompt))
        return TokenTree.chain(context[-1], self.guesses[:budget])

    def note(self, tree: TokenTree) -> Note:
        """The guesses; seen over several steps they are the trajectory."""
        return Note({}, (NoteRow("Trajectory", "guesses", tree.tokens[1:]),))

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """The target's token at chain node i is the next guess for position i + 1.

        Nodes up to the accepted one are committed and its token is the bonus; the trajectory goes on after that.
        """
        self.guesses = list(verdict.scores.targets[len(verdict.path) :])
