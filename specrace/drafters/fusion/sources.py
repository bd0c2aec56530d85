"""Fusion's sources besides copying: the corpus's n-gram rows, and the target's likely tokens at earlier nodes."""

from __future__ import annotations

from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.ngrams.backoff import ESCAPE, Estimate
from specrace.ngrams.counts import Context, NGramCounts

# How many tokens of a row are used.
NUM_TOP = 8
# The probability of each rank, by the number of tokens matched. After one token it is half of what `RecyclingDrafter`
# assumes, because this source is asked only where the other sources know little. After two tokens it is higher (no
# record says why by so much). Calibration corrects all of them.
RANK_PROBS = tuple(tuple(first * 0.5**rank for rank in range(NUM_TOP)) for first in (0.0, 0.25, 0.35))


class CorpusRows:
    """Back-off from the corpus's trigrams to its bigrams (see `BackoffModel`), over the likeliest tokens of a row.

    The escape mass is the probability left for tokens that are not in the row.
    """

    def __init__(self, counts: NGramCounts) -> None:
        self.counts = counts
        # Context -> its likeliest tokens with their probabilities, and the escape mass.
        self._rows: dict[Context, tuple[list[tuple[int, float]], float]] = {}

    def successors(self, previous: int, current: int) -> Estimate:
        """The estimate of the token after `previous` and `current`."""
        probs: dict[int, float] = {}
        mass = 1.0
        for context in ((previous, current), (current,)):
            row = self._rows.get(context)
            if row is None:
                row = self._rows[context] = self._read(context)
            likeliest, escape = row
            for token, prob in likeliest:
                probs[token] = probs.get(token, 0.0) + mass * prob
            mass *= escape
        return probs, mass

    def _read(self, context: Context) -> tuple[list[tuple[int, float]], float]:
        """The likeliest tokens of a row with their probabilities, and the escape mass."""
        row = self.counts.row(context)
        if not row:
            return [], 1.0
        total = sum(row.values()) + ESCAPE * len(row)
        likeliest = sorted(row.items(), key=lambda entry: -entry[1])[:NUM_TOP]
        return [(token, count / total) for token, count in likeliest], ESCAPE * len(row) / total


class Recycled:
    """Token recycling (Luo et al., 2024): the target's likeliest tokens at the last node with each token.

    RACER (Zhang et al., 2026, arXiv 2604.14885) calls the logits at a token's last occurrence copy-logits. Unlike in
    RACER, the prompt's tokens have none here. With `copy`, the last occurrence of the last two tokens comes first.
    """

    # The prior of the calibration: this number of expected hits, all of which came.
    PRIOR = 4.0

    def __init__(self, *, copy: bool = False) -> None:
        self.longest = 2 if copy else 1
        self.rows: dict[Context, tuple[int, ...]] = {}
        # Hits, and hits expected from the estimates, by the number of tokens matched.
        self.hits = [self.PRIOR] * 3
        self.expected = [self.PRIOR] * 3

    def row(self, previous: int, current: int) -> tuple[int, tuple[int, ...]]:
        """The number of tokens matched (2, 1 or 0), and the target's likeliest tokens after them."""
        for context in ((previous, current), (current,)):
            if (row := self.rows.get(context)) is not None:
                return len(context), row
        return 0, ()

    def successors(self, previous: int, current: int) -> Estimate:
        """The calibrated estimate of the token after two tokens; each rank is half as likely as the one before."""
        matched, row = self.row(previous, current)
        factor = self.hits[matched] / self.expected[matched]
        probs = {token: factor * prob for token, prob in zip(row, RANK_PROBS[matched], strict=False)}
        return probs, max(0.0, 1.0 - sum(probs.values()))

    def calibrate(self, previous: int, current: int, token: int) -> None:
        """Learn that `token` came after `previous` and `current`, where a copy had expected another token."""
        matched, row = self.row(previous, current)
        self.hits[matched] += token in row
        self.expected[matched] += sum(RANK_PROBS[matched][: len(row)])

    def learn(self, tree: TokenTree, verdict: Verdict, previous: int = -1) -> None:
        """Store the target's likeliest tokens at every node, accepted nodes last, so that they overwrite the others.

        `previous`: the token before the root, or -1.
        """
        scores, tokens = verdict.scores, tree.tokens
        for node in (*range(len(tree)), *verdict.path):
            if scores.top is not None:
                row = scores.top[node][:NUM_TOP]
            elif scores.targets[node] >= 0:
                row = (scores.targets[node],)
            else:
                continue
            self.rows[(tokens[node],)] = row
            if self.longest > 1:
                before = tokens[tree.parents[node]] if node else previous
                self.rows[before, tokens[node]] = row
