"""The initial weights of a block head: a linear fit of the next state, by attention heads that look for its inputs.

A random start would take hundreds of steps to find the two things that matter most, the last state of the context and
the pending token. So some attention heads initially attend to the former and the others to the latter, and their values
and the attention's output are a least-squares fit of the next state, of as high a rank as the heads can carry.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import torch
from torch import Tensor

from specrace.heads.modules.batch import Batch
from specrace.heads.modules.block import Block

# Added to the diagonal of the normal equations, as a share of its mean.
_RIDGE = 1e-3
# Batches that the fit reads; more would change little.
_BATCHES = 25
# Heads that look at the last state look for the nearest: their scores are weighted sums of cosines of the distance.
# Frequency in radians per position, of which the rotary embedding's nearest is used -> its weight.
_NEAREST = {0.49: 0.3, 0.34: 0.3, 0.24: 0.2, 0.166: 0.1, 0.116: 0.1}
# The share of the attention's heads that look at the last state; the others look at the pending token.
_HEADS_AT_STATE = 5 / 9
# Values are multiplied by this, and divided by it in the attention's output, so that both matrices are of similar size.
_VALUES = 4.0


@torch.no_grad()
def start_block(head: Block, batches: Iterable[Batch], embeddings: Tensor) -> None:
    """Set the weights from some batches; `embeddings` [V, d] are the target's. The MLP's output starts at zero."""
    size, layer = head.norm.weight.shape[0], head.layer
    head.fc.weight.zero_()
    # The last level that the head reads passes through.
    head.fc.weight[:, -size:] = torch.eye(size)
    states, roots, residuals, after = (
        torch.cat(parts) for parts in zip(*_pairs(head, batches, embeddings), strict=True)
    )
    head.norm.weight.fill_(float(after.square().mean(-1).sqrt().mean()))
    # A direction that no token has, so that attention can tell masks from tokens.
    rarest = torch.linalg.eigh(residuals.T @ residuals).eigenvectors[:, 0]
    head.mask_embedding.copy_(rarest * residuals.norm(dim=1).mean())
    masks = layer.input_layernorm(head.mask_embedding[None]).expand(len(states) // 4, -1)
    solution = _ridge(torch.cat([states, roots], -1), after - residuals)
    layer.mlp.down_proj.weight.zero_()
    _look(head, states, roots, masks)
    _carry(head, solution, states, roots)


def _pairs(
    head: Block, batches: Iterable[Batch], embeddings: Tensor
) -> Iterable[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """For pairs of a state and the token after it, four tensors [N, d] per batch.

    They are: the state as the context has it, the token's embedding after the layer's first norm and before it, and the
    target's last state of that token.
    """
    for batch in islice(batches, _BATCHES):
        is_pair = batch.is_token[:, :-2]
        after = batch.states[:, 1:, -1][is_pair]
        # The last token of an answer that is shorter than the batch's longest has no state (zeros).
        is_known = after.abs().sum(-1) > 0
        states = head.hidden_norm(head.fc(batch.states[:, :-1, :-1].flatten(2)[is_pair][is_known]))
        tokens = embeddings[batch.ids[:, 1:-1][is_pair][is_known]]
        yield states, head.layer.input_layernorm(tokens), tokens, after[is_known]


def _square(inputs: Tensor) -> Tensor:
    """The products of the inputs' columns [d, d], with a little more on the diagonal."""
    square: Tensor = inputs.T @ inputs
    return square + torch.eye(len(square)) * (_RIDGE * float(square.diagonal().mean()))


def _ridge(inputs: Tensor, outputs: Tensor) -> Tensor:
    """The matrix [inputs, outputs] of the least-squares fit."""
    solution: Tensor = torch.linalg.solve(_square(inputs), inputs.T @ outputs)
    return solution


def _look(head: Block, states: Tensor, roots: Tensor, masks: Tensor) -> None:
    """Set queries and keys: each head scores what it looks for positively, and the rest negatively."""
    attention = head.layer.self_attn
    config = attention.config
    size, pairs = config.head_dim, config.head_dim // 2
    count = _heads_at_state(config.num_attention_heads)
    rates = config.rope_theta ** (-torch.arange(0, size, 2) / size)
    nearest = torch.zeros(pairs)
    for rate, share in _NEAREST.items():
        nearest[(rates - rate).abs().argmin()] += share
    # The slowest frequencies hardly depend on the distance.
    anywhere = (torch.arange(pairs) >= pairs * 3 // 4).float()
    rows = torch.cat([roots, masks])
    is_token = torch.cat([torch.ones(len(roots)), -torch.ones(len(masks))])
    # The fit of the pending token holds for its own row alone, so masks look away from it.
    asking = [_ridge(rows, wanted[:, None])[:, 0] for wanted in (torch.ones(len(rows)), is_token)]
    inputs = torch.cat([states, roots, masks])
    is_state = torch.cat([torch.ones(len(states)), -torch.ones(len(rows))])
    is_root = torch.cat([-torch.ones(len(states)), torch.ones(len(roots)), -torch.ones(len(masks))])
    finding = [_ridge(inputs, sought[:, None])[:, 0] for sought in (is_state, is_root)]
    for number in range(config.num_attention_heads):
        at_root = number >= count
        query, selector = asking[at_root], finding[at_root]
        direction = torch.cat([(anywhere if at_root else nearest).sqrt(), torch.zeros(pairs)])
        part = slice(number * size, (number + 1) * size)
        attention.q_proj.weight[part] = direction[:, None] * query
        attention.k_proj.weight[part] = direction[:, None] * selector


def _carry(head: Block, solution: Tensor, states: Tensor, roots: Tensor) -> None:
    """Set values and the attention's output so that together they are `solution` [2d, d], at a lower rank."""
    attention = head.layer.self_attn
    size, width = attention.config.head_dim, states.shape[1]
    split = _heads_at_state(attention.config.num_attention_heads) * size
    for inputs, matrix, part in (
        (states, solution[:width], slice(0, split)),
        (roots, solution[width:], slice(split, attention.o_proj.in_features)),
    ):
        # The best approximation for these inputs: along the main directions of what the matrix makes of them.
        _, _, directions = torch.linalg.svd(torch.linalg.cholesky(_square(inputs)).T @ matrix, full_matrices=False)
        kept = directions[: part.stop - part.start]
        attention.v_proj.weight[part] = (matrix @ kept.T).T * _VALUES
        attention.o_proj.weight[:, part] = kept.T / _VALUES


def _heads_at_state(count: int) -> int:
    """How many of the heads look at the last state."""
    return max(1, round(count * _HEADS_AT_STATE))
