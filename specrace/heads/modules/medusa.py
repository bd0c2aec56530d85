"""Medusa (Cai et al. 2024, arXiv 2401.10774) as a module to train, with the target's output matrix for all heads."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from specrace.heads.modules.batch import Batch
from specrace.heads.modules.config import HeadConfig


class _Block(nn.Module):
    """h + SiLU(W h + b); W and b start at zero."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        out: Tensor = hidden + functional.silu(self.linear(hidden))
        return out


class Medusa(nn.ModuleList):
    """Head i guesses from the state at position t the token at t + 2 + i; names of weights are `i.0.linear.weight`."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(nn.ModuleList([_Block(config.hidden_size)]) for _ in range(config.num_heads))

    def guesses(self, batch: Batch, embeddings: Tensor, depths: int) -> list[Tensor]:
        """For each depth the outputs [B, A - depth + 1, d] that guess `batch.guessed(depth)`, without `embeddings`."""
        # The first token of an answer, in column `width`, is guessed from the state two columns before it: the state of
        # the column before it, the pending token's, is not known yet in a draft.
        states = batch.states[:, batch.width - 2 :, -1]
        outputs = []
        for depth, head in enumerate(list(self)[:depths], 1):
            assert isinstance(head, nn.ModuleList)
            outputs.append(head[0](states[:, : states.shape[1] - depth]))
        return outputs

    def logits(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Logits [..., Vd] of outputs [..., d]; `rows` [Vd, d]: the target's output matrix for the shortlist."""
        return functional.linear(outputs, rows)
