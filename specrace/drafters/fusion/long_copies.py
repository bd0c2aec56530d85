"""Fusion that copies further: its estimates for a copy's later tokens are corrected by how often copies went on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop

from specrace.core.note import Note
from specrace.core.tree import TokenTree
from specrace.drafters.base import DrafterInputs
from specrace.drafters.fusion.drafter import Candidate, FusionDrafter
from specrace.drafters.fusion.growth import Growth
from specrace.drafters.fusion.holding import Holding
from specrace.ngrams.past import PastOutputs

# With earlier answers to copy from, a draft token must yield this many tokens for the cost of a one-row forward. Chosen
# on 120 questions drawn from the corpus, on which 2 and 3 each yielded 0.6 % fewer tokens per cost.
WORTH = 2.5


class LongCopyFusion(FusionDrafter):
    """Drafts as fusion does, except for the length of its copies; the options are fusion's.

    Fusion maximises a step's expected tokens for its cost. If there are earlier answers, here each token must yield
    `WORTH` for its cost instead, so a step that is sure of a long copy drafts more, and an unsure step drafts less.

    10 11 12 13 was followed by 14 to 25. If those come once 14 has come, more of them pay. A forward over 33 rows costs
    nine times one over a single row:

    >>> from specrace.core.cost_curve import CostCurve
    >>> text = (*range(10, 26), 3, 4, 10, 11, 12, 13)
    >>> inputs = DrafterInputs(text, vocab_size=99, curve=CostCurve((1, 33), (1.0, 9.0)))
    >>> FusionDrafter(inputs).propose(text, budget=12).tokens
    (13, 14, 15, 16)
    >>> LongCopyFusion(inputs, corpus=False, past=False, recycling=False).propose(text, budget=12).tokens
    (13, 14, 15, 16, 17, 18, 19)
    """

    def __init__(self, inputs: DrafterInputs, *, corpus: bool, past: bool, recycling: bool) -> None:
        super().__init__(inputs, corpus=corpus, past=past, recycling=recycling)
        # Node below the root -> the likeliest token after it, and that token's uncorrected probability.
        self._expected: dict[int, tuple[int, float]] = {}
        self._has_earlier = past and bool(inputs.past)
        earlier = self.read_past(PastOutputs.of(inputs.past)).holding if self._has_earlier else None
        self.holding = Holding(earlier)

    def note(self, tree: TokenTree) -> Note:
        """Fusion's note, and how often copies broke off after their first token, relative to the estimates."""
        note = super().note(tree)
        if not tree.num_draft:
            return note
        return replace(
            note, facts={**note.facts, "copies break off": f"{self.holding.factor():.2f} times as often as estimated"}
        )

    def _grow(self, growth: Growth, previous: int, budget: int) -> int:
        """Add nodes best first while more may pay; return the number of nodes to draft."""
        self._expected.clear()
        if not self._has_earlier:
            return super()._grow(growth, previous, budget)
        costs, knots = self.step_costs.costs, self.step_costs.knots
        heap: list[Candidate] = []
        node, prob, expected = 0, 1.0, 0.0
        # The maximum of expected draft tokens less their cost, and the number of draft nodes at which it is reached.
        best, num_draft = 0.0, 0
        # Frequent tokens need no context, so they are calibrated as matches of length 0.
        self._frequent_factor = self.calibration.factor(0, 1.0)

        def gain(count: int) -> float:
            """The expected draft tokens of `count` nodes less their cost, if those to come are as likely as this."""
            return expected + prob * (count - node) - WORTH * (costs[count] - 1.0)

        while node < budget:
            self._expand(growth, heap, node, prob, growth.tokens[growth.parents[node]] if node else previous)
            if not heap:
                break
            negative_prob, parent, _, token, share = heappop(heap)
            prob = -negative_prob
            # Between two knots, the draft sizes at which the curve was measured, the gain is linear, or flat after a
            # fall, so its maximum is at a knot. The next node is checked first, because its gain usually suffices.
            if gain(node + 1) <= best and all(gain(knot) <= best for knot in knots if knot > node):
                break
            self._add(growth, parent, token, share)
            node += 1
            expected += prob
            if gain(node) > best:
                best, num_draft = gain(node), node
        return num_draft

    def _estimate(self, growth: Growth, node: int, floor: float, previous: int) -> dict[int, float]:
        probs = super()._estimate(growth, node, floor, previous)
        if not node or not probs:
            return probs
        likeliest = max(probs, key=probs.__getitem__)
        self._expected[node] = likeliest, probs[likeliest]
        return self.holding.revise(probs)

    def _learn(self, path: Sequence[int], output: Sequence[int]) -> None:
        for node, token in zip(path, output, strict=True):
            if node in self._expected:
                likeliest, prob = self._expected[node]
                self.holding.record(prob, token == likeliest)
        super()._learn(path, output)
