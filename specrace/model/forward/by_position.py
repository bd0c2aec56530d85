"""Makes some models use a node's position in the tree where they would use the number of its column in the cache.

BLOOM and MPT add ALiBi, a bias by position, to their attention scores. transformers builds these biases from a mask of
two dimensions (BLOOM), or for a fixed length (MPT), and so gives every column the bias of its number. A node's column
number exceeds its position if other branches lie before it. Without a mask [1, 1, N, T], the model's own function is
called.

Llama 4 scales the queries of its layers without rotary positions by a function of the position, which is 1 for the
first 8,192. transformers counts positions from the cache's length, which a captured forward keeps as a constant.

Other models with such biases are not changed; loading refuses them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from specrace.model.forward.kv import ColumnLayer


def use_positions(model: Any) -> None:
    """Make a model use positions in the tree where it would use columns; models that never do are left unchanged.

    A model that was already changed is not changed again.
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

    Committed columns are those of the text so far; a committed column's position is its number. A node sees everything
    before it on its path, then itself. So the count of the columns that it sees gives its position, and the last of
    them is its own.
    """
    visible = mask[0, 0] == 0
    columns = torch.arange(visible.shape[1], device=mask.device)
    own_columns = (visible * columns).amax(-1)
    return columns.index_copy(0, own_columns, visible.sum(-1) - 1)


class _BloomBiases:
    """BLOOM's biases, [H, 1, T], from the mask that its forward was given."""

    def __init__(self, original: Callable[..., Tensor]) -> None:
        self._original = original

    def __call__(self, attention_mask: Tensor, num_heads: int, dtype: torch.dtype) -> Tensor:
        if attention_mask.ndim != 4:
            return self._original(attention_mask, num_heads, dtype=dtype)
        # For two tokens, BLOOM's biases are 0 and the slopes.
        two_tokens = torch.ones(1, 2, dtype=torch.int64, device=attention_mask.device)
        slopes = self._original(two_tokens, num_heads, dtype=torch.float32)[:, :, 1:]
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
        # For two tokens, MPT's biases are minus the slopes, and 0.
        slopes = -self._original(num_heads, 2, *arguments, **named)[:, :, :1]
        # MPT counts from the last column. That adds a constant to a row, which does not change its softmax.
        return slopes * (column_positions(mask) + 1 - mask.shape[-1])


def _give_positions(_: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """A hook before a layer of Llama 4: replaces its cache, if that is a `KVStore`'s, by a `_PositionedCache`."""
    cache, positions = named.get("past_key_values"), named.get("position_ids")
    layers = getattr(cache, "layers", None)
    if positions is None or not layers or not isinstance(layers[0], ColumnLayer):
        return None
    return arguments, named | {"past_key_values": _PositionedCache(cache, positions)}


class _PositionedCache:
    """A cache that reports a length for each row, such that this length plus the row's number is the row's position."""

    def __init__(self, cache: Any, positions: Tensor) -> None:
        self._cache, self._positions = cache, positions

    def get_seq_length(self, *_: Any) -> Tensor:
        """The length for each row, int64 [N]."""
        return self._positions[0] - torch.arange(self._positions.shape[1], device=self._positions.device)

    def update(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        """Write keys and values, and return all of them."""
        keys_and_values: tuple[Tensor, Tensor] = self._cache.update(*arguments)
        return keys_and_values
