"""Several runs of one race: the medians and ranges of its speedups, and whether more runs are needed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from specrace.core.events import LaneSpread, Repeated
from specrace.core.metrics import LaneMetrics, too_fast

# A range is narrow if it is at most this share of the median and comes from at least MIN_RUNS runs. The ranges of two
# equally fast lanes fail to overlap once in 126 times with five runs each, but once in ten times with three.
NARROW_SHARE, MIN_RUNS = 0.1, 5


@dataclass(frozen=True)
class Run:
    """A complete run: each lane's totals by name, whether the machine was disturbed, and whether a lane's text differs
    from that of the first run.
    """

    lanes: Mapping[str, LaneMetrics]
    disturbed: bool
    text_differs: bool = False


def repeat_times(runs: int) -> Callable[[Repeated], bool]:
    """A function for the parameter `again` of `race`, with which the lanes run `runs` times in all."""
    left = runs

    def run_again(_results: Repeated) -> bool:
        nonlocal left
        left -= 1
        return left > 0

    return run_again


def summarise(runs: Sequence[Run]) -> Repeated:
    """The results of one or more runs, with the lanes in the first run's order.

    A run also counts as disturbed if a lane is faster than its tokens per step in the first run allow, because its
    speedup is shown beside the first run's tokens per step. The results count if more than half of the runs are
    undisturbed. If no run is undisturbed, the figures are those of all runs.
    """
    counted = [run for run in runs if not run.disturbed and not too_fast(run.lanes, runs[0].lanes)]
    disturbed = 2 * len(counted) <= len(runs)
    lanes = tuple(_spread(name, counted or runs) for name in runs[0].lanes)
    return Repeated(len(counted or runs), lanes, disturbed, _note(runs, len(counted), disturbed))


def _spread(name: str, runs: Sequence[Run]) -> LaneSpread:
    """A lane's median and range over these runs."""
    speedups = [run.lanes[name].speedup(run.lanes["vanilla"]) for run in runs]
    rates = [run.lanes[name].tokens_per_s for run in runs]
    return LaneSpread(name, median(speedups), min(speedups), max(speedups), median(rates))


def _note(runs: Sequence[Run], counted: int, disturbed: bool) -> str:
    """What the page says about the runs, of which `counted` are undisturbed."""
    left_out = len(runs) - counted
    note = f"Speedups are medians of {counted} runs."
    if left_out:
        verbs = "were disturbed and do not count" if left_out > 1 else "was disturbed and does not count"
        note = f"Speedups are medians of {counted} runs; {left_out} more {verbs}."
    if disturbed:
        number = f"{left_out} of {len(runs)} run{'s' if len(runs) > 1 else ''}"
        note = f"The machine was busy in {number}: these figures do not count."
    differing = sum(run.text_differs for run in runs)
    return f"{note} In {differing} of the runs a lane's text differed from the first run's." if differing else note


def is_narrow(repeated: Repeated, share: float = NARROW_SHARE) -> bool:
    """Whether there are enough runs that count, and each lane's range is at most `share` of its median."""
    enough = repeated.runs >= MIN_RUNS and not repeated.disturbed
    return enough and all(lane.high - lane.low <= share * lane.speedup for lane in repeated.lanes)


class RepeatUntilNarrow:
    """Asks for more runs until the ranges are narrow, `budget_s` would be exceeded, or there are `max_runs` in all."""

    def __init__(self, budget_s: float = math.inf, max_runs: float = math.inf) -> None:
        self._budget_s = budget_s
        self._max_runs = max_runs
        self._run_ends_s: list[float] = []

    def __call__(self, latest: Repeated) -> bool:
        """Whether to run again after `latest`; called once after each run. The first call starts the clock."""
        now = time.monotonic()
        self._run_ends_s.append(now)
        run_s = now - self._run_ends_s[-2] if len(self._run_ends_s) > 1 else 0.0
        in_time = now + run_s <= self._run_ends_s[0] + self._budget_s
        return in_time and len(self._run_ends_s) < self._max_runs and not is_narrow(latest)
