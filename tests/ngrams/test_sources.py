"""The corpus's tables: built once, at first use; no n-gram spans two documents."""

from __future__ import annotations

from specrace.ngrams.sources import CorpusTables


def test_documents_are_tokenized_once_at_first_use() -> None:
    calls = []

    def tokenize() -> list[list[int]]:
        calls.append(1)
        return [[1, 2, 3], [4, 2, 5]]

    tables = CorpusTables(tokenize)
    assert not calls
    assert tables.counts.row((2,)) == {3: 1, 5: 1}
    assert tables.counts.row((3,)) == {}  # the next document begins with 4
    # Index 3 is the END of the first document.
    assert sorted(tables.suffixes.positions_after([2], 9).tolist()) == [2, 6]
    assert tables.counts is tables.counts and tables.suffixes is tables.suffixes and len(calls) == 1
