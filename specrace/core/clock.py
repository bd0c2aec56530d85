"""A thread's clock, which leaves out the time in which the thread was ready to run but had no processor.

On a busy machine that wait is the main disturbance of a measurement. Linux counts it for every thread (the second
number in `/proc/thread-self/schedstat`, in nanoseconds); on other systems the clock is the wall clock.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

_SCHEDSTAT = Path("/proc/thread-self/schedstat")
# Longer than the file's only line: three numbers.
_MAX_LINE_BYTES = 96


class _Schedstat(threading.local):
    """The calling thread's open file; a file opened in another thread would report that thread's wait."""

    def __init__(self) -> None:
        self.file = None
        with contextlib.suppress(OSError):
            self.file = _SCHEDSTAT.open("rb", buffering=0)


_schedstat = _Schedstat()


def waited_ms() -> float:
    """Milliseconds this thread has waited for a processor since it started; 0.0 where the system does not count."""
    file = _schedstat.file
    return 0.0 if file is None else int(os.pread(file.fileno(), _MAX_LINE_BYTES, 0).split()[1]) / 1e6


def waited_ms_by_thread() -> dict[str, float]:
    """The `waited_ms` of every thread of this process, by thread id; empty where the system does not count."""
    waits = {}
    for file in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # the thread has ended
            waits[file.parent.name] = int(file.read_text().split()[1]) / 1e6
    return waits


def thread_ms() -> float:
    """The time on this thread's clock, in milliseconds; only differences mean something (see `since_ms`).

    The wall clock and the wait count must belong to the same moment. If the thread had to wait between the two reads,
    they are taken again; otherwise that wait would be added to one step's time and subtracted from another's.
    """
    waited = waited_ms()
    while True:
        now = 1000.0 * time.perf_counter()
        if (later := waited_ms()) == waited:
            return now - waited
        waited = later


def since_ms(began: float, clock: Callable[[], float] = thread_ms) -> float:
    """Milliseconds on this thread's clock since it read `began`; 0.0 instead of a slightly negative difference.

    The clock is the wall clock less the wait count, and these two drift apart a little.
    """
    return max(0.0, clock() - began)
