"""Jacobi decoding, in its blockwise form with a KV cache.

Source: Santilli et al., "Accelerating Transformer Inference for Translation via Parallel Decoding" (2023).

The draft is a block of m tokens. At every step each of them is replaced by the target's token for its position, and the
block is shifted by the number of accepted tokens. The source updates one block until no token changes; here the block
moves along the text. The greedy text is the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from specrace.core.note import Note, NoteRow
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import DrafterInputs


class JacobiDrafter:
    """Drafts the block as a chain; new positions get random tokens of the prompt.

    The first draft is random, here 7 4. The target says 5 after the root (so 7 is rejected), 8 after 7, and 9 after 4.
    Hence 5 is the next pending token, and 8 9 are the target's guesses for the two tokens after it:

    >>> from specrace.core.verify import Scores, verify
    >>> drafter = JacobiDrafter(DrafterInputs((4, 7), vocab_size=10, seed=1))
    >>> tree = TokenTree.chain(7, [7, 4])
    >>> drafter.observe(tree, verify(tree, Scores(targets=(5, 8, 9))))
    >>> drafter.propose((4, 7, 5), budget=2).tokens
    (5, 8, 9)
    """

    def __init__(self, inputs: DrafterInputs) -> None:
        self.prompt = inputs.prompt
        self.random = random.Random(inputs.seed)
        self.block: list[int] = []

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """The block as a chain, filled up to `budget` tokens."""
        while len(self.block) < budget:
            self.block.append(self.random.choice(self.prompt))
        return TokenTree.chain(context[-1], self.block[:budget])

    def note(self, tree: TokenTree) -> Note:
        """The block. The notes of successive steps show the Jacobi trajectory."""
        return Note({}, (NoteRow("Trajectory", "draft", tree.tokens[1:]),))

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Keep the target's tokens at the nodes after the accepted path: they guess the tokens after the bonus."""
        self.block = list(verdict.scores.targets[len(verdict.path) :])
