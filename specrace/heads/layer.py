"""A head's decoder layer of the Llama family, over rows of a token tree, with a KV cache of its own.

Columns of the cache are committed once their tokens are accepted; the columns of draft rows after them are overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, silu
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from specrace.heads.checkpoint import Checkpoint
from specrace.heads.product import Product

# How many positions' rotations are computed at first, about 1 MB; a longer text gets twice as many as it needs.
_FIRST_POSITIONS = 1024
# The settings of a config that determine rotary positions.
_ROTARY = ("rope_theta", "rope_scaling", "rope_parameters", "max_position_embeddings")


class LayerSizes:
    """The sizes of a head's layer, from its config.

    `width` (d): the hidden states; `hidden`: inside the MLP; `size` (D): one attention head.
    """

    def __init__(self, checkpoint: Checkpoint, target_config: Any) -> None:
        self.width = checkpoint.size("hidden_size", target_config.hidden_size)
        self.hidden = checkpoint.size("intermediate_size")
        self.heads = checkpoint.size("num_attention_heads")
        self.kv_heads = checkpoint.size("num_key_value_heads", self.heads)
        self.size = checkpoint.size("head_dim", self.width // self.heads)
        # 1e-6 is transformers' default for Llama.
        self.epsilon = float(checkpoint.config.get("rms_norm_eps", 1e-6))


class DraftLayer:
    """One decoder layer, whose attention reads inputs [N, e] that may be wider than its residual stream [N, d]."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        prefix: str,
        sizes: LayerSizes,
        inputs: int,
        product: Callable[[Tensor], Product],
    ) -> None:
        """Take the tensors whose names begin with `prefix` from the checkpoint.

        `inputs`: the width e of the rows that attention reads. `product` makes a linear layer from a weight.
        """
        take, width = checkpoint.take, sizes.width
        self.sizes = sizes
        queries, keys = sizes.heads * sizes.size, sizes.kv_heads * sizes.size
        shapes = {"q": queries, "k": keys, "v": keys}
        projections = [take(f"{prefix}self_attn.{name}_proj.weight", rows, inputs) for name, rows in shapes.items()]
        gate_up = [take(f"{prefix}mlp.{name}_proj.weight", sizes.hidden, width) for name in ("gate", "up")]
        self.queries_keys_values = product(torch.cat(projections))
        self.attention_output = product(take(f"{prefix}self_attn.o_proj.weight", width, queries))
        self.gate_up = product(torch.cat(gate_up))
        self.down = product(take(f"{prefix}mlp.down_proj.weight", width, sizes.hidden))
        self.before_mlp = take(f"{prefix}post_attention_layernorm.weight", width)
        # Norms [D] of every head's queries and keys, in layers like Qwen3's.
        self.head_norms: tuple[Tensor, Tensor] | None = None

    def run(
        self, inputs: Tensor, rows: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor | None, cache: Tensor
    ) -> Tensor:
        """The layer's output [N, d].

        `inputs` [N, e] enter the attention, `rows` [N, d] are the residual stream; `rotation`: cosines and sines
        [N, 1, D]. `cache` [2, H, T, D] has H key-value heads and T columns; the last N are the rows' own, which are
        written here. `mask` [N, T] is added to the scores; None: every row sees all columns.
        """
        sizes, count = self.sizes, len(rows)
        total = sizes.heads + 2 * sizes.kv_heads
        projected = self.queries_keys_values(inputs).view(count, total, sizes.size)
        queries, keys, values = projected.split([sizes.heads, sizes.kv_heads, sizes.kv_heads], dim=1)
        if self.head_norms is not None:
            queries, keys = (
                rms_norm(heads, norm, sizes.epsilon)
                for heads, norm in zip((queries, keys), self.head_norms, strict=True)
            )
        queries, keys = rotated(torch.cat([queries, keys], 1), rotation).split([sizes.heads, sizes.kv_heads], dim=1)
        cache[0, :, -count:] = keys.transpose(0, 1)
        cache[1, :, -count:] = values.transpose(0, 1)
        attended = scaled_dot_product_attention(
            queries.transpose(0, 1)[None], cache[0][None], cache[1][None], attn_mask=mask, enable_gqa=True
        )
        rows = rows + self.attention_output(attended[0].transpose(0, 1).reshape(count, -1))
        gate, up = self.gate_up(rms_norm(rows, self.before_mlp, sizes.epsilon)).chunk(2, dim=-1)
        return rows + self.down(silu(gate) * up)


class Rotations:
    """Cosines and sines of rotary positions; the first half of the sines is negated, as `rotated` needs them."""

    def __init__(self, checkpoint: Checkpoint, target_config: Any, sizes: LayerSizes) -> None:
        """Read the rotary settings of the head's config; those that it lacks are the target's."""
        config = checkpoint.config
        values: dict[str, Any] = {
            name: config.get(name, getattr(target_config, name, None))
            for name in _ROTARY
            if config.get(name, getattr(target_config, name, None)) is not None
        }
        if not any(name in config for name in ("rope_theta", "rope_scaling", "rope_parameters")):
            # All are the target's then, whose `rope_parameters` include the base.
            values.pop("rope_theta", None)
        self._module = LlamaRotaryEmbedding(_rotary_config(values, sizes))
        self._table: tuple[Tensor, Tensor] | None = None

    def at(self, positions: Sequence[int], device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines [N, 1, D] of the positions, [N]."""
        needed = max(positions) + 1
        if self._table is None or needed > len(self._table[0]):
            self._table = self._compute(max(_FIRST_POSITIONS, 2 * needed), device, dtype)
        index = torch.tensor(positions, device=device)
        cos, sin = self._table
        return cos[index], sin[index]

    def _compute(self, count: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        self._module.to(device)
        cos, sin = self._module(torch.empty(0, dtype=dtype, device=device), torch.arange(count, device=device)[None])
        first, second = sin[0, :, None].chunk(2, dim=-1)
        return cos[0, :, None].contiguous(), torch.cat([-first, second], dim=-1)


def _rotary_config(values: Mapping[str, Any], sizes: LayerSizes) -> LlamaConfig:
    """A config that has only what rotary positions need."""
    return LlamaConfig(
        hidden_size=sizes.heads * sizes.size,
        num_attention_heads=sizes.heads,
        head_dim=sizes.size,
        num_hidden_layers=1,
        **values,
    )


def rotated(heads: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Heads [N, H, D], rotated by cosines and sines [N, 1, D] from `Rotations`."""
    cos, sin = rotation
    return heads * cos + heads.roll(heads.shape[-1] // 2, -1) * sin


def rms_norm(rows: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Rows divided by their root mean square, computed in float32, times `weight`."""
    wide = rows.float()
    normed = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + epsilon)
    return normed.to(rows.dtype) * weight


def tree_mask(seen: Tensor, committed: int, dtype: torch.dtype) -> Tensor | None:
    """The additive mask [N, committed + M] of rows that see all committed columns, and of the M others those in `seen`.

    `seen`: bool [N, M]. None if every row sees everything.
    """
    if bool(seen.all()):
        return None
    mask = torch.zeros(len(seen), committed + seen.shape[1], dtype=dtype, device=seen.device)
    mask[:, committed:].masked_fill_(~seen, torch.finfo(dtype).min)
    return mask
