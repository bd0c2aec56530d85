"""What drafters may draft from beside the prompt and the output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from specrace.ngrams.counts import NGramCounts
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import SuffixIndex


@dataclass(frozen=True)
class Sources:
    """The n-gram counts and the suffix index of a corpus, and `past`, outputs of earlier requests to this target."""

    corpus: NGramCounts | None = None
    corpus_index: SuffixIndex | None = None
    past: PastOutputs | Iterable[Sequence[int]] = ()


class CorpusTables:
    """N-gram counts and suffix index of a corpus, each made at first use; `tokenize` gives the tokens by document."""

    def __init__(self, tokenize: Callable[[], list[list[int]]]) -> None:
        self._tokenize = tokenize

    @cached_property
    def tokens(self) -> list[list[int]]:
        """The tokens of each document."""
        return self._tokenize()

    @cached_property
    def counts(self) -> NGramCounts:
        """Bigram and trigram counts over all documents, none across two."""
        counts = NGramCounts()
        counts.extend_apart(self.tokens)
        return counts

    @cached_property
    def suffixes(self) -> SuffixIndex:
        """The suffix index of all documents."""
        return SuffixIndex(self.tokens)
