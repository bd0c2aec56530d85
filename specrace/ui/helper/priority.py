"""The priority of the processes that work beside races."""

from __future__ import annotations

import contextlib
import os

# The environment variable that sets the niceness of helper processes, for machines on which nobody watches a race.
NICENESS = "SPECRACE_HELPER_NICE"
# With this niceness a process gets about a tenth of the processor time of one with normal priority. Beside two
# processes that never wait, reading a document of one line took 10 s; with niceness 19, the lowest priority, it took
# more than 280 s.
DEFAULT = 10


def lower_priority() -> None:
    """Give this process a low priority, so that it hardly slows a race, on systems that can."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        os.nice(int(os.environ.get(NICENESS, DEFAULT)))
