"""A head's checkpoint: its config and tensors, read without running code, and checked by name, shape and value.

Safetensors take precedence. A `.bin` or `.pt` file is a pickle; torch reads it with `weights_only`, which refuses code
instead of running it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from specrace.core.errors import InputError, shorten
from specrace.core.files import read_text

CONFIG = "config.json"
# A larger file of weights is refused before it is read: no head is as large.
MAX_BYTES = 8_000_000_000
# Far more than a real config has, which takes some kB.
_MAX_CONFIG_BYTES = 1_000_000
_HINT = "give a folder with a head's config.json and its weights"
# Files of weights, in the order in which they are looked for.
WEIGHTS = (
    "model.safetensors",
    "medusa_lm_head.safetensors",
    "hydra_lm_head.safetensors",
    "pytorch_model.bin",
    "medusa_lm_head.pt",
    "hydra_lm_head.pt",
)


@dataclass
class Checkpoint:
    """A head's config and tensors, by name. `label` names the head in messages; `used` holds the names asked for."""

    label: str
    config: Mapping[str, Any]
    tensors: dict[str, Tensor]
    used: set[str] = field(default_factory=set)

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of most of the numbers."""
        counts = Counter[torch.dtype]()
        for tensor in self.tensors.values():
            if tensor.is_floating_point():
                counts[tensor.dtype] += tensor.numel()
        return counts.most_common(1)[0][0]

    def size(self, name: str, default: int | None = None) -> int:
        """A positive whole number from the config. Raises InputError for any other value.

        If the config lacks it, `default` is returned, or InputError raised if that is None.
        """
        value = self.config.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(f"{self.label} has the {name} {shorten(repr(value))} in its config; it must be 1 or more.")
        return value

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor `name`. Raises InputError if it is missing, has another shape, or is not finite."""
        tensor = self.tensors.get(name)
        if tensor is None:
            raise InputError(f"{self.label} has no tensor {name}; {_HINT} that fits the config.")
        self.used.add(name)
        if tuple(tensor.shape) != shape:
            actual, needed = ("x".join(map(str, sizes)) for sizes in (tensor.shape, shape))
            raise InputError(
                f"{self.label} has {name} of shape {actual}, and its config and target need {needed}; {_HINT}."
            )
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"{self.label} has numbers in {name} that are not finite; train it again, or {_HINT}.")
        return tensor

    def ignore(self, names: Iterable[str]) -> None:
        """Count these tensors as used: a layout stores them, but a race does not need them."""
        self.used.update(names)

    def check_all_used(self) -> None:
        """Raises InputError for a tensor that no part of the head has asked for."""
        surplus = sorted(self.tensors.keys() - self.used)
        if surplus:
            raise InputError(
                f"{self.label} has {len(surplus)} tensors that this kind of head does not use, for instance "
                f"{shorten(surplus[0])}; {_HINT} of one head."
            )


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a head's folder. Raises InputError if something is missing, damaged, too large, or would run code."""
    label = f"The head {shorten(folder.name)}"
    if not folder.is_dir():
        raise InputError(f"There is no head at {shorten(folder)}; {_HINT}.")
    return Checkpoint(label, _read_config(folder, label), _read_tensors(folder, label))


def write_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Write config.json and model.safetensors into `folder`. Raises InputError if that fails."""
    # Copied, because several names may share one tensor, which safetensors refuses to store.
    tensors = {name: tensor.contiguous().clone() for name, tensor in checkpoint.tensors.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / WEIGHTS[0])
        (folder / CONFIG).write_text(json.dumps(checkpoint.config, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"The head cannot be written to {shorten(folder)} ({shorten(error)}); give another folder with --out."
        ) from error


def _read_config(folder: Path, label: str) -> dict[str, Any]:
    try:
        config = json.loads(read_text(folder / CONFIG, _MAX_CONFIG_BYTES, _HINT))
    except ValueError as error:
        raise InputError(f"{label} has a config.json that is not JSON ({shorten(error)}); {_HINT}.") from error
    if not isinstance(config, dict):
        raise InputError(f"{label} has a config.json that is not an object; {_HINT}.")
    # `auto_map` names classes to load. In heads made by the library speculators they are its own, which are not needed.
    if "auto_map" in config and "speculators_model_type" not in config:
        raise InputError(f"{label} comes with code of its own (auto_map), which is not run; {_HINT} without it.")
    return config


def _read_tensors(folder: Path, label: str) -> dict[str, Tensor]:
    file = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if file is None:
        raise InputError(f"{label} has no weights ({', '.join(WEIGHTS)}); {_HINT}.")
    if file.stat().st_size > MAX_BYTES:
        raise InputError(f"{label} has {file.stat().st_size / 1e9:.0f} GB of weights; a head has at most 8 GB.")
    try:
        if file.suffix == ".safetensors":
            return dict(load_file(file))
        tensors = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, SafetensorError, RuntimeError, EOFError, ValueError) as error:
        raise InputError(f"{label} has a {file.name} that cannot be read ({shorten(error)}); {_HINT}.") from error
    except Exception as error:
        # The remaining errors are torch's: it refuses to unpickle anything but tensors.
        raise InputError(
            f"{label} stores more than numbers in {file.name}, which could run code; convert it to safetensors where "
            "you trust it."
        ) from error
    if not isinstance(tensors, dict) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise InputError(f"{label} has a {file.name} that is not a list of named tensors; {_HINT}.")
    return {str(name): value for name, value in tensors.items()}
