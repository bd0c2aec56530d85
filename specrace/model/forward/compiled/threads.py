"""Barriers and wake-ups for the compiled decoder's threads, without Python. Addresses are int64."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from specrace.model.forward.compiled.jit import compiled, lowered

# How many times a thread checks the barrier counter before it yields its processor (not tuned).
_CHECKS = 2000
_LONG = ir.IntType(64)
# Functions of the C library.
_sched_yield = types.ExternalFunction("sched_yield", types.int32())
_read = types.ExternalFunction("read", types.int64(types.int32, types.int64, types.int64))
_write = types.ExternalFunction("write", types.int64(types.int32, types.int64, types.int64))


@intrinsic
def _increment(typing: Any, address: Any) -> Any:
    """Add 1 to the int64 at an address, atomically."""

    def write(builder: ir.IRBuilder, args: list[ir.Value]) -> ir.Value:
        return builder.atomic_rmw(
            "add", builder.inttoptr(args[0], _LONG.as_pointer()), ir.Constant(_LONG, 1), "seq_cst"
        )

    return lowered(types.int64, [types.int64], write)


@intrinsic
def _current(typing: Any, address: Any) -> Any:
    """The int64 that is now at an address, which other threads change."""

    def write(builder: ir.IRBuilder, args: list[ir.Value]) -> ir.Value:
        return builder.load_atomic(builder.inttoptr(args[0], _LONG.as_pointer()), "seq_cst", 8)

    return lowered(types.int64, [types.int64], write)


@compiled
def barrier(arrived, target):
    """Add one to the counter at `arrived`, and wait until it reaches `target`."""
    _increment(arrived)
    checks = 0
    while _current(arrived) < target:
        checks += 1
        if checks > _CHECKS:
            _sched_yield()


@compiled
def wake(pipe):
    """Wake the thread that waits at the other end of a pipe."""
    byte = np.zeros(1, np.int8)
    _write(np.int32(pipe), byte.ctypes.data, 1)
    # Using the byte here keeps it alive until it is written.
    return byte[0]


@compiled
def wait(pipe):
    """Wait for a byte from a pipe; returns False once the pipe is closed. Signals do not end the wait."""
    byte = np.zeros(1, np.int8)
    while True:
        count = _read(np.int32(pipe), byte.ctypes.data, 1)
        if count >= 0:
            return count == 1 and byte[0] == 0
