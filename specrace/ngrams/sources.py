"""What drafters may draft from besides prompt and output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from specrace.ngrams.counts import NGramCounts
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import SuffixIndex


@dataclass(frozen=True)
class Sources:
    """N-gram counts and a suffix index of the corpus, and `past`, the outputs of earlier requests to this target."""

    corpus: NGramCounts | None = None
    corpus_index: SuffixIndex | None = None
    past: PastOutputs | Iterable[Sequence[int]] = ()


class CorpusTables:
    """N-gram counts and a suffix index of a corpus, made at first use; `tokenize` returns the documents' tokens."""

    def __init__(self, tokenize: Callable[[], list[list[int]]]) -> None:
        self._tokenize = tokenize

    @cached_property
    def tokens(self) -> list[list[int]]:
        """The tokens of each document."""
        return self._tokenize()

    @cached_property
    def counts(self) -> NGramCounts:
        """Bigram and trigram counts over all documents; no n-gram spans two of them."""
        counts = NGramCounts()
        counts.extend_apart(self.tokens)
        return counts

    @cached_property
    def suffixes(self) -> SuffixIndex:
        """The suffix index of all documents."""
        return SuffixIndex(self.tokens)
