"""Records that Python and the compiled decoder share. Pointers are addresses, int64."""

from __future__ import annotations

import numpy as np

# A linear layer: weights [out, in] of the job's kind, and float32 [out] scales and biases, 0 if there are none.
LINEAR = np.dtype([(name, "i8") for name in ("weight", "scale", "bias")])
# Norms are float32 weights; those of queries and keys are 0 if there are none.
LAYER = np.dtype(
    [(name, LINEAR) for name in ("queries", "keys", "values", "attention_output", "gate", "up", "down")]
    + [(name, "i8") for name in ("before_attention", "query_norm", "key_norm", "before_mlp")]
)

# The model's shape; the kinds of the weights and of the cache's numbers.
_MODEL = ("layers", "heads", "kv_heads", "size", "width", "hidden", "vocabulary", "kind", "cache_kind")
# N rows after `base` committed tokens; `columns`, the length of a row of scores, is at least what a row sees.
_STEP = ("rows", "base", "columns", "threads")
# The cache [L, 2, 1, H, T, D], and the bytes from a layer to the next, from keys to values, from a head and from a
# token to the next.
_CACHE = ("cache", "layer_step", "value_step", "head_step", "column_step")
# int64 masked [N, N], 1 where a row must not see another; float32 cosines and sines [N, D], the sines' first half
# negated; the rows [N, d], which all layers add to; logits [N, V]; the layers' records; the weights of the last norm.
_ARRAYS = ("masked", "cos", "sin", "stream", "logits", "model", "norm")
# Float32 buffers. One per thread: normed rows [N, d], scores [N, columns]. One for all: the heads of queries, keys and
# values [N, heads, D], what the queries gather [N, heads * D], the two halves of the MLP [N, hidden]; `ups` also holds
# what is added to the rows.
_BUFFERS = ("normed", "scores", "projected", "gathered", "gates", "ups")
# The address of a count of arrivals at meetings, and this count before the step.
_MEETING = ("arrived", "arrived_before")

# `head` is the output layer; `epsilon` is added to the mean square in every norm.
JOB = np.dtype(
    [(name, "i8") for name in (*_MODEL, *_STEP, *_CACHE, *_ARRAYS, *_BUFFERS, *_MEETING)]
    + [("head", LINEAR), ("epsilon", "f8")]
)


def buffer_sizes(job: np.void, rows: int, columns: int, threads: int) -> dict[str, int]:
    """How many float32 each buffer of a model's job needs for these numbers of rows, columns of scores and threads."""
    width, hidden, size = int(job["width"]), int(job["hidden"]), int(job["size"])
    heads = int(job["heads"])
    return {
        "normed": threads * rows * width,
        "scores": threads * rows * columns,
        "projected": rows * (heads + 2 * int(job["kv_heads"])) * size,
        "gathered": rows * heads * size,
        "gates": rows * hidden,
        "ups": rows * max(width, hidden),
    }
