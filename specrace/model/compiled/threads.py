"""How the compiled decoder's threads wait for each other and for a job, without Python. Addresses are int64."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from specrace.model.compiled.jit import compiled, lowered

# Turns of waiting before a thread offers its processor to others.
_TURNS = 2000
_LONG = ir.IntType(64)
# Of the C library.
_sched_yield = types.ExternalFunction("sched_yield", types.int32())
_read = types.ExternalFunction("read", types.int64(types.int32, types.int64, types.int64))
_write = types.ExternalFunction("write", types.int64(types.int32, types.int64, types.int64))


@intrinsic
def _increment(typing: Any, address: Any) -> Any:
    def write(builder: ir.IRBuilder, args: list[ir.Value]) -> ir.Value:
        return builder.atomic_rmw(
            "add", builder.inttoptr(args[0], _LONG.as_pointer()), ir.Constant(_LONG, 1), "seq_cst"
        )

    return lowered(types.int64, [types.int64], write)


@intrinsic
def _current(typing: Any, address: Any) -> Any:
    def write(builder: ir.IRBuilder, args: list[ir.Value]) -> ir.Value:
        return builder.load_atomic(builder.inttoptr(args[0], _LONG.as_pointer()), "seq_cst", 8)

    return lowered(types.int64, [types.int64], write)


@compiled
def barrier(arrived, target):
    """Add one to the count at `arrived`, and wait until it is `target`."""
    _increment(arrived)
    turns = 0
    while _current(arrived) < target:
        turns += 1
        if turns > _TURNS:
            _sched_yield()


@compiled
def wake(pipe):
    """Let the thread that waits at the other end of a pipe go on."""
    byte = np.zeros(1, np.int8)
    _write(np.int32(pipe), byte.ctypes.data, 1)
    # Used here, the byte is not freed before.
    return byte[0]


@compiled
def wait(pipe):
    """Wait for a byte from a pipe; False where it is closed. A signal only interrupts the wait."""
    byte = np.zeros(1, np.int8)
    while True:
        found = _read(np.int32(pipe), byte.ctypes.data, 1)
        if found >= 0:
            return found == 1 and byte[0] == 0
