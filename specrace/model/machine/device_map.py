"""Models spread over several devices: how they are loaded, and which device holds each layer.

`--device auto` with several GPUs uses transformers' `device_map="auto"` (which needs accelerate): one process puts
whole layers on different GPUs. A step visits the GPUs one after another, so larger models fit, but steps are no faster.
`specrace.model.tensor_parallel` splits every layer over several processes instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from specrace.core.errors import InputError

DeviceMap = str | Mapping[str, Any]


def count_accelerators() -> int:
    """The number of GPUs that torch can use."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def is_spread(model: Any) -> bool:
    """Whether the model has parameters on several devices, or a device map that moves them between devices."""
    devices = set((getattr(model, "hf_device_map", None) or {}).values())
    return len(devices) > 1 or len({parameter.device for parameter in model.parameters()}) > 1


def layer_devices(model: Any, num_layers: int) -> tuple[torch.device, ...]:
    """The device of each layer of a model that is spread; () for any other model.

    The layers are taken from the ModuleList with `num_layers` entries. Raises InputError if there is none.
    """
    if not is_spread(model):
        return ()
    lists = (part for part in model.modules() if isinstance(part, nn.ModuleList) and len(part) == num_layers)
    layers = next(lists, None)
    if layers is None:
        raise InputError("The model is on several devices, but its layers were not found; load it on one device.")
    return tuple(next(layer.parameters()).device for layer in layers)


def distinct(devices: Iterable[torch.device]) -> tuple[torch.device, ...]:
    """The devices without duplicates, in order of first occurrence."""
    return tuple(dict.fromkeys(devices))


def prepare_mapped(model: Any, name: str) -> None:
    """Prepare a model that was loaded with a device map.

    Raises InputError if a part is not on a GPU: every step would have to fetch it from the host's memory or from disk.
    """
    devices = set((getattr(model, "hf_device_map", None) or {}).values())
    if len(devices) > 1 and devices & {"cpu", "disk"}:
        raise InputError(
            f"{name} does not fit into the memory of the GPUs, and fetching the rest in every step would take many "
            "times as long as the step; choose a smaller model."
        )
    hook = getattr(model, "_hf_hook", None)
    if hook is not None:
        # With the hook's default, accelerate would copy the logits back to the first device.
        hook.io_same_device = False


def device_names(devices: Iterable[torch.device]) -> str:
    """The devices' names, "cpu" or a GPU's name; "2 x NAME" for two devices of one name."""
    names = Counter(torch.cuda.get_device_name(device) if device.type == "cuda" else device.type for device in devices)
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in names.items())
