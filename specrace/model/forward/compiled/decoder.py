"""A forward of a model (`families`) over a few rows; each row's result is bit-identical whatever the other rows are.

Several threads run a job (`records.JOB`) together and divide the outputs of each matrix product among themselves. A row
attends to the committed tokens and then to its own ancestors, in the same order as in vanilla decoding, so its logits
are vanilla's. All intermediate results are float32, whatever the dtype of the weights and the cache.

The compiled functions get arrays as addresses. Names like `row_step` are distances in bytes; the factor 4 is the size
of a float32.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np
from numba import carray

from specrace.model.forward.compiled.jit import cached, compiled
from specrace.model.forward.compiled.numbers import floats, gate, pointer, rms_norm, rotate, softmax, store
from specrace.model.forward.compiled.processor import host_vector_width
from specrace.model.forward.compiled.records import JOB, LAYER
from specrace.model.forward.compiled.threads import barrier, wait, wake
from specrace.model.forward.compiled.vectors import (
    SIZES,
    TILE_OUTPUTS,
    VECTORS,
    add_weighted,
    dot,
    tile,
    tile_rows,
)

# How often the threads wait for each other in a layer.
_BARRIERS_PER_LAYER = 6


@cache
def compiled_step(vector_width: int) -> Any:
    """The compiled function that runs a step with vectors of 8 or 16 float32; its arguments are (jobs, thread, pipes).

    Thread 0 wakes the threads that wait on the pipes and runs jobs[0] with them. Every other thread runs its part
    whenever it reads a byte from its pipe, until the pipe is closed.
    """

    def take_part(jobs, thread, pipes):
        if thread == 0:
            for pipe in pipes:
                wake(pipe)
            _forward(jobs[0], thread, vector_width)
        else:
            while wait(pipes[0]):
                _forward(jobs[0], thread, vector_width)

    return cached(take_part, f"{vector_width}_wide")


def compile_ahead(vector_width: int | None = None) -> None:
    """Compile for vectors of 8 or 16 float32, or load what an earlier process compiled, without running anything.

    None stands for the vectors of this machine, if the decoder can run here.
    """
    vector_width = host_vector_width() if vector_width is None else vector_width
    if not vector_width:
        return
    step = compiled_step(vector_width)
    # The call compiles the function; as thread 1 with a closed pipe, the function then ends at once.
    reading, writing = os.pipe()
    os.close(writing)
    try:
        step(np.zeros(1, JOB), 1, np.array([reading], np.int64))
    except OSError:
        # The disk could not store the result, but the function may be compiled nevertheless.
        if not step.signatures:
            raise
    finally:
        os.close(reading)


@compiled
def _forward(job, thread, vector_width):
    """Do one thread's part of a forward."""
    layers = carray(pointer(job.model), (job.layers,), LAYER)
    offset = 4 * thread * job.rows * job.width
    stream, normed = job.streams + offset, job.normed + offset
    floats(stream, job.rows * job.width)[:] = floats(job.embeddings, job.rows * job.width)
    for number in range(job.layers):
        _tap(job, number, thread, stream)
        _run_layer(job, layers[number], number, thread, stream, normed, vector_width)
    _norm_rows(job, job.norm, stream, normed, vector_width)
    _tap(job, job.layers, thread, normed)
    first, last = _thread_outputs(job.vocabulary, thread, job.threads)
    _linear(job, job.head, first, last, normed, job.width, job.logits, job.vocabulary, vector_width)
    _synchronize(job, 1 + _BARRIERS_PER_LAYER * job.layers)


@compiled
def _tap(job, level, thread, rows):
    """Copy `rows` [N, d], the states at a level, to the features if the level is wanted.

    Every thread has all rows, and copies a part of their columns.
    """
    if job.taps == 0:
        return
    place = carray(pointer(job.taps), (job.layers + 1,), np.int64)[level]
    if place < 0:
        return
    first, last = _thread_outputs(job.width, thread, job.threads)
    for row in range(job.rows):
        source = floats(rows + 4 * row * job.width, last)
        target = floats(job.features + 4 * (row * job.feature_width + place * job.width), last)
        for index in range(first, last):
            target[index] = source[index]


@compiled
def _run_layer(job, layer, number, thread, stream, normed, vector_width):
    """Do one thread's part of a layer; every thread has a residual stream and normed rows [N, d] of its own."""
    barrier_number = 1 + _BARRIERS_PER_LAYER * number
    queries, keys = job.heads * job.size, job.kv_heads * job.size
    projected, columns = job.projected, queries + 2 * keys
    _norm_rows(job, layer.before_attention, stream, normed, vector_width)
    first, last = _thread_outputs(queries, thread, job.threads)
    _linear(job, layer.queries, first, last, normed, job.width, projected, columns, vector_width)
    first, last = _thread_outputs(keys, thread, job.threads)
    _linear(job, layer.keys, first, last, normed, job.width, projected + 4 * queries, columns, vector_width)
    _linear(job, layer.values, first, last, normed, job.width, projected + 4 * (queries + keys), columns, vector_width)
    _synchronize(job, barrier_number)
    _rotate_and_store(job, layer, number, thread, vector_width)
    _synchronize(job, barrier_number + 1)
    _attend(job, layer, number, thread, vector_width)
    _synchronize(job, barrier_number + 2)
    first, last = _thread_outputs(job.width, thread, job.threads)
    _linear(job, layer.attention_output, first, last, job.gathered, queries, job.added, job.width, vector_width)
    _synchronize(job, barrier_number + 3)
    _add_to_stream(job, layer.after_attention, stream, normed, vector_width)
    _norm_rows(job, layer.before_mlp, stream, normed, vector_width)
    _gate(job, layer, thread, normed, vector_width)
    _synchronize(job, barrier_number + 4)
    _linear(job, layer.down, first, last, job.gates, job.hidden, job.added, job.width, vector_width)
    _synchronize(job, barrier_number + 5)
    _add_to_stream(job, layer.after_mlp, stream, normed, vector_width)


@compiled
def _synchronize(job, barrier_number):
    """Wait for the other threads at the step's barrier `barrier_number`, counted from 1."""
    if job.threads > 1:
        barrier(job.arrived, job.arrived_before + barrier_number * job.threads)


@compiled
def _thread_outputs(count, thread, threads):
    """The outputs that one thread computes, in whole tiles: the first, and the end of the range (exclusive)."""
    tiles = (count + TILE_OUTPUTS - 1) // TILE_OUTPUTS
    first = tiles * thread // threads * TILE_OUTPUTS
    last = tiles * (thread + 1) // threads * TILE_OUTPUTS
    return min(count, first), min(count, last)


@compiled
def _norm_rows(job, weight, source, target, vector_width):
    """Write the RMS norm of every row [N, d] at `source` to `target`; the row itself if there is no norm."""
    if weight == 0:
        floats(target, job.rows * job.width)[:] = floats(source, job.rows * job.width)
        return
    for row in range(job.rows):
        offset = 4 * row * job.width
        rms_norm(source + offset, job.width, weight, np.float32(job.epsilon), target + offset, vector_width)


@compiled
def _add_to_stream(job, norm, stream, normed, vector_width):
    """Add `job.added`, normalized if the layer has this norm, to a thread's residual stream; overwrites `normed`."""
    source = job.added
    if norm != 0:
        _norm_rows(job, norm, source, normed, vector_width)
        source = normed
    count = job.rows * job.width
    numbers, addends = floats(stream, count), floats(source, count)
    for index in range(count):
        numbers[index] += addends[index]


@compiled
def _linear(job, layer, first, last, inputs, width, sums, outputs, vector_width):
    """Compute outputs `first` to `last` (exclusive) of a linear layer, from inputs [N, width] to sums [N, outputs]."""
    _products(
        job.kind,
        layer.weight,
        SIZES[job.kind] * width,
        first,
        last,
        job.rows,
        inputs,
        4 * width,
        sums,
        4 * outputs,
        width,
        vector_width,
    )
    for row in range(job.rows):
        row_sums = floats(sums + 4 * row * outputs, last)
        if layer.scale != 0:
            scales = floats(layer.scale, last)
            for output in range(first, last):
                row_sums[output] *= scales[output]
        if layer.bias != 0:
            biases = floats(layer.bias, last)
            for output in range(first, last):
                row_sums[output] += biases[output]


@compiled
def _products(kind, weights, weight_step, first, last, rows, inputs, input_step, sums, sum_step, width, vector_width):
    """Set sums[r, o] to the sum over i of weights[o, i] * inputs[r, i], for first <= o < last."""
    tiles_end, max_rows = last - (last - first) % TILE_OUTPUTS, tile_rows(vector_width)
    for output in range(first, tiles_end, TILE_OUTPUTS):
        for row in range(0, rows, max_rows):
            tile(
                vector_width,
                kind,
                min(max_rows, rows - row),
                weights + output * weight_step,
                weight_step,
                inputs + row * input_step,
                input_step,
                sums + row * sum_step + 4 * output,
                sum_step,
                width,
            )
    for output in range(tiles_end, last):
        for row in range(rows):
            target = sums + row * sum_step + 4 * output
            dot(vector_width, kind, weights + output * weight_step, inputs + row * input_step, target, width)


@compiled
def _rotate_and_store(job, layer, number, thread, vector_width):
    """Normalize and rotate this thread's heads of queries and keys, and write keys and values to the cache."""
    keys = job.heads + job.kv_heads
    total, size = keys + job.kv_heads, job.size
    cache = job.cache + number * job.layer_step
    for head in range(thread, total, job.threads):
        for row in range(job.rows):
            numbers = job.projected + 4 * (row * total + head) * size
            column = (job.base + job.drafted + row) * job.column_step
            if head < keys:
                norm = layer.query_norm if head < job.heads else layer.key_norm
                if norm != 0:
                    rms_norm(numbers, size, norm, np.float32(job.epsilon), numbers, vector_width)
                offset = 4 * (layer.rotation * job.rows + row) * size
                rotate(numbers, job.cos + offset, job.sin + offset, size)
            if head >= keys:
                store(cache + job.value_step + (head - keys) * job.head_step + column, numbers, size, job.cache_kind)
            elif head >= job.heads:
                store(cache + (head - job.heads) * job.head_step + column, numbers, size, job.cache_kind)


@compiled
def _attend(job, layer, number, thread, vector_width):
    """Compute attention for this thread's heads: each query's weighted sum of values, written to `job.gathered`."""
    size, base, rows, max_rows = job.size, job.base, job.rows, tile_rows(vector_width)
    nodes = job.drafted + rows
    # A literal 1 as an argument would make numba compile the function once more.
    one, end, cache = np.int64(1), base + nodes, job.cache + number * job.layer_step
    first = _first_seen(job, layer, np.int64(0))
    scores, score_step = job.scores + 4 * thread * rows * job.columns, 4 * job.columns
    row_step, gathered_step = 4 * (job.heads + 2 * job.kv_heads) * size, 4 * job.heads * size
    kind, column_step = job.cache_kind, job.column_step
    masked = carray(pointer(job.masked), (rows, nodes), np.int64)
    depths = carray(pointer(job.depths), (nodes,), np.int64)
    for head in range(thread, job.heads, job.threads):
        keys = cache + head // (job.heads // job.kv_heads) * job.head_step
        values, gathered = keys + job.value_step, job.gathered + 4 * head * size
        queries = job.projected + 4 * head * size
        _products(kind, keys, column_step, first, end, rows, queries, row_step, scores, score_step, size, vector_width)
        for row in range(rows):
            _weigh(job, layer, masked, depths, row, first, scores + row * score_step)
            floats(gathered + row * gathered_step, size)[:] = 0
        # The committed tokens, for several rows together.
        for row in range(0, rows, max_rows):
            count, target = min(max_rows, rows - row), gathered + row * gathered_step
            committed, factors = values + first * column_step, scores + row * score_step + 4 * first
            _add_values(job, committed, base - first, count, factors, score_step, target, gathered_step, vector_width)
        # Each row's ancestors and the row itself, one by one.
        for row in range(rows):
            num_seen, first_depth = base, _first_seen(job, layer, depths[job.drafted + row]) - base
            for node in range(job.drafted + row + 1):
                if not masked[row, node] and depths[node] >= first_depth:
                    column, factors = values + (base + node) * column_step, scores + row * score_step + 4 * num_seen
                    target = gathered + row * gathered_step
                    _add_values(job, column, one, one, factors, score_step, target, gathered_step, vector_width)
                    num_seen += 1


@compiled
def _first_seen(job, layer, depth):
    """The first position that a row at this depth of the tree sees in a layer."""
    return max(0, job.base + depth - layer.window + 1) if layer.window > 0 else 0


@compiled
def _weigh(job, layer, masked, depths, row, first, scores):
    """Replace a row's scores, from column `first` on, by the weights of the values that it sees.

    The weights of the committed tokens are followed by those of the ancestors seen. Additions then have the same order
    as in a text without branches. Tokens before the row's window weigh 0, which changes no bit of a sum.
    """
    base, first_seen = job.base, _first_seen(job, layer, depths[job.drafted + row])
    begin, first_depth = min(base, first_seen), first_seen - base
    row_scores = floats(scores, base + job.drafted + job.rows)
    num_seen = base
    for node in range(job.drafted + row + 1):
        if not masked[row, node] and depths[node] >= first_depth:
            row_scores[num_seen] = row_scores[base + node]
            num_seen += 1
    softmax(floats(scores + 4 * begin, num_seen - begin), num_seen - begin, np.float32(job.scaling))
    row_scores[first:begin] = 0


@compiled
def _add_values(job, values, count, rows, factors, factor_step, target, target_step, vector_width):
    """Add the values of `count` tokens, each times its factor, to `rows` rows (at most `tile_rows`) of a head."""
    itemsize = SIZES[job.cache_kind]
    done = 0
    while done < job.size:
        vectors = VECTORS if done + VECTORS * vector_width <= job.size else 1
        numbers, sums = values + itemsize * done, target + 4 * done
        add_weighted(
            vector_width,
            job.cache_kind,
            vectors,
            rows,
            numbers,
            job.column_step,
            factors,
            factor_step,
            count,
            sums,
            target_step,
        )
        done += vectors * vector_width


@compiled
def _gate(job, layer, thread, normed, vector_width):
    """Compute this thread's outputs of the MLP's first half: activation(gate) * up."""
    first, last = _thread_outputs(job.hidden, thread, job.threads)
    _linear(job, layer.gate, first, last, normed, job.width, job.gates, job.hidden, vector_width)
    _linear(job, layer.up, first, last, normed, job.width, job.ups, job.hidden, vector_width)
    for row in range(job.rows):
        offset = 4 * row * job.hidden
        gate(floats(job.gates + offset, last), floats(job.ups + offset, last), first, last, job.activation)
