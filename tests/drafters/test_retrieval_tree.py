"""RACER's retrieval tree: worked examples, and a comparison with counts of every n-gram of the text."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from specrace.core.tree import TokenTree, TreeBuilder
from specrace.drafters.retrieval_tree import MAX_NGRAM, MIN_MATCH, add_retrieved
from specrace.ngrams.automaton import SuffixAutomaton


def retrieved(text: list[int], max_nodes: int) -> TokenTree:
    """The tree that `add_retrieved` builds below the last token of `text`."""
    builder = TreeBuilder(text[-1])
    add_retrieved(builder, SuffixAutomaton(MAX_NGRAM, text), max_nodes)
    return builder.build()


def paths(tree: TokenTree) -> set[tuple[int, ...]]:
    """The draft tokens from the root to each draft node."""
    return {tuple(tree.tokens[ancestor] for ancestor in tree.path_to(node)[1:]) for node in range(1, len(tree))}


def test_continuations_are_ranked_by_count_then_depth_then_suffix_length() -> None:
    """1 2 3 was followed by 4 once; 2 3 by 6 twice and by 4 once; 2 3 6 by 8 once and by 1 once."""
    text = [1, 2, 3, 4, 8, 2, 3, 6, 8, 2, 3, 6, 1, 2, 3]
    tree = retrieved(text, 5)
    assert tree.tokens == (3, 6, 4, 8, 1, 8) and tree.parents == (-1, 0, 0, 1, 1, 2)
    assert tree.positions == (-1, 7, 3, 8, 12, 4)
    assert [retrieved(text, max_nodes).tokens for max_nodes in range(3)] == [(3,), (3, 6), (3, 6, 4)]


def test_a_match_needs_two_tokens() -> None:
    assert retrieved([1, 2, 3, 9, 2], 9).num_draft == 0
    assert retrieved([1, 2, 3, 1, 2], 9).tokens == (2, 3, 1, 2)
    assert retrieved([1], 9).num_draft == retrieved([1, 1], 9).num_draft == 0


def test_match_and_draft_have_at_most_ten_tokens() -> None:
    """After the shortest match, of two tokens, the draft has eight."""
    assert retrieved([*range(30), 9, 3, 4], 99).tokens == (4, *range(5, 13))
    # Nine tokens match, but so does their suffix of two tokens, which allows a longer draft.
    assert retrieved([*range(30), *range(9)], 99).tokens == (8, *range(9, 17))


PHRASES = st.sampled_from([(*range(12),), (3, 4), (2,), (5, 6, 2)])


@given(st.lists(PHRASES, min_size=1, max_size=9), st.integers(1, 12), st.integers(0, 20))
@settings(deadline=None)
def test_the_most_frequent_continuations_are_drafted(phrases: list[tuple[int, ...]], end: int, max_nodes: int) -> None:
    """The draft holds the most frequent continuations of the last two tokens, up to `max_nodes`."""
    text = [token for phrase in (*phrases, tuple(range(end))) for token in phrase]
    ngrams: Counter[tuple[int, ...]] = Counter()
    for size in range(MIN_MATCH + 1, MAX_NGRAM + 1):
        ngrams.update(tuple(text[start : start + size]) for start in range(len(text) - size + 1))
    suffix = tuple(text[-MIN_MATCH:])
    counts = {ngram[MIN_MATCH:]: count for ngram, count in ngrams.items() if ngram[:MIN_MATCH] == suffix}
    drafted = paths(retrieved(text, max_nodes))
    assert drafted <= set(counts) and len(drafted) == min(max_nodes, len(counts))
    highest_counts = sorted(counts.values(), reverse=True)[: len(drafted)]
    assert sorted((counts[path] for path in drafted), reverse=True) == highest_counts
