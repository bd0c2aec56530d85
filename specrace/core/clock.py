"""A clock that excludes the time its thread was ready but not scheduled, because another process had the processor.

On a busy machine that is most of what disturbs a measurement. Linux counts it for every thread (the second number of
`/proc/thread-self/schedstat`, nanoseconds); elsewhere this is the wall clock.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

_SCHEDSTAT = Path("/proc/thread-self/schedstat")
_LINE = 96


class _Schedstat(threading.local):
    """The open file of the calling thread; one opened in another thread would show that thread."""

    def __init__(self) -> None:
        self.file = None
        with contextlib.suppress(OSError):
            self.file = _SCHEDSTAT.open("rb", buffering=0)


_schedstat = _Schedstat()


def waited_ms() -> float:
    """Milliseconds that this thread was ready but not scheduled since it started; 0.0 where the system has no count."""
    file = _schedstat.file
    return 0.0 if file is None else int(os.pread(file.fileno(), _LINE, 0).split()[1]) / 1e6


def waits_ms() -> dict[str, float]:
    """Thread id -> `waited_ms` of every thread of this process; empty where the system has no count."""
    found = {}
    for file in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # the thread has ended
            found[file.parent.name] = int(file.read_text().split()[1]) / 1e6
    return found


def own_ms() -> float:
    """This thread's clock in milliseconds; only differences mean something, as `since_ms` takes them.

    Both counts are read without a wait in between: milliseconds between them would be missing from one step's time, or
    in it.
    """
    waited = waited_ms()
    while True:
        now = 1000.0 * time.perf_counter()
        if (later := waited_ms()) == waited:
            return now - waited
        waited = later


def since_ms(began: float, clock: Callable[[], float] = own_ms) -> float:
    """Milliseconds on this thread's clock since it was `began`; 0.0 where the system's two counts run apart."""
    return max(0.0, clock() - began)
