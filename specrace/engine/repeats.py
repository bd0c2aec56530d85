"""Several runs of one race: the medians and ranges of its speedups, and when they have been repeated enough."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from specrace.core.events import LaneSpread, Repeated
from specrace.core.metrics import LaneMetrics, too_fast

# A range is narrow up to this share of the median. It needs MIN_RUNS runs: on an even machine
# two ranges of five runs each are apart once in 126 times, of three runs once in ten.
NARROW_SHARE, MIN_RUNS = 0.1, 5


@dataclass(frozen=True)
class Run:
    """A complete run: each lane's totals by name, whether the machine was disturbed, and whether a text changed."""

    lanes: Mapping[str, LaneMetrics]
    disturbed: bool
    other_text: bool = False


def summarise(runs: Sequence[Run]) -> Repeated:
    """The figures of one or more runs, the first run's order of lanes kept.

    A run is undisturbed if no lane in it is faster than its tokens per step in the first run allow, either: those are
    shown beside its speedup. The figures count if more than half of the runs are undisturbed.
    """
    counted = [run for run in runs if not run.disturbed and not too_fast(run.lanes, runs[0].lanes)]
    disturbed = 2 * len(counted) <= len(runs)
    lanes = tuple(_spread(name, counted or runs) for name in runs[0].lanes)
    return Repeated(len(counted or runs), lanes, disturbed, _note(runs, len(counted), disturbed))


def _spread(name: str, runs: Sequence[Run]) -> LaneSpread:
    speedups = [run.lanes[name].speedup(run.lanes["vanilla"]) for run in runs]
    rates = [run.lanes[name].tokens_per_s for run in runs]
    return LaneSpread(name, median(speedups), min(speedups), max(speedups), median(rates))


def _note(runs: Sequence[Run], counted: int, disturbed: bool) -> str:
    left_out = len(runs) - counted
    rest = "more were disturbed and do not count" if left_out > 1 else "more was disturbed and does not count"
    note = f"Speedups are medians of {counted} runs{f'; {left_out} {rest}' if left_out else ''}."
    if disturbed:
        number = f"{left_out} of {len(runs)} run{'s' if len(runs) > 1 else ''}"
        note = f"The machine was busy in {number}; measure again when it is quiet."
    others = sum(run.other_text for run in runs)
    return f"{note} In {others} of the runs a lane's text differed from the first run's." if others else note


def is_narrow(repeated: Repeated, share: float = NARROW_SHARE) -> bool:
    """Whether the figures count, and each lane's range is at most `share` of its median, over enough runs."""
    enough = repeated.runs >= MIN_RUNS and not repeated.disturbed
    return enough and all(lane.high - lane.low <= share * lane.speedup for lane in repeated.lanes)


class Until:
    """Asks for more runs until the ranges are narrow, another would exceed `budget_s`, or there are `most` in all."""

    def __init__(self, budget_s: float = math.inf, most: float = math.inf) -> None:
        self._budget_s, self._most = budget_s, most
        self._times: list[float] = []

    def __call__(self, latest: Repeated) -> bool:
        """Whether to run again after `latest`; called once after each run. The first call starts the clock."""
        self._times.append(now := time.monotonic())
        took_s = now - self._times[-2] if len(self._times) > 1 else 0.0
        in_time = now + took_s <= self._times[0] + self._budget_s
        return in_time and len(self._times) < self._most and not is_narrow(latest)
