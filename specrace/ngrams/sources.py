"""What drafters may draft from besides prompt and output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from specrace.core.clock import since_ms, thread_ms
from specrace.ngrams.counts import NGramCounts
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import SuffixIndex


@dataclass(frozen=True)
class Sources:
    """N-gram counts and a suffix index of the corpus, and `past`, the outputs of earlier requests to this target.

    `corpus_ms`, `corpus_index_ms`: the time it took to make them, which is on no lane's clock.
    """

    corpus: NGramCounts | None = None
    corpus_index: SuffixIndex | None = None
    past: PastOutputs | Iterable[Sequence[int]] = ()
    corpus_ms: float = 0.0
    corpus_index_ms: float = 0.0


class CorpusTables:
    """N-gram counts and a suffix index of a corpus, made at first use; `tokenize` returns the documents' tokens.

    `counts_ms`, `suffixes_ms`: the time it took to make them, tokenizing included; 0.0 until they are made.
    """

    def __init__(self, tokenize: Callable[[], list[list[int]]]) -> None:
        self._tokenize = tokenize
        self._tokens_ms = self.counts_ms = self.suffixes_ms = 0.0

    @cached_property
    def tokens(self) -> list[list[int]]:
        """The tokens of each document."""
        began = thread_ms()
        tokens = self._tokenize()
        self._tokens_ms = since_ms(began)
        return tokens

    @cached_property
    def counts(self) -> NGramCounts:
        """Bigram and trigram counts over all documents; no n-gram spans two of them."""
        tokens, counts, began = self.tokens, NGramCounts(), thread_ms()
        counts.extend_apart(tokens)
        self.counts_ms = self._tokens_ms + since_ms(began)
        return counts

    @cached_property
    def suffixes(self) -> SuffixIndex:
        """The suffix index of all documents."""
        tokens, began = self.tokens, thread_ms()
        index = SuffixIndex(tokens)
        self.suffixes_ms = self._tokens_ms + since_ms(began)
        return index
