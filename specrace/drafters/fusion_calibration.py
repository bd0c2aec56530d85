"""What becomes of copies: how often the likeliest token came, by match length and by that token, and what came instead.

A model stops copying at certain tokens. One that cites its passages writes " [" where a passage has its full stop: the
copy of a full stop then fails whatever the length of the match, and " [" can be drafted in its place.
"""

from __future__ import annotations

from specrace.ngrams.backoff import ESCAPE, Estimate


class Calibration:
    """Hits over expected hits of the likeliest token of copies; below 1 at first.

    Every output token updates the prediction made at its position, drafted or not, so what was drafted is no bias.
    Lengths: 0 for no context, 1 to `longest` in prompt and output, and as many again for earlier outputs. `earlier`: a
    calibration by earlier answers, from which this one starts; it is only read.
    """

    # The prior of a length: this many expected hits, of which this share came; and of a token, which came.
    PRIOR, PRIOR_RATE, TOKEN_PRIOR = 4.0, 0.9, 2.0
    # Of matches in earlier outputs, which begin alike without going on alike, fewer came.
    PAST_RATE = 0.5
    # The most that any token is given.
    MAX_PROB = 0.98
    # Of each length, earlier answers count as no more than this many expected hits.
    MAX_EARLIER = 8.0
    # Matches of so many tokens are copies; what came instead of shorter ones tells little.
    COPY = 3

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
        """The factor for estimates at `length`, of which the likeliest is `top`."""
        return min(self.hits[length] / self.expected[length], self.MAX_PROB / top)

    def update(self, length: int, prob: float, hit: bool) -> None:
        """The likeliest token, estimated with `prob`, was the target's or not."""
        self.hits[length] += hit
        self.expected[length] += prob

    def learn(self, length: int, likeliest: int, prob: float, token: int) -> None:
        """A copy of `length`, whose likeliest token was estimated with `prob`, was followed by `token`."""
        found = self.tokens.get(likeliest)
        if found is None:
            found = self.tokens[likeliest] = _Outcomes()
        found.expected += prob * self.factor(length, prob)
        if token == likeliest:
            found.hits += 1
        elif length >= self.COPY:
            found.instead[token] = found.instead.get(token, 0) + 1
        self.update(length, prob, token == likeliest)

    def revise(self, probs: dict[int, float], escape: float, likeliest: int) -> float:
        """Revise estimates of a copy in place by what became of its likeliest token before; the escape mass left."""
        known = [each for each in (self.tokens.get(likeliest), self._earlier.get(likeliest)) if each is not None]
        if not known:
            return escape
        hits, expected = sum(each.hits for each in known), sum(each.expected for each in known)
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
        instead, left = _blend(known)
        for token, share in instead.items():
            probs[token] = probs.get(token, 0.0) + escape * share
        return escape * left

    def instead(self, likeliest: int) -> set[int]:
        """The tokens that came where `likeliest` was copied."""
        known = (self.tokens.get(likeliest), self._earlier.get(likeliest))
        return {token for each in known if each is not None for token in each.instead}


class _Outcomes:
    """Of a token that copies found likeliest: expected hits, hits, and how often each other token came."""

    __slots__ = ("expected", "hits", "instead")

    def __init__(self) -> None:
        self.expected = 0.0
        self.hits = 0
        self.instead: dict[int, int] = {}


def _blend(known: list[_Outcomes]) -> Estimate:
    """Witten and Bell's estimate, as in `BackoffModel`, over what came instead."""
    counts: dict[int, int] = {}
    for each in known:
        for token, count in each.instead.items():
            counts[token] = counts.get(token, 0) + count
    total = sum(counts.values()) + ESCAPE * len(counts)
    return {token: count / total for token, count in counts.items()}, ESCAPE * len(counts) / total if counts else 1.0
