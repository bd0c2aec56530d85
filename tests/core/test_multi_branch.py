"""The verifier for sampled trees, worked out by hand: which draws are tried, against what, and what is recorded.

A draw is a draft token drawn from q. A coin accepts it if it is below p / q; after a refusal, p becomes the positive
part of p - q, written (p - q)+, normalised. A place is a node of the tree below which draws are tried, or a draw's
index among these.
"""

from __future__ import annotations

import numpy as np
import pytest

from specrace.core.errors import InputError
from specrace.core.multi_branch import Draws, Verified, choose, verify_draws
from specrace.core.rejection import Check, Coins
from specrace.core.tree import TokenTree

# Below the root 9: two draws of token 0, which are one node, and token 1. Below token 1: token 2.
TREE = TokenTree((9, 0, 1, 2), (-1, 0, 0, 2))
# Row i: the target's distribution at node i. `DRAWS` names each draw's node, and the row of Q that it was drawn from.
P = np.array([[0.2, 0.3, 0.5], [0.1, 0.8, 0.1], [0.0, 0.4, 0.6], [1.0, 0.0, 0.0]])
Q = np.array([[0.8, 0.1, 0.1], [0.25, 0.5, 0.25], [0.0, 0.2, 0.8]])
DRAWS = Draws(nodes=(1, 1, 2, 3), rows=(0, 1, 1, 2), q=Q)


def verified(*coins: tuple[tuple[float, float, float], float]) -> Verified:
    """The outcome with these coins at depths 0, 1 and 2, each with the number that draws a token there."""
    return verify_draws(TREE, P, DRAWS, [(np.array(tossed), number) for tossed, number in coins])


def test_a_token_that_was_drawn_twice_is_tried_twice_and_both_refusals_change_p() -> None:
    # 0.2 / 0.8 = 0.25: a coin of 0.3 refuses the first draw, and (p - q)+ is (0, 0.2, 0.4), so (0, 1/3, 2/3). The
    # second draw of token 0 now has p = 0. Without token 0, p - q is (1/3 - 0.5, 2/3 - 0.25): only token 2 is left.
    outcome = verified(((0.3, 0.0, 0.0), 0.1), ((0.0,) * 3, 0.0), ((0.0,) * 3, 0.0))
    assert outcome.verdict.path == (0,) and outcome.verdict.bonus == 2
    assert outcome.nodes == (1, 1, 2)
    assert outcome.checks == (Check(0.2, 0.8, 0.3), Check(0.0, 0.25, 0.0), Check(0.0, 0.5, 0.0))
    assert [check.accepted for check in outcome.checks or ()] == [False, False, False]


def test_the_first_accepted_draw_ends_the_trials_at_its_place() -> None:
    # At the root the first draw is accepted. Its node has no children, so the bonus is drawn from (0.1, 0.8, 0.1).
    outcome = verified(((0.2, 0.0, 0.0), 0.0), ((0.9,) * 3, 0.95), ((0.0,) * 3, 0.0))
    assert outcome.verdict.path == (0, 1) and outcome.verdict.bonus == 2
    assert (outcome.nodes, outcome.checks) == ((1,), (Check(0.2, 0.8, 0.2),))
    # The targets: the output along the path, the likeliest tokens elsewhere.
    assert outcome.verdict.scores.targets == (0, 2, 2, 0)


def test_later_places_use_the_coins_of_their_depth() -> None:
    # With q = (0.8, 0.1, 0.1) twice, token 1 keeps p = 1/3 - 0.1, normalised to 0.2 / 0.6 - 0.1 over what is left.
    draws = Draws((1, 1, 2, 3), (0, 0, 0, 2), Q)
    coins = [(np.array([0.3, 0.0, 0.99]), 0.0), (np.array([0.7, 0.0, 0.0]), 0.0), (np.array([0.0] * 3), 0.5)]
    outcome = verify_draws(TREE, P, draws, coins)
    normalised = (1 / 3 - 0.1) / (1 / 3 - 0.1 + 2 / 3 - 0.1)
    assert outcome.checks is not None and outcome.checks[2].p == pytest.approx(normalised)
    # At depth 1 the draw has p = 0.6 and q = 0.8, and the coin 0.7 is below 0.75. At depth 2 p is (1, 0, 0).
    assert (outcome.verdict.path, outcome.verdict.bonus, outcome.nodes) == ((0, 2, 3), 0, (1, 1, 2, 3))
    assert outcome.checks[3] == Check(0.6, 0.8, 0.7)
    refused = verify_draws(TREE, P, draws, [coins[0], (np.array([0.76, 0.0, 0.0]), 0.0), coins[2]])
    # (0, 0.4, 0.6) - (0, 0.2, 0.8) leaves token 1 only.
    assert (refused.verdict.path, refused.verdict.bonus) == ((0, 2), 1)


def test_without_a_draft_the_token_is_drawn_from_p() -> None:
    draws = Draws((), (), np.zeros((0, 3)))
    for number, token in ((0.1, 0), (0.3, 1), (0.9, 2)):
        outcome = verify_draws(TokenTree.chain(9), P[:1], draws, [(np.zeros(0), number)])
        assert (outcome.verdict.path, outcome.verdict.bonus, outcome.checks, outcome.nodes) == ((0,), token, (), ())


def test_places_are_chosen_independently() -> None:
    drafts = np.array([[0, 1], [1, 1], [1, 1]])
    p = np.array([[0.5, 0.5], [0.1, 0.9], [0.5, 0.5]])
    q = np.array([[[0.9, 0.1]] * 2, [[0.9, 0.1]] * 2, [[0.0, 1.0]] * 2])
    # In the second row the second draw would have p = 1, but the first was accepted.
    coins = np.array([[0.9, 0.5], [0.99, 0.0], [0.6, 0.0]])
    chosen, tokens, tried = choose(drafts, p, q, coins, np.array([0.0, 0.0, 0.5]))
    assert (chosen.tolist(), tokens.tolist()) == ([1, 0, 2], [1, 1, 0])
    assert tried.tolist() == [[0.5, 1.0], [0.9, 0.0], [0.5, 0.0]]


@pytest.mark.parametrize(
    ("tree", "p", "draws"),
    [
        (TREE, P[:3], DRAWS),
        (TREE, P, Draws((1, 2, 3), (0, 1), Q)),
        (TREE, P, Draws((1, 1, 2), (0, 1, 1), Q)),  # node 3 was not drawn
        (TREE, P, Draws((1, 2, 3, 4), (0, 1, 1, 2), Q)),  # there is no node 4
    ],
)
def test_mismatched_shapes_are_refused(tree: TokenTree, p: np.ndarray, draws: Draws) -> None:
    with pytest.raises(ValueError, match="4 nodes"):
        verify_draws(tree, p, draws, [(np.zeros(4), 0.0)] * 3)


def test_a_distribution_that_is_not_a_number_is_refused() -> None:
    p = P.copy()
    p[3] = np.nan
    with pytest.raises(InputError, match="not numbers"):
        verify_draws(TREE, p, DRAWS, [(np.zeros(3), 0.0)] * 3)


def test_a_draws_coin_depends_on_its_place_and_not_on_how_many_follow() -> None:
    coins = Coins(7, "specinfer")
    few, number = coins.for_draws(3, 2)
    many, same_number = coins.for_draws(3, 5)
    assert many[:2].tolist() == few.tolist() and number == same_number
    everything = [
        value
        for seed in (1, 2)
        for lane in ("specinfer", "draft-model")
        for position in (3, 4)
        for value in (*Coins(seed, lane).for_draws(position, 3)[0], Coins(seed, lane).for_draws(position, 3)[1])
    ]
    everything += Coins(1, "specinfer").at(3)
    assert len(set(everything)) == len(everything) and all(0 <= value < 1 for value in everything)


def test_the_coins_of_a_seed_never_change_between_versions() -> None:
    """Otherwise a race could not be reproduced from its recording."""
    coins, number = Coins(7, "specinfer").for_draws(3, 2)
    expected = (0.00922304878407787, 0.8205186345610898, 0.42672907212120803)
    assert (*coins, number) == pytest.approx(expected, abs=1e-12)
