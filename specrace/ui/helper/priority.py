"""The priority of the processes that work beside races."""

from __future__ import annotations

import contextlib
import os

# The environment variable with the niceness of helper processes, for machines on which nobody watches a race.
NICENESS = "SPECRACE_HELPER_NICE"
LOWEST = 19


def lower_priority() -> None:
    """Give this process the lowest priority, so that it slows no race, on systems that can."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        os.nice(int(os.environ.get(NICENESS, LOWEST)))
