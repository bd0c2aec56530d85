"""Hybrid, our own method: fusion's tree with longer copies, and a trained head's where fusion finds little to copy.

TensorRT-LLM joins a suffix automaton and a trained head in a similar way (its option `sa_config`). Here the head drafts
only if two conditions hold. The probability that none of fusion's children of the root comes next, its escape mass, is
greater than the cost of a forward of the head. And the rate of fusion's tree, its expected tokens over its cost, is
below 1.1 times the mean rate of the head's trees. Then the tree with the higher rate is verified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from specrace.core.note import Note
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import ANY_DEPTH, Bounds, DepthDrafter, DrafterInputs, Flag
from specrace.drafters.fusion.long_copies import LongCopyFusion
from specrace.drafters.fusion.sources import NUM_TOP
from specrace.drafters.head_tree import HeadTreeDrafter

# The prior of the mean rate of the head's trees, and the number of trees that it counts as; no record says why four.
# The EAGLE head of SmolLM2 yields 1.25 on questions without documents.
EXPECTED_RATE, EXPECTED_WEIGHT = 1.25, 4
# The head drafts if the rate of fusion's tree is below this times the mean rate of the head's trees. Chosen on 30
# written questions without documents and 30 questions drawn from the corpus. Tokens per cost: with 0.9, 1.7 % fewer on
# the former and no change on the latter; with 1.3, no change on the former and 1.2 % fewer on the latter.
ASK_BELOW = 1.1


def hybrid_num_top(options: Mapping[str, Any]) -> int:
    """The number of the target's likeliest tokens per node that the hybrid learns from, with these options."""
    return NUM_TOP if options["recycling"] else 0


class HybridDrafter(DepthDrafter):
    """Drafts as `LongCopyFusion` does, or with an EAGLE head. Raises InputError without a head.

    1 2 was followed by 3 three times, so fusion copies; after 9, which is new, the head drafts. It expects the next
    number with a probability of 0.9:

    >>> class Counter:
    ...     depth, room, depths_per_forward = 9, 100, 1
    ...     def begin(self, root): self.root = root
    ...     def likeliest(self, paths, k): return [[((self.root, *path)[-1] + 1, 0.9)] for path in paths]
    >>> text = (*range(20, 60), *(1, 2, 3) * 3, 1, 2)
    >>> def draft(*context):
    ...     inputs = DrafterInputs(context, vocab_size=99, head=Counter(), head_price=0.3)
    ...     return HybridDrafter(inputs).propose(context, budget=2).tokens
    >>> draft(*text), draft(*text, 9)
    ((2, 3, 1), (9, 10, 11))
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        depth: Annotated[int, Bounds(1, 32, "maximum depth of the head's tree, in tokens")] = 6,
        width: Annotated[int, Bounds(1, 32, "guesses after each node, and paths continued at each depth")] = 4,
        corpus: Annotated[bool, Flag("also draft from n-grams of all documents")] = False,
        past: Annotated[bool, Flag("also copy from earlier outputs, and estimate acceptance by them")] = True,
        recycling: Annotated[bool, Flag("also draft tokens that the model found likely at earlier steps")] = False,
    ) -> None:
        self.head = HeadTreeDrafter(inputs, "hybrid", depth, width)
        self.fusion = LongCopyFusion(inputs, corpus=corpus, past=past, recycling=recycling)
        # Whether the last draft is the head's.
        self._guessed = False
        # The sum of the rates of the head's trees, and their number; the prior is included.
        self._sum_rates, self._num_rates = EXPECTED_RATE * EXPECTED_WEIGHT, EXPECTED_WEIGHT

    def propose(self, context: Sequence[int], budget: int, depth: int = ANY_DEPTH) -> TokenTree:
        """Fusion's tree, or the head's if its rate is higher; at most `budget` draft tokens."""
        copied = self.fusion.propose(context, budget, depth)
        self._guessed = False
        if budget < 1 or _escape(copied) <= self.head.price:
            return copied
        if self.head.rate_unasked(copied, budget) >= ASK_BELOW * self._sum_rates / self._num_rates:
            return copied
        guessed = self.head.propose(context, budget, depth)
        if self.head.was_asked:
            self._sum_rates += self.head.rate(guessed)
            self._num_rates += 1
        # Both rates include the head's forwards, which have been run whichever tree is verified.
        self._guessed = self.head.rate(guessed) > self.head.rate(copied)
        return guessed if self._guessed else copied

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """The drafter that made the tree learns from the verdict; if it was the head, fusion still reads the output."""
        if self._guessed:
            self.head.observe(tree, verdict)
            self.fusion.follow(tree, verdict)
        else:
            self.fusion.observe(tree, verdict)

    def note(self, tree: TokenTree) -> Note:
        """The note of the drafter that made the tree."""
        return self.head.note(tree) if self._guessed else self.fusion.note(tree)


def _escape(tree: TokenTree) -> float:
    """The probability that the token after the root is none of the root's children."""
    return 1.0 - sum(tree.probs[child] for child in tree.children[0].values()) if tree.probs else 1.0
