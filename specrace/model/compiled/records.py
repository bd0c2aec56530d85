"""What the compiled decoder works on, as records that Python and compiled code share. Places are addresses, int64."""

from __future__ import annotations

import numpy as np

# A linear layer: weights [out, in] of the job's kind, and float32 [out] scales and biases, or 0 for none.
LINEAR = np.dtype([(name, "i8") for name in ("weight", "scale", "bias")])
# Norms are float32 weights; those of queries and keys 0 for none.
LAYER = np.dtype(
    [(name, LINEAR) for name in ("queries", "keys", "values", "attended", "gate", "up", "down")]
    + [(name, "i8") for name in ("before_attention", "query_norm", "key_norm", "before_mlp")]
)

# The model's shape; kinds of weights and of the cache's numbers.
_MODEL = ("layers", "heads", "kv_heads", "size", "width", "hidden", "vocabulary", "kind", "cache_kind")
# N rows after `base` committed tokens; numbers from one row of scores to the next, at least all that a row sees.
_STEP = ("rows", "base", "columns", "threads")
# The cache [L, 2, 1, H, T, D], and bytes from one layer, one kind, one head, one token to the next.
_CACHE = ("cache", "layer_step", "value_step", "head_step", "column_step")
# int64 masked [N, N], 1 where a row may not see another; float32 cosines and sines [N, D], the sines' first half
# negated; the rows [N, d], which become the last layer's; logits [N, V]; the layers' records; the last norm's weights.
_GIVEN = ("masked", "cos", "sin", "stream", "logits", "model", "norm")
# Float32, of each thread: normed rows [N, d], scores [N, columns]. Of all: the heads of queries, keys and values
# [N, heads, D], what the queries gather [N, heads * D], the halves of the MLP [N, hidden]; `ups` holds what is added
# to the rows, too.
_BUFFERS = ("normed", "scores", "projected", "gathered", "gates", "ups")
# A count of the threads that came to a meeting, and what it was before the step.
_MEETING = ("arrived", "met")

# Of the output layer, and what is added to the mean square in every norm.
JOB = np.dtype(
    [(name, "i8") for name in (*_MODEL, *_STEP, *_CACHE, *_GIVEN, *_BUFFERS, *_MEETING)]
    + [("head", LINEAR), ("epsilon", "f8")]
)


def buffer_sizes(job: np.void, rows: int, columns: int, threads: int) -> dict[str, int]:
    """How many float32 each buffer holds for a model's job of so many rows, columns of scores and threads."""
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
