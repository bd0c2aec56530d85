"""The corpus's tables: built once, at first use; no n-gram spans two documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace

import pytest

from specrace.ngrams.counts import NGramCounts
from specrace.ngrams.sources import CorpusTables
from specrace.ngrams.suffix_index import SuffixIndex


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


def test_the_time_of_a_table_includes_tokenizing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(ms=0.0)
    monkeypatch.setattr("specrace.ngrams.sources.thread_ms", lambda: clock.ms)
    monkeypatch.setattr("specrace.ngrams.sources.since_ms", lambda began: clock.ms - began)

    def tokenize() -> list[list[int]]:
        clock.ms += 1.0
        return [[1, 2, 3]]

    class SlowCounts(NGramCounts):
        def extend_apart(self, texts: Iterable[Sequence[int]]) -> None:
            clock.ms += 20.0

    class SlowIndex(SuffixIndex):
        def __init__(self, documents: Iterable[Sequence[int]]) -> None:
            clock.ms += 300.0

    monkeypatch.setattr("specrace.ngrams.sources.NGramCounts", SlowCounts)
    monkeypatch.setattr("specrace.ngrams.sources.SuffixIndex", SlowIndex)
    tables = CorpusTables(tokenize)
    assert tables.counts_ms == tables.suffixes_ms == 0.0
    assert tables.counts is tables.counts and tables.suffixes is tables.suffixes
    assert (tables.counts_ms, tables.suffixes_ms) == (21.0, 301.0)
