"""Which library's product is the fastest here, for one row and for several: measured at load, on the model's weights.

Processors differ. On an Intel Xeon with AVX-512 but no 16-bit arithmetic MKL took 0.8 of oneDNN's time for one row of
float32 and 0.95 for eight, each on its own packed weights; in bfloat16 FBGEMM took 0.95 and 0.4 of oneDNN's. On an AMD
EPYC with AVX2 torch's batched product took 0.86 of oneDNN's time for one row of float32, and MKL twice it for eight.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from specrace.model.products import BlocksProduct, HalfProduct, MklProduct, PackedProduct, PlainProduct, RowsProduct

MakeProduct = Callable[[Tensor, Tensor | None], nn.Module]

# Copies of weights that a forward may run on, with their names.
_COPIES: dict[MakeProduct, str] = {
    PackedProduct: "packed weights",
    MklProduct: "weights packed by MKL",
    HalfProduct: "weights packed in float16",
}
_FLOAT32, _16_BITS = (PackedProduct, MklProduct), (PackedProduct, HalfProduct)
# What one row may run on beside a copy for more, and what the name then adds.
_ONE_ROW: dict[MakeProduct, str] = {PlainProduct: " from two rows on", BlocksProduct: ", transposed for one row"}
# More than a processor's own caches: a forward's weights come from memory.
_SAMPLE_BYTES = 1 << 26
# Rows of a usual draft.
_SEVERAL = 8
# Another program may hold a processor for the whole of a few rounds, and the wrong choice costs a factor of two: at
# least so many rounds, and more while the times still fall, by at least a twentieth in so many.
_ROUNDS, _LATEST, _MOST_ROUNDS = 8, 4, 40
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
        return _COPIES[self.more] + ("" if self.one is self.more else _ONE_ROW[self.one])


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
    alone = [kind for kind in _ONE_ROW if kind is PlainProduct or model.dtype == torch.float32]
    times = _times({more: made[more]} | {kind: [kind(each, None) for each in weights] for kind in alone}, weights, 1)
    one = min(alone, key=lambda kind: times[kind])
    return Kernels(one if times[one] < _GAIN * times[more] else more, more)


def _sample(model: Any) -> list[Tensor]:
    """Weights of linear layers, up to so many bytes that they do not stay in a cache."""
    found, size = [], 0
    for layer in model.modules():
        if type(layer) is nn.Linear and size < _SAMPLE_BYTES:
            found.append(layer.weight.detach())
            size += found[-1].nbytes
    return found


def _times(made: dict[MakeProduct, list[nn.Module]], weights: Sequence[Tensor], rows: int) -> dict[MakeProduct, float]:
    """Seconds for each kind's products of `rows` rows, the least of rounds in turn, until none falls."""
    inputs = {weight.shape[1]: torch.ones(rows, weight.shape[1], dtype=weight.dtype) for weight in weights}
    found: dict[MakeProduct, list[float]] = {kind: [] for kind in made}
    for count in range(1, _MOST_ROUNDS + 1):
        for kind, products in made.items():
            began = time.perf_counter()
            for weight, product in zip(weights, products, strict=True):
                product(inputs[weight.shape[1]])
            found[kind].append(time.perf_counter() - began)
        if count >= _ROUNDS and all(min(each) > _GAIN * min(each[:-_LATEST]) for each in found.values()):
            break
    return {kind: min(each) for kind, each in found.items()}
