"""Counts of bigrams and trigrams against a brute-force reference; layers add up and do not change each other."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from specrace.ngrams.counts import NGramCounts

TEXT = st.lists(st.integers(0, 3), max_size=30)


def brute_force(text: list[int], context: tuple[int, ...]) -> dict[int, int]:
    """How often each token followed `context` in the text."""
    size = len(context)
    windows = [tuple(text[i : i + size + 1]) for i in range(len(text) - size)]
    return dict(Counter(window[-1] for window in windows if window[:-1] == context))


CONTEXTS = [(a,) for a in range(4)] + [(a, b) for a in range(4) for b in range(4)]


@given(TEXT, st.integers(0, 30))
def test_rows_count_every_ngram_of_a_text_added_in_two_parts(text: list[int], cut: int) -> None:
    counts = NGramCounts()
    counts.extend(text[:cut])
    counts.extend(iter(text[cut:]))
    assert all(counts.row(context) == brute_force(text, context) for context in CONTEXTS)


@given(st.lists(TEXT, max_size=4))
def test_no_ngram_spans_two_separate_texts(texts: list[list[int]]) -> None:
    counts = NGramCounts()
    counts.extend_apart(texts)
    for context in CONTEXTS:
        expected: Counter[int] = Counter()
        for text in texts:
            expected.update(brute_force(text, context))
        assert counts.row(context) == dict(expected)


@given(TEXT, TEXT)
def test_a_layer_adds_to_the_one_below_without_changing_it(corpus: list[int], text: list[int]) -> None:
    below = NGramCounts()
    below.extend_apart([corpus])
    above = NGramCounts(below=below)
    above.extend(text)
    for context in CONTEXTS:
        expected = Counter(brute_force(corpus, context)) + Counter(brute_force(text, context))
        assert above.row(context) == dict(expected)
        assert below.row(context) == brute_force(corpus, context)


def test_no_ngram_spans_corpus_and_text() -> None:
    below = NGramCounts()
    below.extend_apart([[1, 2]])
    above = NGramCounts(below=below)
    above.extend([3])
    assert above.row((2,)) == {} and above.row((1, 2)) == {}


def test_equal_counts_keep_the_order_of_first_occurrence() -> None:
    below = NGramCounts()
    below.extend_apart([[7, 5], [7, 9]])
    above = NGramCounts(below=below)
    above.extend([7, 1])
    assert list(above.row((7,))) == [5, 9, 1]


def test_a_text_added_after_separate_texts_starts_without_a_context() -> None:
    counts = NGramCounts()
    counts.extend_apart([[1, 2], [3]])
    assert counts.last == ()
    counts.extend([4])
    counts.extend([5, 6])
    assert counts.last == (5, 6)
    assert counts.row((3,)) == {} and counts.row((4, 5)) == {6: 1}
    assert (counts.total((4,)), counts.total((6,))) == (1, 0)
