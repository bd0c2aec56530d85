"""The second verifier: rejection sampling, for chains that were sampled from a known distribution q.

Leviathan et al. (2023), algorithm 1; Chen et al. (2023). A draft token d is accepted with probability min(1, p(d) /
q(d)). The first rejected one is replaced by a token drawn from the residual, max(p - q, 0) normalised. After a chain
that was accepted whole, the bonus token is drawn from p. The output has exactly the target's distribution, provided
that d was drawn from q itself and that p and q were warped alike. The text is not vanilla's.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specrace.core.errors import InputError
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.core.verify import NOT_A_NUMBER, Scores, Verdict

# Shown for a lane under rejection sampling instead of a comparison with vanilla's text.
SAME_DISTRIBUTION = "same distribution, not the same text"


@dataclass(frozen=True)
class Check:
    """The test of one draft token: its probabilities under the target (p) and the drafter (q), and a coin in [0, 1)."""

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
        """The coin for the draft token at `position`, and the number that draws a token there.

        The 1 in the key, the drafters' 2 and the 3 of `for_draws` make three independent streams of numbers.
        """
        coin, number = np.random.default_rng((*self._key, 1, position)).random(2).tolist()
        return coin, number

    def for_draws(self, position: int, count: int) -> tuple[np.ndarray, float]:
        """A coin for each of `count` draws of the token at `position`, and the number that draws a token there.

        A coin depends on its index, not on `count`.
        """
        numbers = np.random.default_rng((*self._key, 3, position)).random(count + 1)
        return numbers[1:], float(numbers[0])


def accepts(p: np.ndarray | float, q: np.ndarray | float, coins: np.ndarray | float) -> np.ndarray | bool:
    """Whether coin < min(1, p / q), computed without a division.

    A token with p = 0 is never accepted, because `<` is strict.
    """
    return coins * q < p


def residual(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """max(p - q, 0), normalised, [..., V]; p itself where rounding leaves nothing."""
    excess = np.maximum(p - q, 0.0)
    total = excess.sum(axis=-1, keepdims=True)
    return np.where(total > 0, excess / np.where(total > 0, total, 1.0), p)


def draw(probs: np.ndarray, numbers: np.ndarray | float) -> np.ndarray:
    """Draw one token for each row by inverse CDF: int [...] from `probs` [..., V] and `numbers` [...] in [0, 1)."""
    edges = probs.cumsum(axis=-1)
    # `<=`, not `<`: a token of probability 0 is never drawn, not even by the number 0.
    tokens: np.ndarray = np.count_nonzero(edges <= np.asarray(numbers)[..., None] * edges[..., -1:], axis=-1)
    return tokens


def walk(
    drafts: np.ndarray, p: np.ndarray, q: np.ndarray, coins: np.ndarray, numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The number of accepted tokens of each chain, and the token after them: int [B] and int [B].

    `drafts` [B, k]; `p` [B, k + 1, V] after 0, 1, ... k draft tokens; `q` [B, k, V]; `coins` [B, k];
    `numbers` [B, k + 1]: the number at the end of the walk draws the last token.
    """
    indices = drafts[..., None]
    p_of_drafts = np.take_along_axis(p[:, :-1], indices, axis=-1)[..., 0]
    q_of_drafts = np.take_along_axis(q, indices, axis=-1)[..., 0]
    accepted = np.cumprod(accepts(p_of_drafts, q_of_drafts, coins), axis=1).sum(axis=1)
    rows = np.arange(len(drafts))
    # After the last draft token q is taken as 0, so the residual is p.
    q_at_end = np.concatenate([q, np.zeros_like(p[:, :1])], axis=1)[rows, accepted]
    return accepted, draw(residual(p[rows, accepted], q_at_end), numbers[rows, accepted])


def verify_sampled(
    tree: TokenTree, p: np.ndarray, q: np.ndarray, coins: Sequence[tuple[float, float]]
) -> tuple[Verdict, tuple[Check, ...]]:
    """Verify a sampled chain of k tokens: the verdict, and the tests up to the first rejection.

    `p` [k + 1, V]: the target's distribution at every node. `q` [k, V]: the distributions the draft tokens were drawn
    from. `coins` [k + 1]: `Coins.at` for every position after the root. The verdict's targets are the output tokens
    along the path and the likeliest tokens elsewhere. Raises ValueError for a tree with branches and for other shapes,
    and InputError if p is not a number.
    """
    size = len(tree)
    if not tree.is_chain or len(p) != size or q.shape != (size - 1, p.shape[-1]) or len(coins) != size:
        raise ValueError(f"{len(p)} target rows, {len(q)} drafter rows and {len(coins)} coins for {size} nodes")
    # If a row of a softmax has a NaN, all of it is NaN.
    if np.isnan(p[:, 0]).any():
        raise InputError(NOT_A_NUMBER)
    drafts = np.array(tree.tokens[1:], dtype=int)
    tossed, numbers = np.array(coins).T
    counts, bonuses = walk(drafts[None], p[None], q[None], tossed[None, :-1], numbers[None])
    accepted, bonus = int(counts[0]), int(bonuses[0])
    targets = (*tree.tokens[1 : accepted + 1], bonus, *p[accepted + 1 :].argmax(axis=-1).tolist())
    tested = range(min(accepted + 1, size - 1))
    checks = tuple(Check(float(p[i, drafts[i]]), float(q[i, drafts[i]]), float(tossed[i])) for i in tested)
    return Verdict(tuple(range(accepted + 1)), bonus, Scores(targets)), checks


def warp_probs(probs: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Apply temperature, top-k and top-p, in this order, to a drafter's distributions [..., V], as to the target's."""
    # A probability of 0 becomes a logit of -inf, and a temperature of 0 a very small one.
    with np.errstate(divide="ignore"):
        logits = np.log(probs) / max(params.temperature, 1e-6)
    warped: np.ndarray = np.exp(logits - logits.max(axis=-1, keepdims=True))
    if params.top_k and params.top_k < warped.shape[-1]:
        threshold = np.partition(warped, -params.top_k, axis=-1)[..., -params.top_k, None]
        warped = np.where(warped < threshold, 0.0, warped)
    warped = warped / warped.sum(axis=-1, keepdims=True)
    if params.top_p < 1.0:
        order = np.argsort(-warped, axis=-1, kind="stable")
        ordered = np.take_along_axis(warped, order, axis=-1)
        # A token is dropped if those before it already reach top_p; the first always stays.
        ordered[ordered.cumsum(axis=-1) - ordered >= params.top_p] = 0.0
        np.put_along_axis(warped, order, ordered, axis=-1)
        warped = warped / warped.sum(axis=-1, keepdims=True)
    return warped
