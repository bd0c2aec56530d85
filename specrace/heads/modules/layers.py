"""One Llama layer for heads, and the attention of training, where every row of an answer begins a chain of drafts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from specrace.heads.modules.config import HeadConfig


class RMSNorm(nn.Module):
    """Root-mean-square normalisation of the last dimension (Zhang and Sennrich 2019)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, hidden: Tensor) -> Tensor:
        wide = hidden.float()
        normed: Tensor = self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps))
        return normed.to(hidden.dtype)


class GatedMLP(nn.Module):
    """Llama's MLP."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        size, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(size, inner, bias=False)
        self.up_proj = nn.Linear(size, inner, bias=False)
        self.down_proj = nn.Linear(inner, size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden))
        return out


class Attention(nn.Module):
    """The projections and rotary positions of grouped-query attention over rows of `width` numbers; see `attend`."""

    def __init__(self, config: HeadConfig, width: int) -> None:
        super().__init__()
        self.config = config
        heads, kv_heads, size = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self.q_proj = nn.Linear(width, heads * size, bias=False)
        self.k_proj = nn.Linear(width, kv_heads * size, bias=False)
        self.v_proj = nn.Linear(width, kv_heads * size, bias=False)
        self.o_proj = nn.Linear(heads * size, config.hidden_size, bias=False)

    def queries(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """Rotated queries [B, H, Q, D] of rows [B, Q, width] at positions [B, Q]."""
        return self._rotate(self._split(self.q_proj(hidden)), positions)

    def keys_values(self, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rotated keys, and values, both repeated for every query head, [B, H, N, D]."""
        groups = self.config.num_attention_heads // self.config.num_key_value_heads
        keys = self._rotate(self._split(self.k_proj(hidden)), positions)
        values = self._split(self.v_proj(hidden))
        return keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)

    def _split(self, rows: Tensor) -> Tensor:
        return rows.view(*rows.shape[:2], -1, self.config.head_dim).transpose(1, 2)

    def _rotate(self, rows: Tensor, positions: Tensor) -> Tensor:
        """Rotary embedding (Su et al. 2021) in Llama's layout: the first half of a head is paired with the second."""
        size = self.config.head_dim
        rates = self.config.rope_theta ** (-torch.arange(0, size, 2, device=rows.device) / size)
        angles = positions[:, None, :, None] * rates
        cosine, sine = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
        first, second = rows.float().chunk(2, -1)
        return (rows.float() * cosine + torch.cat([-second, first], -1) * sine).to(rows.dtype)


def attend(
    queries: Tensor, context: tuple[Tensor, Tensor], mask: Tensor, drafts: Sequence[tuple[Tensor, Tensor]]
) -> Tensor:
    """Rows attend to the committed context and to the drafts of their own chain; returns [B, Q, H * D].

    `queries` [B, H, Q, D]; `context`: keys and values [B, H, N, D], of which each row sees those in `mask` [B, Q, N];
    `drafts`: for each depth so far the keys and values [B, H, >=Q, D], of which row r sees number r only.
    """
    count, scale = queries.shape[2], 1 / math.sqrt(queries.shape[3])
    keys, values = context
    scores = (queries @ keys.transpose(2, 3)).float().masked_fill(~mask[:, None], -torch.inf)
    own = [(queries * draft_keys[:, :, :count]).float().sum(-1, keepdim=True) for draft_keys, _ in drafts]
    weights = (torch.cat([scores, *own], -1) * scale).softmax(-1).to(values.dtype)
    mixed = weights[..., : keys.shape[2]] @ values
    for number, (_, draft_values) in enumerate(drafts):
        place = keys.shape[2] + number
        mixed = mixed + weights[..., place : place + 1] * draft_values[:, :, :count]
    return mixed.transpose(1, 2).flatten(2)
