"""The memory of this process."""

from __future__ import annotations

import ctypes


def return_memory() -> None:
    """Return to the system the freed memory that the C library still holds: hundreds of MB after loading a model."""
    # Only glibc has this function.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
