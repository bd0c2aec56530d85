"""The machine's pace: probe forwards between steps, by which the lanes' clocks are corrected.

A fast lane finishes early and leaves vanilla alone with whatever the machine does next. If another program starts then,
vanilla's last tokens are slower than its first, and every speedup grows. So a race runs a probe between steps: always
the same forward over one row, on no lane's clock. The slowdown is the probe's latency now over its latency before the
first step; each step's time is divided by it. A step of an unusual length is followed by a probe before it is
corrected, so that a lane of few long steps is not measured at a former pace. Time in which a thread was ready but not
scheduled is subtracted from steps and probes alike (`specrace.core.clock`).

With several threads that wait for each other, another program costs far more than its share of the processors, and
unevenly. So the number of threads is measured and chosen before the clock starts, and once more if a program starts
mid-race. If probes still vary too much, no correction holds, and the race reports that its figures do not count.
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

# Lane time between two probes, in probes: probing takes a ninth of the race's wall time.
PROBE_EVERY = 8
# The pace is the median of the last WINDOW probes: one of them may be disturbed.
WINDOW = 5
# A step or a probe off its usual time by this factor may be the first after a change: it is looked into at once.
UNUSUAL = 1.25
# Of so many latest forwards with as many rows.
USUAL = 9
# Probes for each number of threads: at least TRIALS, for at least TRIAL_MS, because a program that shares a processor
# holds it for milliseconds at a time. The first probe after a change does not count.
TRIALS, TRIAL_MS = 4, 40.0
# A probe this many times longer than the reference: threads wait for each other.
CONTENDED = 3.0
# Signs of a busy machine before the clock starts: the share of the probes' time spent waiting for a processor, and
# the longest probe over the median.
BUSY_SHARE, BUSY_RANGE = 0.05, 1.5
# A probe jumps when it differs by the factor JUMP from the median of its neighbours, three on either side. On a machine
# that only drifts, even to half its speed, up to one in 25 jumped; where threads contend for processors, one in ten.
JUMP, NEIGHBOURS, MAX_JUMPS = 2.0, 3, 0.05
# A larger correction is not trusted.
MAX_RANGE = 2.5
# The share of a lane's forward time beyond LONG_STEP times the median forward with as many rows: at most 0.01 on the
# drifting machine, 0.05 to 0.5 on the contended one.
LONG_STEP, MAX_LONG_SHARE = 3.0, 0.05
TOO_FAST = "a lane came out faster than its tokens per step allow"


class PaceTarget(Protocol):
    """A target that can be probed."""

    @property
    def threads(self) -> int:
        """The most threads that a forward may use; 1 where there is no choice."""

    def use_threads(self, count: int) -> None:
        """Run forwards on `count` threads."""

    def session(self, prefix: Any, room: int, *, rows: Sequence[int]) -> Any:
        """A session on a clone of the prefix, for trees of so many rows."""


class PaceKeeper:
    """Measures the pace of a race. `run` is the probe, a synchronised forward; step times are divided by `slowdown`."""

    def __init__(self, run: Callable[[], object], target: PaceTarget) -> None:
        self._run, self._target = run, target
        self.threads = target.threads
        self.threads_changed = False
        self.slowdown = 1.0
        self.reference_ms = 0.0
        self._probes: list[float] = []
        self._since_probe = 0.0
        self._steps: dict[str, list[tuple[int, float]]] = {}
        self._usual = UsualTimes()
        self._waited_before = 0.0

    @classmethod
    def on(cls, target: PaceTarget, prefix: Any, root: int) -> PaceKeeper:
        """A keeper whose probe scores `root` after the prefix, in its own session."""
        session, tree = target.session(prefix, 1, rows=(1,)), TokenTree.chain(root)
        return cls(lambda: session.score(tree), target)

    def choose_threads(self) -> None:
        """Use fewer threads if the machine is busy and fewer are measured to be faster.

        It is busy if probes wait for a processor, or vary much.
        """
        self.threads = self._target.threads
        self._target.use_threads(self.threads)
        if self.threads > 1:
            walls, owns = zip(*self._trials(), strict=True)
            if sum(owns) < (1 - BUSY_SHARE) * sum(walls) or max(owns) > BUSY_RANGE * median(owns):
                self._choose()

    def start(self) -> None:
        """Measure the reference. Call right before the first step of each run, on a warm machine."""
        self.threads_changed, self.slowdown, self.reference_ms = False, 1.0, 0.0
        self._probes, self._steps, self._usual = [], {}, UsualTimes()
        self.refresh()
        self.reference_ms = median(self._probes)
        self._usual.add(1, self.reference_ms)
        self._waited_before = waited_ms()

    def refresh(self) -> None:
        """Fill the window with new probes, for instance after work that was not reported to `correct`."""
        for _ in range(WINDOW):
            self._probe()

    def probe_if_due(self) -> None:
        """Run the probe if the lanes have worked long enough since the last one; never before `start`."""
        if self.reference_ms and self._since_probe >= PROBE_EVERY * self.reference_ms:
            self._look()

    def correct(self, lane: str, rows: int, timing: Timing) -> Timing:
        """The times of a step with a tree of `rows` nodes, as they would have been at the pace of the start.

        An unusual time may mean that the pace has changed: then the probe runs first.
        """
        self._since_probe += timing.total_ms
        if self.reference_ms and self._usual.differs(rows, timing.target_ms / self.slowdown):
            self._look()
        parts = (timing.draft_ms, timing.target_ms, timing.keep_ms)
        corrected = Timing(*(part / self.slowdown for part in parts))
        self._usual.add(rows, corrected.target_ms)
        self._steps.setdefault(lane, []).append((rows, corrected.target_ms))
        return corrected

    def release(self) -> None:
        """Let the target use all threads again."""
        self._target.use_threads(self._target.threads)

    def summary(self, lanes: Mapping[str, LaneMetrics] | None = None) -> Pace:
        """How steady the machine was, and whether the figures count, those of the `lanes` by name if given."""
        low, high = pace_range(self._probes, self.reference_ms)
        jumps = jump_share(self._probes)
        reasons = (
            (jumps > MAX_JUMPS, "its speed changed too often to correct for"),
            (high > MAX_RANGE * low, f"its speed changed by a factor of {high / low:.1f}"),
            (self.threads_changed, "other programs took its processors, and it went on with fewer threads"),
            (long_step_share(self._steps) > MAX_LONG_SHARE, "single steps were held up"),
            (lanes is not None and too_fast(lanes), TOO_FAST),
        )
        why = next((words for holds, words in reasons if holds), "")
        found = Pace(
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
        return disturb(found, why) if why else found

    def _look(self) -> None:
        """Run the probe; where it is unusual, so often that the median follows if the pace has changed."""
        before = self.slowdown * self.reference_ms
        wall_ms = self._probe()
        if not before / UNUSUAL <= self._probes[-1] <= before * UNUSUAL:
            for _ in range(WINDOW // 2):
                wall_ms = self._probe()
        contended = wall_ms > CONTENDED * self.reference_ms and self._probes[-2] > CONTENDED * self.reference_ms
        if contended and self.threads > 1 and not self.threads_changed:
            count = self.threads
            self._choose()
            self.threads_changed = self.threads != count
            self.refresh()

    def _probe(self) -> float:
        """Run the probe once, update the slowdown, and return the probe's wall time."""
        wall_ms, own = timed(self._run)
        self._probes.append(own)
        self._since_probe = 0.0
        if self.reference_ms:
            self.slowdown = median(self._probes[-WINDOW:]) / self.reference_ms
        return wall_ms

    def _trials(self) -> list[tuple[float, float]]:
        """Probes with the current number of threads, as (wall, own) milliseconds."""
        self._run()
        found: list[tuple[float, float]] = []
        while len(found) < TRIALS or sum(wall_ms for wall_ms, _ in found) < TRIAL_MS:
            found.append(timed(self._run))
        return found

    def _choose(self) -> None:
        """Use the number of threads with the shortest probes, waiting included; of equals the largest."""
        most = self._target.threads
        counts = sorted({most, most - 1, most // 2, 1} - {0}, reverse=True)
        self.threads = min(counts, key=self._mean_ms)
        self._target.use_threads(self.threads)

    def _mean_ms(self, threads: int) -> float:
        self._target.use_threads(threads)
        return fmean(wall_ms for wall_ms, _ in self._trials())


class UsualTimes:
    """What forwards take by their number of rows: the median of the latest, in ms at the pace of the start."""

    def __init__(self) -> None:
        self._latest: dict[int, deque[float]] = {}

    def add(self, rows: int, ms: float) -> None:
        """One more forward."""
        self._latest.setdefault(rows, deque(maxlen=USUAL)).append(ms)

    def differs(self, rows: int, ms: float) -> bool:
        """Whether this is shorter than forwards over as many rows or fewer, or longer than those over more."""
        fewer = max((count for count in self._latest if count <= rows), default=None)
        more = min((count for count in self._latest if count >= rows), default=None)
        too_short = fewer is not None and ms < median(self._latest[fewer]) / UNUSUAL
        return too_short or (more is not None and ms > median(self._latest[more]) * UNUSUAL)


def disturb(pace: Pace, why: str) -> Pace:
    """The same, with figures that do not count; `why` is the reason."""
    note = f"The machine was disturbed during this race ({why}): these figures do not count."
    return replace(pace, disturbed=True, note=note)


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds that `run` takes: on the wall clock, and on its thread's own clock."""
    began, own = time.perf_counter(), thread_ms()
    run()
    own = since_ms(own)
    return 1000.0 * (time.perf_counter() - began), own


def pace_range(probes: Sequence[float], reference_ms: float) -> tuple[float, float]:
    """The least and the greatest slowdown over `WINDOW` probes; (1.0, 1.0) for fewer probes."""
    found = [median(probes[end - WINDOW : end]) / reference_ms for end in range(WINDOW, len(probes) + 1)]
    return (min(found), max(found)) if found and reference_ms else (1.0, 1.0)


def jump_share(probes: Sequence[float]) -> float:
    """The share of probes that jump; a single jump is not counted."""
    jumps = 0
    for index, probe in enumerate(probes):
        middle = median(probes[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1])
        jumps += not middle / JUMP <= probe <= middle * JUMP
    return jumps / len(probes) if jumps > 1 else 0.0


def long_step_share(lanes: dict[str, list[tuple[int, float]]]) -> float:
    """The largest share of a lane's forward time beyond `LONG_STEP` times the median for the same number of rows.

    `lanes` holds each lane's steps as (rows, milliseconds).
    """
    times: defaultdict[int, list[float]] = defaultdict(list)
    for rows, ms in chain.from_iterable(lanes.values()):
        times[rows].append(ms)
    limits = {rows: LONG_STEP * median(found) for rows, found in times.items() if len(found) > WINDOW}
    excess = [sum(max(0.0, ms - limits.get(rows, ms)) for rows, ms in steps) for steps in lanes.values()]
    totals = [sum(ms for _, ms in steps) for steps in lanes.values()]
    return max((over / total for over, total in zip(excess, totals, strict=True) if total), default=0.0)
