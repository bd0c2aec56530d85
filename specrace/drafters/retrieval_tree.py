"""RACER's retrieval tree (Zhang et al., 2026): what followed the last tokens earlier, the most frequent first.

Source: "RACER: Retrieval-Augmented Contextual Rapid Speculative Decoding" (arXiv 2604.14885) and its code, hkr04/RACER
at fc494a3, `racer/automaton/src/automaton.cpp`. A suffix automaton replaces the code's Aho-Corasick automaton of 10,000
nodes: the n-grams are the same, and none is forgotten.
"""

from __future__ import annotations

import heapq

from specrace.core.tree import TreeBuilder
from specrace.ngrams.automaton import SuffixAutomaton

# The published values: n-grams of up to 10 tokens, of which at least 2 match.
MAX_NGRAM, MIN_MATCH = 10, 2
# (-occurrences, depth, order of discovery, parent, token, state, length)
_Candidate = tuple[int, int, int, int, int, int, int]


def add_retrieved(builder: TreeBuilder, text: SuffixAutomaton, max_nodes: int) -> None:
    """Add up to `max_nodes` nodes below the root: continuations of every suffix of `text` that occurred earlier.

    The continuations of all suffixes of at least `MIN_MATCH` tokens are pooled, and the most frequent ones are added.
    Ties go to the shallower node, then to the continuation of the longer suffix. A parent occurs at least as often as
    its child, so parents come first.

    >>> builder = TreeBuilder(2)
    >>> add_retrieved(builder, SuffixAutomaton(MAX_NGRAM, [1, 2, 3, 1, 2, 3, 1, 2, 5, 1, 2]), max_nodes=2)
    >>> builder.tokens, builder.parents  # 1 2 was followed by 3 twice, and then by 1 both times
    ([2, 3, 1], [-1, 0, 1])
    """
    heap: list[_Candidate] = []
    pushed = 0

    def push(parent: int, depth: int, state: int, length: int) -> None:
        nonlocal pushed
        for token, following in text.successors(state):
            pushed += 1
            heapq.heappush(heap, (-text.counts[following], depth, pushed, parent, token, following, length + 1))

    state, length = text.suffix()
    while length >= MIN_MATCH:
        shorter = text.lengths[text.links[state]]
        # Suffixes that share a state have the same continuations. After the shortest suffix the draft can be longest,
        # because match and draft together have at most `MAX_NGRAM` tokens.
        push(0, 1, state, max(MIN_MATCH, shorter + 1))
        state, length = text.links[state], shorter
    while heap and len(builder.tokens) <= max_nodes:
        _, depth, _, parent, token, state, length = heapq.heappop(heap)
        node = builder.add(parent, token, position=text.firsts[state])
        if length < text.n:  # the longest n-gram that `text` counts
            push(node, depth + 1, state, length)
