"""Linear layers whose weights are laid out for a few rows, by oneDNN, the library under torch's CPU kernels.

A product of 2 to 32 rows with a plain weight spends much of its time on reordering the weight. With a weight reordered
once it took about half as long in float32, and two thirds in bfloat16, on the machines measured.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from specrace.model.machine import free_memory

# The layout is chosen for so many rows; of 1 to 64 none was better.
_ROWS = 16
_SOURCE = """
def product(rows: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
"""


class PackedLinear(nn.Module):
    """`linear` on a reordered copy of its weight. Raises RuntimeError where torch has no kernel for it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.bias = linear.bias
        # Neither parameter nor buffer: the layout is opaque, and no state dict could hold it.
        self.weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight, _ROWS)

    def forward(self, rows: Tensor) -> Tensor:
        """[..., N, in] to [..., N, out]."""
        found: Tensor = _kernel()(rows, self.weight, self.bias)
        return found


@cache
def _kernel() -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    """The plain product. In TorchScript, because a trace cannot hold its empty list of numbers."""
    with warnings.catch_warnings():
        # TorchScript is deprecated; where it is gone, nothing is traced or packed.
        warnings.simplefilter("ignore")
        unit = torch.jit.CompilationUnit(_SOURCE)
    kernel: Callable[[Tensor, Tensor, Tensor | None], Tensor] = unit.product
    return kernel


def pack_linears(model: nn.Module) -> list[PackedLinear]:
    """Replace every plain linear layer of `model`; returns the new ones. Raises RuntimeError as `PackedLinear` does."""
    packed = []
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is nn.Linear:
                packed.append(PackedLinear(layer))
                setattr(parent, name, packed[-1])
    return packed


def fits_twice(model: nn.Module) -> bool:
    """Whether the machine has free memory for two more copies of the weights; False where Linux does not state it."""
    free, needed = free_memory(), sum(each.numel() * each.element_size() for each in model.parameters())
    return free is not None and free > 2 * needed
