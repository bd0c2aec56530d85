"""Records that Python and the compiled decoder share. Pointers are int64 addresses."""

from __future__ import annotations

import numpy as np

# A linear layer: weights [out, in] of the job's kind, and float32 scales and biases [out]; an address of 0 means none.
LINEAR = np.dtype([(name, "i8") for name in ("weight", "scale", "bias")])
# Norms are float32 weights, of address 0 where the model has none. `window`: how many positions a row sees, itself
# included, or 0 for all; `rotation`: which of the tables of cosines and sines the layer uses.
_NORMS = ("before_attention", "query_norm", "key_norm", "after_attention", "before_mlp", "after_mlp")
LAYER = np.dtype(
    [(name, LINEAR) for name in ("queries", "keys", "values", "attention_output", "gate", "up", "down")]
    + [(name, "i8") for name in (*_NORMS, "window", "rotation")]
)

# The model's shape, the number formats (`vectors.FLOAT32` ...) of its weights and of the cache, and the function in its
# MLP (`numbers.SILU` ...).
_MODEL = ("layers", "heads", "kv_heads", "size", "width", "hidden", "vocabulary", "kind", "cache_kind", "activation")
# N rows after `base` committed tokens and M = `drafted` draft rows of an earlier job, whose keys and values are in the
# cache; `columns`, the allocated length of a row of scores, covers all that a row sees.
_STEP = ("rows", "base", "drafted", "columns", "threads")
# The cache [L, 2, 1, H, T, D], and its strides in bytes: from one layer to the next, from keys to values, from one head
# to the next, and from one token to the next.
_CACHE = ("cache", "layer_step", "value_step", "head_step", "column_step")
# int64 masked [N, M + N], 1 where a row must not see another, and depths [M + N]; float32 cosines and sines
# [rotations, N, D], the first half of the sines negated; the embeddings [N, d]; logits [N, V]; the layers' records; the
# last norm's weights, 0 if there is no norm.
_ARRAYS = ("masked", "depths", "cos", "sin", "embeddings", "logits", "model", "norm")
# Taps: the address of int64 [L + 1], the place of each level among the features, -1 if it is not wanted; the address 0
# means no taps. Features are float32 [N, feature_width].
_TAPS = ("taps", "features", "feature_width")
# Float32 buffers. One per thread: the residual stream [N, d], normed rows [N, d], scores [N, columns]. Shared by all
# threads: the heads of queries, keys and values [N, heads, D], attention outputs [N, heads * D], the MLP's two
# projections [N, hidden], and what is to be added to the residual stream [N, d].
_BUFFERS = ("streams", "normed", "scores", "projected", "gathered", "gates", "ups", "added")
# The address of the barrier counter (how many threads have arrived at barriers so far), and its value before the step.
_BARRIER = ("arrived", "arrived_before")

# `head` is the output layer; `epsilon` is added to the mean square in every norm; `scaling` is the scores' factor.
JOB = np.dtype(
    [(name, "i8") for name in (*_MODEL, *_STEP, *_CACHE, *_ARRAYS, *_TAPS, *_BUFFERS, *_BARRIER)]
    + [("head", LINEAR), ("epsilon", "f8"), ("scaling", "f8")]
)


def buffer_sizes(job: np.void, rows: int, columns: int, threads: int) -> dict[str, int]:
    """How many float32 each buffer of a job needs for these numbers of rows, columns of scores, and threads."""
    width, hidden, size = int(job["width"]), int(job["hidden"]), int(job["size"])
    heads = int(job["heads"])
    return {
        "streams": threads * rows * width,
        "normed": threads * rows * width,
        "scores": threads * rows * columns,
        "projected": rows * (heads + 2 * int(job["kv_heads"])) * size,
        "gathered": rows * heads * size,
        "gates": rows * hidden,
        "ups": rows * hidden,
        "added": rows * width,
    }
