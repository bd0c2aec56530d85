"""A head's linear layers, which read as few bytes as possible."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

from specrace.model.forward.products import PackedProduct, has_16_bit_arithmetic


class Product:
    """Maps rows [N, in] to rows [N, out] of the same dtype.

    A head is read at every step, and reading its weights is most of what it costs. So weights that were stored in
    bfloat16 stay so on a CPU that multiplies such numbers, whatever the target's dtype: a head only drafts, so its
    rounding changes no text. Such weights are packed, because torch would reorder plain ones at each product.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, device: torch.device, dtype: torch.dtype, *, may_copy: bool = True
    ) -> None:
        """Take a weight [out, in] and a bias [out] as stored; `device`, `dtype`: the target's.

        A weight that is the target's own and may be large is not packed, because that would copy it (`may_copy`).
        """
        # As stored, for `CompiledLayer`, which reads the weights by address.
        self.stored = weight, bias
        self.weight = weight.to(device, dtype).contiguous()
        self.bias = None if bias is None else bias.to(device, dtype)
        self._packed: PackedProduct | None = None
        if may_copy and weight.dtype == torch.bfloat16 and device.type == "cpu" and has_16_bit_arithmetic():
            self._pack(weight, bias)

    def _pack(self, weight: Tensor, bias: Tensor | None) -> None:
        """Replace the weight by a packed copy, if there is a kernel for it."""
        try:
            self._packed = PackedProduct(weight, None if bias is None else bias.to(torch.bfloat16))
        except RuntimeError:
            return
        # Frees the plain weight.
        self.weight = weight.new_empty(0)

    def __call__(self, rows: Tensor) -> Tensor:
        """The layer's output [N, out] for rows [N, in]."""
        if self._packed is None:
            return linear(rows, self.weight, self.bias)
        product: Tensor = self._packed(rows.to(torch.bfloat16))
        return product.to(rows.dtype)
