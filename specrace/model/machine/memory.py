"""The machine that a model runs on: threads, free memory, peak memory."""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from specrace.core.processors import control_groups, count_processors

_CLEAR_PEAK, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_MEMORY, _MAPS = Path("/proc/meminfo"), Path("/proc/self/maps")
# For version 2 and version 1 of control groups: the files with a group's limit and its use, and the prefix of the lines
# in its memory.stat.
_IN_GROUP_2 = ("memory.max", "memory.current", "")
_IN_GROUP_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
_PAUSE_SOFT = 1  # omp_pause_soft in omp.h: keeps the settings


def use_processors(threads: int | None, spare: int) -> None:
    """Set how many threads this thread's forwards use; None: at most one per available processor, except `spare`.

    `spare`: how many processors are left to other work of this machine.

    Threads wait for each other, so one thread that shares its processor with other work slows down all of them.
    """
    torch.set_num_threads(threads or min(torch.get_num_threads(), max(1, count_processors() - spare)))


def free_memory() -> int | None:
    """Bytes that may be allocated before the system swaps or kills processes; None if the system does not say.

    In a container /proc/meminfo describes the host; the container's limit is that of its control group.
    """
    match = re.search(r"MemAvailable:\s*(\d+) kB", _MEMORY.read_text()) if _MEMORY.exists() else None
    host = [1024 * int(match[1])] if match else []
    return min([*host, *_free_in_groups()], default=None)


def _free_in_groups() -> Iterator[int]:
    """Yields the bytes left in each control group that contains this process, directly or not, and has a limit."""
    for folder, is_version_2 in control_groups("memory"):
        yield from _free_in_group(folder, *(_IN_GROUP_2 if is_version_2 else _IN_GROUP_1))


def _free_in_group(folder: Path, limit_file: str, use_file: str, prefix: str) -> Iterator[int]:
    """Yields the bytes left below a group's limit; nothing for a group without a limit.

    Files that the kernel caches count as free, as in MemAvailable: it drops them before it kills a process.
    """
    # ValueError: the limit is the word "max".
    with contextlib.suppress(OSError, ValueError):
        limit = int((folder / limit_file).read_text())
        used = int((folder / use_file).read_text())
        cached = re.findall(rf"^{prefix}(?:in)?active_file (\d+)$", (folder / "memory.stat").read_text(), re.MULTILINE)
        yield max(0, limit - used + sum(map(int, cached)))


def release_threads() -> None:
    """End the OpenMP workers of this thread; its next matrix product starts new ones.

    GNU's runtime counts the workers of all threads that have computed. When these outnumber the processors, workers
    sleep between operations: forwards in another thread, or in llama.cpp, then took 1.4 to 2.3 times as long.
    """
    for path in set(re.findall(r"/\S*libgomp\S*", _MAPS.read_text())) if _MAPS.exists() else ():
        pause = getattr(ctypes.CDLL(path), "omp_pause_resource_all", None)
        if pause is not None:
            pause(_PAUSE_SOFT)


def reset_peak_memory(devices: Sequence[torch.device]) -> None:
    """Restart the measurement of `peak_memory` on `devices`."""
    if devices[0].type == "cuda":
        for device in devices:
            torch.cuda.reset_peak_memory_stats(device)
    elif _CLEAR_PEAK.exists():
        with contextlib.suppress(OSError):
            # Writing 5 sets the peak of the resident set to its current size (proc(5)).
            _CLEAR_PEAK.write_text("5")


def peak_memory(devices: Sequence[torch.device]) -> int | None:
    """The maximum bytes in use since the reset: summed over GPUs, or of the whole process on a CPU; None if unknown."""
    if devices[0].type == "cuda":
        return sum(int(torch.cuda.max_memory_allocated(device)) for device in devices)
    match = re.search(r"VmHWM:\s*(\d+) kB", _STATUS.read_text()) if _STATUS.exists() else None
    return 1024 * int(match[1]) if match else None
