"""Freed memory goes back to the system."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

from specrace.core import memory

STATUS = Path("/proc/self/status")


def resident() -> int:
    """Bytes of private memory, including what the system has swapped out: returned memory is in neither."""
    sizes = re.findall(r"(?:RssAnon|VmSwap):\s*(\d+) kB", STATUS.read_text())
    assert sizes
    return 1024 * sum(map(int, sizes))


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library keeps no freed memory")
def test_freed_memory_is_returned_to_the_system() -> None:
    library = ctypes.CDLL(None)
    library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    # The last block stays allocated, so the library keeps the freed blocks before it.
    pieces = [library.malloc(65_536) for _ in range(1024)]
    for piece in pieces:
        ctypes.memset(piece, 1, 65_536)
    for piece in pieces[:-1]:
        library.free(piece)
    before = resident()
    memory.return_memory()
    # At least half of the 64 MB is back.
    assert resident() < before - 32_000_000
    library.free(pieces[-1])


def test_a_c_library_without_malloc_trim_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str | None] = []

    def open_library(name: str | None) -> object:
        opened.append(name)
        return object()

    monkeypatch.setattr(memory.ctypes, "CDLL", open_library)
    memory.return_memory()
    # None stands for the program's own C library.
    assert opened == [None]
