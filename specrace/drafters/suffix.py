"""Suffix decoding (Oliaro et al., 2024; Arctic Inference): follow the counts after every match length, keep the best.

Two texts, this request's prompt and output and the past outputs. A token's probability is how often it followed a run
over how often the run stands there. As in Arctic's code the end of the text counts as one more occurrence that does not
go on, so what was seen once is expected with 1/2.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Annotated

from specrace.core.note import Note
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import Bounds, Flag, Material
from specrace.ngrams.automaton import NOTHING, NOWHERE, SuffixAutomaton
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import END

# (parent, token, probability given the parent, position)
Guess = tuple[int, int, float, int]
# The sum of the path probabilities, how many tokens matched, and the guesses.
Draft = tuple[float, int, list[Guess]]
NO_DRAFT: Draft = (0.0, 0, [])


class SuffixDrafter:
    """The draft with the highest sum of probabilities; longer matches may draft more."""

    def __init__(
        self,
        material: Material,
        *,
        depth: Annotated[int, Bounds(2, 64, "longest run counted: match and draft, in tokens")] = 64,
        factor: Annotated[int, Bounds(1, 64, "draft tokens for each matched token")] = 1,
        min_percent: Annotated[int, Bounds(1, 100, "least probability of a drafted path, in percent")] = 10,
        tree: Annotated[bool, Flag("draft the likeliest tree, not the likeliest path")] = False,
    ) -> None:
        self.depth, self.factor, self.least, self.tree = depth, factor, min_percent / 100, tree
        self.own = SuffixAutomaton(depth, material.prompt)
        self.past = PastOutputs.of(material.past).automaton(depth)
        self._past_end = NOWHERE
        self._follow_past(material.prompt[1 - depth :])
        self._matched = 0

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """The better draft of the two texts, the request's own where they are equal."""
        best, draft_of = NO_DRAFT, self._likeliest_tree if self.tree else self._likeliest_path
        for known, (state, longest) in ((self.own, self.own.end()), (self.past, self._past_end)):
            # Ties go to the longer match. None shorter can win once the best scores what it might draft.
            while min(budget, longest * self.factor) > best[0]:
                link = known.links[state]
                shorter = known.lengths[link]
                draft = draft_of(known, state, range(longest, shorter, -1), budget)
                if draft[0] > best[0]:
                    best = draft
                state, longest = link, shorter
        _, self._matched, guesses = best
        parents, tokens, probs, positions = zip((-1, context[-1], 1.0, -1), *guesses, strict=True)
        return TokenTree(tokens, parents, probs, positions)

    def _likeliest_path(self, known: SuffixAutomaton, state: int, lengths: range, budget: int) -> Draft:
        """The likeliest token after `state`, the likeliest after that, and so on.

        All `lengths` of its runs, the longest first, are followed by the same tokens, of which a long match may draft
        more by the factor and a short one more by the depth: the one that may draft the most wins.
        """
        counts, own = known.counts, known is self.own
        guesses: list[Guess] = []
        score, prob, matched = 0.0, 1.0, 0
        while (size := len(guesses)) < budget:
            length = min(lengths.start, self.depth - 1 - size)
            if length <= lengths.stop or length * self.factor <= size:
                break
            after = _likeliest(known, state)
            if after == NOTHING:
                break
            share = counts[after] / counts[state]
            prob *= share
            if prob < self.least:
                break
            first = known.firsts[after]
            guesses.append((size, known.tokens[first], share, first if own else -1))
            score += prob
            state, matched = after, length
        return score, matched, guesses

    def _likeliest_tree(self, known: SuffixAutomaton, state: int, lengths: range, budget: int) -> Draft:
        """The best tree after `state`, where its runs of all `lengths`, the longest first, are followed by the same."""
        best = NO_DRAFT
        for length in lengths:
            limit, room = min(budget, length * self.factor), self.depth - length
            if limit <= best[0]:
                break
            score, deepest, guesses = self._best_first(known, state, limit, room)
            if score > best[0]:
                best = score, length, guesses
            if deepest < room:
                # More room alone would change nothing, and a shorter match may draft no more.
                break
        return best

    def _best_first(self, known: SuffixAutomaton, state: int, limit: int, room: int) -> tuple[float, int, list[Guess]]:
        """The score, the depth and the guesses of the likeliest nodes after `state`, `limit` of them, `room` deep.

        Best first, so a parent comes before its child. Ties: the shallower, then the earlier in the text.
        """
        counts, firsts, own = known.counts, known.firsts, known is self.own
        guesses: list[Guess] = []
        score, deepest, node, depth, prob = 0.0, 0, 0, 0, 1.0
        # (depth, first place) is unique to a node, so later fields are never compared.
        frontier: list[tuple[float, int, int, int, int, float, int]] = []
        while True:
            for token, after in known.successors(state) if depth < room else ():
                share = counts[after] / counts[state]
                if token != END and prob * share >= self.least:
                    heapq.heappush(frontier, (-prob * share, depth + 1, firsts[after], node, token, share, after))
            if not frontier or node == limit:
                return score, deepest, guesses
            negative, depth, first, parent, token, share, state = heapq.heappop(frontier)
            guesses.append((parent, token, share, first if own else -1))
            node, deepest, prob = node + 1, max(deepest, depth), -negative
            score += prob

    def note(self, tree: TokenTree) -> Note:
        """How many of the last tokens matched, and the sum of the nodes' path probabilities."""
        paths, probs = [1.0], tree.probs or (1.0,) * len(tree)
        for node in range(1, len(tree)):
            paths.append(paths[tree.parents[node]] * probs[node])
        return Note({"matched tokens": self._matched, "tokens expected": round(sum(paths[1:]), 2)})

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Take in what was said."""
        said = verdict.output(tree)
        self.own.extend(said)
        self._follow_past(said)

    def _follow_past(self, tokens: Sequence[int]) -> None:
        """Find the longest end of the text that earlier outputs have and go on after."""
        for token in tokens:
            self._past_end = self.past.follow(self._past_end, token)


def _likeliest(known: SuffixAutomaton, state: int) -> int:
    """The most frequent state after `state` but for ends of outputs, of equals the first seen; else `NOTHING`."""
    after = known.nexts[state]
    if after >= 0:
        return NOTHING if known.tokens[known.firsts[after]] == END else after
    if after == NOTHING:
        return NOTHING
    row = known.rows[state]
    after = max(row.values(), key=known.counts.__getitem__)
    if after == row.get(END):
        after = max((each for each in row.values() if each != after), key=known.counts.__getitem__)
    return after
