"""A time limit for code that runs in this process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after `seconds` of processor time inside the `with` block, even within a regular expression.

    This works only in a process's main thread. On systems without such timers there is no limit.
    """
    if not hasattr(signal, "setitimer"):
        yield
        return

    def end(*_: Any) -> None:
        raise TimeoutError

    former = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, former)
