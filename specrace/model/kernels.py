"""Which library's product is the fastest here, for one row and for several: measured at load, on the model's weights.

Processors differ. On an Intel Xeon with AVX-512 but no 16-bit arithmetic MKL took 0.8 of oneDNN's time for one row of
float32 and 0.95 for eight, each on its own packed weights; in bfloat16 FBGEMM took 0.95 and 0.4 of oneDNN's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from specrace.model.products import HalfProduct, MklProduct, PackedProduct, PlainProduct, RowsProduct

MakeProduct = Callable[[Tensor, Tensor | None], nn.Module]

# Copies of weights that a forward may run on, with their names.
_COPIES: dict[MakeProduct, str] = {
    PackedProduct: "packed weights",
    MklProduct: "weights packed by MKL",
    HalfProduct: "weights packed in float16",
}
_FLOAT32, _16_BITS = (PackedProduct, MklProduct), (PackedProduct, HalfProduct)
# More than a processor's own caches: a forward's weights come from memory.
_SAMPLE_BYTES = 1 << 26
# Rows of a usual draft.
_SEVERAL = 8
_ROUNDS = 4
# One row keeps the copy's kernel unless another is faster by more than noise.
_GAIN = 0.95


@dataclass(frozen=True)
class Kernels:
    """A kind of product for one row, and a kind for more."""

    one: MakeProduct
    more: MakeProduct

    def make(self, weight: Tensor, bias: Tensor | None) -> nn.Module:
        """The product with a weight [out, in]."""
        more = self.more(weight, bias)
        return more if self.one is self.more else RowsProduct(self.one(weight, bias), more)

    @property
    def name(self) -> str:
        """What the weights are, as `engine` shows it."""
        return _COPIES[self.more] + ("" if self.one is self.more else " from two rows on")


@torch.inference_mode()
def fastest_products(model: Any) -> Kernels:
    """The kinds that are the fastest here. Raises RuntimeError where there is no kernel for copied weights."""
    weights = _sample(model)
    kinds: tuple[MakeProduct, ...] = _FLOAT32 if model.dtype == torch.float32 else _16_BITS
    made: dict[MakeProduct, list[nn.Module]] = {}
    reason: Exception | None = None
    for kind in kinds:
        try:
            made[kind] = [kind(weight, None) for weight in weights]
        except (RuntimeError, ValueError) as error:
            reason = error
    if not made:
        raise RuntimeError(str(reason)) from reason
    times = _times(made, weights, _SEVERAL)
    more = min(times, key=lambda kind: times[kind])
    if more is HalfProduct:
        # Also for one row: all rows then round alike, and it is no slower than another.
        return Kernels(more, more)
    times = _times({more: made[more], PlainProduct: [PlainProduct(weight, None) for weight in weights]}, weights, 1)
    return Kernels(PlainProduct if times[PlainProduct] < _GAIN * times[more] else more, more)


def _sample(model: Any) -> list[Tensor]:
    """Weights of linear layers, up to so many bytes that they do not stay in a cache."""
    found, size = [], 0
    for layer in model.modules():
        if type(layer) is nn.Linear and size < _SAMPLE_BYTES:
            found.append(layer.weight.detach())
            size += found[-1].nbytes
    return found


def _times(made: dict[MakeProduct, list[nn.Module]], weights: Sequence[Tensor], rows: int) -> dict[MakeProduct, float]:
    """Seconds for each kind's products of `rows` rows, the least of several rounds in turn."""
    inputs = {weight.shape[1]: torch.ones(rows, weight.shape[1], dtype=weight.dtype) for weight in weights}
    times = dict.fromkeys(made, float("inf"))
    for _ in range(_ROUNDS):
        for kind, products in made.items():
            began = time.perf_counter()
            for weight, product in zip(weights, products, strict=True):
                product(inputs[weight.shape[1]])
            times[kind] = min(times[kind], time.perf_counter() - began)
    return times
