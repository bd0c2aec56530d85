"""Time that a thread spent waiting for a processor: it was ready to run, and the system ran something else.

On a busy machine that is most of what disturbs a clock, and none of it is the work of the thread. Linux counts it for
every thread (`/proc/thread-self/schedstat`, second number, nanoseconds); elsewhere nothing is known, and it is 0.
"""

from __future__ import annotations

import contextlib
import os
import threading
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
