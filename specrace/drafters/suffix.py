"""Suffix decoding (Oliaro et al., 2024; Arctic Inference): follow the counts after every match length, keep the best.

Two tries, one of this request's prompt and output and one of past outputs. A node's probability is its count over its
parent's. As in Arctic's code the end of the text counts as one more occurrence that does not go on, so what was seen
once is expected with 1/2.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Annotated

from specrace.drafters.base import Bounds, Flag, Material
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import END
from specrace.ngrams.trie import Match, NGramTrie
from specrace.note import Note
from specrace.tree import TokenTree, TreeBuilder
from specrace.verify import Verdict

# (parent, token, probability given the parent, position)
Guess = tuple[int, int, float, int]
# The sum of the path probabilities, and the guesses.
Draft = tuple[float, list[Guess]]


class SuffixDrafter:
    """The draft with the highest sum of probabilities; longer matches may draft more."""

    def __init__(
        self,
        material: Material,
        *,
        depth: Annotated[int, Bounds(2, 64, "depth of the tries: match and draft, in tokens")] = 64,
        factor: Annotated[int, Bounds(1, 64, "draft tokens for each matched token")] = 1,
        min_percent: Annotated[int, Bounds(1, 100, "least probability of a drafted path, in percent")] = 10,
        tree: Annotated[bool, Flag("draft the likeliest tree, not the likeliest path")] = False,
    ) -> None:
        self.depth, self.factor, self.least, self.tree = depth, factor, min_percent / 100, tree
        self.own = NGramTrie(depth, material.prompt)
        self.past = PastOutputs.of(material.past).trie(depth)
        self._matched = 0

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """The better draft of the two tries, the request's own where they are equal."""
        best: Draft = (0.0, [])
        self._matched = 0
        for trie in (self.own, self.past):
            # Ties go to the longer match. None shorter can win once the best scores what it might draft.
            for match in self._matches(trie, context):
                limit = min(budget, match.length * self.factor)
                if limit <= best[0]:
                    break
                draft = (self._likeliest_tree if self.tree else self._likeliest_path)(trie, match, limit)
                if draft[0] > best[0]:
                    best, self._matched = draft, match.length
        builder = TreeBuilder(context[-1])
        for guess in best[1]:
            builder.add(*guess)
        return builder.build()

    def _matches(self, trie: NGramTrie, context: Sequence[int]) -> Iterator[Match]:
        """Where the last ..., 2, 1 tokens lead, from the most on after which the trie goes on."""

        def find(length: int) -> Match | None:
            match = trie.find(context[-length:])
            return match if match is not None and trie.goes_on(match) else None

        # Where the trie goes on after many tokens it does so after fewer: the lengths that match come first.
        lengths = range(1, min(self.depth - 1, len(context)) + 1)
        longest = bisect_left(lengths, True, key=lambda length: find(length) is None)
        for length in range(longest, 0, -1):
            match = find(length)
            assert match is not None, "a longer one was found"
            yield match

    def _likeliest_path(self, trie: NGramTrie, match: Match, limit: int) -> Draft:
        """The likeliest node under `match`, the likeliest under that, and so on, at most `limit`."""
        guesses: list[Guess] = []
        score, prob = 0.0, 1.0
        while len(guesses) < limit and (found := trie.likeliest(match, END)) is not None:
            token, place = found
            share = trie.weight(place) / trie.weight(match)
            prob *= share
            if prob < self.least:
                break
            guesses.append((len(guesses), token, share, trie.position(place) if trie is self.own else -1))
            score += prob
            match = place
        return score, guesses

    def _likeliest_tree(self, trie: NGramTrie, match: Match, limit: int) -> Draft:
        """The likeliest nodes under `match`, at most `limit`.

        Best first, so a parent comes before its child. Ties: the shallower, then the earlier in the text.
        """
        guesses: list[Guess] = []
        score = 0.0
        frontier: list[tuple[float, int, int, int, int, float, Match]] = []

        def push(place: Match, node: int, prob: float) -> None:
            for token, child in trie.children(place).items():
                share = trie.weight(child) / trie.weight(place)
                if token != END and prob * share >= self.least:
                    # (depth, position) is unique to a place, so places are never compared.
                    entry = (-prob * share, child.length, trie.position(child), node, token, share, child)
                    heapq.heappush(frontier, entry)

        push(match, 0, 1.0)
        while frontier and len(guesses) < limit:
            negative, _, position, parent, token, share, place = heapq.heappop(frontier)
            guesses.append((parent, token, share, position if trie is self.own else -1))
            score -= negative
            push(place, len(guesses), -negative)
        return score, guesses

    def note(self, tree: TokenTree) -> Note:
        """How many of the last tokens matched, and the sum of the nodes' path probabilities."""
        paths, probs = [1.0], tree.probs or (1.0,) * len(tree)
        for node in range(1, len(tree)):
            paths.append(paths[tree.parents[node]] * probs[node])
        return Note({"matched tokens": self._matched, "tokens expected": round(sum(paths[1:]), 2)})

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Add what was said to the request's own trie."""
        self.own.extend(tree.tokens[node] for node in verdict.path[1:])
        self.own.extend((verdict.bonus,))
