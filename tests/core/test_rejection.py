"""Rejection sampling worked out by hand: accepted tokens, the replacement of the first rejected one, the record.

A draft token that was drawn from q is accepted if its coin is below p / q; (p - q)+ is the positive part of p - q. A
check is the record of one such test.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from specrace.core.errors import InputError
from specrace.core.events import Step, Timing
from specrace.core.rejection import Check, Coins, accepts, draw, residual, verify_sampled, warp_probs
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.engine.recording import from_json, to_json

# Row i: the target's distribution at node i, and the drafter's, from which the draft token below node i was drawn.
P = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.2, 0.6, 0.2]])
Q = np.array([[0.25, 0.5, 0.25], [0.4, 0.2, 0.4]])

MAX_SEED = 2**63 - 1


def outcome(draft: tuple[int, ...], coins: list[tuple[float, float]]) -> tuple[tuple[int, ...], int, int]:
    """The path, the bonus and the number of checks for a chain below the token 2, with the distributions P and Q.

    `coins`: for each node, the coin that accepts or rejects the next draft token, and the number that draws a token.
    """
    verdict, checks = verify_sampled(TokenTree.chain(2, draft), P[: len(draft) + 1], Q[: len(draft)], coins)
    return verdict.path, verdict.bonus, len(checks)


def test_after_a_fully_accepted_chain_the_bonus_is_drawn_from_p() -> None:
    # 0.5 / 0.25 and 0.8 / 0.4 are above 1, so any coin accepts. The number 0.5 draws token 1 from (0.2, 0.6, 0.2).
    assert outcome((0, 2), [(0.99, 0.0), (0.99, 0.0), (0.0, 0.5)]) == ((0, 1, 2), 1, 2)


def test_the_first_rejected_token_is_redrawn_from_the_residual_and_ends_the_walk() -> None:
    # 0.3 / 0.5 = 0.6, and a coin of 0.6 rejects, because the inequality is strict. (p - q)+ is 0 except at token 0.
    assert outcome((1, 2), [(0.6, 0.99), (0.0, 0.0), (0.0, 0.0)]) == ((0,), 0, 1)
    assert outcome((1, 2), [(0.5999, 0.0), (0.0, 0.0), (0.0, 0.99)]) == ((0, 1, 2), 2, 2)
    # 0.1 / 0.4 = 0.25, so 0.26 rejects. The second row's (p - q)+ is 0 except at token 2.
    assert outcome((0, 0), [(0.0, 0.0), (0.26, 0.0), (0.0, 0.0)]) == ((0, 1), 2, 2)


def test_without_a_draft_the_token_is_drawn_from_p() -> None:
    assert [outcome((), [(0.0, number)])[1] for number in (0.0, 0.49, 0.5, 0.79, 0.8, 0.9999)] == [0, 0, 1, 1, 2, 2]


def test_targets_are_the_output_and_after_it_the_likeliest_tokens() -> None:
    verdict, checks = verify_sampled(TokenTree.chain(2, (1, 0)), P, Q, [(0.7, 0.0), (0.0, 0.0), (0.0, 0.0)])
    assert verdict.scores.targets == (0, 2, 1)
    assert checks == (Check(0.3, 0.5, 0.7),) and not checks[0].accepted
    verdict, checks = verify_sampled(TokenTree.chain(2, (1, 0)), P, Q, [(0.1, 0.0), (0.2, 0.0), (0.0, 0.3)])
    assert verdict.scores.targets == (1, 0, 1)
    assert [check.accepted for check in checks] == [True, True]


def test_a_token_of_probability_zero_is_never_accepted_or_drawn() -> None:
    assert not accepts(0.0, 0.5, 0.0)
    numbers = np.array([0.0, 0.3, 0.999999999])
    assert draw(np.array([[0.0, 1.0, 0.0]] * 3), numbers).tolist() == [1, 1, 1]
    assert draw(np.array([0.0, 0.5, 0.0, 0.5, 0.0]), np.nextafter(1.0, 0.0)) == 3


def test_a_token_is_always_accepted_if_p_equals_q() -> None:
    """With p = q, rounding must not reject even the largest coin below 1."""
    probs = np.random.default_rng(0).random(10_000)
    assert accepts(probs, probs, np.nextafter(1.0, 0.0)).all()  # type: ignore[union-attr]


def test_the_residual_of_equal_rows_is_p() -> None:
    assert residual(P, P).tolist() == P.tolist()
    assert residual(P[0], np.zeros(3)) == pytest.approx(P[0])
    assert residual(P[0], Q[0]) == pytest.approx([1.0, 0.0, 0.0])


def test_each_row_of_a_residual_is_normalised_separately() -> None:
    rows = residual(np.array([[0.5, 0.3, 0.2], [0.0, 0.6, 0.4], [0.2, 0.2, 0.6]]), np.array([[0.25, 0.5, 0.25]] * 3))
    assert rows == pytest.approx(np.array([[1.0, 0.0, 0.0], [0.0, 0.4, 0.6], [0.0, 0.0, 1.0]]))


def test_drawing_from_weights_does_not_need_them_normalised() -> None:
    assert draw(np.array([1.0, 3.0]), np.array([0.0])[0]) == 0
    assert [int(draw(np.array([1.0, 3.0]), number)) for number in (0.24, 0.26, 0.99)] == [0, 1, 1]
    assert [int(draw(np.array([0.1, 0.1]), number)) for number in (0.49, 0.51)] == [0, 1]


@pytest.mark.parametrize(
    ("tree", "p", "q", "coins"),
    [
        (TokenTree((2, 0, 1), (-1, 0, 0)), P, Q, 3),  # no chain
        (TokenTree.chain(2, (0, 1)), P[:2], Q, 3),
        (TokenTree.chain(2, (0, 1)), P, Q[:1], 3),
        (TokenTree.chain(2, (0, 1)), P, Q[:, :2], 3),
        (TokenTree.chain(2, (0, 1)), P, Q, 2),
    ],
)
def test_mismatched_shapes_are_refused(tree: TokenTree, p: np.ndarray, q: np.ndarray, coins: int) -> None:
    with pytest.raises(ValueError, match="3 nodes"):
        verify_sampled(tree, p, q, [(0.0, 0.0)] * coins)


def test_coins_depend_on_seed_lane_and_position() -> None:
    keys = [
        (seed, lane, position)
        for seed in (0, 1, MAX_SEED)
        for lane in ("bigram", "trigram")
        for position in (1, 2, 900)
    ]
    numbers = [number for seed, lane, position in keys for number in Coins(seed, lane).at(position)]
    assert len(set(numbers)) == len(numbers) and all(0 <= number < 1 for number in numbers)
    assert Coins(7, "bigram").at(3) == Coins(7, "bigram").at(3)


def test_the_coins_of_a_seed_never_change_between_versions() -> None:
    """Otherwise a race could not be reproduced from its recording."""
    assert Coins(7, "bigram").at(3) == pytest.approx((0.006505154233849231, 0.43289674348108376), abs=1e-12)


def test_coins_are_uniform_and_uncorrelated() -> None:
    coins = Coins(3, "trigram")
    pairs = np.array([coins.at(position) for position in range(20_000)])
    series = np.stack([pairs[:-1, 0], pairs[:-1, 1], pairs[1:, 0]])
    assert np.abs(np.corrcoef(series) - np.eye(3)).max() < 0.03
    assert np.abs(np.bincount((pairs[:, 0] * 10).astype(int), minlength=10) / 20_000 - 0.1).max() < 0.01


def test_warping_leaves_zero_probabilities_at_zero() -> None:
    probs = np.array([0.0, 0.5, 0.1, 0.4])
    assert warp_probs(probs, SamplingParams(1.0)) == pytest.approx(probs)
    assert warp_probs(probs, SamplingParams(1.0, top_k=2)) == pytest.approx([0.0, 5 / 9, 0.0, 4 / 9])
    assert warp_probs(probs, SamplingParams(1.0, top_k=4)) == pytest.approx(probs)
    assert warp_probs(probs, SamplingParams(1.0, top_p=0.5)) == pytest.approx([0.0, 1.0, 0.0, 0.0])


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(1.3),
        SamplingParams(0.7, top_k=3),
        SamplingParams(0.7, top_k=9),  # more than there are tokens
        SamplingParams(1.0, top_p=0.6),
        SamplingParams(5.0, top_p=0.6, top_k=5),
    ],
)
def test_rows_are_warped_independently(params: SamplingParams) -> None:
    rows = np.random.default_rng(1).dirichlet([0.5] * 8, size=3)
    assert warp_probs(rows, params) == pytest.approx(np.stack([warp_probs(row, params) for row in rows]))


def test_top_k_keeps_the_k_likeliest_of_1000_tokens() -> None:
    probs = np.random.default_rng(5).permutation(np.arange(1.0, 1001.0)) / 500500
    for top_k in (1, 20, 999):
        kept_tokens = np.flatnonzero(warp_probs(probs, SamplingParams(1.0, top_k=top_k)))
        assert set(kept_tokens) == set(np.argsort(-probs)[:top_k])


def test_top_p_keeps_the_first_of_equally_likely_tokens() -> None:
    # Even tokens are three times as likely and hold three quarters of the mass; the first odd tokens come next.
    warped = warp_probs(np.array([3.0, 1.0] * 64) / 256, SamplingParams(1.0, top_p=0.75 + 10.5 / 256))
    assert np.flatnonzero(warped).tolist() == sorted([*range(0, 128, 2), *range(1, 23, 2)])


def test_a_top_p_of_one_keeps_even_the_unlikeliest_token() -> None:
    assert warp_probs(np.array([1.0, 1e-30]), SamplingParams(1.0))[1] == pytest.approx(1e-30, rel=1e-6, abs=0.0)


@pytest.mark.parametrize("temperature", [0.0, 1e-6, 0.02])
def test_a_temperature_near_zero_is_greedy(temperature: float) -> None:
    assert warp_probs(P, SamplingParams(temperature)) == pytest.approx(np.eye(3)[[0, 2, 1]], abs=1e-9)


# Recording the checks.


def step_with(checks: tuple[Check, ...] | None) -> Step:
    """A step of the trigram with these checks; its verdict is that one token was accepted."""
    verdict, _ = verify_sampled(TokenTree.chain(2, (1, 0)), P, Q, [(0.1, 0.0), (0.9, 0.0), (0.0, 0.3)])
    timing = Timing(1.0, 1.0, 1.0)
    return Step("trigram", 0, 1.0, TokenTree.chain(2, (1, 0)), verdict, (1, 2), timing, checks=checks)


def test_the_checks_of_a_step_survive_json() -> None:
    step = step_with((Check(0.3, 0.5, 0.1), Check(0.1, 0.4, 0.9)))
    row = json.loads(json.dumps(to_json(step)))
    assert row["checks"] == [{"p": 0.3, "q": 0.5, "coin": 0.1}, {"p": 0.1, "q": 0.4, "coin": 0.9}]
    assert from_json(row) == step
    assert "checks" not in to_json(step_with(None)) and from_json(to_json(step_with(None))) == step_with(None)


@pytest.mark.parametrize("checks", [[{"p": 0.3}] * 2, "xy", [1, 2], {"p": 1}])
def test_invalid_checks_are_refused(checks: Any) -> None:
    row = to_json(step_with((Check(0.3, 0.5, 0.1), Check(0.1, 0.4, 0.9))))
    with pytest.raises(ValueError):
        from_json({**row, "checks": checks})


def test_a_distribution_that_is_not_a_number_is_refused() -> None:
    p = np.array([[0.5, 0.5], [np.nan, np.nan]])
    with pytest.raises(InputError, match="not numbers"):
        verify_sampled(TokenTree.chain(0, (1,)), p, p[:1], [(0.5, 0.5)] * 2)
