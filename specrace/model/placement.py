"""Decides on which device and in which dtype a model is loaded, and checks that this machine allows the choice."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from specrace.core.errors import DeviceError, InputError, shorten
from specrace.model.machine.device_map import DeviceMap, count_accelerators
from specrace.model.scorer import DTYPES, INT8
from specrace.model.tensor_parallel import Followers, check_num_devices
from specrace.model.weights.source import AUTO, NONE, ModelChoice


@dataclass(frozen=True)
class Placement:
    """The (first) device and the dtype of a model's weights, and the adapter to merge into them.

    `device_map` spreads the layers over several devices. `followers` are processes that each hold a part of all layers.
    """

    device: str
    dtype: str
    adapter: str | Path
    device_map: DeviceMap | None
    followers: Followers | None


def place(choice: ModelChoice, device_map: DeviceMap | None, followers: Followers | None) -> Placement:
    """Replace "auto" and None by this machine's choices.

    Raises InputError for a device or dtype that does not exist here, and for settings that cannot be combined.
    """
    device = resolve_device(choice.device, choice.dtype)
    adapter = choice.adapter
    device_map = None if followers is not None else device_map or choose_map(choice.device)
    if device_map is not None:
        require_accelerate(device_map)
    if followers is not None:
        if choice.dtype == INT8:
            raise InputError("int8 weights are for one process; use --dtype float32, or start without torchrun.")
        check_num_devices(device, followers.size)
        if str(adapter) not in (AUTO, NONE):
            raise InputError(
                "An adapter cannot be merged into a model split over several processes; use --adapter none."
            )
        adapter = NONE
    # In float32 every lane prints exactly vanilla's text; on a GPU, bfloat16 is the usual dtype.
    dtype = choice.dtype or ("float32" if device == "cpu" else "bfloat16")
    return Placement(device, dtype, adapter, device_map, followers)


def choose_map(device: str) -> DeviceMap | None:
    """The device map to load with: "auto" if `device` is "auto" and there are several GPUs, else None."""
    return "auto" if device == "auto" and count_accelerators() > 1 else None


def require_accelerate(device_map: DeviceMap) -> None:
    """Raises InputError if the package accelerate is not installed; a device map needs it."""
    if find_spec("accelerate") is None:
        targets = f"{count_accelerators()} GPUs" if isinstance(device_map, str) else "several devices"
        raise InputError(
            f"To spread a model over {targets}, transformers needs accelerate: pip install accelerate, or choose "
            "--device cuda."
        )


def resolve_device(device: str, dtype: str | None) -> str:
    """The device that `device` names: "auto" is the GPU, or the CPU if there is no GPU.

    Raises InputError for a device or a dtype that does not exist here.
    """
    if dtype is not None and dtype not in (*DTYPES, INT8):
        raise InputError(f"There is no dtype {shorten(repr(dtype))}; choose from {', '.join((*DTYPES, INT8))}.")
    resolved = device
    if device == "auto":
        resolved = "cuda" if count_accelerators() else "cpu"
    if dtype == INT8 and resolved != "cpu":
        raise InputError("int8 weights are for one CPU; use --device cpu, or --dtype bfloat16.")
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise InputError(f"There is no device {shorten(repr(device))}; choose cpu, cuda or auto.")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise DeviceError("No CUDA device was found; use --device cpu.")
    return resolved
