"""The second verifier: rejection sampling, for chains that were sampled from a known distribution q.

Leviathan et al. (2023), algorithm 1; Chen et al. (2023). A draft token d is accepted with probability min(1, p(d) /
q(d)); the first rejected one is replaced by a token from the residual, max(p - q, 0) normalised; after a chain that was
accepted whole the bonus comes from p. The output has exactly the target's distribution if q is the very distribution
that d was drawn from, and p and q went through the same warpers. The text is not vanilla's.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, Verdict

NOTE = "same distribution, not the same text"


@dataclass(frozen=True)
class Check:
    """One draft token's test: its probability under the target and under the drafter, and the coin in [0, 1)."""

    p: float
    q: float
    coin: float

    @property
    def accepted(self) -> bool:
        """Whether the token was accepted."""
        return bool(accepts(self.p, self.q, self.coin))


class Coins:
    """Uniform numbers in [0, 1), keyed by seed, lane and absolute position."""

    def __init__(self, seed: int, lane: str) -> None:
        self._key = (seed, zlib.crc32(lane.encode()))

    def at(self, position: int) -> tuple[float, float]:
        """The coin of the draft token at `position`, and the number to draw a token with there."""
        coin, number = np.random.default_rng((*self._key, 1, position)).random(2).tolist()
        return coin, number


def accepts(p: np.ndarray | float, q: np.ndarray | float, coins: np.ndarray | float) -> np.ndarray | bool:
    """coin < min(1, p / q), without a division; strict, so that a token of p = 0 is never accepted."""
    return coins * q < p


def residual(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """max(p - q, 0), normalised, [..., V]; p where rounding leaves nothing."""
    rest = np.maximum(p - q, 0.0)
    total = rest.sum(axis=-1, keepdims=True)
    return np.where(total > 0, rest / np.where(total > 0, total, 1.0), p)


def draw(probs: np.ndarray, numbers: np.ndarray | float) -> np.ndarray:
    """A token a row by inverse CDF, int [...]; `probs` [..., V], `numbers` [...] in [0, 1)."""
    edges = probs.cumsum(axis=-1)
    # `<=`, so that a token of probability 0 is never drawn, not even by the number 0.
    tokens: np.ndarray = np.count_nonzero(edges <= np.asarray(numbers)[..., None] * edges[..., -1:], axis=-1)
    return tokens


def walk(
    drafts: np.ndarray, p: np.ndarray, q: np.ndarray, coins: np.ndarray, numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The number of accepted tokens of each chain, and the token after them: int [B] and int [B].

    `drafts` [B, k]; `p` [B, k + 1, V] after 0, 1, ... k draft tokens; `q` [B, k, V]; `coins` [B, k]; `numbers`
    [B, k + 1], to draw the last token with wherever the walk ends.
    """
    of_drafts = drafts[..., None]
    p_of_drafts = np.take_along_axis(p[:, :-1], of_drafts, axis=-1)[..., 0]
    q_of_drafts = np.take_along_axis(q, of_drafts, axis=-1)[..., 0]
    accepted = np.cumprod(accepts(p_of_drafts, q_of_drafts, coins), axis=1).sum(axis=1)
    rows = np.arange(len(drafts))
    # After the last draft token q is 0, so the residual is p.
    drafted = np.concatenate([q, np.zeros_like(p[:, :1])], axis=1)[rows, accepted]
    return accepted, draw(residual(p[rows, accepted], drafted), numbers[rows, accepted])


def verify_sampled(
    tree: TokenTree, p: np.ndarray, q: np.ndarray, coins: Sequence[tuple[float, float]]
) -> tuple[Verdict, tuple[Check, ...]]:
    """Verify a sampled chain of k tokens: the verdict, and the tests up to the first rejection.

    `p` [k + 1, V]: the target's distribution at every node; `q` [k, V]: what each draft token was drawn from; `coins`
    [k + 1]: `Coins.at` of every position after the root. The verdict's targets are the output tokens along the path,
    the likeliest elsewhere. Raises ValueError for a tree with branches and for other shapes.
    """
    size = len(tree)
    if not tree.is_chain or len(p) != size or q.shape != (size - 1, p.shape[-1]) or len(coins) != size:
        raise ValueError(f"{len(p)} target rows, {len(q)} drafter rows and {len(coins)} coins for {size} nodes")
    drafts = np.array(tree.tokens[1:], dtype=int)
    tossed, numbers = np.array(coins).T
    counts, bonuses = walk(drafts[None], p[None], q[None], tossed[None, :-1], numbers[None])
    accepted, bonus = int(counts[0]), int(bonuses[0])
    targets = (*tree.tokens[1 : accepted + 1], bonus, *p[accepted + 1 :].argmax(axis=-1).tolist())
    tested = range(min(accepted + 1, size - 1))
    checks = tuple(Check(float(p[i, drafts[i]]), float(q[i, drafts[i]]), float(tossed[i])) for i in tested)
    return Verdict(tuple(range(accepted + 1)), bonus, Scores(targets)), checks


def warp_probs(probs: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Temperature, then top-k, then top-p on distributions [..., V], as the target's own are warped."""
    with np.errstate(divide="ignore"):
        logits = np.log(probs) / max(params.temperature, 1e-6)
    warped: np.ndarray = np.exp(logits - logits.max(axis=-1, keepdims=True))
    if params.top_k and params.top_k < warped.shape[-1]:
        least = np.partition(warped, -params.top_k, axis=-1)[..., -params.top_k, None]
        warped = np.where(warped < least, 0.0, warped)
    warped = warped / warped.sum(axis=-1, keepdims=True)
    if params.top_p < 1.0:
        order = np.argsort(-warped, axis=-1, kind="stable")
        ordered = np.take_along_axis(warped, order, axis=-1)
        # A token is dropped when the likelier ones already reach top_p; the first always stays.
        ordered[ordered.cumsum(axis=-1) - ordered >= params.top_p] = 0.0
        np.put_along_axis(warped, order, ordered, axis=-1)
        warped = warped / warped.sum(axis=-1, keepdims=True)
    return warped
