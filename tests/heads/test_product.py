"""A head's linear layers: the same products in every dtype, packed only where that is allowed and faster."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import linear

from specrace.heads import product
from specrace.heads.product import Product
from specrace.model.forward.products import PackedProduct, has_16_bit_arithmetic

CPU = torch.device("cpu")


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product_is_that_of_its_weight(stored: torch.dtype, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, bias, rows = (torch.randn(*shape, generator=generator) for shape in ((48, 64), (48,), (5, 64)))
    layer = Product(weight.to(stored), bias.to(stored), CPU, dtype)
    result = layer(rows.to(dtype))
    assert result.dtype == dtype
    # A sum of 64 products of numbers around 1 is about 8; bfloat16 has 8 bits.
    rounding = 1e-5 if stored == dtype == torch.float32 else 0.15
    torch.testing.assert_close(result.float(), linear(rows, weight, bias), atol=rounding, rtol=0.02)


@pytest.mark.skipif(not has_16_bit_arithmetic(), reason="this processor does not multiply bfloat16")
def test_only_weights_stored_in_16_bits_are_packed() -> None:
    weight = torch.randn(32, 32)
    assert len(Product(weight, None, CPU, torch.float32).weight)
    narrow = weight.to(torch.bfloat16)
    # The plain copy is freed, unless the weight is the target's own.
    assert not len(Product(narrow, None, CPU, torch.float32).weight)
    shared = Product(narrow, None, CPU, torch.bfloat16, may_copy=False)
    assert shared.weight.data_ptr() == narrow.data_ptr()


def test_without_a_kernel_the_weight_stays_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> PackedProduct:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(product, "PackedProduct", refuse)
    weight = torch.randn(16, 8).to(torch.bfloat16)
    rows = torch.randn(3, 8)
    torch.testing.assert_close(Product(weight, None, CPU, torch.float32)(rows), rows @ weight.float().T)
