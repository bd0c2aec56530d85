"""The priority of the processes that work beside races."""

from __future__ import annotations

import contextlib
import os

# The environment variable with the niceness of helper processes, for machines on which nobody watches a race.
NICENESS = "SPECRACE_HELPER_NICE"
# A tenth of the processor time of a busy process. With the lowest priority, 19, a document of one line was not read
# within 280 s beside two processes that never wait, with this one in 10 s.
DEFAULT = 10


def lower_priority() -> None:
    """Give this process a low priority, so that it hardly slows a race, on systems that can."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        os.nice(int(os.environ.get(NICENESS, DEFAULT)))
