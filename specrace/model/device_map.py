"""A model on several devices: whether it is spread, and where each layer lies.

`--device auto` with several GPUs uses transformers' `device_map="auto"` (which needs accelerate): whole layers lie
on different GPUs in one process. A step visits them in turn, so larger models fit but no step is faster.
`specrace.model.tensor_parallel` splits every layer over several processes instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from specrace.core.errors import InputError

DeviceMap = str | Mapping[str, Any]


def count_accelerators() -> int:
    """How many GPUs torch can use."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def one_device(device: str) -> str:
    """`device`, but for "auto" the GPU, or the CPU where there is none."""
    if device != "auto":
        return device
    return "cuda" if count_accelerators() else "cpu"


def spread(device: str) -> DeviceMap | None:
    """The device map that `device` asks for: "auto" where it is "auto" and there are several GPUs, else None."""
    return "auto" if device == "auto" and count_accelerators() > 1 else None


def check_map(device_map: DeviceMap) -> None:
    """Raises InputError where accelerate, which a device map needs, is not installed."""
    if find_spec("accelerate") is None:
        wanted = f"{count_accelerators()} GPUs" if isinstance(device_map, str) else "several devices"
        raise InputError(
            f"To spread a model over {wanted} transformers needs accelerate: pip install accelerate, or choose "
            "--device cuda."
        )


def is_spread(model: Any) -> bool:
    """Whether the model's parts lie on several devices, or a device map moves them between some."""
    places = set((getattr(model, "hf_device_map", None) or {}).values())
    return len(places) > 1 or len({parameter.device for parameter in model.parameters()}) > 1


def layer_devices(model: Any, num_layers: int) -> tuple[torch.device, ...]:
    """The device of each layer of a model that is spread, () for any other.

    The layers are the list of modules that has as many entries as the config says; raises InputError without one.
    """
    if not is_spread(model):
        return ()
    lists = (each for each in model.modules() if isinstance(each, nn.ModuleList) and len(each) == num_layers)
    layers = next(lists, None)
    if layers is None:
        raise InputError("The model lies on several devices and its layers were not found; load it on one.")
    return tuple(next(layer.parameters()).device for layer in layers)


def distinct(devices: Iterable[torch.device]) -> tuple[torch.device, ...]:
    """Each of `devices` once, in their order."""
    return tuple(dict.fromkeys(devices))


def settle_map(model: Any, name: str) -> None:
    """Prepare a model on a device map for a race. Raises InputError where part of it is not on a GPU.

    Such parts lie in the host's memory or on the disk, and each step would fetch them.
    """
    places = set((getattr(model, "hf_device_map", None) or {}).values())
    if len(places) > 1 and places & {"cpu", "disk"}:
        raise InputError(
            f"{name} does not fit the memory of the GPUs, and to fetch the rest in every step would take many times as "
            "long as the step; choose a smaller model."
        )
    hook = getattr(model, "_hf_hook", None)
    if hook is not None:
        # Otherwise accelerate copies the logits back to the first device.
        hook.io_same_device = False


def device_names(devices: Iterable[torch.device]) -> str:
    """The devices in words: "cpu", a GPU's name, "2 x" that name."""
    names = Counter(torch.cuda.get_device_name(each) if each.type == "cuda" else each.type for each in devices)
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in names.items())
