"""Jacobi decoding (Santilli et al., 2023), the blockwise form with a KV cache; not lookahead with N = 2.

A block of m draft tokens, each replaced at every step by the target's token at its position, shifted by what was
accepted.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from specrace.core.note import Note, NoteRow
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import DrafterInputs


class JacobiDrafter:
    """A chain; new positions get tokens of the prompt at random (seeded)."""

    def __init__(self, inputs: DrafterInputs) -> None:
        self.prompt = inputs.prompt
        self.random = random.Random(inputs.seed)
        self.block: list[int] = []

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """The block, filled up to `budget`."""
        while len(self.block) < budget:
            self.block.append(self.random.choice(self.prompt))
        return TokenTree.chain(context[-1], self.block[:budget])

    def note(self, tree: TokenTree) -> Note:
        """The block; over several steps, the trajectory."""
        return Note({}, (NoteRow("Trajectory", "draft", tree.tokens[1:]),))

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """The target's token at chain node i is the next draft token at position i + 1, after those emitted."""
        self.block = list(verdict.scores.targets[len(verdict.path) :])
