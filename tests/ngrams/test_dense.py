"""Dense tables hold what the sparse counts hold, at the start and as the text grows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specrace.ngrams.counts import NGramCounts
from specrace.ngrams.dense import DenseCounts

VOCAB = 4
TEXT = st.lists(st.integers(0, VOCAB - 1), max_size=30)
CONTEXTS = [(a,) for a in range(VOCAB)] + [(a, b) for a in range(VOCAB) for b in range(VOCAB)]


@given(corpus=TEXT, prompt=TEXT, output=TEXT)
def test_dense_rows_equal_the_sparse_rows(corpus: list[int], prompt: list[int], output: list[int]) -> None:
    """The rows agree for n-grams of the corpus and of the text, also across the boundary of prompt and output."""
    below = NGramCounts()
    below.extend_apart([corpus])
    counts = NGramCounts(below=below)
    counts.extend(prompt)
    dense = DenseCounts(VOCAB, counts)
    for added in ([], output[:1], output[1:]):
        counts.extend(added)
        dense.extend(added)
        for context in CONTEXTS:
            row = counts.row(context)
            assert dense.row(context).tolist() == [row.get(token, 0) for token in range(VOCAB)]
            assert counts.total(context) == sum(row.values())


def test_tables_are_arrays_of_32_bit_integers() -> None:
    dense = DenseCounts(VOCAB, NGramCounts())
    assert (dense.bigrams.shape, dense.trigrams.shape) == ((VOCAB,) * 2, (VOCAB,) * 3)
    assert dense.bigrams.dtype == dense.trigrams.dtype == "int32"
