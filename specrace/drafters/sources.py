"""What fusion asks beside the text itself: rows of the corpus, and what the target said at nodes that it rejected."""

from __future__ import annotations

from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.ngrams.backoff import ESCAPE, Estimate
from specrace.ngrams.counts import NGramCounts

# Of a row of the corpus, or of what the target thought likely, so many are worth a guess.
NUM_TOP = 8


class CorpusRows:
    """What follows two tokens, and one, in the corpus: the few likeliest, estimated as by `BackoffModel`."""

    def __init__(self, counts: NGramCounts) -> None:
        self.counts = counts
        self._rows: dict[tuple[int, ...], tuple[list[tuple[int, float]], float]] = {}

    def successors(self, previous: int, current: int) -> Estimate:
        """The probability of each token after the two, and what is left for all others."""
        probs: dict[int, float] = {}
        rest = 1.0
        for context in ((previous, current), (current,)):
            known = self._rows.get(context)
            if known is None:
                known = self._rows[context] = self._read(context)
            for token, prob in known[0]:
                probs[token] = probs.get(token, 0.0) + rest * prob
            rest *= known[1]
        return probs, rest

    def _read(self, context: tuple[int, ...]) -> tuple[list[tuple[int, float]], float]:
        """The likeliest tokens of a row with their probabilities, and what is left."""
        row = self.counts.row(context)
        total = sum(row.values()) + ESCAPE * len(row)
        likeliest = sorted(row.items(), key=lambda each: -each[1])[:NUM_TOP]
        return [(token, count / total) for token, count in likeliest], ESCAPE * len(row) / total if row else 1.0


class Recycled:
    """The target's likeliest tokens after each token, from the last node that carried it (Luo et al., 2024)."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, ...]] = {}

    def successors(self, current: int) -> Estimate:
        """A quarter for the likeliest, half as much for each next: half of what `RecyclingDrafter` takes them for.

        They stood after this token elsewhere, in a context that no other source knows anything of.
        """
        probs = {token: 0.25 * 0.5**rank for rank, token in enumerate(self.rows.get(current, ()))}
        return probs, 1.0 - sum(probs.values())

    def learn(self, tree: TokenTree, verdict: Verdict) -> None:
        """Take over what the target said at every node; a node of the accepted path counts before all others."""
        scores = verdict.scores
        for node in (*range(len(tree)), *verdict.path):
            if scores.top is not None:
                self.rows[tree.tokens[node]] = scores.top[node][:NUM_TOP]
            elif scores.targets[node] >= 0:
                self.rows[tree.tokens[node]] = (scores.targets[node],)
