"""RACER's retrieval tree: by hand, and against counting every n-gram of the text."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from specrace.core.tree import TokenTree, TreeBuilder
from specrace.drafters.retrieval_tree import NGRAM, SHORTEST, add_retrieved
from specrace.ngrams.automaton import SuffixAutomaton


def retrieved(text: list[int], max_nodes: int) -> TokenTree:
    builder = TreeBuilder(text[-1])
    add_retrieved(builder, SuffixAutomaton(NGRAM, text), max_nodes)
    return builder.build()


def paths(tree: TokenTree) -> set[tuple[int, ...]]:
    """The draft tokens from the root to each draft node."""
    return {tuple(tree.tokens[ancestor] for ancestor in tree.path_to(node)[1:]) for node in range(1, len(tree))}


def test_the_most_frequent_first_then_the_shallower_then_after_the_longer_suffix() -> None:
    """After 1 2 3 came 4. After 2 3 came 6 twice, and 4. After 2 3 6 came 8 and 1, once each."""
    text = [1, 2, 3, 4, 8, 2, 3, 6, 8, 2, 3, 6, 1, 2, 3]
    tree = retrieved(text, 5)
    assert tree.tokens == (3, 6, 4, 8, 1, 8) and tree.parents == (-1, 0, 0, 1, 1, 2)
    assert tree.positions == (-1, 7, 3, 8, 12, 4)
    assert [retrieved(text, max_nodes).tokens for max_nodes in range(3)] == [(3,), (3, 6), (3, 6, 4)]


def test_a_single_token_does_not_match() -> None:
    assert retrieved([1, 2, 3, 9, 2], 9).num_draft == 0
    assert retrieved([1, 2, 3, 1, 2], 9).tokens == (2, 3, 1, 2)
    assert retrieved([1], 9).num_draft == retrieved([1, 1], 9).num_draft == 0


def test_an_n_gram_has_ten_tokens() -> None:
    """Two of them match, so a draft is eight deep."""
    assert retrieved([*range(30), 9, 3, 4], 99).tokens == (4, *range(5, 13))
    assert retrieved([*range(30), *range(9)], 99).tokens == (8, *range(9, 17))


PHRASES = st.sampled_from([(*range(12),), (3, 4), (2,), (5, 6, 2)])


@given(st.lists(PHRASES, min_size=1, max_size=9), st.integers(1, 12), st.integers(0, 20))
@settings(deadline=None)
def test_any_text_against_counting(phrases: list[tuple[int, ...]], end: int, max_nodes: int) -> None:
    """The draft holds the most frequent continuations of the last two tokens, up to `max_nodes`."""
    text = [token for phrase in (*phrases, tuple(range(end))) for token in phrase]
    grams: Counter[tuple[int, ...]] = Counter()
    for size in range(SHORTEST + 1, NGRAM + 1):
        grams.update(tuple(text[start : start + size]) for start in range(len(text) - size + 1))
    suffix = tuple(text[-SHORTEST:])
    count_after = {gram[SHORTEST:]: occurrences for gram, occurrences in grams.items() if gram[:SHORTEST] == suffix}
    chosen = paths(retrieved(text, max_nodes))
    assert chosen <= set(count_after) and len(chosen) == min(max_nodes, len(count_after))
    assert (
        sorted(count_after[path] for path in chosen) == sorted(count_after.values())[len(count_after) - len(chosen) :]
    )
