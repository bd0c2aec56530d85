"""Records that Python and the compiled decoder share. Pointers are int64 addresses."""

from __future__ import annotations

import numpy as np

# A linear layer: weights [out, in] of the job's kind, and float32 scales and biases [out]; an address of 0 means none.
LINEAR = np.dtype([(name, "i8") for name in ("weight", "scale", "bias")])
# Norms are float32 weights; query and key norms have the address 0 if the model has none.
LAYER = np.dtype(
    [(name, LINEAR) for name in ("queries", "keys", "values", "attention_output", "gate", "up", "down")]
    + [(name, "i8") for name in ("before_attention", "query_norm", "key_norm", "before_mlp")]
)

# The model's shape, and the number formats (`vectors.FLOAT32` ...) of its weights and of the cache.
_MODEL = ("layers", "heads", "kv_heads", "size", "width", "hidden", "vocabulary", "kind", "cache_kind")
# N rows after `base` committed tokens; `columns`, the allocated length of a row of scores, covers all that a row sees.
_STEP = ("rows", "base", "columns", "threads")
# The cache [L, 2, 1, H, T, D], and its strides in bytes: from one layer to the next, from keys to values, from one head
# to the next, and from one token to the next.
_CACHE = ("cache", "layer_step", "value_step", "head_step", "column_step")
# int64 masked [N, N], 1 where a row must not see another; float32 cosines and sines [N, D], the first half of the sines
# negated; the residual stream [N, d]; logits [N, V]; the layers' records; the weights of the last norm.
_ARRAYS = ("masked", "cos", "sin", "stream", "logits", "model", "norm")
# Float32 buffers. One per thread: normed rows [N, d], scores [N, columns]. Shared by all threads: the heads of queries,
# keys and values [N, heads, D], attention outputs [N, heads * D], the MLP's two projections [N, hidden]; `ups` also
# holds what is to be added to the residual stream.
_BUFFERS = ("normed", "scores", "projected", "gathered", "gates", "ups")
# The address of the barrier counter (how many threads have arrived at barriers so far), and its value before the step.
_BARRIER = ("arrived", "arrived_before")

# `head` is the output layer; `epsilon` is added to the mean square in every norm.
JOB = np.dtype(
    [(name, "i8") for name in (*_MODEL, *_STEP, *_CACHE, *_ARRAYS, *_BUFFERS, *_BARRIER)]
    + [("head", LINEAR), ("epsilon", "f8")]
)


def buffer_sizes(job: np.void, rows: int, columns: int, threads: int) -> dict[str, int]:
    """How many float32 each buffer of a job needs for these numbers of rows, columns of scores, and threads."""
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
