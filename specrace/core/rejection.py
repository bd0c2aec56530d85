"""The second verifier: rejection sampling, for chains whose tokens were sampled from a known distribution q.

A guess d is accepted with probability min(1, p(d) / q(d)); the first that is not is replaced by a token of the
residual, max(p - q, 0) made a distribution; after a chain that was accepted whole the bonus comes from p. What is said
then has exactly the target's law, whatever q was, so long as q is the very distribution that the guess was drawn from
and p and q went through the same warpers. It has the law only: the text is not vanilla's.
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
    """How one draft token was judged: its probability under the target and under the drafter, and the coin tossed."""

    p: float
    q: float
    coin: float

    @property
    def accepted(self) -> bool:
        """Whether the token stayed."""
        return bool(accepts(self.p, self.q, self.coin))


class Coins:
    """Uniform numbers in [0, 1) that belong to a seed, a lane and an absolute position; no two lanes share any."""

    def __init__(self, seed: int, lane: str) -> None:
        self._key = (seed, zlib.crc32(lane.encode()))

    def at(self, position: int) -> tuple[float, float]:
        """The coin that a guess for `position` is accepted by, and the number that a token is drawn with there."""
        coin, number = np.random.default_rng((*self._key, 1, position)).random(2).tolist()
        return coin, number


def accepts(p: np.ndarray | float, q: np.ndarray | float, coins: np.ndarray | float) -> np.ndarray | bool:
    """coin < min(1, p / q), without a division; strict, so that what the target never says is never accepted."""
    return coins * q < p


def residual(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """max(p - q, 0) as a distribution, [..., V]; p where rounding leaves nothing of it."""
    rest = np.maximum(p - q, 0.0)
    total = rest.sum(axis=-1, keepdims=True)
    return np.where(total > 0, rest / np.where(total > 0, total, 1.0), p)


def draw(probs: np.ndarray, numbers: np.ndarray | float) -> np.ndarray:
    """One token a row by inverse CDF: int [...]. `probs` [..., V]; `numbers` [...] in [0, 1)."""
    edges = probs.cumsum(axis=-1)
    # Strict on the right: a token of probability 0 has no width, and is never drawn, not even by 0.
    tokens: np.ndarray = np.count_nonzero(edges <= np.asarray(numbers)[..., None] * edges[..., -1:], axis=-1)
    return tokens


def walk(
    drafts: np.ndarray, p: np.ndarray, q: np.ndarray, coins: np.ndarray, numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How many guesses of each chain are accepted, and the token after them: int [B] and int [B].

    `drafts` [B, k]; `p` [B, k + 1, V] after 0, 1, ... k guesses; `q` [B, k, V]; `coins` [B, k]; `numbers` [B, k + 1],
    one a place where the walk may end.
    """
    of_drafts = drafts[..., None]
    p_of_drafts = np.take_along_axis(p[:, :-1], of_drafts, axis=-1)[..., 0]
    q_of_drafts = np.take_along_axis(q, of_drafts, axis=-1)[..., 0]
    accepted = np.cumprod(accepts(p_of_drafts, q_of_drafts, coins), axis=1).sum(axis=1)
    rows = np.arange(len(drafts))
    # Behind the last guess nothing was drafted: there q is 0, and the residual is p itself.
    drafted = np.concatenate([q, np.zeros_like(p[:, :1])], axis=1)[rows, accepted]
    return accepted, draw(residual(p[rows, accepted], drafted), numbers[rows, accepted])


def verify_sampled(
    tree: TokenTree, p: np.ndarray, q: np.ndarray, coins: Sequence[tuple[float, float]]
) -> tuple[Verdict, tuple[Check, ...]]:
    """Walk a sampled chain of k guesses; the verdict, and how each guess that was looked at was judged.

    `p` [k + 1, V]: the target's distribution at every node; `q` [k, V]: what each guess was drawn from; `coins`: for
    each of the k + 1 positions after the root, `Coins.at`. The verdict's scores name the token that was said where the
    walk came by, and the target's likeliest one elsewhere. Raises ValueError for a tree with branches or other shapes.
    """
    size = len(tree)
    if not tree.is_chain or len(p) != size or q.shape != (size - 1, p.shape[-1]) or len(coins) != size:
        raise ValueError(f"{len(p)} target rows, {len(q)} drafter rows and {len(coins)} coins for {size} nodes")
    drafts = np.array(tree.tokens[1:], dtype=int)
    tossed, numbers = np.array(coins).T
    counts, said = walk(drafts[None], p[None], q[None], tossed[None, :-1], numbers[None])
    accepted, bonus = int(counts[0]), int(said[0])
    targets = (*tree.tokens[1 : accepted + 1], bonus, *p[accepted + 1 :].argmax(axis=-1).tolist())
    looked_at = range(min(accepted + 1, size - 1))
    checks = tuple(Check(float(p[i, drafts[i]]), float(q[i, drafts[i]]), float(tossed[i])) for i in looked_at)
    return Verdict(tuple(range(accepted + 1)), bonus, Scores(targets)), checks


def warp_probs(probs: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Temperature, then top-k, then top-p, on distributions [..., V]; the target's own rows go the same way."""
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
        # A token goes when those likelier than it already hold top_p; the first always stays.
        ordered[ordered.cumsum(axis=-1) - ordered >= params.top_p] = 0.0
        np.put_along_axis(warped, order, ordered, axis=-1)
        warped = warped / warped.sum(axis=-1, keepdims=True)
    return warped
