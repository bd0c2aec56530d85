"""Float32 arithmetic of the compiled decoder, over arrays at addresses: what follows vectors' sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic

from specrace.model.compiled.jit import compiled, lowered
from specrace.model.compiled.vectors import FLOAT32, dot


@intrinsic
def pointer(typing: Any, address: Any) -> Any:
    """An address as `carray` takes it."""
    kind = ir.IntType(8).as_pointer()
    return lowered(types.voidptr, [types.int64], lambda builder, args: builder.inttoptr(args[0], kind))


@intrinsic
def _as_float32(typing: Any, bits: Any) -> Any:
    return lowered(types.float32, [types.int32], lambda builder, args: builder.bitcast(args[0], ir.FloatType()))


@intrinsic
def _as_uint32(typing: Any, value: Any) -> Any:
    return lowered(types.uint32, [types.float32], lambda builder, args: builder.bitcast(args[0], ir.IntType(32)))


@compiled
def floats(address, count):
    """An array of float32."""
    return carray(pointer(address), (count,), np.float32)


# Cephes' expf: e^x = 2^n e^r with |r| <= ln 2 / 2, and a polynomial of r. Its constants as float32, or numba computes
# in float64.
_LEAST, _MOST = np.float32(-87.0), np.float32(88.0)
_LOG2_E, _LN2_HIGH, _LN2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
_P0, _P1, _P2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_P3, _P4, _P5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(0.5)
_HALF, _ONE = np.float32(0.5), np.float32(1.0)
_BIAS, _MANTISSA = np.int32(127), np.int32(23)


@compiled
def exp(value):
    """e to the power of a float32 of -87 to 88, or of the nearer end, to two units in the last place.

    A loop over it becomes vectors.
    """
    value = min(max(value, _LEAST), _MOST)
    power = np.floor(value * _LOG2_E + _HALF)
    rest = value - power * _LN2_HIGH - power * _LN2_LOW
    found = ((((_P0 * rest + _P1) * rest + _P2) * rest + _P3) * rest + _P4) * rest + _P5
    found = found * rest * rest + rest + _ONE
    return found * _as_float32((np.int32(power) + _BIAS) << _MANTISSA)


@compiled
def softmax(scores, count, factor):
    """Make the first `count` scores, times `factor`, their softmax."""
    largest = scores[0]
    for each in range(1, count):
        largest = max(largest, scores[each])
    for each in range(count):
        scores[each] = exp((scores[each] - largest) * factor)
    # Four sums, because each addition waits for the one before.
    a = b = c = d = np.float32(0.0)
    fours = count - count % 4
    for each in range(0, fours, 4):
        a += scores[each]
        b += scores[each + 1]
        c += scores[each + 2]
        d += scores[each + 3]
    for each in range(fours, count):
        a += scores[each]
    inverse = _ONE / ((a + b) + (c + d))
    for each in range(count):
        scores[each] *= inverse


@compiled
def rms_norm(source, width, weight, epsilon, target, lanes):
    """The RMS norm of a row at `source`, times weights, at `target`, which may be the same."""
    own, factors, out = floats(source, width), floats(weight, width), floats(target, width)
    sums = np.empty(1, np.float32)
    dot(lanes, FLOAT32, source, source, sums.ctypes.data, width)
    factor = _ONE / np.sqrt(sums[0] / np.float32(width) + epsilon)
    for each in range(width):
        out[each] = factors[each] * (own[each] * factor)


@compiled
def rotate(place, cos, sin, size):
    """Turn a head's numbers by its position: the first half with the second (Su et al. 2021, in Llama's order)."""
    own, cosines, sines = floats(place, size), floats(cos, size), floats(sin, size)
    half = size // 2
    for each in range(half):
        first, second = own[each], own[each + half]
        own[each] = first * cosines[each] + second * sines[each]
        own[each + half] = second * cosines[each + half] + first * sines[each + half]


@compiled
def gate(gates, ups, first, last):
    """Make the gates from first to last silu(gate) * up."""
    for each in range(first, last):
        gates[each] = gates[each] / (_ONE + exp(-gates[each])) * ups[each]


@compiled
def store(place, source, size, kind):
    """Write a row of float32 as numbers of a kind, FLOAT32 or BFLOAT16: to the nearest, ties to even."""
    values = floats(source, size)
    if kind == FLOAT32:
        out = floats(place, size)
        for each in range(size):
            out[each] = values[each]
    else:
        halves = carray(pointer(place), (size,), np.uint16)
        for each in range(size):
            bits = _as_uint32(values[each])
            odd = (bits >> np.uint32(16)) & np.uint32(1)
            halves[each] = np.uint16((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))
