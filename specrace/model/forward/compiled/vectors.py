"""Sums over vectors, generated as LLVM code for numba's compiled functions.

When a compiler vectorizes a loop of sums, the order of the additions, and so the rounding, may change with the number
of rows. Here the order is fixed: element i of a vector adds up the terms i, i + vector_width, ...; at the end, the
vector's second half is added to its first half until one element is left. So a row's sums are bit-identical whatever
rows are computed with it.

`vector_width`, the number of float32 in a vector, is 8 or 16: a literal for numba, which compiles each width
separately. LLVM splits vectors that are wider than the processor's, so both widths run everywhere.

Addresses and steps are int64, in bytes. Numbers are float32, or 16 or 8 bits wide, depending on their `kind`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, register_jitable

from specrace.model.forward.compiled.jit import lowered

FLOAT32, BFLOAT16, INT8 = 0, 1, 2
# Bytes of a number, by kind.
SIZES = (4, 2, 1)

# How many outputs `tile` computes together.
TILE_OUTPUTS = 4
# How many vectors `add_weighted` sums in one call if a head is wide enough.
VECTORS = 4

_INT, _LONG, _FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()


@register_jitable
def tile_rows(vector_width: int) -> int:
    """The maximum rows of a tile, whose sums must fit in registers: AVX-512 has twice as many as AVX2."""
    return vector_width // 4


@intrinsic(prefer_literal=True)
def tile(
    typing: Any,
    vector_width: Any,
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
    """Set sums[r, o] to the sum of weights[o, i] * inputs[r, i] over i < width, for TILE_OUTPUTS outputs o.

    `weights` are numbers of a `kind`, all others float32. 1 <= rows <= tile_rows(vector_width), and `vector_width`
    divides `width`.
    """
    vector = _vector(vector_width)
    max_rows = tile_rows(vector.count)

    def write(builder: ir.IRBuilder, args: list[ir.Value]) -> None:
        _, kind, rows, *addresses = args
        # Kind and number of rows are known only when the code runs: one case for each pair, numbered by both.
        cases = {
            known_kind * (max_rows + 1) + num_rows: partial(
                _write_tile, builder, vector, addresses, known_kind, num_rows, TILE_OUTPUTS
            )
            for known_kind in (FLOAT32, BFLOAT16, INT8)
            for num_rows in range(1, max_rows + 1)
        }
        _switch(builder, builder.add(builder.mul(kind, _LONG(max_rows + 1)), rows), cases)

    return lowered(types.void, [types.int64] * 10, write)


@intrinsic(prefer_literal=True)
def dot(typing: Any, vector_width: Any, kind: Any, weights: Any, inputs: Any, target: Any, width: Any) -> Any:
    """Write to `target` what `tile` computes for one row and one output."""
    vector = _vector(vector_width)

    def write(builder: ir.IRBuilder, args: list[ir.Value]) -> None:
        _, kind, weights, inputs, target, width = args
        zero = _LONG(0)
        addresses = [weights, zero, inputs, zero, target, zero, width]
        cases = {
            known_kind: partial(_write_tile, builder, vector, addresses, known_kind, 1, 1)
            for known_kind in (FLOAT32, BFLOAT16, INT8)
        }
        _switch(builder, kind, cases)

    return lowered(types.void, [types.int64] * 6, write)


@intrinsic(prefer_literal=True)
def add_weighted(
    typing: Any,
    vector_width: Any,
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
    """Add factors[r, t] * numbers[t, i] to sums[r, i], for each t < count in turn; i covers 1 or VECTORS vectors.

    `numbers` are of a `kind`, FLOAT32 or BFLOAT16, all others float32. 1 <= rows <= tile_rows(vector_width).
    """
    vector = _vector(vector_width)
    max_rows = tile_rows(vector.count)

    def write(builder: ir.IRBuilder, args: list[ir.Value]) -> None:
        _, kind, vectors, rows, *addresses = args
        # One case for each kind, number of vectors and number of rows, numbered by all three.
        cases = {
            (known_kind * (VECTORS + 1) + num_vectors) * (max_rows + 1) + num_rows: partial(
                _write_weighted, builder, vector, addresses, known_kind, num_vectors, num_rows
            )
            for known_kind in (FLOAT32, BFLOAT16)
            for num_vectors in (1, VECTORS)
            for num_rows in range(1, max_rows + 1)
        }
        shape = builder.add(builder.mul(kind, _LONG(VECTORS + 1)), vectors)
        _switch(builder, builder.add(builder.mul(shape, _LONG(max_rows + 1)), rows), cases)

    return lowered(types.void, [types.int64] * 11, write)


def _vector(vector_width: Any) -> ir.VectorType:
    """The LLVM type of a vector of float32; `vector_width` is a numba literal type."""
    return ir.VectorType(_FLOAT, vector_width.literal_value)


def _switch(builder: ir.IRBuilder, value: ir.Value, cases: Mapping[int, Callable[[], None]]) -> None:
    """Write code that runs the case for `value`, and does nothing if there is no such case."""
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
    """Write the code of `tile` for fixed numbers of rows and outputs."""
    weights, weight_step, inputs, input_step, sums, sum_step, width = args
    totals = _zeros(builder, vector, rows * outputs)
    weight_starts = [_at(builder, weights, weight_step, output) for output in range(outputs)]
    row_starts = [_at(builder, inputs, input_step, row) for row in range(rows)]
    with cgutils.for_range_slice(builder, _LONG(0), width, _LONG(vector.count), _LONG) as (index, _):
        addresses = [_at(builder, start, SIZES[kind], index) for start in weight_starts]
        for address in addresses:
            # Prefetch the next tile: the processor itself prefetches only within a row, and would stall at the next.
            _prefetch(builder, _at(builder, address, weight_step, outputs))
        columns = [_load(builder, vector, address, kind) for address in addresses]
        for row, start in enumerate(row_starts):
            numbers = _load(builder, vector, _at(builder, start, 4, index), FLOAT32)
            for output, column in enumerate(columns):
                _add_product(builder, totals[row * outputs + output], numbers, column)
    for row in range(rows):
        row_totals = totals[row * outputs : (row + 1) * outputs]
        row_sums = _add_elements(builder, [builder.load(total) for total in row_totals])
        builder.store(row_sums, _pointer(builder, _at(builder, sums, sum_step, row), row_sums.type), align=4)


def _write_weighted(
    builder: ir.IRBuilder, vector: ir.VectorType, args: list[ir.Value], kind: int, vectors: int, rows: int
) -> None:
    """Write the code of `add_weighted` for fixed numbers of vectors and rows."""
    numbers, number_step, factors, factor_step, count, sums, sum_step = args
    targets = [
        _pointer(builder, _at(builder, _at(builder, sums, sum_step, row), 4 * vector.count, part), vector)
        for row in range(rows)
        for part in range(vectors)
    ]
    totals = _zeros(builder, vector, rows * vectors)
    for target, total in zip(targets, totals, strict=True):
        builder.store(builder.load(target, align=4), total)
    with cgutils.for_range_slice(builder, _LONG(0), count, _LONG(1), _LONG) as (index, _):
        start, step = _at(builder, numbers, number_step, index), SIZES[kind] * vector.count
        parts = [_load(builder, vector, _at(builder, start, step, part), kind) for part in range(vectors)]
        for row in range(rows):
            address = _at(builder, _at(builder, factors, factor_step, row), 4, index)
            factor = _broadcast(builder, vector, builder.load(_pointer(builder, address, _FLOAT), align=4))
            for number, part in enumerate(parts):
                _add_product(builder, totals[row * vectors + number], factor, part)
    for target, total in zip(targets, totals, strict=True):
        builder.store(builder.load(total), target, align=4)


def _broadcast(builder: ir.IRBuilder, vector: ir.VectorType, number: ir.Value) -> ir.Value:
    """A vector with the number in every element."""
    first_only = builder.insert_element(ir.Constant(vector, ir.Undefined), number, _INT(0))
    zeros = ir.Constant(ir.VectorType(_INT, vector.count), [0] * vector.count)
    return builder.shuffle_vector(first_only, first_only, zeros)


def _load(builder: ir.IRBuilder, vector: ir.VectorType, address: ir.Value, kind: int) -> ir.Value:
    """Load a vector of float32 from numbers of a kind."""
    if kind == FLOAT32:
        return builder.load(_pointer(builder, address, vector), align=4)
    narrow, wide = (ir.VectorType(integer, vector.count) for integer in (ir.IntType(8 * SIZES[kind]), _INT))
    numbers = builder.load(_pointer(builder, address, narrow), align=SIZES[kind])
    if kind == INT8:
        return builder.sitofp(builder.sext(numbers, wide), vector)
    # A bfloat16 is the upper half of a float32.
    return builder.bitcast(builder.shl(builder.zext(numbers, wide), ir.Constant(wide, [16] * vector.count)), vector)


def _prefetch(builder: ir.IRBuilder, address: ir.Value) -> None:
    """Prefetch an address into the L2 cache; in the L1 cache it would displace the inputs."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _INT, _INT, _INT])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    to_read, second_cache, data = _INT(0), _INT(2), _INT(1)
    builder.call(function, [builder.inttoptr(address, byte), to_read, second_cache, data])


def _add_product(builder: ir.IRBuilder, total: ir.Value, first: ir.Value, second: ir.Value) -> None:
    """Add first * second to the vector at `total` with one rounding (fused multiply-add)."""
    kind = ir.FunctionType(first.type, [first.type] * 3)
    fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{first.type.count}f32")
    builder.store(builder.call(fma, [first, second, builder.load(total)]), total)


def _add_elements(builder: ir.IRBuilder, vectors: list[ir.Value]) -> ir.Value:
    """The sums of the elements of each vector, as one vector: halves are added until each has one element left.

    The halves of two vectors are added in one operation.
    """
    width = vectors[0].type.count
    while width > 1:
        pairs = [vectors[start : start + 2] for start in range(0, len(vectors), 2)]
        vectors = [_add_halves(builder, pair[0], pair[-1], len(pair), width) for pair in pairs]
        width //= 2
    return vectors[0]


def _add_halves(builder: ir.IRBuilder, first: ir.Value, second: ir.Value, count: int, width: int) -> ir.Value:
    """Add the two halves of every group of `width` elements, in the first vector only or in both (`count` 1 or 2)."""
    total = count * first.type.count
    lower = [element for element in range(total) if element % width < width // 2]
    kind = ir.VectorType(_INT, len(lower))
    halves = (
        builder.shuffle_vector(first, second, ir.Constant(kind, [element + offset for element in lower]))
        for offset in (0, width // 2)
    )
    return builder.fadd(*halves)


def _zeros(builder: ir.IRBuilder, vector: ir.VectorType, count: int) -> list[ir.Value]:
    """Variables that hold vectors of zeros; LLVM keeps them in registers."""
    totals = [cgutils.alloca_once(builder, vector) for _ in range(count)]
    for total in totals:
        builder.store(ir.Constant(vector, [0.0] * vector.count), total)
    return totals


def _at(builder: ir.IRBuilder, base: ir.Value, step: ir.Value | int, times: ir.Value | int) -> ir.Value:
    """The address `base` + `step` * `times`."""
    step, times = (_LONG(number) if isinstance(number, int) else number for number in (step, times))
    return builder.add(base, builder.mul(step, times))


def _pointer(builder: ir.IRBuilder, address: ir.Value, kind: ir.Type) -> ir.Value:
    """An address as a pointer to a type."""
    return builder.inttoptr(address, kind.as_pointer())
