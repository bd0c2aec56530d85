"""Linear layers for a script of a model's forward, each from a weight [out, in] and a bias.

All take rows [N, in] to [N, out]; a row's result does not depend on the other rows but for rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Rows for which oneDNN's layout of a weight is chosen; of 1 to 64 none was better.
_LAYOUT_ROWS = 16
# Up to so many rows, a product of 16-bit weights beats one of their float32 copies, made for each product.
_FEW_ROWS = 12


class PlainProduct(nn.Module):
    """torch's own."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight.detach(), bias

    def forward(self, rows: Tensor) -> Tensor:
        return nn.functional.linear(rows, self.weight, self.bias)


class PackedProduct(nn.Module):
    """oneDNN's, with a reordered copy of the weight. Raises RuntimeError where there is no kernel for it."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        # Neither parameter nor buffer: the layout is opaque, and no state dict could hold it.
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), _LAYOUT_ROWS)
        self.bias = bias

    def forward(self, rows: Tensor) -> Tensor:
        found: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self.weight, self.bias, "none", [], "")
        return found


class WidenedProduct(nn.Module):
    """For processors without 16-bit arithmetic: more than a few rows are multiplied in float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight.detach(), bias
        self.few: int = _FEW_ROWS

    def forward(self, rows: Tensor) -> Tensor:
        if rows.size(0) <= self.few:
            return nn.functional.linear(rows, self.weight, self.bias)
        wide = torch.mm(rows.float(), self.weight.float().t()).to(rows.dtype)
        bias = self.bias
        return wide if bias is None else wide + bias


def plain_product(dtype: torch.dtype) -> type[PlainProduct | WidenedProduct]:
    """The kind that multiplies weights of a dtype where they lie, and the faster one for many rows here."""
    narrow = dtype != torch.float32 and not (_has("avx512_bf16") or _has("amx_bf16"))
    return WidenedProduct if narrow else PlainProduct


def _has(feature: str) -> bool:
    """Whether the processor has it, by torch's name."""
    return bool(torch.cpu.get_capabilities().get(feature))


def quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(scales [out, 1], whole numbers from -127 to 127 [out, in]) whose product is near `weight`."""
    scales = weight.float().abs().amax(1, keepdim=True).clamp_min(1e-30) / 127.0
    return scales, (weight.float() / scales).round()


@torch.no_grad()
def round_weights(model: nn.Module) -> None:
    """Round the linear layers' weights to 8 bits, in place: what the compiled decoder computes with."""
    for layer in {each.weight: each for each in model.modules() if type(each) is nn.Linear}.values():
        scales, steps = quantized(layer.weight)
        layer.weight.copy_(scales * steps)
