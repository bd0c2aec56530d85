"""Fusion's sources beside copying: the corpus's n-gram rows, and the target's likely tokens at earlier nodes."""

from __future__ import annotations

from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.ngrams.backoff import ESCAPE, Estimate
from specrace.ngrams.counts import Context, NGramCounts

# Tokens kept of a row.
NUM_TOP = 8
# Half of what `RecyclingDrafter` gives each rank: here only contexts that no other source knows are left.
RANK_PROBS = tuple(0.25 * 0.5**rank for rank in range(NUM_TOP))


class CorpusRows:
    """Back-off from the corpus's trigrams to its bigrams, as in `BackoffModel`, over the likeliest of each row."""

    def __init__(self, counts: NGramCounts) -> None:
        self.counts = counts
        self._rows: dict[Context, tuple[list[tuple[int, float]], float]] = {}

    def successors(self, previous: int, current: int) -> Estimate:
        """The estimate after two tokens."""
        probs: dict[int, float] = {}
        mass = 1.0
        for context in ((previous, current), (current,)):
            row = self._rows.get(context)
            if row is None:
                row = self._rows[context] = self._read(context)
            for token, prob in row[0]:
                probs[token] = probs.get(token, 0.0) + mass * prob
            mass *= row[1]
        return probs, mass

    def _read(self, context: Context) -> tuple[list[tuple[int, float]], float]:
        """The likeliest tokens of a row with their probabilities, and the escape mass."""
        row = self.counts.row(context)
        total = sum(row.values()) + ESCAPE * len(row)
        likeliest = sorted(row.items(), key=lambda each: -each[1])[:NUM_TOP]
        return [(token, count / total) for token, count in likeliest], ESCAPE * len(row) / total if row else 1.0


class Recycled:
    """Token recycling (Luo et al., 2024): the target's likeliest tokens at the last node with each token."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, ...]] = {}

    def successors(self, current: int) -> Estimate:
        """The estimate after a token: 1/4 for the likeliest, half as much for each next."""
        probs = {token: RANK_PROBS[rank] for rank, token in enumerate(self.rows.get(current, ()))}
        return probs, 1.0 - sum(probs.values())

    def learn(self, tree: TokenTree, verdict: Verdict) -> None:
        """Take the target's tokens at every node; accepted nodes last, so that they overwrite the others."""
        scores = verdict.scores
        for node in (*range(len(tree)), *verdict.path):
            if scores.top is not None:
                self.rows[tree.tokens[node]] = scores.top[node][:NUM_TOP]
            elif scores.targets[node] >= 0:
                self.rows[tree.tokens[node]] = (scores.targets[node],)
