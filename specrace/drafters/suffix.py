"""Suffix decoding (Oliaro et al., 2024; Arctic Inference): continuations of every match length, the best one drafted.

Two texts: this request's prompt and output, and past outputs. A token's probability is its count over that of the
matched substring. As in Arctic's code the end of the text is one more occurrence, without continuation, so what was
seen once gets 1/2.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Annotated

from specrace.core.note import Note
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import Bounds, DrafterInputs, Flag
from specrace.ngrams.automaton import NO_MATCH, NO_STATE, SuffixAutomaton
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import END

# (parent, token, probability given the parent, position)
DraftNode = tuple[int, int, float, int]
# The sum of the path probabilities, the tokens matched, and the nodes.
Draft = tuple[float, int, list[DraftNode]]
NO_DRAFT: Draft = (0.0, 0, [])


class SuffixDrafter:
    """The draft with the highest sum of path probabilities; longer matches may draft more."""

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        depth: Annotated[int, Bounds(2, 64, "longest n-gram: match and draft, in tokens")] = 64,
        factor: Annotated[int, Bounds(1, 64, "draft tokens for each matched token")] = 1,
        min_percent: Annotated[int, Bounds(1, 100, "least path probability of a draft token, in percent")] = 10,
        tree: Annotated[bool, Flag("draft the likeliest tree, not the likeliest path")] = False,
    ) -> None:
        self.depth, self.factor, self.least, self.tree = depth, factor, min_percent / 100, tree
        self.own = SuffixAutomaton(depth, inputs.prompt)
        self.past = PastOutputs.of(inputs.past).automaton(depth)
        self._past_match = self.past.follow(NO_MATCH, inputs.prompt[1 - depth :])
        self._matched = 0

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """The better draft of the two texts, the request's own where they tie."""
        best, draft_of = NO_DRAFT, self._likeliest_tree if self.tree else self._likeliest_path
        for automaton, (state, longest) in ((self.own, self.own.suffix()), (self.past, self._past_match)):
            # Ties go to the longer match. No shorter one can win once the best sum is what it may draft at most.
            while min(budget, longest * self.factor) > best[0]:
                link = automaton.links[state]
                shorter = automaton.lengths[link]
                draft = draft_of(automaton, state, range(longest, shorter, -1), budget)
                if draft[0] > best[0]:
                    best = draft
                state, longest = link, shorter
        _, self._matched, nodes = best
        parents, tokens, probs, positions = zip((-1, context[-1], 1.0, -1), *nodes, strict=True)
        return TokenTree(tokens, parents, probs, positions)

    def _likeliest_path(self, automaton: SuffixAutomaton, state: int, lengths: range, budget: int) -> Draft:
        """The likeliest token after `state`, the likeliest after that, and so on.

        Matches of all `lengths`, the longest first, share the state and its continuations. A longer one may draft more
        by the factor, a shorter one more by the depth: the one that may draft the most wins.
        """
        counts, own = automaton.counts, automaton is self.own
        nodes: list[DraftNode] = []
        score, prob, matched = 0.0, 1.0, 0
        while (size := len(nodes)) < budget:
            length = min(lengths.start, self.depth - 1 - size)
            if length <= lengths.stop or length * self.factor <= size:
                break
            target = _likeliest(automaton, state)
            if target == NO_STATE:
                break
            share = counts[target] / counts[state]
            prob *= share
            if prob < self.least:
                break
            first = automaton.firsts[target]
            nodes.append((size, automaton.tokens[first], share, first if own else -1))
            score += prob
            state, matched = target, length
        return score, matched, nodes

    def _likeliest_tree(self, automaton: SuffixAutomaton, state: int, lengths: range, budget: int) -> Draft:
        """The best tree after `state`, for matches of all `lengths`, the longest first."""
        best = NO_DRAFT
        for length in lengths:
            limit, max_depth = min(budget, length * self.factor), self.depth - length
            if limit <= best[0]:
                break
            score, deepest, nodes = self._best_first(automaton, state, limit, max_depth)
            if score > best[0]:
                best = score, length, nodes
            if deepest < max_depth:
                # Depth did not limit this tree, and a shorter match may draft no more.
                break
        return best

    def _best_first(
        self, automaton: SuffixAutomaton, state: int, limit: int, max_depth: int
    ) -> tuple[float, int, list[DraftNode]]:
        """The `limit` likeliest nodes after `state`: (sum of path probabilities, depth, nodes).

        Ties: the shallower, then the earlier in the text.
        """
        counts, firsts, own = automaton.counts, automaton.firsts, automaton is self.own
        nodes: list[DraftNode] = []
        score, deepest, node, depth, prob = 0.0, 0, 0, 0, 1.0
        # (depth, first position) is unique to a node, so later fields are never compared.
        frontier: list[tuple[float, int, int, int, int, float, int]] = []
        while True:
            for token, target in automaton.successors(state) if depth < max_depth else ():
                share = counts[target] / counts[state]
                if token != END and prob * share >= self.least:
                    heapq.heappush(frontier, (-prob * share, depth + 1, firsts[target], node, token, share, target))
            if not frontier or node == limit:
                return score, deepest, nodes
            negative, depth, first, parent, token, share, state = heapq.heappop(frontier)
            nodes.append((parent, token, share, first if own else -1))
            node, deepest, prob = node + 1, max(deepest, depth), -negative
            score += prob

    def note(self, tree: TokenTree) -> Note:
        """How many of the last tokens matched, and the sum of the path probabilities."""
        expected = sum(tree.path_probs()[1:])
        return Note({"matched tokens": self._matched, "tokens expected": round(expected, 2)})

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Append the output tokens."""
        output = verdict.output(tree)
        self.own.extend(output)
        self._past_match = self.past.follow(self._past_match, output)


def _likeliest(automaton: SuffixAutomaton, state: int) -> int:
    """The most frequent successor that is no END, the first seen of equals; else NO_STATE."""
    target, counts = automaton.nexts[state], automaton.counts
    if target >= 0:
        return NO_STATE if automaton.tokens[automaton.firsts[target]] == END else target
    if target == NO_STATE:
        return NO_STATE
    branches = automaton.branches[state]
    target = max(branches.values(), key=counts.__getitem__)
    if target == branches.get(END):
        target = max((each for each in branches.values() if each != target), key=counts.__getitem__)
    return target
