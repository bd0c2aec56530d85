"""What drafters may draft from beside the prompt and the output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specrace.ngrams.counts import NGramCounts
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import SuffixIndex


@dataclass(frozen=True)
class Sources:
    """The n-gram counts and the suffix index of a corpus, and `past`, outputs of earlier requests to this target."""

    corpus: NGramCounts | None = None
    corpus_index: SuffixIndex | None = None
    past: PastOutputs | Iterable[Sequence[int]] = ()
