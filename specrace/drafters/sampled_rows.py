"""Sampling draft tokens from count tables, with the distributions they were drawn from."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from specrace.core.rejection import draw, warp_probs
from specrace.core.sampling_params import SamplingParams
from specrace.ngrams.counts import Context, NGramCounts
from specrace.ngrams.dense import MAX_VOCABULARY, DenseCounts


class SampledRows:
    """Samples from the rows of `counts` over V tokens; for a small V it also stores the counts as dense arrays."""

    def __init__(
        self,
        counts: NGramCounts,
        vocab_size: int,
        smoothing: float,
        params: SamplingParams,
        random: np.random.Generator,
    ) -> None:
        self.counts = counts
        self.vocab_size = vocab_size
        self.smoothing = smoothing
        self.params = params
        self.random = random
        self._dense = DenseCounts(vocab_size, counts) if vocab_size <= MAX_VOCABULARY else None

    def extend(self, tokens: Iterable[int]) -> None:
        """Count output tokens in the dense arrays; the drafter counts them in `counts`."""
        if self._dense is not None:
            self._dense.extend(tokens)

    def smoothed(self, context: Context) -> np.ndarray:
        """The row of `context` with add-k smoothing, as a distribution [V]."""
        counts = self._row(context) + self.smoothing
        smoothed: np.ndarray = counts / counts.sum()
        return smoothed

    def draw(self, context: Context) -> tuple[int, np.ndarray]:
        """A token, and the distribution [V] it was drawn from: the smoothed row, warped like the target's."""
        probs = warp_probs(self.smoothed(context), self.params)
        return int(draw(probs, self.random.random())), probs

    def _row(self, context: Context) -> np.ndarray:
        """The counts of the tokens that followed `context`, [V]."""
        if self._dense is not None:
            return self._dense.row(context)
        row = self.counts.row(context)
        counts = np.zeros(self.vocab_size)
        counts[list(row)] = list(row.values())
        return counts
