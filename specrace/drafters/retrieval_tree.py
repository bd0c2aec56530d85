"""RACER's retrieval tree (Zhang et al., 2026): what followed the last tokens before, the most frequent first.

After the code of "RACER: Retrieval-Augmented Contextual Rapid Speculative Decoding" (arXiv 2604.14885), hkr04/RACER at
fc494a3, `racer/automaton/src/automaton.cpp`. A suffix automaton takes the place of its Aho-Corasick automaton of 10,000
nodes: the n-grams are the same, and none is forgotten.
"""

from __future__ import annotations

import heapq

from specrace.core.tree import TreeBuilder
from specrace.ngrams.automaton import SuffixAutomaton

# As published: n-grams of up to 10 tokens, of which at least 2 match.
NGRAM, SHORTEST = 10, 2
# (-occurrences, depth, order of discovery, parent, token, state, length)
_Candidate = tuple[int, int, int, int, int, int, int]


def add_retrieved(builder: TreeBuilder, text: SuffixAutomaton, most: int) -> None:
    """Add up to `most` nodes below the root: continuations of every suffix of `text` that occurred before.

    The continuations of all suffixes of `SHORTEST` tokens or more are pooled, and the most frequent n-grams taken;
    ties: the shallower, then those of the longer suffix. A parent occurs as often as its child, so it comes first.
    """
    heap: list[_Candidate] = []
    pushed = 0

    def push(parent: int, depth: int, state: int, length: int) -> None:
        nonlocal pushed
        for token, following in text.successors(state):
            pushed += 1
            heapq.heappush(heap, (-text.counts[following], depth, pushed, parent, token, following, length + 1))

    state, length = text.suffix()
    while length >= SHORTEST:
        shorter = text.lengths[text.links[state]]
        # Suffixes that share a state were followed by the same: the shortest leaves most of an n-gram's length.
        push(0, 1, state, max(SHORTEST, shorter + 1))
        state, length = text.links[state], shorter
    while heap and len(builder.tokens) <= most:
        _, depth, _, parent, token, state, length = heapq.heappop(heap)
        node = builder.add(parent, token, position=text.firsts[state])
        if length < text.n:
            push(node, depth + 1, state, length)
