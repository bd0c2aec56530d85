"""Hydra (Ankner et al. 2024, arXiv 2402.05109) as a module to train, with the target's output matrix for all heads."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from specrace.heads.modules.batch import Batch
from specrace.heads.modules.config import HeadConfig


class _Block(nn.Module):
    """R x + r + SiLU(W x + b) for x of `inputs` numbers; R starts as the identity on the first `size`, W, b, r at 0."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.linear, self.res_connection = nn.Linear(inputs, size), nn.Linear(inputs, size)
        for part in (self.linear, self.res_connection):
            nn.init.zeros_(part.weight)
            nn.init.zeros_(part.bias)
        nn.init.eye_(self.res_connection.weight)

    def forward(self, rows: Tensor) -> Tensor:
        out: Tensor = self.res_connection(rows) + functional.silu(self.linear(rows))
        return out


class Hydra(nn.Module):
    """Head i guesses, from the state at position t and the tokens t + 1 to t + 1 + i, the token at t + 2 + i."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        size = config.hidden_size
        heads = ([_Block((head + 2) * size, size)] for head in range(config.num_heads))
        self.hydra_mlp = nn.ModuleList(nn.ModuleList(blocks) for blocks in heads)

    @property
    def num_heads(self) -> int:
        """How many heads there are."""
        return len(self.hydra_mlp)

    def block(self, head: int) -> _Block:
        """The only block of a head."""
        blocks = self.hydra_mlp[head]
        assert isinstance(blocks, nn.ModuleList) and isinstance(blocks[0], _Block)
        return blocks[0]

    def guesses(self, batch: Batch, embeddings: Tensor, depths: int) -> list[Tensor]:
        """For each depth the outputs [B, A - depth + 1, d] that guess `batch.guessed(depth)`; A: the longest answer.

        `embeddings` [B, T, d]: of the batch's tokens. The draft tokens that a head reads are the answer's own.
        """
        # The first token of an answer, in column `width`, is guessed from the state two columns before it: the state of
        # the column before it, the pending token's, is not known yet in a draft.
        first, outputs = batch.width - 2, []
        for depth in range(1, min(depths, self.num_heads) + 1):
            count = batch.ids.shape[1] - batch.width - depth + 1
            states = batch.states[:, first : first + count, -1]
            tokens = [embeddings[:, first + place : first + place + count] for place in range(1, depth + 1)]
            outputs.append(self.block(depth - 1)(torch.cat([states, *tokens], -1)))
        return outputs

    def logits(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Logits [..., Vd] of outputs [..., d]; `rows` [Vd, d]: the target's output matrix for the shortlist."""
        return functional.linear(outputs, rows)
