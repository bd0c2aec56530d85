"""Figures of a lane, from its steps. Definitions are the design's words; every face shows these and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from specrace.core.events import Difference, Step

# Text that repeats itself flatters every drafter that copies: three turns and 36 tokens of it count as a loop.
LOOP_PERIOD = 24
LOOP_TURNS = 3
LOOP_TOKENS = 36
# Two logits nearer than this trade places by rounding in 16 bits.
NEAR_TIE_GAP = 0.25


@dataclass
class LaneMetrics:
    """Running totals of one lane. Durations are milliseconds on the lane's own clock, prefill not included."""

    tokens: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    draft_ms: float = 0.0
    target_ms: float = 0.0
    keep_ms: float = 0.0
    accept_lengths: list[int] = field(default_factory=list)

    def add(self, step: Step) -> None:
        """Count one step."""
        self.tokens += len(step.emitted)
        self.steps += 1
        self.drafted += step.tree.num_draft
        self.accepted += step.accepted
        self.draft_ms += step.timing.draft_ms
        self.target_ms += step.timing.target_ms
        self.keep_ms += step.timing.keep_ms
        self.accept_lengths.append(len(step.emitted))

    @property
    def decode_ms(self) -> float:
        """Time of the loop: draft + target + keep."""
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
        """Draft nodes a step, the root excluded."""
        return self.drafted / self.steps if self.steps else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Decode tokens a second on the lane's clock."""
        return 1000.0 * self.tokens / self.decode_ms if self.decode_ms else 0.0

    def speedup_over(self, vanilla: LaneMetrics) -> float:
        """Tokens a second over vanilla's; 0.0 while vanilla has none."""
        return self.tokens_per_s / vanilla.tokens_per_s if vanilla.tokens_per_s else 0.0


def loop_tokens(tokens: Sequence[int]) -> int:
    """How many tokens at the end of `tokens` repeat one period again and again; 0 when that is not a loop.

    >>> loop_tokens([7, 1, 2] + [5, 6] * 20)
    40
    """
    longest = 0
    for period in range(1, LOOP_PERIOD + 1):
        same = 0
        while same + period < len(tokens) and tokens[-1 - same] == tokens[-1 - same - period]:
            same += 1
        length = same + period
        if same and length >= LOOP_TOKENS and length >= LOOP_TURNS * period:
            longest = max(longest, length)
    return longest


def difference_words(difference: Difference, dtype: str) -> str:
    """What a badge says of a lane that differs from vanilla."""
    near = "near tie, " if difference.gap <= NEAR_TIE_GAP else ""
    return f"differs at token {difference.position}: {near}gap {difference.gap:.3f}, {dtype}".removesuffix(", ")


def first_difference(tokens: Sequence[int], reference: Sequence[int]) -> int | None:
    """Index of the first token at which two outputs differ (one may simply be longer), None when they are equal."""
    for index, (token, expected) in enumerate(zip(tokens, reference, strict=False)):
        if token != expected:
            return index
    return None if len(tokens) == len(reference) else min(len(tokens), len(reference))
