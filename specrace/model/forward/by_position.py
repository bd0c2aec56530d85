"""Lets some models compute, from a node's position in a tree, what they compute from the number of its column.

BLOOM and MPT add ALiBi, a bias by position, to their scores. transformers builds these biases from a mask of two
dimensions (BLOOM), or for a fixed length (MPT), and so gives every column the bias of its number. A tree's column is
later than its position if other branches lie before it. For every other mask the model's own function is called.

Llama 4 scales the queries of its layers without rotary positions, by a function of the position that is 1 in the first
8,192 positions. transformers counts positions from the cache's length, which a captured forward keeps as a constant.

Other models with such biases are not changed; loading refuses them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from specrace.model.forward.kv import ColumnLayer


def use_positions(model: Any) -> None:
    """Let a model use positions in a tree where it would use columns; no effect on other models.

    A model that was already changed for another target is left unchanged.
    """
    for module in model.modules():
        bloom, mpt = getattr(module, "build_alibi_tensor", None), getattr(module, "build_mpt_alibi_tensor", None)
        if bloom is not None and not isinstance(bloom, _BloomBiases):
            module.build_alibi_tensor = _BloomBiases(bloom)
        elif mpt is not None and not isinstance(mpt, _MptBiases):
            module.build_mpt_alibi_tensor = _MptBiases(mpt)
            module.register_forward_pre_hook(module.build_mpt_alibi_tensor.remember, with_kwargs=True)
        scales_queries = getattr(getattr(module, "self_attn", None), "attn_temperature_tuning", False)
        if scales_queries and _give_positions not in module._forward_pre_hooks.values():
            module.register_forward_pre_hook(_give_positions, with_kwargs=True)


def column_positions(mask: Tensor) -> Tensor:
    """The positions of the columns of an additive mask [1, 1, N, T] over a tree, int64 [T].

    A committed column's position is its number. A node sees what comes before it on its path, and itself last; so the
    count of what it sees gives its position, and the last column that it sees is its own.
    """
    visible = mask[0, 0] == 0
    columns = torch.arange(visible.shape[1], device=mask.device)
    own = (visible * columns).amax(-1)
    return columns.index_copy(0, own, visible.sum(-1) - 1)


class _BloomBiases:
    """BLOOM's biases, [H, 1, T], from the mask that its forward was given."""

    def __init__(self, original: Callable[..., Tensor]) -> None:
        self._original = original

    def __call__(self, attention_mask: Tensor, num_heads: int, dtype: torch.dtype) -> Tensor:
        if attention_mask.ndim != 4:
            return self._original(attention_mask, num_heads, dtype=dtype)
        # The biases of two tokens are zero and the slopes.
        two = torch.ones(1, 2, dtype=torch.int64, device=attention_mask.device)
        slopes = self._original(two, num_heads, dtype=torch.float32)[:, :, 1:]
        return (slopes * column_positions(attention_mask)).to(dtype)


class _MptBiases:
    """MPT's biases, [H, 1, T]; its forward does not pass the mask to this function, so a hook keeps the mask."""

    def __init__(self, original: Callable[..., Tensor]) -> None:
        self._original = original
        self._mask: Tensor | None = None

    def remember(self, _: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Keep the mask of the forward that begins."""
        self._mask = named.get("attention_mask")

    def __call__(self, num_heads: int, sequence_length: int, *arguments: Any, **named: Any) -> Tensor:
        mask, self._mask = self._mask, None
        if mask is None or mask.ndim != 4:
            return self._original(num_heads, sequence_length, *arguments, **named)
        # The biases of two tokens are minus the slopes, and zero.
        slopes = -self._original(num_heads, 2, *arguments, **named)[:, :, :1]
        # MPT counts from the last column. That adds a constant to a row, which does not change its softmax.
        return slopes * (column_positions(mask) + 1 - mask.shape[-1])


def _give_positions(_: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """Give a layer of Llama 4 a cache whose length is a tensor, if it is our cache."""
    cache, positions = named.get("past_key_values"), named.get("position_ids")
    layers = getattr(cache, "layers", None)
    if positions is None or not layers or not isinstance(layers[0], ColumnLayer):
        return None
    return arguments, named | {"past_key_values": _PositionedCache(cache, positions)}


class _PositionedCache:
    """A cache that gives one layer a length for each row: this length plus the row's number is the row's position."""

    def __init__(self, cache: Any, positions: Tensor) -> None:
        self._cache, self._positions = cache, positions

    def get_seq_length(self, *_: Any) -> Tensor:
        """The length for each row, int64 [N]."""
        return self._positions[0] - torch.arange(self._positions.shape[1], device=self._positions.device)

    def update(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        """Write keys and values, and return all of them."""
        keys_and_values: tuple[Tensor, Tensor] = self._cache.update(*arguments)
        return keys_and_values
