"""The linear layers of scripted forwards: each kind has the outputs of torch's own layer.

A packed layer has a copy of the weights, reordered for a few rows. A widened one multiplies 16-bit weights in float32.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

from specrace.model.capture import capture_replay
from specrace.model.forward import products
from specrace.model.forward.products import PackedProduct, PlainProduct, WidenedProduct, uncopied_product
from tests.models import tiny_target


def assert_packing_changes_no_output(layer: nn.Linear, rtol: float) -> None:
    """Assert that the packed layer has the layer's outputs, for any number of rows."""
    with torch.inference_mode():
        packed_layer = PackedProduct(layer.weight, layer.bias)
        for rows in (1, 2, 3, 16, 33, 70):
            inputs = torch.randn(1, rows, 48).to(layer.weight.dtype)
            torch.testing.assert_close(packed_layer(inputs), layer(inputs), rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_a_packed_layer_equals_the_layer(bias: bool) -> None:
    torch.manual_seed(0)
    assert_packing_changes_no_output(nn.Linear(48, 80, bias=bias), rtol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_16_bit_weights_are_packed_or_refused(bias: bool) -> None:
    """oneDNN packs bfloat16 on processors with AVX-512 or AMX only; elsewhere `capture_replay` does not pack."""
    torch.manual_seed(0)
    try:
        assert_packing_changes_no_output(nn.Linear(48, 80, bias=bias).to(torch.bfloat16), rtol=1e-2)
    except RuntimeError as error:
        if "needs the cpu support" not in str(error):
            raise


def test_the_kernel_for_packed_weights_is_created_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    compilation_unit = torch.jit.CompilationUnit

    def warn_and_compile(source: str) -> Any:
        warnings.warn("TorchScript is going", FutureWarning, stacklevel=2)
        return compilation_unit(source)

    monkeypatch.setattr(torch.jit, "CompilationUnit", warn_and_compile)
    products._packed_product.cache_clear()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        capture_replay(target := tiny_target("llama"), packed=True, fused=False)
    assert not warned and target.forward_kind == "TorchScript, packed weights"


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", [PlainProduct, PackedProduct])
def test_a_product_equals_the_linear_layer(kind: Any, bias: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(48, 80, bias=bias)
    product = torch.jit.script(kind(layer.weight, layer.bias))
    for rows in (1, 2, 3, 16, 33, 70):
        # Rows of different magnitudes, and one value far above the others, as in language models.
        inputs = torch.randn(rows, 48) * 10.0 ** torch.randint(-3, 4, (rows, 1))
        inputs[0, 7] *= 500.0
        with torch.inference_mode():
            outputs, expected = product(inputs), layer(inputs)
        scale = inputs.abs().amax(1, keepdim=True)
        torch.testing.assert_close(outputs / scale, expected / scale, rtol=1e-5, atol=2e-5)


# Up to 12 rows are multiplied in 16 bits, more in float32.
@pytest.mark.parametrize("rows", [1, 12, 13, 40])
def test_widened_products_equal_16_bit_products_up_to_rounding(rows: int) -> None:
    torch.manual_seed(0)
    layer, inputs = nn.Linear(48, 80).to(torch.bfloat16), torch.randn(rows, 48).to(torch.bfloat16)
    with torch.inference_mode():
        outputs, expected = WidenedProduct(layer.weight, layer.bias)(inputs), layer(inputs)
    assert outputs.dtype == torch.bfloat16
    torch.testing.assert_close(outputs, expected, rtol=2e-2, atol=2e-2)


def test_plain_product_depends_on_the_dtype_and_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    assert uncopied_product(torch.bfloat16) is PlainProduct
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    assert uncopied_product(torch.bfloat16) is WidenedProduct and uncopied_product(torch.float32) is PlainProduct
