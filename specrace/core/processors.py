"""How many processors this process may use: those it may run on, and no more than its control groups grant."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_GROUPS, _OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def processors() -> int:
    """At least 1. A container's share of the processor's time (`docker run --cpus 2`) counts in whole processors."""
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([mine, *(int(share) for share in _shares())]))


def groups(controller: str) -> Iterator[tuple[Path, bool]]:
    """The folders of the control groups that this process is in, its own first; and whether they are version 2's.

    In a container its own group may be the top, whatever the path says: folders may not be there.
    """
    for line in _OWN_GROUPS.read_text().splitlines() if _OWN_GROUPS.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = _GROUPS / controller if controllers else _GROUPS
        own = top / path.lstrip("/")
        yield from ((folder, not controllers) for folder in (own, *own.parents) if folder.is_relative_to(top))


def _shares() -> Iterator[float]:
    """Processors that each control group with a limit grants."""
    for folder, second in groups("cpu"):
        try:
            if second:
                quota, period = (folder / "cpu.max").read_text().split()
            else:
                quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            # Without a limit the quota is the word "max", or -1.
            if quota != "max" and int(quota) > 0:
                yield int(quota) / int(period)
        except (OSError, ValueError, ZeroDivisionError):
            continue
