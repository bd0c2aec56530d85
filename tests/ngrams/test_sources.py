"""The corpus's tables: made once, at first use, of texts that stay apart."""

from __future__ import annotations

from specrace.ngrams.sources import CorpusTables


def test_tables_are_made_of_documents_that_are_tokenized_once_and_late() -> None:
    calls = []

    def tokenize() -> list[list[int]]:
        calls.append(1)
        return [[1, 2, 3], [4, 2, 5]]

    tables = CorpusTables(tokenize)
    assert not calls
    assert tables.counts.row((2,)) == {3: 1, 5: 1}
    assert tables.counts.row((3,)) == {}  # the next document begins with 4
    assert sorted(tables.suffixes.positions_after([2], 9).tolist()) == [2, 6]  # behind 3 the first document ends
    assert tables.counts is tables.counts and tables.suffixes is tables.suffixes and len(calls) == 1
