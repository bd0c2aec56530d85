"""Variable-order back-off: the next token's distribution from everything that followed the last 1, 2, ... tokens.

This is Witten and Bell's estimate (1991, method C, its escape weighted with `ESCAPE`), interpolated over all orders as
in prediction by partial matching (PPM). A context with C continuations, D of them distinct, gives C / (C + ESCAPE * D)
of its mass to these tokens in proportion to their counts. The rest, the escape mass, goes to the context that is one
token shorter. The escape mass of the shortest context goes to the most frequent tokens of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from specrace.ngrams.automaton import ROOT, MatchState, SuffixAutomaton

# With 2, a continuation that was seen once gets a third of the mass. Chosen on half of the Spec-Bench transcripts,
# where 1.2 did as well and 4 lost 6 % of the tokens per step on summaries.
ESCAPE = 2.0
# The number of frequent tokens kept; a guess.
NUM_FREQUENT = 32
# Frequent tokens are recounted once the text has grown by REFRESH tokens and by the fraction GROWTH of its length. The
# count is on the lane's clock, so it should be rare; not tuned.
REFRESH, GROWTH = 16, 1 / 8

# The probability of each token, and the escape mass.
Estimate = tuple[dict[int, float], float]


class BackoffModel:
    """Estimates for contexts of up to `longest` tokens in a growing text, or in the text of an `automaton` if given.

    A context is a `MatchState`, a state of the automaton and a length, and stands for all its suffixes. Suffixes that
    share a state have the same continuations and counts, so each state is evaluated only once.

    After 1 2, 3 came twice and 5 once, so they get 2/7 and 1/7. The context 2 splits the remaining 4/7 in the same way:

    >>> model = BackoffModel(longest=4, tokens=[1, 2, 3, 1, 2, 3, 1, 2, 5, 1, 2])
    >>> probs = {}
    >>> escape = model.blend(model.automaton.suffix(), probs, mass=1.0)
    >>> {token: round(prob, 3) for token, prob in probs.items()}, round(escape, 3)
    ({3: 0.449, 5: 0.224}, 0.327)
    """

    def __init__(self, longest: int, tokens: Sequence[int] = (), automaton: SuffixAutomaton | None = None) -> None:
        self.longest = longest
        self.automaton = SuffixAutomaton(longest + 1, tokens) if automaton is None else automaton
        self._frequent: list[tuple[int, float]] = []
        # The length of the text when frequent tokens were last counted.
        self._counted = 0

    def only_continuation(self, context: MatchState, max_escape: float) -> tuple[int, float] | None:
        """The only token that ever followed a context, and the escape mass that the suffixes in its state leave of 1.

        None if several tokens followed, or if the escape mass is not below `max_escape`.
        """
        automaton, (state, length) = self.automaton, context
        target = automaton.nexts[state]
        if target < 0 or not length:
            return None
        # How many suffixes of the context are in its state; each leaves the same share of its mass.
        order = length - automaton.lengths[automaton.links[state]]
        escape: float = (ESCAPE / (automaton.counts[target] + ESCAPE)) ** order
        return (automaton.tokens[automaton.firsts[target]], escape) if escape < max_escape else None

    def blend(
        self, context: MatchState, probs: dict[int, float], mass: float, min_mass: float = 0.0, min_length: int = 0
    ) -> float:
        """Distribute `mass` over the continuations of a context and its suffixes; return the escape mass that is left.

        Each token's part is added to `probs`. Blending stops once the mass is below `min_mass`, because short contexts
        have the most continuations, and before suffixes of `min_length` tokens or fewer.
        """
        automaton, (state, length) = self.automaton, context
        counts, links = automaton.counts, automaton.links
        while length > min_length and mass >= min_mass:
            target, link = automaton.nexts[state], links[state]
            shorter = max(automaton.lengths[link], min_length)
            if target >= 0:
                token = automaton.tokens[automaton.firsts[target]]
                escape = mass * (ESCAPE / (counts[target] + ESCAPE)) ** (length - shorter)
                probs[token] = probs.get(token, 0.0) + mass - escape
            else:
                branches = automaton.branches[state]
                branch_counts = [counts[target] for target in branches.values()]
                total, weight = sum(branch_counts), ESCAPE * len(branches)
                escape = mass * (weight / (total + weight)) ** (length - shorter)
                share = (mass - escape) / total
                for token, count in zip(branches, branch_counts, strict=True):
                    probs[token] = probs.get(token, 0.0) + share * count
            mass = escape
            state, length = link, shorter
        return mass

    def frequent(self) -> list[tuple[int, float]]:
        """The most frequent tokens with their probabilities in an unknown context; a new list after each recount."""
        total = len(self.automaton.tokens)
        if not self._counted or total >= self._counted + max(REFRESH, GROWTH * self._counted):
            self._counted = total
            counts = [(token, self.automaton.counts[state]) for token, state in self.automaton.successors(ROOT)]
            top = sorted(counts, key=itemgetter(1), reverse=True)[:NUM_FREQUENT]
            self._frequent = [(token, count / (total + ESCAPE * len(counts))) for token, count in top]
        return self._frequent
