"""The memory of this process."""

from __future__ import annotations

import ctypes


def return_memory() -> None:
    """Give the system the memory back that the C library keeps from what was freed: hundreds of MB after a load."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
