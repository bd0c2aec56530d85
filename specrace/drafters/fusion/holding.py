"""How often copies go on once they have begun, relative to the estimates for their tokens."""

from __future__ import annotations


class Holding:
    """Corrects the estimates of a copy's later tokens by the ratio of actual to expected failures.

    A copy whose first token was right usually continues: what ends a copy would have ended it there already.
    So the product of the estimates for single tokens is too low for a long copy. Only tokens after an accepted draft
    token are corrected and counted, and only if one of them is likelier than all others together.

    `earlier`: what earlier answers showed, from which this one starts; it is not changed. The prior is `PRIOR` expected
    failures, half of which occurred.

    >>> holding = Holding()
    >>> holding.factor()
    0.5
    >>> holding.revise({7: 0.8, 5: 0.1})  # a failure is half as likely as 0.2
    {7: 0.9, 5: 0.05}
    >>> for _ in range(8):
    ...     holding.record(prob=0.75, held=True)
    >>> holding.factor()
    0.25
    """

    # No record says how these numbers were chosen.
    PRIOR, PRIOR_RATE = 2.0, 0.5
    # The bounds of the factor: a copy is never sure to go on.
    LOWEST, HIGHEST = 0.1, 1.5
    # Earlier answers count as at most this many expected failures.
    MAX_EARLIER = 8.0

    def __init__(self, earlier: Holding | None = None) -> None:
        self.expected, self.failures = self.PRIOR, self.PRIOR * self.PRIOR_RATE
        if earlier is not None:
            share = min(1.0, self.MAX_EARLIER / earlier.expected)
            self.expected, self.failures = share * earlier.expected, share * earlier.failures

    def factor(self) -> float:
        """The factor by which to multiply the estimated probability of a failure."""
        return min(self.HIGHEST, max(self.LOWEST, self.failures / self.expected))

    def revise(self, probs: dict[int, float]) -> dict[int, float]:
        """The corrected estimates of the token after an accepted draft token."""
        likeliest = max(probs, key=probs.__getitem__, default=-1)
        prob = probs.get(likeliest, 0.0)
        if prob <= 0.5:
            return probs
        factor = self.factor()
        revised = {token: factor * share for token, share in probs.items()}
        revised[likeliest] = 1.0 - factor * (1.0 - prob)
        return revised

    def record(self, prob: float, held: bool) -> None:
        """Count whether the likeliest token came, whose estimate was `prob` before the correction."""
        if prob > 0.5:
            self.expected += 1.0 - prob
            self.failures += not held
