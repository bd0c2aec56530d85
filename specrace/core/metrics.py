"""A lane's metrics, defined once for the terminal, the page, the recordings and the JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from specrace.core.events import Difference, LaneInfo, Served, Step

# Repetition flatters every drafter that copies. An output loops if it ends in a sequence of up to 48 tokens that comes
# at least three times in a row, 36 tokens or more in all. The bounds were chosen by hand; recordings made before they
# were widened have smaller counts.
LOOP_PERIOD = 48
LOOP_REPEATS = 3
LOOP_TOKENS = 36
# A step over a tree is never cheaper than one over a single row, so a speedup above the tokens per step is a fault of
# the measurement; a tenth is allowed for noise.
MAX_PER_TAU = 1.1
# Rounding in 16 bits can swap logits that are closer than this.
NEAR_TIE_GAP = 0.25


@dataclass
class LaneMetrics:
    """Running totals of one lane; durations in ms on the lane's own clock, without prefill."""

    tokens: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    draft_ms: float = 0.0
    target_ms: float = 0.0
    keep_ms: float = 0.0

    def add(self, step: Step) -> None:
        """Count one step."""
        self.tokens += len(step.emitted)
        self.steps += 1
        self.drafted += step.num_draft
        self.accepted += step.accepted
        self.draft_ms += step.timing.draft_ms
        self.target_ms += step.timing.target_ms
        self.keep_ms += step.timing.keep_ms

    @property
    def decode_ms(self) -> float:
        """The time spent decoding: drafts, target forwards and keeping the accepted KV."""
        return self.draft_ms + self.target_ms + self.keep_ms

    @property
    def tau(self) -> float:
        """Tokens per step; 0.0 before the first step."""
        return self.tokens / self.steps if self.steps else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted over drafted tokens; 0.0 when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def drafted_per_step(self) -> float:
        """Draft nodes per step."""
        return self.drafted / self.steps if self.steps else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of `decode_ms`."""
        return 1000.0 * self.tokens / self.decode_ms if self.decode_ms else 0.0

    def speedup(self, vanilla: LaneMetrics) -> float:
        """Tokens per second over vanilla's; 0.0 before vanilla's first step."""
        return self.tokens_per_s / vanilla.tokens_per_s if vanilla.tokens_per_s else 0.0

    def summary(self) -> dict[str, Any]:
        """The metrics of a `LaneResult` by field name, without the speedup."""
        names = ("tokens", "steps", "tau", "drafted_per_step", "acceptance_rate", "decode_ms", "tokens_per_s")
        return {name: getattr(self, name) for name in names}

    def merge(self, other: LaneMetrics) -> None:
        """Add the totals of another run."""
        for total in fields(LaneMetrics):
            setattr(self, total.name, getattr(self, total.name) + getattr(other, total.name))


@dataclass
class ServedMetrics(LaneMetrics):
    """The totals of a lane that a server decoded: the time from its first chunk to its last, network included.

    Its tokens per second leave out the tokens of the first chunk, which arrived when the clock started. A count that
    is not known is 0 until the last step, which brings the server's own totals. The number of draft tokens is unknown
    from the first step whose draft the server did not report. If the server's chunks are not steps, the numbers of
    steps, draft tokens and accepted tokens are unknown; if it sends no ids, the number of tokens is.
    """

    # keyword-only, because the totals before it have defaults
    served: Served = field(kw_only=True)
    has_unknown_draft: bool = field(default=False, kw_only=True)

    def add(self, step: Step) -> None:
        """Count one step, or one token of a chunk that is not a step."""
        super().add(step)
        served = self.served
        self.has_unknown_draft |= step.drafted is None
        if self.has_unknown_draft:
            self.drafted = 0
        if not served.chunks_are_steps:
            self.steps = self.drafted = self.accepted = 0
        if step.end:
            self.drafted = served.drafted or 0
            if not served.chunks_are_steps:
                self.steps, self.accepted = served.steps or 0, served.accepted or 0
            if not served.sends_ids:
                self.tokens = served.tokens or 0

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second after the first chunk; 0.0 until a second one arrived, and if they cannot be counted."""
        # Without ids, tokens can be counted only if the server gave their total, and each chunk had one token.
        is_known = self.served.sends_ids or (self.tokens and self.served.first_tokens)
        return (
            1000.0 * (self.tokens - self.served.first_tokens) / self.decode_ms if self.decode_ms and is_known else 0.0
        )

    def speedup(self, vanilla: LaneMetrics) -> float:
        """0.0: a server's time is not race time, so it is not divided by vanilla's."""
        return 0.0


def start_metrics(info: LaneInfo) -> LaneMetrics:
    """A lane's totals before its first step, which hold only the time to build its tables."""
    if info.served is not None:
        return ServedMetrics(served=info.served)
    return LaneMetrics(draft_ms=info.build_ms)


def too_fast(lanes: Mapping[str, LaneMetrics], first_run: Mapping[str, LaneMetrics] | None = None) -> bool:
    """Whether a lane is faster than its tokens per step allow; `first_run`, if given, provides the tokens per step.

    A lane with fewer tokens than vanilla is not judged. It can be so fast, because later tokens cost more.
    """
    first, vanilla = first_run or lanes, lanes["vanilla"]
    return any(
        metrics.speedup(vanilla) > MAX_PER_TAU * first[name].tau
        for name, metrics in lanes.items()
        if first[name].tokens >= first["vanilla"].tokens
    )


def format_speedup(speedup: float) -> str:
    """A speedup with one decimal; halves are rounded up, to match the page.

    >>> format_speedup(2.45)
    '2.5×'
    """
    return f"{math.floor(10 * speedup + 0.5) / 10:.1f}×"


def loop_tokens(tokens: Sequence[int]) -> int:
    """The length of the loop that `tokens` end in; 0 if they do not.

    >>> loop_tokens([7, 1, 2] + [5, 6] * 20)
    40
    """
    longest = 0
    for period in range(1, LOOP_PERIOD + 1):
        matching = 0
        while matching + period < len(tokens) and tokens[-1 - matching] == tokens[-1 - matching - period]:
            matching += 1
        length = matching + period
        if matching and length >= LOOP_TOKENS and length >= LOOP_REPEATS * period:
            longest = max(longest, length)
    return longest


def first_difference(
    tokens: Sequence[object], vanilla: Sequence[object], *, ended: bool = True, agreed: int = 0
) -> int | None:
    """The first position where an output, tokens or text, differs from vanilla's; None if there is none.

    A difference in length counts only once both have `ended`. The first `agreed` tokens are known to be equal.
    """
    shared = min(len(tokens), len(vanilla))
    position = next((index for index in range(agreed, shared) if tokens[index] != vanilla[index]), shared)
    differs = position < shared or (ended and len(tokens) != len(vanilla))
    return position if differs else None


def compare(tokens: Sequence[object], vanilla: Sequence[object], *, ended: bool) -> tuple[bool | None, int | None]:
    """Whether an output equals vanilla's, and the first position that differs; (None, None) if either is still empty.

    Unless both have `ended`, they are compared up to the end of the shorter one.
    """
    position = first_difference(tokens, vanilla, ended=ended)
    can_be_judged = ended or (tokens and vanilla)
    return (position is None if can_be_judged else None), position


def text_to_compare(text: str) -> str:
    """A text for a comparison, without surrounding white space and without a last character that a limit has cut."""
    return text.strip().rstrip("\ufffd").rstrip()


def describe_difference(difference: Difference, dtype: str) -> str:
    """The text of the badge of a lane that differs from vanilla; `dtype` is "" where it is shown elsewhere."""
    near = "near tie, " if difference.gap <= NEAR_TIE_GAP else ""
    return f"differs at token {difference.position}: {near}gap {difference.gap:.3f}, {dtype}".removesuffix(", ")
