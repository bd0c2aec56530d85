"""Where training of EAGLE-1 starts: at the best linear guess of the next state, with a layer that adds nothing.

A random start would take hundreds of steps to learn what one least-squares fit gives.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from specrace.heads.modules.batch import Batch
from specrace.heads.modules.eagle import Eagle

# Added to the diagonal, as a share of its mean.
_RIDGE = 1e-3


@torch.no_grad()
def start_linear(head: Eagle, batches: Iterable[Batch], embeddings: Tensor) -> None:
    """Set `fc` by ridge regression from (embedding of the next token, state) to the next state.

    Every two adjacent states of a conversation are one equation. The outputs of attention and MLP start at zero.
    `embeddings` [V, d] are the target's.
    """
    size = head.fc.out_features
    square = torch.zeros(2 * size + 1, 2 * size + 1)
    product = torch.zeros(2 * size + 1, size)
    for batch in batches:
        # `states` has one column less than `ids`. Pair i predicts state i + 1 from state i and token i + 1.
        is_pair = batch.is_token[:, :-2]
        states = batch.states[:, :, -1]
        tokens, before, after = embeddings[batch.ids[:, 1:-1]][is_pair], states[:, :-1][is_pair], states[:, 1:][is_pair]
        # A shorter answer's last token has no state (zeros), so the pair that would predict it is left out.
        is_known = after.abs().sum(-1) > 0
        inputs = torch.cat([tokens, before, torch.ones(len(before), 1)], -1)[is_known]
        square += inputs.T @ inputs
        product += inputs.T @ after[is_known]
    square += torch.eye(len(square)) * _RIDGE * square.diagonal().mean()
    solution = torch.linalg.solve(square, product)
    head.fc.weight.copy_(solution[:-1].T)
    head.fc.bias.copy_(solution[-1])
    head.decoder.self_attn.o_proj.weight.zero_()
    head.decoder.mlp.down_proj.weight.zero_()
