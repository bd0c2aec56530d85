"""The machine's pace: probe forwards between steps, by which the lanes' clocks are corrected.

A fast lane finishes early, and vanilla goes on alone. If another program starts then, vanilla's last tokens take longer
than its first, and every speedup grows. So a race runs a probe between steps: always the same forward over one row, on
no lane's clock. The slowdown is the probe's latency now over its latency before the first step; each step's time is
divided by it. After a step of unusual length the probe runs before the step is corrected, so that a lane with few long
steps is not corrected by an old pace. Time in which a thread was ready but not scheduled is subtracted from steps and
probes alike (`specrace.core.clock`).

If several threads wait for each other, another program slows them by far more than its share of the processors, and
unevenly. So the number of threads is measured and chosen before the clock starts, and once more if a program starts
during the race. If probes still vary too much, no correction is reliable, and the race reports that its figures do not
count.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean, median
from typing import Any, Protocol

from specrace.core.clock import since_ms, thread_ms, waited_ms
from specrace.core.events import Pace, Timing
from specrace.core.metrics import LaneMetrics, too_fast
from specrace.core.tree import TokenTree

# The time that lanes run between two probes, in probe times, so that probing takes a ninth of the race's wall time.
PROBE_EVERY = 8
# The pace is the median of the last WINDOW probes, because a single one may be disturbed.
WINDOW = 5
# A step or probe that differs from its usual time by this factor may be the first after a change of pace.
UNUSUAL = 1.25
# A usual time is the median of this many latest forwards of one size.
USUAL_FORWARDS = 9
# A number of threads is tried with at least TRIALS probes for at least TRIAL_MS, because a program that shares a
# processor holds it for milliseconds at a time. The first probe after a change does not count.
TRIALS, TRIAL_MS = 4, 40.0
# A probe this many times longer than the reference means that threads wait for each other.
CONTENDED = 3.0
# Signs of a busy machine before the clock starts: the share of the probes' time spent waiting for a processor, and
# the longest probe over the median.
BUSY_SHARE, BUSY_RANGE = 0.05, 1.5
# A probe jumps if it differs by the factor JUMP from the median of its neighbours, three on either side. On a machine
# that only drifts, even to half its speed, up to one probe in 25 jumped; with contention for processors, one in ten.
JUMP, NEIGHBOURS, MAX_JUMPS = 2.0, 3, 0.05
# Larger corrections are not trusted.
MAX_RANGE = 2.5
# The share of a lane's forward time in excess of LONG_STEP times the median forward of the same size: at most 0.01 on
# the drifting machine, 0.05 to 0.5 with contention.
LONG_STEP, MAX_LONG_SHARE = 3.0, 0.05
TOO_FAST = "a lane came out faster than its tokens per step allow"


class PaceTarget(Protocol):
    """A target that can be probed."""

    @property
    def threads(self) -> int:
        """The largest number of threads that a forward may use; 1 if there is no choice."""

    def use_threads(self, count: int) -> None:
        """Run forwards on `count` threads."""

    def session(self, prefix: Any, room: int, *, rows: Sequence[int]) -> Any:
        """A session on a clone of the prefix, for trees with these numbers of `rows`."""


class PaceKeeper:
    """Measures the pace of a race. `run_probe` is a synchronised forward; step times are divided by `slowdown`."""

    def __init__(self, run_probe: Callable[[], object], target: PaceTarget) -> None:
        self._run_probe = run_probe
        self._target = target
        self.threads = target.threads
        self.threads_changed = False
        self.slowdown = 1.0
        self.reference_ms = 0.0
        self._probes: list[float] = []
        # Lane time since the last probe, in ms.
        self._since_probe = 0.0
        # Lane -> (rows, corrected ms of the forward) of each step.
        self._steps: dict[str, list[tuple[int, float]]] = {}
        self._usual_times = UsualTimes()
        self._waited_before = 0.0

    @classmethod
    def on(cls, target: PaceTarget, prefix: Any, root: int) -> PaceKeeper:
        """A keeper whose probe scores `root` after the prefix, in its own session."""
        session = target.session(prefix, 1, rows=(1,))
        tree = TokenTree.chain(root)
        return cls(lambda: session.score(tree), target)

    def choose_threads(self) -> None:
        """Use fewer threads if the machine is busy and fewer threads prove faster.

        The machine is busy if probes wait for a processor, or vary a lot.
        """
        self.threads = self._target.threads
        self._target.use_threads(self.threads)
        if self.threads > 1:
            walls_ms, threads_ms = zip(*self._trials(), strict=True)
            waits = sum(threads_ms) < (1 - BUSY_SHARE) * sum(walls_ms)
            if waits or max(threads_ms) > BUSY_RANGE * median(threads_ms):
                self._use_fastest_threads()

    def start(self) -> None:
        """Measure the reference. Call right before the first step of each run, on a warm machine."""
        self.threads_changed = False
        self.slowdown = 1.0
        self.reference_ms = 0.0
        self._probes = []
        self._steps = {}
        self._usual_times = UsualTimes()
        self.refresh()
        self.reference_ms = median(self._probes)
        self._usual_times.add(1, self.reference_ms)
        self._waited_before = waited_ms()

    def refresh(self) -> None:
        """Fill the window with new probes, for example after work that was not reported to `correct`."""
        for _ in range(WINDOW):
            self._probe()

    def probe_if_due(self) -> None:
        """Run the probe if the lanes have run long enough since the last one; never before `start`."""
        if self.reference_ms and self._since_probe >= PROBE_EVERY * self.reference_ms:
            self._check_pace()

    def correct(self, lane: str, rows: int, timing: Timing) -> Timing:
        """The times of a step with a tree of `rows` nodes, as they would have been at the pace of the start.

        An unusual time may mean that the pace has changed, so then the probe runs first.
        """
        self._since_probe += timing.total_ms
        if self.reference_ms and self._usual_times.differs(rows, timing.target_ms / self.slowdown):
            self._check_pace()
        corrected = Timing(
            draft_ms=timing.draft_ms / self.slowdown,
            target_ms=timing.target_ms / self.slowdown,
            keep_ms=timing.keep_ms / self.slowdown,
        )
        self._usual_times.add(rows, corrected.target_ms)
        self._steps.setdefault(lane, []).append((rows, corrected.target_ms))
        return corrected

    def release(self) -> None:
        """Let the target use all its threads again."""
        self._target.use_threads(self._target.threads)

    def summary(self, lanes: Mapping[str, LaneMetrics] | None = None) -> Pace:
        """How steady the machine was, and whether the figures count; those of the `lanes`, if given, are checked."""
        low, high = pace_range(self._probes, self.reference_ms)
        jumps = jump_share(self._probes)
        reasons = (
            (jumps > MAX_JUMPS, "its speed changed too often to correct for"),
            (high > MAX_RANGE * low, f"its speed changed by a factor of {high / low:.1f}"),
            (self.threads_changed, "other programs took its processors, and it went on with fewer threads"),
            (long_step_share(self._steps) > MAX_LONG_SHARE, "single steps were held up"),
            (lanes is not None and too_fast(lanes), TOO_FAST),
        )
        reason = next((words for holds, words in reasons if holds), "")
        pace = Pace(
            probes=len(self._probes),
            probe_ms=self.reference_ms,
            low=low,
            high=high,
            jumps=jumps,
            waited_ms=waited_ms() - self._waited_before,
            threads=self.threads,
            disturbed=False,
            note=f"Clocks are corrected for the machine's pace, {low:.2f} to {high:.2f} times that of the start.",
        )
        return disturb(pace, reason) if reason else pace

    def _check_pace(self) -> None:
        """Run the probe; if it is unusual, run it often enough for the median to follow a change of pace."""
        before = self.slowdown * self.reference_ms
        wall_ms = self._probe()
        if not before / UNUSUAL <= self._probes[-1] <= before * UNUSUAL:
            for _ in range(WINDOW // 2):
                wall_ms = self._probe()
        contended = wall_ms > CONTENDED * self.reference_ms and self._probes[-2] > CONTENDED * self.reference_ms
        if contended and self.threads > 1 and not self.threads_changed:
            threads_before = self.threads
            self._use_fastest_threads()
            self.threads_changed = self.threads != threads_before
            self.refresh()

    def _probe(self) -> float:
        """Run the probe once, update the slowdown, and return the probe's wall time."""
        wall_ms, probe_ms = timed(self._run_probe)
        self._probes.append(probe_ms)
        self._since_probe = 0.0
        if self.reference_ms:
            self.slowdown = median(self._probes[-WINDOW:]) / self.reference_ms
        return wall_ms

    def _trials(self) -> list[tuple[float, float]]:
        """Probes with the current number of threads, as `timed` gives them."""
        self._run_probe()
        trials: list[tuple[float, float]] = []
        while len(trials) < TRIALS or sum(wall_ms for wall_ms, _ in trials) < TRIAL_MS:
            trials.append(timed(self._run_probe))
        return trials

    def _use_fastest_threads(self) -> None:
        """Use the number of threads with the shortest probes, waiting included; ties go to the largest number."""
        max_threads = self._target.threads
        counts = sorted({max_threads, max_threads - 1, max_threads // 2, 1} - {0}, reverse=True)
        self.threads = min(counts, key=self._mean_ms)
        self._target.use_threads(self.threads)

    def _mean_ms(self, threads: int) -> float:
        self._target.use_threads(threads)
        return fmean(wall_ms for wall_ms, _ in self._trials())


class UsualTimes:
    """The usual time of a forward by its number of rows: the median of the latest, in ms at the pace of the start."""

    def __init__(self) -> None:
        self._latest: dict[int, deque[float]] = {}

    def add(self, rows: int, ms: float) -> None:
        """Record a forward."""
        self._latest.setdefault(rows, deque(maxlen=USUAL_FORWARDS)).append(ms)

    def differs(self, rows: int, ms: float) -> bool:
        """Whether a time is unusual: shorter than usual for no more rows, or longer than usual for no fewer rows."""
        at_most = max((count for count in self._latest if count <= rows), default=None)
        at_least = min((count for count in self._latest if count >= rows), default=None)
        too_short = at_most is not None and ms < median(self._latest[at_most]) / UNUSUAL
        return too_short or (at_least is not None and ms > median(self._latest[at_least]) * UNUSUAL)


def disturb(pace: Pace, reason: str) -> Pace:
    """The pace, marked as disturbed, so that the race's figures do not count."""
    note = f"The machine was disturbed during this race ({reason}): these figures do not count."
    return replace(pace, disturbed=True, note=note)


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """(ms on the wall clock, ms on the thread's own clock) that `run` takes."""
    wall_began = time.perf_counter()
    began_ms = thread_ms()
    run()
    spent_ms = since_ms(began_ms)
    return 1000.0 * (time.perf_counter() - wall_began), spent_ms


def pace_range(probes: Sequence[float], reference_ms: float) -> tuple[float, float]:
    """The smallest and the largest slowdown over any `WINDOW` probes in a row; (1.0, 1.0) for fewer probes."""
    slowdowns = [median(probes[end - WINDOW : end]) / reference_ms for end in range(WINDOW, len(probes) + 1)]
    return (min(slowdowns), max(slowdowns)) if slowdowns and reference_ms else (1.0, 1.0)


def jump_share(probes: Sequence[float]) -> float:
    """The share of probes that jump; a single jump is not counted."""
    jumps = 0
    for index, probe in enumerate(probes):
        middle = median(probes[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1])
        if probe < middle / JUMP or probe > middle * JUMP:
            jumps += 1
    return jumps / len(probes) if jumps > 1 else 0.0


def long_step_share(lanes: dict[str, list[tuple[int, float]]]) -> float:
    """The largest share, over the lanes, of forward time in excess of `LONG_STEP` times the median for the same rows.

    `lanes`: lane -> (rows, ms) of each step.
    """
    times: defaultdict[int, list[float]] = defaultdict(list)
    for rows, ms in chain.from_iterable(lanes.values()):
        times[rows].append(ms)
    limits = {rows: LONG_STEP * median(of_size) for rows, of_size in times.items() if len(of_size) > WINDOW}
    excess = [sum(max(0.0, ms - limits.get(rows, ms)) for rows, ms in steps) for steps in lanes.values()]
    totals = [sum(ms for _, ms in steps) for steps in lanes.values()]
    return max((over / total for over, total in zip(excess, totals, strict=True) if total), default=0.0)
