"""The verifier for trees that were sampled: the draws below a node are tried one after the other.

Miao et al., "SpecInfer" (2023), algorithm 2, multi-step speculative sampling. A draft token d that was drawn from q is
accepted with probability min(1, p(d) / q(d)). After a rejection, p becomes the residual, max(p - q, 0) normalised, and
the next draw is tried against it. If all are rejected, the bonus token is drawn from the last residual.

The output has exactly the target's distribution if each token was drawn from its own q, independently of the others,
and if the number and the order of the draws below a node were fixed before they were drawn. So draws are tried in the
order in which they were drawn; the paper's random order has the same distribution. A token that was drawn twice is one
node of the tree, but both draws are tried: to drop the second would leave out one subtraction of q.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specrace.core.errors import InputError
from specrace.core.rejection import Check, accepts, draw, residual
from specrace.core.tree import TokenTree
from specrace.core.verify import NOT_A_NUMBER, Scores, Verdict


@dataclass(frozen=True)
class Draws:
    """The draws that made a tree, in the order in which they are tried.

    Draw i of D became the node `nodes[i]`, which equal draws share, and came from the distribution `q[rows[i]]`; `q` is
    [R, V].
    """

    nodes: tuple[int, ...]
    rows: tuple[int, ...]
    q: np.ndarray


@dataclass(frozen=True)
class Verified:
    """A verdict; under rejection sampling also the tests that led to it, and for a tree the node that each tested."""

    verdict: Verdict
    checks: tuple[Check, ...] | None = None
    nodes: tuple[int, ...] | None = None


def choose(
    drafts: np.ndarray, p: np.ndarray, q: np.ndarray, coins: np.ndarray, numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Try k draws below each of B nodes.

    `drafts` [B, k]: the tokens, in the order in which they are tried. `p` [B, V]: the target's distributions; `q`
    [B, k, V]: those that the tokens were drawn from. `coins` [B, k]: random numbers that accept or reject the draws;
    `numbers` [B]: random numbers that draw the token where all draws are rejected. Returns the index of the accepted
    draw, int [B], k if there is none; the token that was chosen, int [B]; and the p of each draw when it was tried,
    float [B, k], 0 for draws that were not.
    """
    rows, count = np.arange(len(drafts)), drafts.shape[1]
    chosen, tried = np.full(len(drafts), count), np.zeros(drafts.shape)
    for index, drawn in enumerate(drafts.T):
        # The nodes below which no draw has been accepted yet.
        is_open = chosen == count
        if not is_open.any():
            break
        tried[:, index] = np.where(is_open, p[rows, drawn], 0.0)
        # Where a draw was accepted before, `tried` is 0, which is never accepted.
        is_accepted = accepts(tried[:, index], q[rows, index, drawn], coins[:, index])
        chosen = np.where(is_accepted, index, chosen)
        p = residual(p, q[:, index])
    tokens = np.column_stack([drafts, draw(p, numbers)])[rows, chosen]
    return chosen, tokens, tried


def verify_draws(tree: TokenTree, p: np.ndarray, draws: Draws, coins: Sequence[tuple[np.ndarray, float]]) -> Verified:
    """Verify a sampled tree of N nodes: the verdict, and the tests along the path, in their order.

    `p` [N, V]: the target's distribution at every node. `coins`: `Coins.for_draws` for each depth from 0 on, with at
    least as many coins as a node has draws below it. The verdict's targets are the output tokens along the path and the
    likeliest tokens elsewhere. Raises ValueError unless each draft node was drawn and the shapes agree, and InputError
    if p is not a number.
    """
    if {0, *draws.nodes} != set(range(len(tree))) or len(draws.rows) != len(draws.nodes) or len(p) != len(tree):
        raise ValueError(f"{len(p)} target rows and {len(draws.nodes)} draws for {len(tree)} nodes")
    # If a row of a softmax has a NaN, all of it is NaN.
    if np.isnan(p[:, 0]).any():
        raise InputError(NOT_A_NUMBER)
    # Node -> the indices of the draws below it.
    draws_below: dict[int, list[int]] = {}
    for index, node in enumerate(draws.nodes):
        draws_below.setdefault(tree.parents[node], []).append(index)
    path, targets, checks, tested = [0], p.argmax(axis=-1), list[Check](), list[int]()
    while True:
        parent = path[-1]
        tossed, number = coins[len(path) - 1]
        indices = draws_below.get(parent, [])
        nodes = [draws.nodes[index] for index in indices]
        drafts = np.array([tree.tokens[node] for node in nodes], dtype=int)
        q = draws.q[np.array([draws.rows[index] for index in indices], dtype=int)]
        chosen, tokens, tried = choose(
            drafts[None], p[parent][None], q[None], tossed[None, : len(nodes)], np.array([number])
        )
        count = min(int(chosen[0]) + 1, len(nodes))
        checks += [Check(float(tried[0, i]), float(q[i, drafts[i]]), float(tossed[i])) for i in range(count)]
        tested += nodes[:count]
        targets[parent] = tokens[0]
        if chosen[0] == len(nodes):
            break
        path.append(nodes[chosen[0]])
    verdict = Verdict(tuple(path), int(tokens[0]), Scores(tuple(targets.tolist())))
    return Verified(verdict, tuple(checks), tuple(tested))
