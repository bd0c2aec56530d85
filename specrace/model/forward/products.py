"""Linear layers for a scripted forward, each made from a weight [out, in] and a bias.

They map rows [..., N, in] to [..., N, out]. Apart from rounding, a row's result does not depend on the other rows. A
packed weight is a copy, reordered for fast products of a few rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

MakeLinear = Callable[[Tensor, Tensor | None], nn.Module]
# The number of rows that oneDNN's layout of a weight is chosen for; no other number from 1 to 64 was faster.
_LAYOUT_ROWS = 16
# Up to this many rows, multiplying with the 16-bit weights is faster than converting them to float32 first.
_MAX_NARROW_ROWS = 12
_SOURCE = """
def product(rows: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
"""


class PlainProduct(nn.Module):
    """torch's own linear layer."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight.detach(), bias

    def forward(self, rows: Tensor) -> Tensor:
        return nn.functional.linear(rows, self.weight, self.bias)


class PackedProduct(nn.Module):
    """oneDNN's linear layer, with a reordered copy of the weight. Raises RuntimeError if there is no kernel for it.

    A product of 2 to 32 rows with a plain weight spends much of its time reordering the weight. With a weight that was
    reordered once, it took half as long in float32 and two thirds as long in bfloat16 on the machines measured.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        # Neither a parameter nor a buffer: the layout is opaque, so a state dict could not store it.
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), _LAYOUT_ROWS)
        self.bias = bias
        self.product = _packed_product()

    def forward(self, rows: Tensor) -> Tensor:
        product: Tensor = self.product(rows, self.weight, self.bias)
        return product


@cache
def _packed_product() -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    """oneDNN's product as a TorchScript function, because a trace cannot record the empty list among its arguments."""
    with warnings.catch_warnings():
        # TorchScript is deprecated; once it is gone, models are neither traced nor packed.
        warnings.simplefilter("ignore")
        unit = torch.jit.CompilationUnit(_SOURCE)
    product: Callable[[Tensor, Tensor, Tensor | None], Tensor] = unit.product
    return product


class WidenedProduct(nn.Module):
    """A linear layer for processors without 16-bit arithmetic: with more than a few rows it multiplies in float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight.detach(), bias
        self.max_narrow_rows: int = _MAX_NARROW_ROWS

    def forward(self, rows: Tensor) -> Tensor:
        if rows.size(0) <= self.max_narrow_rows:
            return nn.functional.linear(rows, self.weight, self.bias)
        wide = torch.mm(rows.float(), self.weight.float().t()).to(rows.dtype)
        bias = self.bias
        return wide if bias is None else wide + bias


def uncopied_product(dtype: torch.dtype) -> type[PlainProduct | WidenedProduct]:
    """Of the two classes that use the weights without a copy, the faster one for many rows on this processor."""
    return PlainProduct if dtype == torch.float32 or has_16_bit_arithmetic() else WidenedProduct


def has_16_bit_arithmetic() -> bool:
    """Whether this processor multiplies bfloat16 numbers."""
    return _cpu_has("avx512_bf16") or _cpu_has("amx_bf16")


def _cpu_has(feature: str) -> bool:
    """Whether the processor has a feature, by torch's name for the feature."""
    return bool(torch.cpu.get_capabilities().get(feature))


def quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Scales [out, 1] and integers from -127 to 127 [out, in], as floats; their product approximates `weight`."""
    scales = weight.float().abs().amax(1, keepdim=True).clamp_min(1e-30) / 127.0
    return scales, (weight.float() / scales).round()


@torch.no_grad()
def round_weights(model: nn.Module) -> None:
    """Round the linear layers' weights in place to values that the compiled decoder represents exactly in 8 bits."""
    # Layers that share a weight are rounded once.
    for layer in {layer.weight: layer for layer in model.modules() if type(layer) is nn.Linear}.values():
        scales, steps = quantized(layer.weight)
        layer.weight.copy_(scales * steps)
