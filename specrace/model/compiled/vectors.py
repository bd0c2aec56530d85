"""Sums over vectors, in LLVM's own language, for numba's compiled code.

A compiler that turns a loop of sums into vectors adds up in another order for another number of rows, and then the sums
round differently. Here the order is written down: lane i adds up the elements i, i + LANES, ...; then the lanes are
added, half to half. So a row's sums are the same to the last bit whatever other rows are computed with it.

Addresses and steps are bytes, int64. Numbers are float32, or 16 or 8 bits wide as their `kind` says.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from specrace.model.compiled.jit import lowered

FLOAT32, BFLOAT16, INT8 = 0, 1, 2
# Bytes of a number, by kind.
SIZES = (4, 2, 1)

_FEATURES = llvmlite.binding.get_host_cpu_features()
# Threads wait as POSIX has it, and a processor that cannot multiply and add at once (before 2013) would call the C
# library for each product. All ARM processors of 64 bits can.
COMPILES = os.name == "posix" and (platform.machine().lower() not in ("x86_64", "amd64") or bool(_FEATURES.get("fma")))
_WIDE = bool(_FEATURES.get("avx512f"))
# Numbers of a vector, and the most rows of a tile, whose sums stay in registers.
LANES, TILE_ROWS = (16, 4) if _WIDE else (8, 2)
TILE_OUTPUTS = 4
# Vectors that `add_weighted` sums up at once, if there are so many.
VECTORS = 4

_INT, _LONG, _FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, LANES)


@intrinsic
def tile(
    typing: Any,
    kind: Any,
    rows: Any,
    weights: Any,
    weight_step: Any,
    inputs: Any,
    input_step: Any,
    sums: Any,
    sum_step: Any,
    width: Any,
) -> Any:
    """sums[r, o] = the sum of weights[o, i] * inputs[r, i] over i < width, for TILE_OUTPUTS outputs o.

    `weights` are numbers of a `kind`, the others float32; 1 <= rows <= TILE_ROWS; `width` is a multiple of LANES.
    """

    def write(builder: ir.IRBuilder, args: list[ir.Value]) -> None:
        kind, rows, *places = args
        many = ir.Constant(_LONG, TILE_ROWS + 1)
        cases = {
            each * (TILE_ROWS + 1) + count: partial(_write_tile, builder, places, each, count, TILE_OUTPUTS)
            for each in (FLOAT32, BFLOAT16, INT8)
            for count in range(1, TILE_ROWS + 1)
        }
        _switch(builder, builder.add(builder.mul(kind, many), rows), cases)

    return lowered(types.void, [types.int64] * 9, write)


@intrinsic
def dot(typing: Any, kind: Any, weights: Any, inputs: Any, place: Any, width: Any) -> Any:
    """What `tile` writes for one row and one output, at `place`."""

    def write(builder: ir.IRBuilder, args: list[ir.Value]) -> None:
        kind, weights, inputs, place, width = args
        none = ir.Constant(_LONG, 0)
        places = [weights, none, inputs, none, place, none, width]
        kinds = (FLOAT32, BFLOAT16, INT8)
        _switch(builder, kind, {each: partial(_write_tile, builder, places, each, 1, 1) for each in kinds})

    return lowered(types.void, [types.int64] * 5, write)


@intrinsic
def add_weighted(
    typing: Any,
    kind: Any,
    vectors: Any,
    rows: Any,
    numbers: Any,
    number_step: Any,
    factors: Any,
    factor_step: Any,
    count: Any,
    sums: Any,
    sum_step: Any,
) -> Any:
    """sums[r, i] += factors[r, t] * numbers[t, i] for each t < count in turn, for i of 1 or VECTORS vectors.

    `numbers` are of a `kind`, FLOAT32 or BFLOAT16, the others float32; 1 <= rows <= TILE_ROWS.
    """

    def write(builder: ir.IRBuilder, args: list[ir.Value]) -> None:
        kind, vectors, rows, *places = args
        cases = {
            (each * (VECTORS + 1) + count) * (TILE_ROWS + 1) + some: partial(
                _write_weighted, builder, places, each, count, some
            )
            for each in (FLOAT32, BFLOAT16)
            for count in (1, VECTORS)
            for some in range(1, TILE_ROWS + 1)
        }
        shape = builder.add(builder.mul(kind, ir.Constant(_LONG, VECTORS + 1)), vectors)
        _switch(builder, builder.add(builder.mul(shape, ir.Constant(_LONG, TILE_ROWS + 1)), rows), cases)

    return lowered(types.void, [types.int64] * 10, write)


def _switch(builder: ir.IRBuilder, value: ir.Value, cases: Mapping[int, Callable[[], None]]) -> None:
    """Write code that runs the case of a value."""
    done = builder.append_basic_block("done")
    switch = builder.switch(value, done)
    for number, write in cases.items():
        block = builder.append_basic_block(f"case{number}")
        switch.add_case(ir.Constant(_LONG, number), block)
        builder.position_at_end(block)
        write()
        builder.branch(done)
    builder.position_at_end(done)


def _write_tile(builder: ir.IRBuilder, args: list[ir.Value], kind: int, rows: int, outputs: int) -> None:
    weights, weight_step, inputs, input_step, sums, sum_step, width = args
    totals = _zeros(builder, rows * outputs)
    starts = [_at(builder, weights, weight_step, each) for each in range(outputs)]
    row_starts = [_at(builder, inputs, input_step, each) for each in range(rows)]
    with cgutils.for_range_slice(builder, _LONG(0), width, _LONG(LANES), _LONG) as (index, _):
        places = [_at(builder, start, SIZES[kind], index) for start in starts]
        for place in places:
            # The next tile's. The processor looks ahead itself, but not across rows, and waits for memory in between.
            _prefetch(builder, _at(builder, place, weight_step, outputs))
        found = [_load(builder, place, kind) for place in places]
        for row, start in enumerate(row_starts):
            own = _load(builder, _at(builder, start, 4, index), FLOAT32)
            for output, weight in enumerate(found):
                _add_product(builder, totals[row * outputs + output], own, weight)
    for row in range(rows):
        found = _add_lanes(builder, [builder.load(each) for each in totals[row * outputs : (row + 1) * outputs]])
        builder.store(found, _pointer(builder, _at(builder, sums, sum_step, row), found.type), align=4)


def _write_weighted(builder: ir.IRBuilder, args: list[ir.Value], kind: int, vectors: int, rows: int) -> None:
    numbers, number_step, factors, factor_step, count, sums, sum_step = args
    places = [
        _pointer(builder, _at(builder, _at(builder, sums, sum_step, row), 4 * LANES, each), _VECTOR)
        for row in range(rows)
        for each in range(vectors)
    ]
    totals = _zeros(builder, rows * vectors)
    for place, total in zip(places, totals, strict=True):
        builder.store(builder.load(place, align=4), total)
    with cgutils.for_range_slice(builder, _LONG(0), count, _LONG(1), _LONG) as (index, _):
        start = _at(builder, numbers, number_step, index)
        found = [_load(builder, _at(builder, start, SIZES[kind] * LANES, each), kind) for each in range(vectors)]
        for row in range(rows):
            place = _at(builder, _at(builder, factors, factor_step, row), 4, index)
            same = _spread(builder, builder.load(_pointer(builder, place, _FLOAT), align=4))
            for each, own in enumerate(found):
                _add_product(builder, totals[row * vectors + each], same, own)
    for place, total in zip(places, totals, strict=True):
        builder.store(builder.load(total), place, align=4)


def _spread(builder: ir.IRBuilder, number: ir.Value) -> ir.Value:
    """A number in every lane."""
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, ir.Constant(_INT, 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_INT, LANES), [0] * LANES))


def _load(builder: ir.IRBuilder, address: ir.Value, kind: int) -> ir.Value:
    """A vector of float32 from numbers of a kind."""
    if kind == FLOAT32:
        return builder.load(_pointer(builder, address, _VECTOR), align=4)
    narrow, wide = (ir.VectorType(each, LANES) for each in (ir.IntType(8 * SIZES[kind]), _INT))
    numbers = builder.load(_pointer(builder, address, narrow), align=SIZES[kind])
    if kind == INT8:
        return builder.sitofp(builder.sext(numbers, wide), _VECTOR)
    # A bfloat16 is the upper half of a float32.
    return builder.bitcast(builder.shl(builder.zext(numbers, wide), ir.Constant(wide, [16] * LANES)), _VECTOR)


def _prefetch(builder: ir.IRBuilder, address: ir.Value) -> None:
    """Ask for what is at an address to be read into the second cache: the first would lose the inputs to it."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _INT, _INT, _INT])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    to_read, second_cache, data = (ir.Constant(_INT, each) for each in (0, 2, 1))
    builder.call(function, [builder.inttoptr(address, byte), to_read, second_cache, data])


def _add_product(builder: ir.IRBuilder, total: ir.Value, first: ir.Value, second: ir.Value) -> None:
    """Add first * second to the vector at `total`, rounded once."""
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32")
    builder.store(builder.call(fma, [first, second, builder.load(total)]), total)


def _add_lanes(builder: ir.IRBuilder, vectors: list[ir.Value]) -> ir.Value:
    """The sums of one or more vectors' lanes as one vector; the lower half of each is added to the upper, and so on.

    Halves of two vectors are added at once where there are two.
    """
    width = LANES
    while width > 1:
        pairs = [vectors[each : each + 2] for each in range(0, len(vectors), 2)]
        vectors = [_add_halves(builder, pair[0], pair[-1], len(pair), width) for pair in pairs]
        width //= 2
    return vectors[0]


def _add_halves(builder: ir.IRBuilder, first: ir.Value, second: ir.Value, count: int, width: int) -> ir.Value:
    """Halve every part of `width` lanes, in the first vector or in two."""
    total = count * first.type.count
    lower = [lane for lane in range(total) if lane % width < width // 2]
    kind = ir.VectorType(_INT, len(lower))
    halves = (
        builder.shuffle_vector(first, second, ir.Constant(kind, [lane + offset for lane in lower]))
        for offset in (0, width // 2)
    )
    return builder.fadd(*halves)


def _zeros(builder: ir.IRBuilder, count: int) -> list[ir.Value]:
    """Places of vectors of zeros, which become registers."""
    totals = [cgutils.alloca_once(builder, _VECTOR) for _ in range(count)]
    for total in totals:
        builder.store(ir.Constant(_VECTOR, [0.0] * LANES), total)
    return totals


def _at(builder: ir.IRBuilder, base: ir.Value, step: ir.Value | int, times: ir.Value | int) -> ir.Value:
    step, times = (ir.Constant(_LONG, each) if isinstance(each, int) else each for each in (step, times))
    return builder.add(base, builder.mul(step, times))


def _pointer(builder: ir.IRBuilder, address: ir.Value, kind: ir.Type) -> ir.Value:
    return builder.inttoptr(address, kind.as_pointer())
