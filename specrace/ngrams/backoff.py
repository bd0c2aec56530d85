"""Variable-order back-off: what comes next, by everything that ever followed the last 1, 2, ... tokens of a text.

The estimate is Witten and Bell's (1991, method C, with a weight of its own), interpolated over all orders as in
prediction by partial matching: a context that was seen C times with D different successors says C / (C + a * D) of
what comes next, in proportion to its counts, and leaves the rest to the context that is one token shorter. What no
context accounts for goes by how often a token stands in the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from specrace.ngrams.automaton import ROOT, Run, SuffixAutomaton

# A successor that was seen once is right a third of the time. Chosen on half of the Spec-Bench transcripts, where 1.2
# gave much the same and 4 lost 6 % of the tokens per step on summaries.
ESCAPE = 2.0
# The most frequent tokens, which are guessed where nothing else is known; they are looked up anew when the text has
# grown by so many tokens and by such a part, which changes their order.
NUM_COMMON, REFRESH, GROWTH = 32, 16, 1 / 8

Estimate = tuple[dict[int, float], float]


class BackoffModel:
    """Estimates over a growing text, for contexts of up to `longest` tokens; or over one that is `known` already.

    A context is a run that goes on in the text, and stands for all its ends. Those that share a state of the automaton
    were followed by the same tokens, so each of them says the same.
    """

    def __init__(self, longest: int, tokens: Sequence[int] = (), known: SuffixAutomaton | None = None) -> None:
        self.longest = longest
        self.known = SuffixAutomaton(longest + 1, tokens) if known is None else known
        self._common: list[tuple[int, float]] = []
        self._common_at = 0

    def successors(self, context: Run) -> Estimate:
        """The probability of each token that followed a context, and what is left for all others."""
        probs: dict[int, float] = {}
        return probs, self.blend(context, probs, 1.0)

    def sure(self, context: Run, least: float) -> tuple[int, float] | None:
        """The only token that ever followed a context, and what that leaves, where it is less than `least`."""
        known, (state, length) = self.known, context
        after = known.nexts[state]
        if after < 0 or not length:
            return None
        rest: float = (ESCAPE / (known.counts[after] + ESCAPE)) ** (length - known.lengths[known.links[state]])
        return (known.tokens[known.firsts[after]], rest) if rest < least else None

    def blend(self, context: Run, probs: dict[int, float], rest: float, least: float = 0.0, above: int = 0) -> float:
        """Add to `probs` what a context and its ends, one after the other, make of the `rest`; returns what they leave.

        Once that is less than `least` the shorter ones, which have the most successors, are not asked; nor are those of
        no more than `above` tokens.
        """
        known, (state, length) = self.known, context
        counts, links = known.counts, known.links
        while length > above and rest >= least:
            after, link = known.nexts[state], links[state]
            shorter = max(known.lengths[link], above)
            if after >= 0:
                token = known.tokens[known.firsts[after]]
                left = rest * (ESCAPE / (counts[after] + ESCAPE)) ** (length - shorter)
                probs[token] = probs.get(token, 0.0) + rest - left
            else:
                row = known.rows[state]
                sightings = [counts[after] for after in row.values()]
                total, spread = sum(sightings), ESCAPE * len(row)
                left = rest * (spread / (total + spread)) ** (length - shorter)
                share = (rest - left) / total
                for token, seen in zip(row, sightings, strict=True):
                    probs[token] = probs.get(token, 0.0) + share * seen
            rest, state, length = left, link, shorter
        return rest

    def common(self) -> list[tuple[int, float]]:
        """The most frequent tokens of the text, each with its probability where no context is known."""
        known = self.known
        total = len(known.tokens)
        if not self._common_at or total >= self._common_at + max(REFRESH, GROWTH * self._common_at):
            self._common_at = total
            found = [(token, known.counts[state]) for token, state in known.successors(ROOT)]
            most = sorted(found, key=itemgetter(1), reverse=True)[:NUM_COMMON]
            self._common = [(token, count / (total + ESCAPE * len(found))) for token, count in most]
        return self._common
