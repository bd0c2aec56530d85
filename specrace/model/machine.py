"""The machine under a model: its processors and its peak memory."""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from specrace.core.processors import groups, processors

_CLEAR_PEAK, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_MEMORY, _MAPS = Path("/proc/meminfo"), Path("/proc/self/maps")
# A control group's limit, what it uses, and how the lines of its memory.stat begin; in version 2 and 1.
_IN_GROUP_2 = ("memory.max", "memory.current", "")
_IN_GROUP_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
_PAUSE_SOFT = 1  # omp_pause_soft in omp.h: settings stay


def use_processors(threads: int | None, spare: int) -> None:
    """Set the threads of this thread's forwards; None: as many as the process has processors, less `spare`.

    Threads wait for each other, so one that shares its processor with other work slows them all.
    """
    torch.set_num_threads(threads or min(torch.get_num_threads(), max(1, processors() - spare)))


def free_memory() -> int | None:
    """Bytes that new work may take before the system swaps or kills; None where Linux does not state it.

    In a container /proc/meminfo is the host's; the limit is that of a control group.
    """
    found = re.search(r"MemAvailable:\s*(\d+) kB", _MEMORY.read_text()) if _MEMORY.exists() else None
    host = [1024 * int(found[1])] if found else []
    return min([*host, *_free_in_groups()], default=None)


def _free_in_groups() -> Iterator[int]:
    """What is left in each control group that this process is in and that has a limit, the groups around it too."""
    for folder, second in groups("memory"):
        yield from _free_in_group(folder, *(_IN_GROUP_2 if second else _IN_GROUP_1))


def _free_in_group(folder: Path, limit: str, used: str, kind: str) -> Iterator[int]:
    """The bytes below the limit; nothing for a group without one. Files that the kernel caches are free, as in
    MemAvailable: it drops them before it kills.
    """
    # ValueError: the limit is the word "max".
    with contextlib.suppress(OSError, ValueError):
        most, now = (int((folder / name).read_text()) for name in (limit, used))
        cached = re.findall(rf"^{kind}(?:in)?active_file (\d+)$", (folder / "memory.stat").read_text(), re.MULTILINE)
        yield max(0, most - now + sum(map(int, cached)))


def release_threads() -> None:
    """End the OpenMP workers of this thread; its next product starts new ones.

    GNU's runtime counts the workers of all threads that have computed. Where they outnumber the processors they sleep
    between two operations, and the forward of another thread, or llama.cpp's, took 1.4 to 2.3 times as long.
    """
    for path in set(re.findall(r"/\S*libgomp\S*", _MAPS.read_text())) if _MAPS.exists() else ():
        pause = getattr(ctypes.CDLL(path), "omp_pause_resource_all", None)
        if pause is not None:
            pause(_PAUSE_SOFT)


def reset_peak_memory(devices: Sequence[torch.device]) -> None:
    """Restart the measurement of `peak_memory`."""
    if devices[0].type == "cuda":
        for device in devices:
            torch.cuda.reset_peak_memory_stats(device)
    elif _CLEAR_PEAK.exists():
        with contextlib.suppress(OSError):
            # 5: the peak of the resident set is now its size (proc(5)).
            _CLEAR_PEAK.write_text("5")


def peak_memory(devices: Sequence[torch.device]) -> int | None:
    """Most bytes in use since the reset: on GPUs their sum, on a CPU the whole process; None where unknown."""
    if devices[0].type == "cuda":
        return sum(int(torch.cuda.max_memory_allocated(device)) for device in devices)
    found = re.search(r"VmHWM:\s*(\d+) kB", _STATUS.read_text()) if _STATUS.exists() else None
    return 1024 * int(found[1]) if found else None
