"""How time grows with the work, measured so that neither a slow nor a busy machine changes the answer."""

from __future__ import annotations

import time
from collections.abc import Callable

# A hundred times the work takes about 100 times as long if time is linear, and 10,000 times if it is quadratic.
MAX_LINEAR_GROWTH = 1000.0


def growth(work: Callable[[int], object], size: int) -> float:
    """The time of `work` on `100 * size` divided by that on `size`; each is the shortest processor time of three."""
    small, large = (min(_processor_time(work, scaled) for _ in range(3)) for scaled in (size, 100 * size))
    return large / small


def _processor_time(work: Callable[[int], object], size: int) -> float:
    began = time.thread_time()
    work(size)
    return time.thread_time() - began
