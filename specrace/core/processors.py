"""The processors: their name, and how many this process may use, given its affinity and control groups' limits."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_INFO = Path("/proc/cpuinfo")
# The keys in /proc/cpuinfo that identify a processor: on x86 its name, on ARM the numbers of its maker and its design.
_NAME, _ARM_NUMBERS = "model name", ("CPU implementer", "CPU part")
_GROUPS, _OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def count_processors() -> int:
    """The number of processors this process may use, at least 1.

    A limit on a container's processor time (`docker run --cpus 2`) is rounded down to whole processors.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *(int(limit) for limit in _limits())]))


@cache
def processor_name() -> str:
    """The processor's name from Linux (on ARM "CPU implementer 0x41, CPU part 0xd0c"), else from Python."""
    facts: dict[str, str] = {}
    for line in _INFO.read_text(errors="replace").splitlines() if _INFO.exists() else ():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    numbers = ", ".join(f"{key} {facts[key]}" for key in _ARM_NUMBERS if key in facts)
    return facts.get(_NAME) or numbers or platform.processor() or platform.machine()


def control_groups(controller: str) -> Iterator[tuple[Path, bool]]:
    """The folder of each control group this process is in, the innermost first, and whether it is of version 2.

    A folder may not exist: in a container the innermost group may be mounted at the top, regardless of its path.
    """
    for line in _OWN_GROUPS.read_text().splitlines() if _OWN_GROUPS.exists() else ():
        # "number:controllers:path"; version 2 names no controllers.
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = _GROUPS / controller if controllers else _GROUPS
        innermost = top / path.lstrip("/")
        for folder in (innermost, *innermost.parents):
            if folder.is_relative_to(top):
                yield folder, not controllers


def _limits() -> Iterator[float]:
    """The number of processors granted by each control group that has a limit."""
    for folder, is_version_2 in control_groups("cpu"):
        try:
            if is_version_2:
                quota, period = (folder / "cpu.max").read_text().split()
            else:
                quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            # Without a limit the quota is the word "max", or -1.
            if quota != "max" and int(quota) > 0:
                yield int(quota) / int(period)
        except (OSError, ValueError, ZeroDivisionError):
            continue
