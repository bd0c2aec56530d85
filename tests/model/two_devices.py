"""A simulated second device: CPU tensors that are marked as being on cpu:1.

torch has only one CPU, so `torch.device("cpu", 1)` uses the same memory. Within `TwoDevices()`, a tensor is marked if
it is created on cpu:1, moved to cpu:1 or computed from marked tensors; every other tensor is on the first device. As on
two GPUs, an operation on tensors of both devices raises a RuntimeError. Tensors without dimensions are an exception.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

FIRST, SECOND = torch.device("cpu"), torch.device("cpu", 1)


class OnSecond(Tensor):
    """A tensor on the second device."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _call(function, args, kwargs or {})


class TwoDevices(TorchFunctionMode):
    """A context in which this thread has a second device."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _call(function, args, kwargs or {})


def _call(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run `function` on the CPU, and mark the returned tensors if they are on the second device."""
    with torch._C.DisableTorchFunctionSubclass():
        if function == Tensor.device.__get__:  # type: ignore[attr-defined]
            return SECOND if isinstance(args[0], OnSecond) else FIRST
        if function in (Tensor.tolist, Tensor.numpy):
            return function(args[0].as_subclass(Tensor), *args[1:], **kwargs)
        requested = _requested_device(function, args, kwargs)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        marks = {isinstance(tensor, OnSecond) for tensor in tensors if tensor.dim()}
        if len(marks) > 1 and requested is None and function is not Tensor.copy_:
            raise RuntimeError(f"{function}: expected all tensors to be on the same device")
        output = function(*args, **kwargs)
        if function is Tensor.to and requested is not None and (requested == SECOND) != isinstance(args[0], OnSecond):
            # A move is a copy: later writes to it do not change the original.
            output = output.clone()
        on_second = isinstance(args[0], OnSecond) if function is Tensor.copy_ else True in marks
        is_second = on_second if requested is None else requested == SECOND
        return tree_map_only(Tensor, lambda tensor: _mark(tensor, is_second), output)


def _requested_device(function: Any, args: Any, kwargs: dict[str, Any]) -> torch.device | None:
    """The device that the call names as an argument, if any."""
    if function is Tensor.cpu:
        return FIRST
    named = [kwargs.get("device"), *(args[1:2] if function is Tensor.to else ())]
    devices = [device for device in named if isinstance(device, torch.device | str)]
    return torch.device(devices[0]) if devices else None


def _mark(tensor: Tensor, is_second: bool) -> Tensor:
    if isinstance(tensor, OnSecond) == is_second:
        return tensor
    return tensor.as_subclass(OnSecond if is_second else Tensor)


def spread_model(model: Any, first: torch.device = FIRST, second: torch.device = SECOND) -> Any:
    """Put everything after the first layer on the second device; hooks move the inputs of these modules there."""
    layers = next(module for module in model.modules() if isinstance(module, nn.ModuleList))
    final_norms = [
        module
        for name, module in model.named_modules()
        if name.split(".")[1:] in (["norm"], ["ln_f"], ["final_layer_norm"])
    ]
    moved = (*layers[1:], *final_norms, model.get_output_embeddings())
    submodules_moved = {submodule for module in moved for submodule in module.modules()}
    for submodule in model.modules():
        for tensors in (submodule._parameters, submodule._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = tensor.detach().to(second if submodule in submodules_moved else first)

    def move_inputs(_: nn.Module, *inputs: Any) -> Any:
        return tree_map_only(Tensor, lambda tensor: tensor.to(second), inputs)

    for module in moved:
        module.register_forward_pre_hook(move_inputs, with_kwargs=True)
    return model
