"""Drafts drawn from count tables: smoothed rows, the sampling rule's warpers, and the distributions that were used."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from specrace.core.rejection import draw, warp_probs
from specrace.core.sampling_params import SamplingParams
from specrace.ngrams.counts import Context, NGramCounts
from specrace.ngrams.dense import LARGEST_VOCABULARY, DenseCounts


class SampledRows:
    """Draws from the rows of `counts` over a vocabulary of V tokens; dense for small ones, else as they are needed."""

    def __init__(
        self,
        counts: NGramCounts,
        vocab_size: int,
        smoothing: float,
        params: SamplingParams,
        random: np.random.Generator,
    ) -> None:
        self.counts, self.vocab_size, self.smoothing = counts, vocab_size, smoothing
        self.params, self.random = params, random
        self._dense = DenseCounts(vocab_size, counts) if vocab_size <= LARGEST_VOCABULARY else None

    def extend(self, tokens: Iterable[int]) -> None:
        """Take in what was said; the sparse counts are the drafter's own and have it already."""
        if self._dense is not None:
            self._dense.extend(tokens)

    def smoothed(self, context: Context) -> np.ndarray:
        """The row of `context` with add-k smoothing, as a distribution [V]."""
        counts = self._row(context) + self.smoothing
        smoothed: np.ndarray = counts / counts.sum()
        return smoothed

    def draw(self, context: Context) -> tuple[int, np.ndarray]:
        """A token, and the very distribution [V] that it was drawn from: the row, smoothed, then warped."""
        probs = warp_probs(self.smoothed(context), self.params)
        return int(draw(probs, self.random.random())), probs

    def _row(self, context: Context) -> np.ndarray:
        if self._dense is not None:
            return self._dense.row(context)
        row = self.counts.row(context)
        counts = np.zeros(self.vocab_size)
        counts[list(row)] = list(row.values())
        return counts
