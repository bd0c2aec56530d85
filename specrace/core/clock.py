"""A clock that stands still while its thread waits for a processor: ready to run, and the system runs something else.

On a busy machine that is most of what disturbs a clock, and none of it is the work of the thread. Linux counts it for
every thread (`/proc/thread-self/schedstat`, second number, nanoseconds); elsewhere the clock is the wall's.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

_SCHEDSTAT = Path("/proc/thread-self/schedstat")
_LINE = 96


class _Schedstat(threading.local):
    """The open file of the thread that asks: opened there, it keeps telling of that thread."""

    def __init__(self) -> None:
        self.file = None
        with contextlib.suppress(OSError):
            self.file = _SCHEDSTAT.open("rb", buffering=0)


_schedstat = _Schedstat()


def waited_ms() -> float:
    """Milliseconds that this thread has waited for a processor since it began; always 0.0 where no system tells."""
    file = _schedstat.file
    return 0.0 if file is None else int(os.pread(file.fileno(), _LINE, 0).split()[1]) / 1e6


def own_ms() -> float:
    """Milliseconds on the clock of this thread: differences are what something took, without waiting."""
    return 1000.0 * time.perf_counter() - waited_ms()
