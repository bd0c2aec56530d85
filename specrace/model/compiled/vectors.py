"""Sums over vectors, in LLVM's own language, for numba's compiled code.

A compiler that turns a loop of sums into vectors adds up in another order for another number of rows, and then the sums
round differently. Here the order is written down: lane i adds up the elements i, i + LANES, ...; then the lanes are
added, half to half. So a row's sums are the same to the last bit whatever other rows are computed with it.

`lanes` is 8 or 16, a literal for numba, which compiles each width on its own. LLVM splits vectors that are wider than
the processor's, so both run everywhere.

Addresses and steps are bytes, int64. Numbers are float32, or 16 or 8 bits wide as their `kind` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, register_jitable

from specrace.model.compiled.jit import lowered

FLOAT32, BFLOAT16, INT8 = 0, 1, 2
# Bytes of a number, by kind.
SIZES = (4, 2, 1)

TILE_OUTPUTS = 4
# Vectors that `add_weighted` sums up at once, if there are so many.
VECTORS = 4

_INT, _LONG, _FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()


@register_jitable
def tile_rows(lanes: int) -> int:
    """The largest number of a tile's rows, whose sums stay in registers: AVX-512 has twice as many, and wider ones."""
    return lanes // 4


@intrinsic(prefer_literal=True)
def tile(
    typing: Any,
    lanes: Any,
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

    `weights` are numbers of a `kind`, the others float32; 1 <= rows <= tile_rows(lanes); `lanes` divides `width`.
    """
    vector = _vector(lanes)
    max_rows = tile_rows(vector.count)

    def write(builder: ir.IRBuilder, args: list[ir.Value]) -> None:
        _, kind, rows, *places = args
        cases = {
            number * (max_rows + 1) + some: partial(_write_tile, builder, vector, places, number, some, TILE_OUTPUTS)
            for number in (FLOAT32, BFLOAT16, INT8)
            for some in range(1, max_rows + 1)
        }
        _switch(builder, builder.add(builder.mul(kind, _LONG(max_rows + 1)), rows), cases)

    return lowered(types.void, [types.int64] * 10, write)


@intrinsic(prefer_literal=True)
def dot(typing: Any, lanes: Any, kind: Any, weights: Any, inputs: Any, place: Any, width: Any) -> Any:
    """What `tile` writes for one row and one output, at `place`."""
    vector = _vector(lanes)

    def write(builder: ir.IRBuilder, args: list[ir.Value]) -> None:
        _, kind, weights, inputs, place, width = args
        zero = _LONG(0)
        places = [weights, zero, inputs, zero, place, zero, width]
        cases = {
            number: partial(_write_tile, builder, vector, places, number, 1, 1) for number in (FLOAT32, BFLOAT16, INT8)
        }
        _switch(builder, kind, cases)

    return lowered(types.void, [types.int64] * 6, write)


@intrinsic(prefer_literal=True)
def add_weighted(
    typing: Any,
    lanes: Any,
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

    `numbers` are of a `kind`, FLOAT32 or BFLOAT16, the others float32; 1 <= rows <= tile_rows(lanes).
    """
    vector = _vector(lanes)
    max_rows = tile_rows(vector.count)

    def write(builder: ir.IRBuilder, args: list[ir.Value]) -> None:
        _, kind, vectors, rows, *places = args
        cases = {
            (number * (VECTORS + 1) + width) * (max_rows + 1) + some: partial(
                _write_weighted, builder, vector, places, number, width, some
            )
            for number in (FLOAT32, BFLOAT16)
            for width in (1, VECTORS)
            for some in range(1, max_rows + 1)
        }
        shape = builder.add(builder.mul(kind, _LONG(VECTORS + 1)), vectors)
        _switch(builder, builder.add(builder.mul(shape, _LONG(max_rows + 1)), rows), cases)

    return lowered(types.void, [types.int64] * 11, write)


def _vector(lanes: Any) -> ir.VectorType:
    """Float32 vectors of the width that a literal's type tells."""
    return ir.VectorType(_FLOAT, lanes.literal_value)


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


def _write_tile(
    builder: ir.IRBuilder, vector: ir.VectorType, args: list[ir.Value], kind: int, rows: int, outputs: int
) -> None:
    weights, weight_step, inputs, input_step, sums, sum_step, width = args
    totals = _zeros(builder, vector, rows * outputs)
    weight_starts = [_at(builder, weights, weight_step, output) for output in range(outputs)]
    row_starts = [_at(builder, inputs, input_step, row) for row in range(rows)]
    with cgutils.for_range_slice(builder, _LONG(0), width, _LONG(vector.count), _LONG) as (index, _):
        addresses = [_at(builder, start, SIZES[kind], index) for start in weight_starts]
        for address in addresses:
            # The next tile's. The processor looks ahead itself, but not across rows, and waits for memory in between.
            _prefetch(builder, _at(builder, address, weight_step, outputs))
        columns = [_load(builder, vector, address, kind) for address in addresses]
        for row, start in enumerate(row_starts):
            numbers = _load(builder, vector, _at(builder, start, 4, index), FLOAT32)
            for output, column in enumerate(columns):
                _add_product(builder, totals[row * outputs + output], numbers, column)
    for row in range(rows):
        row_totals = totals[row * outputs : (row + 1) * outputs]
        row_sums = _add_lanes(builder, [builder.load(total) for total in row_totals])
        builder.store(row_sums, _pointer(builder, _at(builder, sums, sum_step, row), row_sums.type), align=4)


def _write_weighted(
    builder: ir.IRBuilder, vector: ir.VectorType, args: list[ir.Value], kind: int, vectors: int, rows: int
) -> None:
    numbers, number_step, factors, factor_step, count, sums, sum_step = args
    places = [
        _pointer(builder, _at(builder, _at(builder, sums, sum_step, row), 4 * vector.count, part), vector)
        for row in range(rows)
        for part in range(vectors)
    ]
    totals = _zeros(builder, vector, rows * vectors)
    for place, total in zip(places, totals, strict=True):
        builder.store(builder.load(place, align=4), total)
    with cgutils.for_range_slice(builder, _LONG(0), count, _LONG(1), _LONG) as (index, _):
        start, step = _at(builder, numbers, number_step, index), SIZES[kind] * vector.count
        parts = [_load(builder, vector, _at(builder, start, step, part), kind) for part in range(vectors)]
        for row in range(rows):
            place = _at(builder, _at(builder, factors, factor_step, row), 4, index)
            factor = _spread(builder, vector, builder.load(_pointer(builder, place, _FLOAT), align=4))
            for number, part in enumerate(parts):
                _add_product(builder, totals[row * vectors + number], factor, part)
    for place, total in zip(places, totals, strict=True):
        builder.store(builder.load(total), place, align=4)


def _spread(builder: ir.IRBuilder, vector: ir.VectorType, number: ir.Value) -> ir.Value:
    """A number in every lane."""
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), number, _INT(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_INT, vector.count), [0] * vector.count))


def _load(builder: ir.IRBuilder, vector: ir.VectorType, address: ir.Value, kind: int) -> ir.Value:
    """A vector of float32 from numbers of a kind."""
    if kind == FLOAT32:
        return builder.load(_pointer(builder, address, vector), align=4)
    narrow, wide = (ir.VectorType(integer, vector.count) for integer in (ir.IntType(8 * SIZES[kind]), _INT))
    numbers = builder.load(_pointer(builder, address, narrow), align=SIZES[kind])
    if kind == INT8:
        return builder.sitofp(builder.sext(numbers, wide), vector)
    # A bfloat16 is the upper half of a float32.
    return builder.bitcast(builder.shl(builder.zext(numbers, wide), ir.Constant(wide, [16] * vector.count)), vector)


def _prefetch(builder: ir.IRBuilder, address: ir.Value) -> None:
    """Ask for what is at an address to be read into the second cache: the first would lose the inputs to it."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _INT, _INT, _INT])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    to_read, second_cache, data = _INT(0), _INT(2), _INT(1)
    builder.call(function, [builder.inttoptr(address, byte), to_read, second_cache, data])


def _add_product(builder: ir.IRBuilder, total: ir.Value, first: ir.Value, second: ir.Value) -> None:
    """Add first * second to the vector at `total`, rounded once."""
    kind = ir.FunctionType(first.type, [first.type] * 3)
    fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{first.type.count}f32")
    builder.store(builder.call(fma, [first, second, builder.load(total)]), total)


def _add_lanes(builder: ir.IRBuilder, vectors: list[ir.Value]) -> ir.Value:
    """The sums of one or more vectors' lanes as one vector; the lower half of each is added to the upper, and so on.

    Halves of two vectors are added at once where there are two.
    """
    width = vectors[0].type.count
    while width > 1:
        pairs = [vectors[start : start + 2] for start in range(0, len(vectors), 2)]
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


def _zeros(builder: ir.IRBuilder, vector: ir.VectorType, count: int) -> list[ir.Value]:
    """Places of vectors of zeros, which become registers."""
    totals = [cgutils.alloca_once(builder, vector) for _ in range(count)]
    for total in totals:
        builder.store(ir.Constant(vector, [0.0] * vector.count), total)
    return totals


def _at(builder: ir.IRBuilder, base: ir.Value, step: ir.Value | int, times: ir.Value | int) -> ir.Value:
    step, times = (_LONG(number) if isinstance(number, int) else number for number in (step, times))
    return builder.add(base, builder.mul(step, times))


def _pointer(builder: ir.IRBuilder, address: ir.Value, kind: ir.Type) -> ir.Value:
    return builder.inttoptr(address, kind.as_pointer())
