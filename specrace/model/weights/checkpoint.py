"""Checks of a model's files before loading: the weights are complete, and none of the model's own code runs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from specrace.core.errors import InputError, shorten
from specrace.model.machine.memory import free_memory
from specrace.model.weights.names import weight_files

# Buffers that older versions of transformers saved and newer ones compute; not every model class declares them.
_COMPUTED = re.compile(r"(^|\.)(rotary_emb\.inv_freq|(attn|attention)\.masked_bias)$")

# Methods whose packed weights transformers reads only with further libraries, made for GPUs.
_PACKED = ("awq", "gptq")

# Far above the numbers of any real model.
_MAX_NUMBER, _MAX_LAYERS = 1 << 40, 10_000

# The largest header that the library safetensors reads, in bytes.
_MAX_HEADER = 100_000_000


def check_weights(report: Mapping[str, Any], name: str) -> None:
    """Raises InputError unless the weights of the model called `name` match its config.

    `report` is what transformers returns for `output_loading_info`: "missing_keys", "unexpected_keys", and
    "mismatched_keys" as (key, shape on disk, shape in the config). Tied and computed weights are not listed.
    The check is needed because transformers fills missing weights with random numbers, and every lane would print the
    same gibberish.
    """
    missing = sorted(report["missing_keys"])
    unexpected = sorted(key for key in report["unexpected_keys"] if not _COMPUTED.search(key))
    reshaped = [
        f"{key}: {_shape(on_disk)} instead of {_shape(in_config)}"
        for key, on_disk, in_config in sorted(report["mismatched_keys"])
    ]
    kinds = (("missing", missing), ("not in the config", unexpected), ("of another shape", reshaped))
    faults = [f"{len(keys)} {kind} ({_abbreviate(keys)})" for kind, keys in kinds if keys]
    if faults:
        raise InputError(
            f"The weights of {name} do not match its config.json: {', '.join(faults)}; "
            "give a folder with complete weights and the config.json that belongs to them."
        )


def refuse_own_code(config: Mapping[str, Any], file: str, name: str) -> None:
    """Raises InputError if `config`, read from `file` of the model called `name`, needs the model's own code.

    Phi-4-mini, DeepSeek-V3 and others still carry code that transformers lacked when they were published; transformers'
    own code for them runs instead.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    if config.get("auto_map") and config.get("model_type") not in CONFIG_MAPPING_NAMES:
        raise InputError(
            f"{name} contains Python code (auto_map in its {file}), which is never run here; choose a model that "
            "transformers supports without such code."
        )


def refuse_packed(config: Mapping[str, Any], name: str) -> None:
    """Raises InputError if `config`, the config.json of the model called `name`, says that its weights are packed.

    AWQ and GPTQ name their method. MLX packs weights in its own way, and writes its settings under "quantization".
    """
    settings = config.get("quantization_config")
    method = settings.get("quant_method") if isinstance(settings, Mapping) else None
    kind = ""
    if str(method).lower() in _PACKED:
        kind = str(method).upper()
    elif isinstance(config.get("quantization"), Mapping) and not method:
        kind = "MLX"
    if kind:
        raise InputError(
            f"{name} has weights packed for {kind}, which are not read here; take the model that they were made from, "
            "in 16 bits, or a GGUF file of it."
        )


def refuse_large_numbers(config: Mapping[str, Any], name: str) -> None:
    """Raises InputError if `config`, the config.json of the model called `name`, has an absurdly large number.

    Otherwise transformers would build layers until memory is full.
    """
    for key, value in config.items():
        if isinstance(value, Mapping):
            refuse_large_numbers(value, name)
        elif isinstance(value, int) and abs(value) > (_MAX_LAYERS if "layer" in key else _MAX_NUMBER):
            raise InputError(
                f"The config.json of {name} has {shorten(key)} {shorten(value, 20)}, which no model has; correct it."
            )


def _shape(sizes: Iterable[int]) -> str:
    return "x".join(map(str, sizes))


def _abbreviate(keys: list[str]) -> str:
    """The first key, and how many more there are."""
    return shorten(keys[0]) + (f" and {len(keys) - 1} more" if len(keys) > 1 else "")


def refuse_too_large(folder: Path, name: str, stored: torch.dtype | None, dtype: torch.dtype) -> None:
    """Raises InputError if the weights in `folder` do not fit into memory; otherwise Linux would kill the process.

    `stored` is the dtype of the weights on disk (None: float32), `dtype` their dtype in memory.
    """
    width = (stored or torch.float32).itemsize
    files = [file for file in weight_files(folder) if file.is_file()]
    needed = sum(_num_weights(file, width) for file in files) * dtype.itemsize
    free = free_memory()
    if free is not None and needed > free:
        raise InputError(
            f"This machine has too little memory for {name}: its weights take {needed / 1e9:.2g} GB and "
            f"{free / 1e9:.2g} GB are free; give a smaller model, or --dtype bfloat16."
        )


def _num_weights(file: Path, width: int) -> int:
    """How many weights a file holds, to within a few thousand; `width`: a weight's bytes, if the file does not say.

    Weights in 4 or 8 bits, such as gpt-oss's, are expanded when they are loaded. Two weights of 4 bits share a byte.
    """
    size = file.stat().st_size
    if file.suffix != ".safetensors":
        return size // width
    with file.open("rb") as stream:
        # A safetensors file begins with the length of its header, which is JSON.
        length = int.from_bytes(stream.read(8), "little")
        # A file that is damaged gets its own sentence when it is loaded.
        header = stream.read(length) if length <= min(size, _MAX_HEADER) else b""
    try:
        tensors = [tensor for key, tensor in json.loads(header).items() if key != "__metadata__"]
        return sum(math.prod(tensor["shape"]) * (2 if tensor["dtype"] == "U8" else 1) for tensor in tensors)
    except (ValueError, LookupError, TypeError, AttributeError):
        return size // width
