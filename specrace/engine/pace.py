"""The machine's pace: a fixed forward, timed between the lanes' turns, by which their clocks are corrected.

A fast lane ends early and leaves vanilla alone with whatever the machine does next. If another program starts then,
vanilla's last tokens are slower than its first, and every speedup grows. So a race runs a probe between turns, always
the same forward over one row, off every clock. The slowdown, what it takes now over what it took before the first step,
divides the time of each step. What no clock should hold, time in which a thread was ready and the system ran something
else, is left out of steps and probes alike (`specrace.core.clock`).

With several threads that wait for each other, another program costs far more than its share of the processors, and
unevenly. So the number of threads is chosen before the clock starts, by measuring, and once more if a program comes in
mid-race. Where probes jump about all the same, no correction holds, and the race says that its figures do not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median
from typing import Any, Protocol

from specrace.core.clock import own_ms, waited_ms
from specrace.core.events import Pace, Timing
from specrace.core.tree import TokenTree

# Lanes work as long as so many probes take, then there is the next: a ninth of the race's wall time.
PROBE_EVERY = 8
# The pace is the median of so many probes, the last ones: of a few, one may be disturbed.
WINDOW = 5
# What the number of threads is chosen by: so many probes at least, for so long at least, since a program that shares a
# processor has it for some milliseconds at a time. The first run after a change does not count.
TRIALS, TRIAL_MS = 4, 40.0
# A probe so many times longer than the reference: threads wait for each other.
CONTENDED = 3.0
# Before the clock starts, what tells that others use the processors: the share of a probe's time spent waiting for one,
# and how far the longest probe is above the median.
BUSY_SHARE, BUSY_RANGE = 0.05, 1.5
# A probe jumps when it is so far from the median of its neighbours, three on either side. On a machine that only
# drifts, be it to half its speed, up to one in twenty-five did; where threads fight over processors, often one in ten.
JUMP, NEIGHBOURS, MAX_JUMPS = 2.0, 3, 0.05
# A correction by more than this is not believed.
MAX_RANGE = 2.5
# What forwards take beyond so many times the median of all with as many rows, as a share of a lane's: 0.01 at most on
# the drifting machine, 0.05 to 0.5 on the one that is fought over.
LONG_STEP, MAX_LONG_SHARE = 3.0, 0.05


class PaceTarget(Protocol):
    """What can be probed."""

    @property
    def threads(self) -> int:
        """The most threads that a forward may use; 1 where there is no choice."""

    def use_threads(self, count: int) -> None:
        """Let forwards use so many threads."""

    def session(self, prefix: Any, room: int) -> Any:
        """A session on a clone of the prefix."""


class PaceKeeper:
    """Measures the pace of a race. `slowdown` is what the time of a step is divided by now.

    `run` is the probe: one forward, waited for. Between turns `look` runs it where it is due.
    """

    def __init__(self, run: Callable[[], object], target: PaceTarget) -> None:
        self._run, self._target = run, target
        self.threads = target.threads
        self.threads_changed = False
        self.slowdown = 1.0
        self.reference_ms = 0.0
        self._probes: list[float] = []
        self._since_probe = 0.0
        self._steps: dict[str, list[tuple[int, float]]] = {}
        self._waited_before = 0.0

    @classmethod
    def on(cls, target: PaceTarget, prefix: Any, root: int) -> PaceKeeper:
        """A keeper whose probe scores `root` behind the prefix, in a session of its own."""
        session, tree = target.session(prefix, 1), TokenTree.chain(root)
        return cls(lambda: session.score(tree), target)

    def choose_threads(self) -> None:
        """Fewer threads where others use the processors and fewer are measured to be faster."""
        self._target.use_threads(self.threads)
        if self.threads > 1 and self._is_busy():
            self._choose()

    def start(self) -> None:
        """Take the reference. Called right before the first step, which finds the machine warm."""
        self.catch_up()
        self.reference_ms = median(self._probes)
        self._waited_before = waited_ms()

    def catch_up(self) -> None:
        """Probe as often as it takes to know the pace afresh, for instance after work that was not told of."""
        for _ in range(WINDOW):
            self._probe()

    def look(self) -> None:
        """Run the probe if it is due."""
        if self._since_probe < PROBE_EVERY * self.reference_ms:
            return
        wall_ms = self._probe()
        fights = wall_ms > CONTENDED * self.reference_ms and self._probes[-2] > CONTENDED * self.reference_ms
        if fights and self.threads > 1 and not self.threads_changed:
            before = self.threads
            self._choose()
            self.threads_changed = self.threads != before
            self.catch_up()

    def correct(self, lane: str, rows: int, timing: Timing) -> Timing:
        """The times of a step with a tree of so many rows as they would have been at the pace of the start."""
        self._since_probe += timing.total_ms
        parts = (timing.draft_ms, timing.target_ms, timing.keep_ms)
        corrected = Timing(*(part / self.slowdown for part in parts))
        self._steps.setdefault(lane, []).append((rows, corrected.target_ms))
        return corrected

    def release(self) -> None:
        """Let whoever comes next use all threads again."""
        self._target.use_threads(self._target.threads)

    def summary(self) -> Pace:
        """How steady the machine was, and whether the figures count."""
        low, high = pace_range(self._probes, self.reference_ms)
        jumps = share_of_jumps(self._probes)
        reasons = (
            (jumps > MAX_JUMPS, "its speed changed too often to correct for"),
            (high > MAX_RANGE * low, f"its speed changed by a factor of {high / low:.1f}"),
            (self.threads_changed, "other programs took its processors, and it went on with fewer threads"),
            (long_share(self._steps) > MAX_LONG_SHARE, "single steps were held up"),
        )
        why = next((words for holds, words in reasons if holds), "")
        return Pace(
            probes=len(self._probes),
            probe_ms=self.reference_ms,
            low=low,
            high=high,
            jumps=jumps,
            waited_ms=waited_ms() - self._waited_before,
            threads=self.threads,
            disturbed=bool(why),
            note=_note(why, low, high),
        )

    def _probe(self) -> float:
        """Run the probe once and take it in; its wall time."""
        wall_ms, own = timed(self._run)
        self._probes.append(own)
        self._since_probe = 0.0
        if self.reference_ms:
            self.slowdown = median(self._probes[-WINDOW:]) / self.reference_ms
        return wall_ms

    def _is_busy(self) -> bool:
        """Whether probes were kept waiting, or differ by much."""
        walls, owns = zip(*self._trials(), strict=True)
        return bool(sum(owns) < (1 - BUSY_SHARE) * sum(walls) or max(owns) > BUSY_RANGE * median(owns))

    def _trials(self) -> list[tuple[float, float]]:
        """Probes with the number of threads as it is, each as `timed` tells it."""
        self._run()
        found: list[tuple[float, float]] = []
        while len(found) < TRIALS or sum(wall_ms for wall_ms, _ in found) < TRIAL_MS:
            found.append(timed(self._run))
        return found

    def _choose(self) -> None:
        """The number of threads whose probes are shortest, waiting included; the most first, for equals."""
        most = self._target.threads
        counts = sorted({most, most - 1, most // 2, 1} - {0}, reverse=True)
        self.threads = min(counts, key=self._mean_ms)
        self._target.use_threads(self.threads)

    def _mean_ms(self, threads: int) -> float:
        self._target.use_threads(threads)
        return fmean(wall_ms for wall_ms, _ in self._trials())


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """What `run` takes in milliseconds of the wall's clock, and of its thread's own."""
    began, own = time.perf_counter(), own_ms()
    run()
    own = own_ms() - own
    return 1000.0 * (time.perf_counter() - began), own


def pace_range(probes: Sequence[float], reference_ms: float) -> tuple[float, float]:
    """The least and the most slowdown, each over `WINDOW` probes; (1.0, 1.0) where there are no more than those."""
    found = [median(probes[end - WINDOW : end]) / reference_ms for end in range(WINDOW, len(probes) + 1)]
    return (min(found), max(found)) if found and reference_ms else (1.0, 1.0)


def share_of_jumps(probes: Sequence[float]) -> float:
    """How many of the probes are far from their neighbours; a single one is not counted."""
    jumps = 0
    for index, probe in enumerate(probes):
        middle = median(probes[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1])
        jumps += not middle / JUMP <= probe <= middle * JUMP
    return jumps / len(probes) if jumps > 1 else 0.0


def long_share(lanes: dict[str, list[tuple[int, float]]]) -> float:
    """The largest share of a lane's forwards that steps take beyond `LONG_STEP` times the median of their rows."""
    rows: dict[int, list[float]] = {}
    for steps in lanes.values():
        for number, ms in steps:
            rows.setdefault(number, []).append(ms)
    usual = {number: LONG_STEP * median(times) for number, times in rows.items() if len(times) > WINDOW}
    return max((_excess(steps, usual) for steps in lanes.values()), default=0.0)


def _excess(steps: Iterable[tuple[int, float]], usual: dict[int, float]) -> float:
    """Of one lane."""
    total = excess = 0.0
    for number, ms in steps:
        total += ms
        excess += max(0.0, ms - usual.get(number, ms))
    return excess / total if total else 0.0


def _note(why: str, low: float, high: float) -> str:
    """The summary in a sentence."""
    if why:
        return f"The machine was disturbed during this race ({why}): these figures do not count."
    return f"Clocks are corrected for the machine's pace, which was {low:.2f} to {high:.2f} times that of the start."
