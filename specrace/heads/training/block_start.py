"""The initial weights of a block head: a linear fit of the next state, by attention heads that look for its inputs.

A random start would take hundreds of steps to find the two things that matter most, the last state of the context and
the pending token. So at the start some attention heads attend to the last state and the others to the pending token.
Together, their values and the attention's output projection are a least-squares fit of the next state, of the highest
rank that fits into the heads. In shapes, d is the width of the target's hidden states.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import torch
from torch import Tensor

from specrace.heads.modules.batch import Batch
from specrace.heads.modules.block import Block

# Added to the diagonal of the normal equations, as a share of its mean (not tuned).
_RIDGE = 1e-3
# Batches that the fit reads; more would change little.
_BATCHES = 25
# Heads that look at the last state have scores that fall with the distance: weighted sums of cosines of frequency times
# distance. Frequency in radians per position (the rotary embedding's nearest one is used) -> weight. No record says
# how these numbers and the two below were found; 5/9 are five of the nine heads of SmolLM2-135M.
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
    # Of the levels that the head reads, only the last one is used at the start.
    head.fc.weight[:, -size:] = torch.eye(size)
    # `roots` are the tokens' embeddings after the layer's first norm, `residuals` before it; see `_pairs`.
    states, roots, residuals, after = (
        torch.cat(parts) for parts in zip(*_pairs(head, batches, embeddings), strict=True)
    )
    head.norm.weight.fill_(float(after.square().mean(-1).sqrt().mean()))
    # A direction in which tokens have almost nothing, so that attention can tell masks from tokens.
    rarest = torch.linalg.eigh(residuals.T @ residuals).eigenvectors[:, 0]
    head.mask_embedding.copy_(rarest * residuals.norm(dim=1).mean())
    # In the fits of `_look`, masks are a quarter as many as tokens (not tuned).
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
    """The products of the columns of `inputs` [N, n], [n, n], with the ridge added to the diagonal."""
    square: Tensor = inputs.T @ inputs
    return square + torch.eye(len(square)) * (_RIDGE * float(square.diagonal().mean()))


def _ridge(inputs: Tensor, outputs: Tensor) -> Tensor:
    """The matrix [n, m] of the least-squares fit from `inputs` [N, n] to `outputs` [N, m]."""
    solution: Tensor = torch.linalg.solve(_square(inputs), inputs.T @ outputs)
    return solution


def _look(head: Block, states: Tensor, roots: Tensor, masks: Tensor) -> None:
    """Set queries and keys: each head gives positive scores to what it looks for, and negative ones to all else."""
    attention = head.layer.self_attn
    config = attention.config
    size, num_pairs = config.head_dim, config.head_dim // 2
    num_at_state = _heads_at_state(config.num_attention_heads)
    rates = config.rope_theta ** (-torch.arange(0, size, 2) / size)
    # Weights of the rotary frequencies, one for each pair of numbers in a head.
    nearest = torch.zeros(num_pairs)
    for rate, share in _NEAREST.items():
        nearest[(rates - rate).abs().argmin()] += share
    # Scores by the slowest frequencies hardly depend on the distance.
    anywhere = (torch.arange(num_pairs) >= num_pairs * 3 // 4).float()
    rows = torch.cat([roots, masks])
    is_token = torch.cat([torch.ones(len(roots)), -torch.ones(len(masks))])
    # The queries of heads that look at the last state, then of those that look at the pending token. The fit from the
    # pending token holds for its own row alone, so in the second group masks look away from it.
    asking = [_ridge(rows, wanted[:, None])[:, 0] for wanted in (torch.ones(len(rows)), is_token)]
    inputs = torch.cat([states, roots, masks])
    is_state = torch.cat([torch.ones(len(states)), -torch.ones(len(rows))])
    is_root = torch.cat([-torch.ones(len(states)), torch.ones(len(roots)), -torch.ones(len(masks))])
    # Keys of the same two groups of heads.
    finding = [_ridge(inputs, sought[:, None])[:, 0] for sought in (is_state, is_root)]
    for number in range(config.num_attention_heads):
        at_root = number >= num_at_state
        query, selector = asking[at_root], finding[at_root]
        # Of each rotary pair only the first number is used: its product of query and key is a cosine of the distance.
        direction = torch.cat([(anywhere if at_root else nearest).sqrt(), torch.zeros(num_pairs)])
        head_rows = slice(number * size, (number + 1) * size)
        attention.q_proj.weight[head_rows] = direction[:, None] * query
        attention.k_proj.weight[head_rows] = direction[:, None] * selector


def _carry(head: Block, solution: Tensor, states: Tensor, roots: Tensor) -> None:
    """Set values and the attention's output so that together they are `solution` [2d, d], at a lower rank."""
    attention = head.layer.self_attn
    size, width = attention.config.head_dim, states.shape[1]
    split = _heads_at_state(attention.config.num_attention_heads) * size
    for inputs, matrix, columns in (
        (states, solution[:width], slice(0, split)),
        (roots, solution[width:], slice(split, attention.o_proj.in_features)),
    ):
        # The best approximation for these inputs: along the main directions of what the matrix makes of them.
        _, _, directions = torch.linalg.svd(torch.linalg.cholesky(_square(inputs)).T @ matrix, full_matrices=False)
        main_directions = directions[: columns.stop - columns.start]
        attention.v_proj.weight[columns] = (matrix @ main_directions.T).T * _VALUES
        attention.o_proj.weight[:, columns] = main_directions.T / _VALUES


def _heads_at_state(count: int) -> int:
    """How many of the heads look at the last state."""
    return max(1, round(count * _HEADS_AT_STATE))
