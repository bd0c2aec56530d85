"""Variable-order back-off: the next token's distribution from everything that followed the last 1, 2, ... tokens.

Witten and Bell's estimate (1991, method C, its escape weighted with `ESCAPE`), interpolated over all orders as in
prediction by partial matching (PPM): a context with C continuations of D kinds gives C / (C + ESCAPE * D) of the mass
to them by count, and the rest, its escape mass, to the context one token shorter; the last one to unigram frequency.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from specrace.ngrams.automaton import ROOT, MatchState, SuffixAutomaton

# A continuation seen once gets a third. Chosen on half of the Spec-Bench transcripts, where 1.2 gave much the same and
# 4 lost 6 % of the tokens per step on summaries.
ESCAPE = 2.0
# How many frequent tokens are kept; they are counted again once the text has grown by REFRESH tokens and by the share
# GROWTH.
NUM_FREQUENT, REFRESH, GROWTH = 32, 16, 1 / 8

# The probability of each token, and the escape mass.
Estimate = tuple[dict[int, float], float]


class BackoffModel:
    """Estimates for contexts of up to `longest` tokens, over a text that grows or one whose `automaton` is given.

    A context is a match state and stands for all its suffixes. Those that share a state of the automaton have the same
    continuations and counts, so a state is evaluated once for all of them.
    """

    def __init__(self, longest: int, tokens: Sequence[int] = (), automaton: SuffixAutomaton | None = None) -> None:
        self.longest = longest
        self.automaton = SuffixAutomaton(longest + 1, tokens) if automaton is None else automaton
        self._frequent: list[tuple[int, float]] = []
        self._counted = 0

    def deterministic(self, context: MatchState, most: float) -> tuple[int, float] | None:
        """The only continuation of a context and the escape mass; None for several or where that is not below `most`.

        The escape mass is that of all suffixes in the context's state.
        """
        automaton, (state, length) = self.automaton, context
        target = automaton.nexts[state]
        if target < 0 or not length:
            return None
        order = length - automaton.lengths[automaton.links[state]]
        escape: float = (ESCAPE / (automaton.counts[target] + ESCAPE)) ** order
        return (automaton.tokens[automaton.firsts[target]], escape) if escape < most else None

    def blend(
        self, context: MatchState, probs: dict[int, float], mass: float, least: float = 0.0, above: int = 0
    ) -> float:
        """Distribute `mass` over the continuations of a context and its suffixes, into `probs`; the escape mass left.

        Stops below `least`, for shorter contexts have the most continuations, and at suffixes of `above` tokens.
        """
        automaton, (state, length) = self.automaton, context
        counts, links = automaton.counts, automaton.links
        while length > above and mass >= least:
            target, link = automaton.nexts[state], links[state]
            shorter = max(automaton.lengths[link], above)
            if target >= 0:
                token = automaton.tokens[automaton.firsts[target]]
                escape = mass * (ESCAPE / (counts[target] + ESCAPE)) ** (length - shorter)
                probs[token] = probs.get(token, 0.0) + mass - escape
            else:
                branches = automaton.branches[state]
                seen = [counts[target] for target in branches.values()]
                total, weight = sum(seen), ESCAPE * len(branches)
                escape = mass * (weight / (total + weight)) ** (length - shorter)
                share = (mass - escape) / total
                for token, count in zip(branches, seen, strict=True):
                    probs[token] = probs.get(token, 0.0) + share * count
            mass, state, length = escape, link, shorter
        return mass

    def frequent(self) -> list[tuple[int, float]]:
        """The most frequent tokens with their probabilities where no context is known; a new list when recounted."""
        total = len(self.automaton.tokens)
        if not self._counted or total >= self._counted + max(REFRESH, GROWTH * self._counted):
            self._counted = total
            seen = [(token, self.automaton.counts[state]) for token, state in self.automaton.successors(ROOT)]
            most = sorted(seen, key=itemgetter(1), reverse=True)[:NUM_FREQUENT]
            self._frequent = [(token, count / (total + ESCAPE * len(seen))) for token, count in most]
        return self._frequent
