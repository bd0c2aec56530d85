"""Linear layers with weights laid out for products of a few rows by oneDNN, the library behind torch's CPU kernels.

A product of 2 to 32 rows with a plain weight spends much of its time reordering the weight. With a weight that was
reordered once, it took half as long in float32 and two thirds as long in bfloat16 on the machines measured.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from specrace.model.machine.memory import free_memory

# The number of rows that the layout is chosen for; no other number from 1 to 64 was faster.
_ROWS = 16
_SOURCE = """
def product(rows: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
"""


class PackedLinear(nn.Module):
    """The layer `linear` with a reordered copy of its weight. Raises RuntimeError if torch has no kernel for it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.bias = linear.bias
        # Neither a parameter nor a buffer: the layout is opaque, so a state dict could not store it.
        self.weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight, _ROWS)

    def forward(self, rows: Tensor) -> Tensor:
        """Map rows [..., N, in] to [..., N, out]."""
        product: Tensor = _kernel()(rows, self.weight, self.bias)
        return product


@cache
def _kernel() -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    """oneDNN's product as a TorchScript function, because a trace cannot record the empty list among its arguments."""
    with warnings.catch_warnings():
        # TorchScript is deprecated; once it is gone, models are neither traced nor packed.
        warnings.simplefilter("ignore")
        unit = torch.jit.CompilationUnit(_SOURCE)
    kernel: Callable[[Tensor, Tensor, Tensor | None], Tensor] = unit.product
    return kernel


def pack_linears(model: nn.Module) -> list[PackedLinear]:
    """Replace every plain linear layer of `model`; returns the new layers. Raises RuntimeError like `PackedLinear`."""
    packed = []
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is nn.Linear:
                packed.append(PackedLinear(layer))
                setattr(parent, name, packed[-1])
    return packed


def fits_twice(model: nn.Module) -> bool:
    """Whether free memory has room for two more copies of the weights; False if it is not known how much is free."""
    free = free_memory()
    needed = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return free is not None and free > 2 * needed
