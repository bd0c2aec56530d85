"""A model's files are checked before it races: its weights are complete, and none of its code is run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from specrace.core.errors import InputError, shorten

# Buffers that older versions of the library saved and that are now computed; not every model lists them itself.
_COMPUTED = re.compile(r"(^|\.)(rotary_emb\.inv_freq|(attn|attention)\.masked_bias)$")

_MOST, _MAX_LAYERS = 1 << 40, 10_000


def check_weights(told: Mapping[str, Any], name: str) -> None:
    """Raises InputError unless the weights of the model called `name` are those of its config.

    `told` is transformers' `output_loading_info`: "missing_keys", "unexpected_keys", and
    "mismatched_keys" as (key, shape on disk, shape in the config). Tied and computed weights are not listed. The
    library itself fills missing weights with random numbers, and every lane would print the same gibberish.
    """
    missing = sorted(told["missing_keys"])
    unexpected = sorted(key for key in told["unexpected_keys"] if not _COMPUTED.search(key))
    reshaped = [
        f"{key}: {_shape(found)} instead of {_shape(asked)}" for key, found, asked in sorted(told["mismatched_keys"])
    ]
    kinds = (("missing", missing), ("not in the config", unexpected), ("of another shape", reshaped))
    faults = [f"{len(keys)} {kind} ({_few(keys)})" for kind, keys in kinds if keys]
    if faults:
        raise InputError(
            f"The weights of {name} are not those of its config.json: {', '.join(faults)}; "
            "give a folder in which both are whole and belong together."
        )


def refuse_own_code(read: Mapping[str, Any], file: str, name: str) -> None:
    """Raises InputError where the `file` of a model or tokenizer called `name`, `read`, asks for Python of its own."""
    if read.get("auto_map"):
        raise InputError(
            f"{name} comes with Python code of its own (auto_map in its {file}), which is never run here; choose a "
            "model that transformers knows without it."
        )


def refuse_large_numbers(read: Mapping[str, Any], name: str) -> None:
    """Raises InputError where `read`, the config.json of the model called `name`, has a number that no model has.

    The library would build a model of so many layers until the memory is full.
    """
    for key, value in read.items():
        if isinstance(value, Mapping):
            refuse_large_numbers(value, name)
        elif isinstance(value, int) and abs(value) > (_MAX_LAYERS if "layer" in key else _MOST):
            raise InputError(
                f"The config.json of {name} has {shorten(key)} {shorten(value, 20)}, which no model has; correct it."
            )


def _shape(sizes: Iterable[int]) -> str:
    return "x".join(map(str, sizes))


def _few(keys: list[str]) -> str:
    return shorten(keys[0]) + (f" and {len(keys) - 1} more" if len(keys) > 1 else "")
