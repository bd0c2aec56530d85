"""The machine under a model: its processors and its peak memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Sequence
from pathlib import Path

import torch

_CLEAR_PEAK, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_MEMORY, _MAPS = Path("/proc/meminfo"), Path("/proc/self/maps")
_PAUSE_SOFT = 1  # omp_pause_soft in omp.h: settings stay


def use_processors(threads: int | None, spare: int) -> None:
    """Set the threads of this thread's forwards; None: as many as the process has processors, less `spare`.

    Threads wait for each other, so one that shares its processor with other work slows them all.
    """
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(threads or min(torch.get_num_threads(), max(1, mine - spare)))


def free_memory() -> int | None:
    """Bytes that new work may take before the system swaps or kills; None where Linux does not state it."""
    found = re.search(r"MemAvailable:\s*(\d+) kB", _MEMORY.read_text()) if _MEMORY.exists() else None
    return 1024 * int(found[1]) if found else None


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
