"""The machine's pace, which probe forwards between steps measure; the lanes' clocks are corrected for it.

A fast lane finishes early, and vanilla continues alone. If another program starts then, vanilla's last tokens take
longer than its first, and every speedup grows. So a race runs a probe between steps: always the same forward over one
row, on no lane's clock. The slowdown is the probe's latency now over its latency before the first step; each step's
time is divided by it. After a step of unusual length the probe runs before the step is corrected, so that a lane with
few long steps is not corrected by an old pace. Time in which a thread was ready but not scheduled is subtracted from
steps and probes alike (`specrace.core.clock`).

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

# For the numbers without a reason below, no record says how they were chosen.
# A probe runs after every PROBE_EVERY probe latencies of lane time, so probing takes a ninth of the wall time.
PROBE_EVERY = 8
# The pace is the median of the last WINDOW probes, because a single one may be disturbed.
WINDOW = 5
# A step or probe that differs from its usual time by this factor may be the first after a change of pace.
UNUSUAL = 1.25
# A usual time is the median of this many latest forwards of one size.
USUAL_FORWARDS = 9
# A number of threads is tried with at least TRIALS probes for at least TRIAL_MS, because a program that shares a
# processor holds it for milliseconds at a time.
TRIALS, TRIAL_MS = 4, 40.0
# A probe this many times longer than the reference means that threads wait for each other.
CONTENDED = 3.0
# Before the clock starts, the machine is busy if probes spend more than BUSY_SHARE of their time waiting for a
# processor, or if the longest probe takes more than BUSY_RANGE times the median.
BUSY_SHARE, BUSY_RANGE = 0.05, 1.5
# A probe jumps if it differs by the factor JUMP from the median of itself and NEIGHBOURS probes on either side.
# Corrections are trusted if at most MAX_JUMPS of the probes jump. On a machine that only drifted, even to half
# its speed, up to one probe in 25 jumped; with contention for processors, one in ten.
JUMP, NEIGHBOURS, MAX_JUMPS = 2.0, 3, 0.05
# If the slowest pace is more than this factor slower than the fastest, corrections are not trusted.
MAX_RANGE = 2.5
# A forward is too long beyond LONG_STEP times the median forward of the same size. Corrections are trusted if at most
# MAX_LONG_SHARE of a lane's forward time lies beyond that limit. That share was at most 0.01 on the drifting
# machine, and 0.05 to 0.5 with contention.
LONG_STEP, MAX_LONG_SHARE = 3.0, 0.05
TOO_FAST = "a lane was faster than its tokens per step allow"


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
    """Measures the pace of a race. `run_probe` runs one forward to its end. Step times are divided by `slowdown`."""

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
    def for_target(cls, target: PaceTarget, prefix: Any, root: int) -> PaceKeeper:
        """A keeper whose probe scores the token `root` after the prefix, in a new session."""
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
            wall_times_ms, clock_times_ms = zip(*self._trials(), strict=True)
            waits = sum(clock_times_ms) < (1 - BUSY_SHARE) * sum(wall_times_ms)
            if waits or max(clock_times_ms) > BUSY_RANGE * median(clock_times_ms):
                self._use_fastest_threads()

    def start(self) -> None:
        """Measure the reference. Call this after the warm-up, immediately before the first step of each run."""
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
        """Run the probe if the lanes have run long enough since the last probe; never before `start`."""
        if self.reference_ms and self._since_probe >= PROBE_EVERY * self.reference_ms:
            self._check_pace()

    def correct(self, lane: str, rows: int, timing: Timing) -> Timing:
        """The times that a step with a forward over `rows` rows would have taken at the pace of the start.

        An unusual time may mean that the pace has changed, so the probe then runs before the correction.
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
        """How steady the machine was, and whether the race's figures count.

        The figures do not count, either, if one of the `lanes` was faster than its tokens per step allow.
        """
        low, high = pace_range(self._probes, self.reference_ms)
        jumps = jump_share(self._probes)
        # The thread's clock may not advance at all during a tiny model's forward.
        factor = f"by a factor of {high / low:.1f}" if low else "from what no clock could measure"
        possible_reasons = (
            (jumps > MAX_JUMPS, "its speed changed too often to correct for"),
            (high > MAX_RANGE * low, f"its speed changed {factor}"),
            (self.threads_changed, "other programs took its processors, and the race went on with fewer threads"),
            (long_step_share(self._steps) > MAX_LONG_SHARE, "single steps were held up"),
            (lanes is not None and too_fast(lanes), TOO_FAST),
        )
        reason = next((reason for applies, reason in possible_reasons if applies), "")
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
        expected_ms = self.slowdown * self.reference_ms
        wall_ms = self._probe()
        if not expected_ms / UNUSUAL <= self._probes[-1] <= expected_ms * UNUSUAL:
            for _ in range(WINDOW // 2):
                wall_ms = self._probe()
        # Two probes in a row, because a single one may be disturbed.
        contended = wall_ms > CONTENDED * self.reference_ms and self._probes[-2] > CONTENDED * self.reference_ms
        if contended and self.threads > 1 and not self.threads_changed:
            threads_before = self.threads
            self._use_fastest_threads()
            self.threads_changed = self.threads != threads_before
            self.refresh()

    def _probe(self) -> float:
        """Run the probe once, update the slowdown, and return the probe's wall time."""
        wall_ms, probe_ms = timed(self._run_probe)
        # A probe that waited for a processor almost all the time may seem to have taken none.
        self._probes.append(max(probe_ms, 1e-6))
        self._since_probe = 0.0
        if self.reference_ms:
            self.slowdown = median(self._probes[-WINDOW:]) / self.reference_ms
        return wall_ms

    def _trials(self) -> list[tuple[float, float]]:
        """The times of probes with the current number of threads, as `timed` returns them."""
        # The first probe after a change of threads is slower.
        self._run_probe()
        trials: list[tuple[float, float]] = []
        while len(trials) < TRIALS or sum(wall_ms for wall_ms, _ in trials) < TRIAL_MS:
            trials.append(timed(self._run_probe))
        return trials

    def _use_fastest_threads(self) -> None:
        """Use the number of threads with the shortest mean wall time of a probe; ties go to the largest number."""
        max_threads = self._target.threads
        counts = sorted({max_threads, max_threads - 1, max_threads // 2, 1} - {0}, reverse=True)
        self.threads = min(counts, key=self._mean_ms)
        self._target.use_threads(self.threads)

    def _mean_ms(self, threads: int) -> float:
        """The mean wall time of probes on this number of threads, in ms."""
        self._target.use_threads(threads)
        return fmean(wall_ms for wall_ms, _ in self._trials())


class UsualTimes:
    """The usual time of a forward by its number of rows: the median of the latest ones, in ms at the start's pace."""

    def __init__(self) -> None:
        self._latest: dict[int, deque[float]] = {}

    def add(self, rows: int, ms: float) -> None:
        """Record a forward."""
        self._latest.setdefault(rows, deque(maxlen=USUAL_FORWARDS)).append(ms)

    def differs(self, rows: int, ms: float) -> bool:
        """Whether a forward's time is unusual.

        The time is unusual if it is shorter than usual for the nearest size with no more rows, or longer than usual for
        the nearest size with no fewer rows.
        """
        smaller = max((count for count in self._latest if count <= rows), default=None)
        larger = min((count for count in self._latest if count >= rows), default=None)
        if smaller is not None and ms < median(self._latest[smaller]) / UNUSUAL:
            return True
        return larger is not None and ms > median(self._latest[larger]) * UNUSUAL


def disturb(pace: Pace, reason: str) -> Pace:
    """The pace, marked as disturbed, so that the race's figures do not count."""
    note = f"The machine was disturbed during this race ({reason}): these figures do not count."
    return replace(pace, disturbed=True, note=note)


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """The time that `run` takes: (ms on the wall clock, ms on the thread's clock, which leaves out waiting)."""
    wall_start_s = time.perf_counter()
    thread_start_ms = thread_ms()
    run()
    thread_spent_ms = since_ms(thread_start_ms)
    return 1000.0 * (time.perf_counter() - wall_start_s), thread_spent_ms


def pace_range(probes: Sequence[float], reference_ms: float) -> tuple[float, float]:
    """The smallest and the largest slowdown over any `WINDOW` probes in a row; (1.0, 1.0) for fewer probes."""
    if len(probes) < WINDOW:
        return 1.0, 1.0
    slowdowns = [median(probes[end - WINDOW : end]) / reference_ms for end in range(WINDOW, len(probes) + 1)]
    return min(slowdowns), max(slowdowns)


def jump_share(probes: Sequence[float]) -> float:
    """The share of probes that jump; 0.0 if only one does, because one may be disturbed by chance."""
    jumps = 0
    for index, probe in enumerate(probes):
        usual = median(probes[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1])
        if probe < usual / JUMP or probe > usual * JUMP:
            jumps += 1
    return jumps / len(probes) if jumps > 1 else 0.0


def long_step_share(lanes: dict[str, list[tuple[int, float]]]) -> float:
    """The largest share, over the lanes, of forward time in excess of `LONG_STEP` times the median for the same rows.

    `lanes`: lane -> (rows, ms) of each step.
    """
    times: defaultdict[int, list[float]] = defaultdict(list)
    for rows, ms in chain.from_iterable(lanes.values()):
        times[rows].append(ms)
    # A size that ran no more than WINDOW times has no limit, because its median may be disturbed, too.
    limits = {rows: LONG_STEP * median(row_times) for rows, row_times in times.items() if len(row_times) > WINDOW}
    shares = [0.0]
    for steps in lanes.values():
        total_ms = sum(ms for _, ms in steps)
        excess_ms = sum(max(0.0, ms - limits.get(rows, ms)) for rows, ms in steps)
        if total_ms:
            shares.append(excess_ms / total_ms)
    return max(shares)
