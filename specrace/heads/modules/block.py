"""A block drafter after DFlash (arXiv 2602.06036) and DSpark (arXiv 2607.05147) as a module to train.

The target's states are read as keys and values only. A block of rows, the pending token and then masks (one learned
embedding in place of the unknown tokens), attends to them and to itself in both directions, and so one forward guesses
as many tokens as the block has rows. As in DSpark, the row of the pending token guesses too: row k guesses the token
k + 1 places after the pending one. The layer has the form of Qwen3's, with norms of queries and keys.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from specrace.heads.modules.batch import Batch
from specrace.heads.modules.config import HeadConfig
from specrace.heads.modules.layers import Attention, GatedMLP, RMSNorm

# The initial weight of the norms of queries and keys. With it, attention scores have a standard deviation of about 2.
_FIRST_GAIN = 1.5


class _NormedAttention(Attention):
    """Attention whose queries and keys are normalised in each head, as in Qwen3."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config, config.hidden_size)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        nn.init.constant_(self.q_norm.weight, _FIRST_GAIN)
        nn.init.constant_(self.k_norm.weight, _FIRST_GAIN)

    def queries(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """Normalised and rotated queries [B, H, Q, D] of rows [B, Q, d] at positions [B, Q]."""
        return self._rotate(self.q_norm(self._split(self.q_proj(hidden))), positions)

    def keys_values(self, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised and rotated keys, and values, [B, H, N, D]."""
        keys = self._rotate(self.k_norm(self._split(self.k_proj(hidden))), positions)
        return keys, self._split(self.v_proj(hidden))


class BlockLayer(nn.Module):
    """A decoder layer whose norm before the attention applies to the block's rows, not to the context."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = _NormedAttention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = GatedMLP(config)

    def forward(self, rows: Tensor, positions: Tensor, context: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """The layer's output [B, A, K, d] for A blocks of K rows [B, A, K, d] at `positions` [B, A * K].

        `context`: keys and values [B, H, N, D], of which each block sees those in `mask` [B, A, N].
        """
        blocks = rows.shape[1:3]
        normed = self.input_layernorm(rows).flatten(1, 2)
        queries = self.self_attn.queries(normed, positions)
        own_keys, own_values = self.self_attn.keys_values(normed, positions)
        own = own_keys.unflatten(2, blocks), own_values.unflatten(2, blocks)
        mixed = _attend(queries, context, own, mask)
        hidden = rows + self.self_attn.o_proj(mixed)
        out: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return out


class Block(nn.Module):
    """One layer, with the names of DFlash's weights, and the mask's embedding, which vLLM reads too.

    It has as many key heads as query heads: a state reaches the guesses through keys and values alone, and the few key
    heads of a small target would hold too little of it.
    """

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        config = replace(config, num_key_value_heads=config.num_attention_heads)
        size = config.hidden_size
        self.block_size = config.num_heads
        self.mask_embedding = nn.Parameter(torch.zeros(size))
        self.fc = nn.Linear(config.num_levels * size, size, bias=False)
        self.hidden_norm = RMSNorm(size, config.rms_norm_eps)
        self.layers = nn.ModuleList([BlockLayer(config)])
        self.norm = RMSNorm(size, config.rms_norm_eps)

    @property
    def layer(self) -> BlockLayer:
        """The only layer."""
        layer = self.layers[0]
        assert isinstance(layer, BlockLayer)
        return layer

    def guesses(self, batch: Batch, embeddings: Tensor, depths: int) -> list[Tensor]:
        """For each depth the outputs [B, A - depth + 1, d] that guess `batch.guessed(depth)`, for at most a block.

        `embeddings` [B, T, d]: of the batch's tokens. A block begins at the token before each token of an answer.
        """
        layer = self.layer
        first, positions = batch.width - 1, batch.positions
        states = self.hidden_norm(self.fc(batch.states[:, :, :-1].flatten(2)))
        context = layer.self_attn.keys_values(states, positions[:, :-1])
        roots = embeddings[:, first:-1]
        masks = self.mask_embedding.expand(*roots.shape[:2], self.block_size - 1, -1)
        rows = torch.cat([roots[:, :, None], masks], 2)
        places = positions[:, first:-1, None] + torch.arange(self.block_size, device=positions.device)
        columns = torch.arange(states.shape[1], device=positions.device)
        # A block sees the states of the tokens before its first one; the first one's own state is not known in a draft.
        mask = (columns < columns[first:, None]) & batch.is_token[:, None, :-1]
        outputs = layer(rows, places.flatten(1), context, mask)
        return [outputs[:, : outputs.shape[1] - depth, depth] for depth in range(min(depths, self.block_size))]

    def logits(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Logits [..., Vd] of outputs [..., d]; `rows` [Vd, d]: the target's output matrix for the shortlist."""
        return functional.linear(self.norm(outputs), rows)


def _attend(queries: Tensor, context: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
    """What the rows of A blocks attend to, [B, A, K, H * D]: the context in `mask` [B, A, N], and their own block.

    `queries` [B, H, A * K, D]; `context`: keys and values [B, H, N, D]; `own`: those of the blocks, [B, H, A, K, D].
    """
    keys, values = context
    own_keys, own_values = own
    blocks, scale = own_keys.shape[2:4], queries.shape[3] ** -0.5
    outside = (queries @ keys.transpose(2, 3)).float().unflatten(2, blocks)
    outside = outside.masked_fill(~mask[:, None, :, None], -torch.inf)
    inside = (queries.unflatten(2, blocks) @ own_keys.transpose(3, 4)).float()
    weights = (torch.cat([outside, inside], -1) * scale).softmax(-1).to(values.dtype)
    outside, inside = weights.split([keys.shape[2], blocks[1]], -1)
    mixed = (outside.flatten(2, 3) @ values).unflatten(2, blocks) + inside @ own_values
    gathered: Tensor = mixed.permute(0, 2, 3, 1, 4).flatten(3)
    return gathered
