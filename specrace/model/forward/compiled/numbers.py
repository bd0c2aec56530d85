"""The compiled decoder's float32 arithmetic on arrays at addresses, except for sums of products (see `vectors`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic

from specrace.model.forward.compiled.jit import compiled, lowered
from specrace.model.forward.compiled.vectors import FLOAT32, dot


@intrinsic
def pointer(typing: Any, address: Any) -> Any:
    """Cast an address to the pointer that `carray` takes."""
    kind = ir.IntType(8).as_pointer()
    return lowered(types.voidptr, [types.int64], lambda builder, args: builder.inttoptr(args[0], kind))


@intrinsic
def _as_float32(typing: Any, bits: Any) -> Any:
    """The float32 with these bits."""
    return lowered(types.float32, [types.int32], lambda builder, args: builder.bitcast(args[0], ir.FloatType()))


@intrinsic
def _as_uint32(typing: Any, value: Any) -> Any:
    """The bits of a float32."""
    return lowered(types.uint32, [types.float32], lambda builder, args: builder.bitcast(args[0], ir.IntType(32)))


@compiled
def floats(address, count):
    """The float32 array of `count` numbers at an address."""
    return carray(pointer(address), (count,), np.float32)


# Cephes' expf: e^x = 2^n e^r with |r| <= ln 2 / 2, and a polynomial in r. The constants are float32, otherwise numba
# would compute in float64.
_MIN_EXP, _MAX_EXP = np.float32(-87.0), np.float32(88.0)
_LOG2_E, _LN2_HIGH, _LN2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
_P0, _P1, _P2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_P3, _P4, _P5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(0.5)
_HALF, _ONE = np.float32(0.5), np.float32(1.0)
# Of a float32: the bias of its exponent, and the number of bits below the exponent.
_BIAS, _MANTISSA = np.int32(127), np.int32(23)

# The MLP's activation functions: x / (1 + e^-x), and GELU with tanh (Hendrycks and Gimpel 2016).
SILU, GELU = 0, 1
# 2 sqrt(2 / pi), and the same times 0.044715.
_GELU, _GELU_CUBE = np.float32(1.5957691216), np.float32(0.0713548163)


@compiled
def exp(value):
    """e to the power of `value`, a float32 clamped to [-87, 88]; accurate to two units in the last place.

    A loop that calls it is vectorized.
    """
    value = min(max(value, _MIN_EXP), _MAX_EXP)
    power = np.floor(value * _LOG2_E + _HALF)
    remainder = value - power * _LN2_HIGH - power * _LN2_LOW
    result = ((((_P0 * remainder + _P1) * remainder + _P2) * remainder + _P3) * remainder + _P4) * remainder + _P5
    result = result * remainder * remainder + remainder + _ONE
    return result * _as_float32((np.int32(power) + _BIAS) << _MANTISSA)


@compiled
def softmax(scores, count, factor):
    """Replace the first `count` scores by softmax(factor * scores)."""
    largest = scores[0]
    for index in range(1, count):
        largest = max(largest, scores[index])
    for index in range(count):
        scores[index] = exp((scores[index] - largest) * factor)
    # Four partial sums, because in a single one each addition would wait for the one before.
    a = b = c = d = np.float32(0.0)
    fours = count - count % 4
    for index in range(0, fours, 4):
        a += scores[index]
        b += scores[index + 1]
        c += scores[index + 2]
        d += scores[index + 3]
    for index in range(fours, count):
        a += scores[index]
    inverse = _ONE / ((a + b) + (c + d))
    for index in range(count):
        scores[index] *= inverse


@compiled
def rms_norm(source, width, weight, epsilon, target, vector_width):
    """Write the RMS norm of the row at `source`, times the weights, to `target`, which may be `source`."""
    row, factors, out = floats(source, width), floats(weight, width), floats(target, width)
    sums = np.empty(1, np.float32)
    dot(vector_width, FLOAT32, source, source, sums.ctypes.data, width)
    factor = _ONE / np.sqrt(sums[0] / np.float32(width) + epsilon)
    for index in range(width):
        out[index] = factors[index] * (row[index] * factor)


@compiled
def rotate(address, cos, sin, size):
    """Apply rotary positions to a head (Su et al. 2021), whose halves are paired as in Llama.

    All but `size` are addresses; the first half of the sines is negated.
    """
    numbers, cosines, sines = floats(address, size), floats(cos, size), floats(sin, size)
    half = size // 2
    for index in range(half):
        first, second = numbers[index], numbers[index + half]
        numbers[index] = first * cosines[index] + second * sines[index]
        numbers[index + half] = second * cosines[index + half] + first * sines[index + half]


@compiled
def gate(gates, ups, first, last, activation):
    """Replace gates `first` to `last` (exclusive) by activation(gate) * up, where `activation` is SILU or GELU."""
    if activation == SILU:
        for index in range(first, last):
            gates[index] = gates[index] / (_ONE + exp(-gates[index])) * ups[index]
    else:
        # x (1 + tanh u) / 2 = x / (1 + e^-2u), with tanh's approximation of the normal distribution function.
        for index in range(first, last):
            number = gates[index]
            exponent = number * (_GELU + _GELU_CUBE * number * number)
            gates[index] = number / (_ONE + exp(-exponent)) * ups[index]


@compiled
def store(target, source, size, kind):
    """Write float32 numbers as `kind`, FLOAT32 or BFLOAT16, rounded to nearest, ties to even."""
    values = floats(source, size)
    if kind == FLOAT32:
        out = floats(target, size)
        for index in range(size):
            out[index] = values[index]
    else:
        halves = carray(pointer(target), (size,), np.uint16)
        for index in range(size):
            # Adding almost half of the last kept bit, and 1 if that bit is set, rounds as described.
            bits = _as_uint32(values[index])
            odd = (bits >> np.uint32(16)) & np.uint32(1)
            halves[index] = np.uint16((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))
