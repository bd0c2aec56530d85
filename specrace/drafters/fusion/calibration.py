"""How reliable copies are: how often the likeliest token came, by match length and by token, and what came instead.

Models stop copying at certain tokens. For example, a model that cites its passages writes " [" where a passage has a
full stop. Then copying that full stop fails, however long the match is, and " [" can be drafted instead.
"""

from __future__ import annotations

from specrace.ngrams.backoff import ESCAPE, Estimate


class Calibration:
    """Corrects the estimates of copies by the ratio of actual to expected hits of their likeliest tokens.

    Every output token is compared with the prediction for its position, whether or not the predicted token was drafted,
    so the choice of drafts does not bias the counts. Predictions are grouped by length: 0 for no context, 1 to
    `longest` for matches in prompt and output, `longest` + 1 to 2 * `longest` for matches in earlier outputs.
    `earlier`: a calibration by earlier answers, from which this one starts; it is not changed. Without `earlier` the
    ratio is below 1 at first. The *escape mass* is the probability that the estimates leave for all other tokens.

    >>> calibration = Calibration(longest=8)
    >>> round(calibration.factor(length=5, top=0.9), 3)
    0.9
    >>> for _ in range(4):  # 7 was expected after a match of five tokens, but 8 came
    ...     calibration.learn(5, likeliest=7, prob=0.9, token=8)
    >>> round(calibration.factor(length=5, top=0.9), 3)
    0.474
    """

    # No record says how the following numbers were chosen.
    # The prior of a length: this number of expected hits, and the share of them that came.
    PRIOR, PRIOR_RATE = 4.0, 0.9
    # The prior of a token: this number of expected hits, all of which came.
    TOKEN_PRIOR = 2.0
    # The prior share for matches in earlier outputs, which often begin like this output and then differ.
    PAST_RATE = 0.5
    # The maximum probability of a token.
    MAX_PROB = 0.98
    # For each length, earlier answers count as at most this many expected hits.
    MAX_EARLIER = 8.0
    # Matches of at least this many tokens are copies. Tokens that came instead after shorter matches are not stored.
    MIN_COPY = 3

    def __init__(self, longest: int, earlier: Calibration | None = None) -> None:
        self.hits = [self.PRIOR * self.PRIOR_RATE] * (longest + 1) + [self.PRIOR * self.PAST_RATE] * longest
        self.expected = [self.PRIOR] * (2 * longest + 1)
        self.tokens: dict[int, _Outcomes] = {}
        self._earlier = {} if earlier is None else earlier.tokens
        if earlier is not None:
            for length, expected in enumerate(earlier.expected):
                share = min(1.0, self.MAX_EARLIER / expected)
                self.hits[length], self.expected[length] = share * earlier.hits[length], share * expected

    def factor(self, length: int, top: float) -> float:
        """The factor that corrects the estimates after a match of `length`; the highest estimate is `top`."""
        return min(self.hits[length] / self.expected[length], self.MAX_PROB / top)

    def update(self, length: int, prob: float, hit: bool) -> None:
        """Count a prediction of the likeliest token, whose estimate was `prob`; `hit`: it was the target's token."""
        self.hits[length] += hit
        self.expected[length] += prob

    def learn(self, length: int, likeliest: int, prob: float, token: int) -> None:
        """Learn that `token` came where a match of `length` predicted `likeliest` with probability `prob`."""
        outcomes = self.tokens.get(likeliest)
        if outcomes is None:
            outcomes = self.tokens[likeliest] = _Outcomes()
        outcomes.expected += prob * self.factor(length, prob)
        if token == likeliest:
            outcomes.hits += 1
        elif length >= self.MIN_COPY:
            outcomes.instead[token] = outcomes.instead.get(token, 0) + 1
        self.update(length, prob, token == likeliest)

    def revise_copy(self, length: int, probs: dict[int, float], escape: float, likeliest: int) -> float:
        """Correct a copy's estimates in place, by length and by token (`revise`); return the escape mass."""
        factor = self.factor(length, probs[likeliest])
        for token in probs:
            probs[token] *= factor
        # The factor may raise the sum of the estimates above 1; then no escape mass is left.
        return self.revise(probs, max(0.0, 1.0 - factor * (1.0 - escape)), likeliest)

    def revise(self, probs: dict[int, float], escape: float, likeliest: int) -> float:
        """Revise a copy's estimates in place by earlier outcomes of its likeliest token; return the escape mass."""
        # What this answer and the earlier ones showed about the likeliest token.
        known = [
            outcomes for outcomes in (self.tokens.get(likeliest), self._earlier.get(likeliest)) if outcomes is not None
        ]
        if not known:
            return escape
        hits = sum(outcomes.hits for outcomes in known)
        expected = sum(outcomes.expected for outcomes in known)
        before = probs[likeliest]
        after = min(before * (hits + self.TOKEN_PRIOR) / (expected + self.TOKEN_PRIOR), self.MAX_PROB)
        if after < before:
            escape += before - after
        else:
            scale = (1.0 - after) / (1.0 - before)
            for token in probs:
                probs[token] *= scale
            escape *= scale
        probs[likeliest] = after
        instead, escape_share = _estimate_instead(known)
        for token, share in instead.items():
            probs[token] = probs.get(token, 0.0) + escape * share
        return escape * escape_share

    def seen_instead_of(self, likeliest: int) -> set[int]:
        """The tokens that came where a copy expected `likeliest`."""
        known = (self.tokens.get(likeliest), self._earlier.get(likeliest))
        return {token for outcomes in known if outcomes is not None for token in outcomes.instead}


class _Outcomes:
    """What came where a copy expected a certain token: expected hits, hits, and the counts of other tokens."""

    __slots__ = ("expected", "hits", "instead")

    def __init__(self) -> None:
        self.expected = 0.0
        self.hits = 0
        self.instead: dict[int, int] = {}


def _estimate_instead(known: list[_Outcomes]) -> Estimate:
    """Witten and Bell's estimate (see `BackoffModel`) of the token that comes instead of the expected one."""
    counts: dict[int, int] = {}
    for outcomes in known:
        for token, count in outcomes.instead.items():
            counts[token] = counts.get(token, 0) + count
    if not counts:
        return {}, 1.0
    total = sum(counts.values()) + ESCAPE * len(counts)
    return {token: count / total for token, count in counts.items()}, ESCAPE * len(counts) / total
