"""How time grows with the work, measured so that neither a slow nor a busy machine changes the answer."""

from __future__ import annotations

import time
from collections.abc import Callable

# A hundred times the work takes 100 times as long where time is linear, and 10,000 times where it is quadratic.
LINEAR = 1000.0


def growth(work: Callable[[int], object], size: int) -> float:
    """How many times as long `work` takes on a hundred times `size`, by the shortest processor time of this thread."""
    small, large = (min(_processor_time(work, scaled) for _ in range(3)) for scaled in (size, 100 * size))
    return large / small


def _processor_time(work: Callable[[int], object], size: int) -> float:
    began = time.thread_time()
    work(size)
    return time.thread_time() - began
