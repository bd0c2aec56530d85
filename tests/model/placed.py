"""A pretended second device: CPU tensors that say they lie on cpu:1 and refuse to meet those that do not.

torch knows one CPU, so `torch.device("cpu", 1)` is the same memory. Within `TwoDevices()`, tensors that are made there,
moved there or computed from marked ones carry the mark. An operation on tensors of both devices raises a RuntimeError,
as on two GPUs; tensors without dimensions may meet any, also as there. Tensors without the mark are on the first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

FIRST, SECOND = torch.device("cpu"), torch.device("cpu", 1)


class Second(Tensor):
    """A tensor on the second device."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _call(function, args, kwargs or {})


class TwoDevices(TorchFunctionMode):
    """Let there be a second device, in this thread."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _call(function, args, kwargs or {})


def _call(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run `function` on the CPU, and mark what it returns if that is on the second device."""
    with torch._C.DisableTorchFunctionSubclass():
        if function == Tensor.device.__get__:  # type: ignore[attr-defined]
            return SECOND if isinstance(args[0], Second) else FIRST
        if function in (Tensor.tolist, Tensor.numpy):
            return function(args[0].as_subclass(Tensor), *args[1:], **kwargs)
        requested = _asked_device(function, args, kwargs)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        marks = {isinstance(tensor, Second) for tensor in tensors if tensor.dim()}
        if len(marks) > 1 and requested is None and function is not Tensor.copy_:
            raise RuntimeError(f"{function}: expected all tensors to be on the same device")
        output = function(*args, **kwargs)
        if function is Tensor.to and requested is not None and (requested == SECOND) != isinstance(args[0], Second):
            # A move is a copy: later writes to it do not change the original.
            output = output.clone()
        on_second = isinstance(args[0], Second) if function is Tensor.copy_ else True in marks
        second = on_second if requested is None else requested == SECOND
        return tree_map_only(Tensor, lambda tensor: _mark(tensor, second), output)


def _asked_device(function: Any, args: Any, kwargs: dict[str, Any]) -> torch.device | None:
    """The device that the call names, if it names one."""
    if function is Tensor.cpu:
        return FIRST
    named = [kwargs.get("device"), *(args[1:2] if function is Tensor.to else ())]
    devices = [device for device in named if isinstance(device, torch.device | str)]
    return torch.device(devices[0]) if devices else None


def _mark(tensor: Tensor, second: bool) -> Tensor:
    if isinstance(tensor, Second) == second:
        return tensor
    return tensor.as_subclass(Second if second else Tensor)


def spread_model(model: Any, first: torch.device = FIRST, second: torch.device = SECOND) -> Any:
    """Put every layer but the first, and the modules after the layers, on the second device; their inputs follow."""
    layers = next(module for module in model.modules() if isinstance(module, nn.ModuleList))
    ends = [
        module
        for name, module in model.named_modules()
        if name.split(".")[1:] in (["norm"], ["ln_f"], ["final_layer_norm"])
    ]
    moved = (*layers[1:], *ends, model.get_output_embeddings())
    behind = {submodule for module in moved for submodule in module.modules()}
    for submodule in model.modules():
        for tensors in (submodule._parameters, submodule._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = tensor.detach().to(second if submodule in behind else first)

    def follow(module: nn.Module, *inputs: Any) -> Any:
        assert module in moved
        return tree_map_only(Tensor, lambda tensor: tensor.to(second), inputs)

    for module in moved:
        module.register_forward_pre_hook(follow, with_kwargs=True)
    return model
