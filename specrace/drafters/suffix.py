"""Suffix decoding (Oliaro et al., 2024; Arctic Inference): follow the counts after every match length, keep the best.

Two tries, one of this request's prompt and output and one of past outputs. A node's probability is its count over its
parent's. As in Arctic's code the end of the text counts as one more occurrence that does not go on, so what was seen
once is expected with 1/2.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Annotated

from specrace.drafters.base import Bounds, Flag, Material
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import END
from specrace.ngrams.trie import Match, NGramTrie
from specrace.note import Note
from specrace.tree import TokenTree, TreeBuilder
from specrace.verify import Verdict

Draft = tuple[float, TreeBuilder]


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
        best: Draft = (0.0, TreeBuilder(context[-1]))
        self._matched = 0
        for trie in (self.own, self.past):
            # Ties go to the longer match. None shorter can win once the best scores what it might draft.
            for match in reversed(self._matches(trie, context)):
                limit = min(budget, match.length * self.factor)
                if limit <= best[0]:
                    break
                draft = self._draft(trie, match, context[-1], limit)
                if draft[0] > best[0]:
                    best, self._matched = draft, match.length
        return best[1].build()

    def _matches(self, trie: NGramTrie, context: Sequence[int]) -> list[Match]:
        """Where the last 1, 2, ... tokens lead, as long as the trie goes on there."""
        found = []
        for length in range(1, min(self.depth - 1, len(context)) + 1):
            match = trie.find(context[-length:])
            if match is None or not trie.children(match):
                break
            found.append(match)
        return found

    def _draft(self, trie: NGramTrie, match: Match, root: int, limit: int) -> Draft:
        """The likeliest nodes under `match`, at most `limit`, and the sum of their probabilities.

        Best first, so a parent comes before its child. Ties: the shallower, then the earlier in the text.
        """
        builder, score = TreeBuilder(root), 0.0
        frontier: list[tuple[float, int, int, int, int, float, Match]] = []

        def push(place: Match, node: int, prob: float) -> None:
            children = [(token, child) for token, child in trie.children(place).items() if token != END]
            if not self.tree:
                # The first among equals is the one that was seen first.
                children = [max(children, key=lambda each: trie.weight(each[1]))] if children else []
            for token, child in children:
                share = trie.weight(child) / trie.weight(place)
                if prob * share >= self.least:
                    # (depth, position) is unique to a place, so places are never compared.
                    entry = (-prob * share, child.length, trie.position(child), node, token, share, child)
                    heapq.heappush(frontier, entry)

        push(match, 0, 1.0)
        while frontier and len(builder) <= limit:
            negative, _, position, parent, token, share, place = heapq.heappop(frontier)
            node = builder.add(parent, token, share, position if trie is self.own else -1)
            score -= negative
            push(place, node, -negative)
        return score, builder

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
