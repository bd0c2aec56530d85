"""Linear layers for a script of a model's forward, each from a weight [out, in] and a bias.

All take rows [N, in] to [N, out]; a row's result does not depend on the other rows but for rounding.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

# Rows for which oneDNN's layout of a weight is chosen; of 1 to 64 none was better.
_LAYOUT_ROWS = 16
# Rows for which MKL packs a weight: with fewer, products of more rows are slower, with more those of fewer.
_MKL_ROWS = 256
# Up to so many rows, a product of 16-bit weights beats one of their float32 copies, made for each product.
_FEW_ROWS = 12
# Of a digit: two products of 0 to 128 with a signed byte fit into the 16 bits in which AVX2 adds them.
_BASE = 128.0


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


class MklProduct(nn.Module):
    """MKL's, with a packed copy of a float32 weight. Raises RuntimeError where there is no kernel."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        if not torch.backends.mkl.is_available():
            raise RuntimeError("torch was built without MKL")
        self.packed = torch.ops.mkl._mkl_reorder_linear_weight(weight.detach().contiguous(), _MKL_ROWS)
        # Only its shape is read.
        self.shaped = weight.new_zeros(1, 1).expand(weight.shape)
        self.bias = bias

    def forward(self, rows: Tensor) -> Tensor:
        found: Tensor = torch.ops.mkl._mkl_linear(rows, self.packed, self.shaped, self.bias, rows.size(0))
        return found


class BlocksProduct(nn.Module):
    """torch's batched product with a transposed copy of the weight, in as many blocks of outputs as threads.

    For one row: each thread then reads a block of its own from end to end.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.parts: int = max(n for n in range(1, torch.get_num_threads() + 1) if len(weight) % n == 0)
        self.weight = weight.detach().unflatten(0, (self.parts, -1)).transpose(1, 2).contiguous()
        self.bias = bias

    def forward(self, rows: Tensor) -> Tensor:
        blocks = torch.bmm(rows.expand(self.parts, -1, -1), self.weight)
        found = blocks.transpose(0, 1).flatten(1)
        bias = self.bias
        return found if bias is None else found + bias


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


class HalfProduct(nn.Module):
    """FBGEMM's, for 16-bit models on processors without 16-bit arithmetic: weights in float16, sums in float32.

    A draft's rows differ from vanilla's by float32 rounding at most, and not at all with AVX-512: with AVX2 alone,
    FBGEMM adds one or two rows up in another order. bfloat16 weights are exact in float16 from 6e-5 on; smaller ones
    move by less than 3e-8. Raises ValueError where a weight is too large, and RuntimeError where there is no kernel.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        wide = weight.detach().float()
        if not wide.abs().max() <= torch.finfo(torch.float16).max:
            raise ValueError("a weight does not fit into float16")
        self.packed = torch.ops.quantized.linear_prepack_fp16(wide, None if bias is None else bias.detach().float())

    def forward(self, rows: Tensor) -> Tensor:
        found: Tensor = torch.ops.quantized.linear_dynamic_fp16(rows.float(), self.packed).to(rows.dtype)
        return found


class RowsProduct(nn.Module):
    """One product for a single row, another for more."""

    def __init__(self, one: nn.Module, more: nn.Module) -> None:
        super().__init__()
        self.one, self.more = one, more

    def forward(self, rows: Tensor) -> Tensor:
        found: Tensor = self.one(rows) if rows.size(0) == 1 else self.more(rows)
        return found


class Int8Product(nn.Module):
    """FBGEMM's, with weights of 8 bits and a scale for each output channel.

    A row is a scale of its own times a number of three digits, each of 7 bits, so it takes three rows of the integer
    product, whose sums are exact. One digit is what torch's dynamic quantisation takes, with one scale for all rows:
    rows would change one another, and a lane would print another text than vanilla.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        scales, steps = quantized(weight.detach())
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        with warnings.catch_warnings():
            # Tensors of this kind are to leave torch; without them no weight is packed.
            warnings.simplefilter("ignore")
            packable = torch._make_per_channel_quantized_tensor(steps.to(torch.int8), scales[:, 0].double(), zeros, 0)
            self.packed = torch.ops.quantized.linear_prepack(packable, None)
        self.bias = bias
        self.smallest = torch.tensor(1e-30)
        # A number without digits goes before the first, from which nothing is to be taken.
        self.powers = torch.tensor([0.0, 1.0, _BASE, _BASE**2])[:, None, None]
        self.base: float = _BASE

    def forward(self, rows: Tensor) -> Tensor:
        largest = torch.linalg.vector_norm(rows, float("inf"), [1], True)
        scale = torch.add(self.smallest, largest, alpha=2.0 / (self.base - 2.0))
        rounded = (rows / scale * self.powers).round_()
        digits = torch.add(rounded.narrow(0, 1, 3), rounded.narrow(0, 0, 3), alpha=-self.base)
        # The product makes bytes of the digits, from 0 to 128, by a scale of 1 and a zero point of 64.
        sums = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            digits.flatten(0, 1), 1.0, 64, self.packed
        )
        first, second, third = sums.split(rows.size(0))
        found = torch.add(first, second, alpha=1.0 / self.base)
        found = found.add_(third, alpha=1.0 / self.base**2).mul_(scale)
        bias = self.bias
        return found if bias is None else found + bias


def quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(scales [out, 1], whole numbers from -127 to 127 [out, in]) whose product is near `weight`."""
    scales = weight.float().abs().amax(1, keepdim=True).clamp_min(1e-30) / 127.0
    return scales, (weight.float() / scales).round()


@torch.no_grad()
def round_weights(model: nn.Module) -> None:
    """Round the linear layers' weights to 8 bits, in place: what `Int8Product` computes with."""
    for layer in {each.weight: each for each in model.modules() if type(each) is nn.Linear}.values():
        scales, steps = quantized(layer.weight)
        layer.weight.copy_(scales * steps)
