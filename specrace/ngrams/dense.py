"""Counts of bigrams and trigrams as arrays, for small vocabularies: 65 characters make a table of 65 x 65 x 65."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from specrace.ngrams.counts import Context, NGramCounts

# The trigram table then takes at most 8.4 MB.
MAX_VOCABULARY = 128


class DenseCounts:
    """A copy of `counts` over a vocabulary of V tokens: `bigrams` [V, V] and `trigrams` [V, V, V], int32."""

    def __init__(self, vocab_size: int, counts: NGramCounts) -> None:
        self.bigrams = np.zeros((vocab_size,) * 2, dtype=np.int32)
        self.trigrams = np.zeros((vocab_size,) * 3, dtype=np.int32)
        for context, row in counts.rows():
            self.row(context)[list(row)] += np.array(list(row.values()), dtype=np.int32)
        self._last = counts.last

    def extend(self, tokens: Iterable[int]) -> None:
        """Count `tokens` as the continuation of the tokens counted before."""
        for token in tokens:
            if self._last:
                self.bigrams[self._last[-1], token] += 1
            if len(self._last) == 2:
                self.trigrams[(*self._last, token)] += 1
            self._last = (*self._last[-1:], token)

    def row(self, context: Context) -> np.ndarray:
        """The counts [V] of all tokens after `context` (1 or 2 tokens), as a view."""
        table = self.bigrams if len(context) == 1 else self.trigrams
        row: np.ndarray = table[context]
        return row
