"""The initial weights of EAGLE-1 and Hydra: a linear fit of a later state; all other parts add nothing at first.

A random start would take hundreds of steps to learn what one least-squares fit gives.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from specrace.heads.modules.batch import Batch
from specrace.heads.modules.eagle import Eagle
from specrace.heads.modules.hydra import Hydra

# Added to the diagonal of the normal equations, as a share of its mean (not tuned).
_RIDGE = 1e-3


class _Regression:
    """A ridge regression with a constant, from rows of `inputs` numbers to rows of `outputs` numbers."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self._square = torch.zeros(inputs + 1, inputs + 1)
        self._product = torch.zeros(inputs + 1, outputs)

    def add(self, rows: Tensor, results: Tensor) -> None:
        """Add an equation for each of the rows [N, inputs] and results [N, outputs]."""
        rows = torch.cat([rows, torch.ones(len(rows), 1)], -1)
        self._square += rows.T @ rows
        self._product += rows.T @ results

    def copy_to(self, linear: torch.nn.Linear) -> None:
        """Give a linear layer the solution."""
        ridge = torch.eye(len(self._square)) * _RIDGE * self._square.diagonal().mean()
        solution = torch.linalg.solve(self._square + ridge, self._product)
        linear.weight.copy_(solution[:-1].T)
        linear.bias.copy_(solution[-1])


@torch.no_grad()
def start_linear(head: Eagle, batches: Iterable[Batch], embeddings: Tensor) -> None:
    """Set `fc` by regression from (embedding of the next token, state) to the next state.

    Each pair of adjacent states in a conversation gives one equation. The outputs of attention and MLP start at zero.
    `embeddings` [V, d] are the target's.
    """
    size = head.fc.out_features
    regression = _Regression(2 * size, size)
    for batch in batches:
        before, tokens, after = _equations(batch, embeddings, 1)
        regression.add(torch.cat([*tokens, before], -1), after)
    regression.copy_to(head.fc)
    head.decoder.self_attn.o_proj.weight.zero_()
    head.decoder.mlp.down_proj.weight.zero_()


@torch.no_grad()
def start_hydra(head: Hydra, batches: Iterable[Batch], embeddings: Tensor) -> None:
    """Set each head's `res_connection` by regression from what the head reads to the state whose token it guesses."""
    size = embeddings.shape[1]
    regressions = [_Regression((number + 2) * size, size) for number in range(head.num_heads)]
    for batch in batches:
        for ahead, regression in enumerate(regressions, 1):
            before, tokens, after = _equations(batch, embeddings, ahead)
            regression.add(torch.cat([before, *tokens], -1), after)
    for number, regression in enumerate(regressions):
        regression.copy_to(head.block(number).res_connection)


def _equations(batch: Batch, embeddings: Tensor, ahead: int) -> tuple[Tensor, list[Tensor], Tensor]:
    """States [N, d]; the embeddings [N, d] of the 1st to `ahead`-th token after them; the last such token's states."""
    # `states` has one column fewer than `ids`.
    states, columns = batch.states[:, :, -1], batch.ids.shape[1] - 1
    before, after = states[:, : columns - ahead], states[:, ahead:]
    # A padded column has no state, and neither has the last token of an answer that is shorter than the longest.
    is_known = batch.is_token[:, : columns - ahead] & (after.abs().sum(-1) > 0)
    ids = [batch.ids[:, place : columns - ahead + place][is_known] for place in range(1, ahead + 1)]
    return before[is_known], [embeddings[tokens] for tokens in ids], after[is_known]
