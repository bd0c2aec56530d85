"""Low-rank adapters (LoRA, Hu et al. 2021): read from a folder in PEFT's format, checked, and merged into a model."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from specrace.core.bundled import SHIPPED_ADAPTER
from specrace.core.errors import InputError, shorten
from specrace.core.files import read_text
from specrace.model.weights.source import AUTO, NONE

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# The model's config entries that together identify the model that an adapter was trained for.
SIZES = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
# PEFT settings that change what is added to the weights; they are not supported here.
_UNSUPPORTED = ("use_dora", "rank_pattern", "alpha_pattern", "fan_in_fan_out", "alora_invocation_tokens")
# Values of init_lora_weights for which PEFT changes the base weights as well.
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq")
_HINT = "give a folder with adapter_config.json and adapter_model.safetensors in PEFT's format, or none"
# Far more than a real config has, which takes a few kB.
_MAX_CONFIG_BYTES = 1_000_000
_NAME = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")


@dataclass(frozen=True)
class Adapter:
    """Low-rank updates `scale * B @ A` to some of a model's weights, by module name: A is [rank, in], B is [out, rank].

    `style` names the prompt style that the adapter was trained on; empty if its config names none.
    """

    label: str
    style: str
    scale: float
    matrices: dict[str, tuple[Tensor, Tensor]]


def adapt(model: Any, tokenizer: Any, label: str, wanted: str | Path) -> tuple[str, str]:
    """Merge the adapter `wanted`, if any, into `model`; returns the new label and the adapter's prompt style."""
    folder = find_adapter(wanted, model.config, tokenizer)
    if folder is None:
        return label, ""
    adapter = read_adapter(folder)
    merge(model, adapter, label)
    return f"{label} + {adapter.label}", adapter.style


def find_adapter(wanted: str | Path, config: Any, tokenizer: Any) -> Path | None:
    """The folder of the adapter to merge: `wanted` itself, or for "auto" the shipped adapter if it fits the model."""
    if str(wanted) == NONE:
        return None
    if str(wanted) != AUTO:
        return Path(wanted)
    trained_for = _read_config(SHIPPED_ADAPTER).get("trained_for", {})
    same_sizes = all(getattr(config, size, None) == trained_for.get(size) for size in SIZES)
    # A base model of the same sizes has no chat template, or a different one.
    return SHIPPED_ADAPTER if same_sizes and "SmolLM" in (tokenizer.chat_template or "") else None


def read_adapter(folder: Path) -> Adapter:
    """Read an adapter in PEFT's format. Raises InputError if it is damaged, incomplete, or not a plain LoRA."""
    config = _read_config(folder)
    rank, alpha = config.get("r"), config.get("lora_alpha")
    is_lora = config.get("peft_type") == "LORA"
    if not (is_lora and isinstance(rank, int) and rank > 0 and isinstance(alpha, int | float)):
        raise InputError(f"{shorten(folder)} is not a plain LoRA adapter (peft_type, r, lora_alpha); {_HINT}.")
    if unsupported := [name for name in _UNSUPPORTED if config.get(name)]:
        raise InputError(f"{shorten(folder)} is not a plain LoRA adapter (it sets {', '.join(unsupported)}); {_HINT}.")
    if str(config.get("init_lora_weights")).lower().startswith(_CHANGES_BASE):
        raise InputError(
            f"{shorten(folder)} changes the weights that it is added to ({shorten(config['init_lora_weights'])}); save "
            "it as a plain LoRA adapter with PEFT first."
        )
    # Rank-stabilised LoRA (Kalajdzievski 2023) divides by the square root of the rank.
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    label = str(config.get("label") or folder.name)
    return Adapter(label, str(config.get("style", "")), scale, _read_matrices(folder, rank))


def _read_matrices(folder: Path, rank: int) -> dict[str, tuple[Tensor, Tensor]]:
    """The pairs of matrices (A, B) of an adapter, by module name. Raises InputError."""
    try:
        tensors = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{shorten(folder / WEIGHTS)} cannot be read ({shorten(error)}); {_HINT}.") from error
    halves = {match.groups(): tensor.float() for name, tensor in tensors.items() if (match := _NAME.fullmatch(name))}
    modules = sorted({module for module, _ in halves})
    if not modules or len(halves) != len(tensors) or len(halves) != 2 * len(modules):
        raise InputError(f"{shorten(folder / WEIGHTS)} has tensors other than pairs of lora_A and lora_B; {_HINT}.")
    matrices = {module: (halves[module, "A"], halves[module, "B"]) for module in modules}
    for module, (a, b) in matrices.items():
        if a.ndim != 2 or b.ndim != 2 or a.shape[0] != rank or b.shape[1] != rank:
            raise InputError(
                f"{shorten(folder)} has matrices for {shorten(module)} that are not of rank {rank}; {_HINT}."
            )
        if not (a.isfinite().all() and b.isfinite().all()):
            raise InputError(f"{shorten(folder)} has numbers for {shorten(module)} that are not finite; {_HINT}.")
    return matrices


def _read_config(folder: Path) -> dict[str, Any]:
    text = read_text(folder / CONFIG, _MAX_CONFIG_BYTES, _HINT)
    try:
        config = json.loads(text)
    except ValueError as error:
        raise InputError(f"{shorten(folder / CONFIG)} is not JSON ({error}); {_HINT}.") from error
    return config if isinstance(config, dict) else {}


@torch.no_grad()
def merge(model: Any, adapter: Adapter, name: str) -> None:
    """Add `scale * B @ A` to every weight of the adapter, in float32. Raises InputError if one does not fit.

    All weights are checked before the first one changes.
    """
    weights = {}
    for module, (a, b) in adapter.matrices.items():
        try:
            weight = model.get_submodule(module).weight
        except AttributeError as error:
            raise InputError(
                f"The adapter {shorten(adapter.label)} is for {shorten(module)}, which {name} lacks; {_HINT}."
            ) from error
        if weight.shape != (b.shape[0], a.shape[1]):
            actual, needed = "x".join(map(str, weight.shape)), f"{b.shape[0]}x{a.shape[1]}"
            raise InputError(
                f"The adapter {shorten(adapter.label)} is for {shorten(module)} of {needed}, which in {name} is "
                f"{actual}; {_HINT}."
            )
        weights[module] = weight
    for module, (a, b) in adapter.matrices.items():
        weight = weights[module]
        delta = adapter.scale * (b.to(weight.device) @ a.to(weight.device))
        weight.copy_(weight.float() + delta)
