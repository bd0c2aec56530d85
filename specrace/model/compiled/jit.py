"""How the decoder is compiled: it runs without Python's lock, and no division raises, so that loops become vectors."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from llvmlite import ir
from numba import njit

compiled: Callable[..., Any] = partial(njit, nogil=True, error_model="numpy")


def cached(function: Callable[..., Any], variant: str = "") -> Any:
    """Compiled at its first call, and kept on the disk where there is a place for it.

    numba compiles again when the function's own file changes, but not for what it calls in others. So it is kept under
    a name that holds a checksum of this folder, and which variant of the function it is.
    """
    checksum = 0
    for file in sorted(Path(__file__).parent.glob("*.py")):
        checksum = zlib.crc32(file.read_bytes(), checksum)
    function.__qualname__ += f"_{checksum:08x}{variant}"
    try:
        return compiled(function, cache=True)
    except RuntimeError:  # no folder that can be written
        return compiled(function)


def lowered(result: Any, arguments: Sequence[Any], write: Callable[[ir.IRBuilder, list[ir.Value]], Any]) -> Any:
    """What numba's `intrinsic` asks for: types, and the code that `write` writes, of a builder and the arguments."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: list[ir.Value]) -> ir.Value:
        found = write(builder, args)
        return context.get_dummy_value() if found is None else found

    return result(*arguments), generate
