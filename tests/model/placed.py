"""A second device that is none: tensors of the CPU that say they lie on cpu:1 and refuse to meet those that do not.

torch knows one CPU, so `torch.device("cpu", 1)` is the same memory. Within `TwoDevices()` tensors that are made there,
moved there or computed from such carry the mark, and an operation on tensors of both devices raises a RuntimeError, as
it does on two GPUs; numbers without dimensions may go anywhere, as there. Tensors without the mark are on the first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

FIRST, SECOND = torch.device("cpu"), torch.device("cpu", 1)
_LAST_NORMS = ("norm", "ln_f", "final_layer_norm")


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
        asked = _asked_device(function, args, kwargs)
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        marks = {isinstance(each, Second) for each in tensors if each.dim()}
        if len(marks) > 1 and asked is None and function is not Tensor.copy_:
            raise RuntimeError(f"{function}: expected all tensors to be on the same device")
        output = function(*args, **kwargs)
        if function is Tensor.to and asked is not None and (asked == SECOND) != isinstance(args[0], Second):
            # A move is a copy: what is written to it afterwards does not appear where it came from.
            output = output.clone()
        on_second = isinstance(args[0], Second) if function is Tensor.copy_ else True in marks
        second = on_second if asked is None else asked == SECOND
        return tree_map_only(Tensor, lambda each: _mark(each, second), output)


def _asked_device(function: Any, args: Any, kwargs: dict[str, Any]) -> torch.device | None:
    """The device that the call names, if it names one."""
    if function is Tensor.cpu:
        return FIRST
    named = [kwargs.get("device"), *(args[1:2] if function is Tensor.to else ())]
    found = [each for each in named if isinstance(each, torch.device | str)]
    return torch.device(found[0]) if found else None


def _mark(tensor: Tensor, second: bool) -> Tensor:
    if isinstance(tensor, Second) == second:
        return tensor
    return tensor.as_subclass(Second if second else Tensor)


def spread_model(model: Any, first: torch.device = FIRST, second: torch.device = SECOND) -> Any:
    """Put all but the first layer, and what comes behind them, on the second device; its inputs follow."""
    layers = next(each for each in model.modules() if isinstance(each, nn.ModuleList))
    ends = [
        each
        for name, each in model.named_modules()
        if name.split(".")[1:] in (["norm"], ["ln_f"], ["final_layer_norm"])
    ]
    moved = (*layers[1:], *ends, model.get_output_embeddings())
    behind = {part for module in moved for part in module.modules()}
    for part in model.modules():
        for own in (part._parameters, part._buffers):
            for name, tensor in own.items():
                if tensor is not None:
                    own[name] = tensor.detach().to(second if part in behind else first)

    def follow(module: nn.Module, *given: Any) -> Any:
        assert module in moved
        return tree_map_only(Tensor, lambda each: each.to(second), given)

    for module in moved:
        module.register_forward_pre_hook(follow, with_kwargs=True)
    return model
