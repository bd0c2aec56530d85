"""Worked examples of fusion's parts: corpus rows, recycled tokens, step costs, calibration and the cool-down.

Of step costs, `knots` are the draft sizes at which the curve was measured, and `floor` is the lowest cost of a token.
"""

from __future__ import annotations

import pytest

from specrace.core.cost_curve import ContextCost, CostCurve
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, verify
from specrace.drafters.fusion.calibration import Calibration
from specrace.drafters.fusion.payoff import CoolDown, StepCosts, step_costs
from specrace.drafters.fusion.sources import NUM_TOP, CorpusRows, Recycled
from specrace.ngrams.counts import NGramCounts


def corpus(*texts: list[int]) -> CorpusRows:
    """The rows of a corpus with these documents."""
    counts = NGramCounts()
    counts.extend_apart(texts)
    return CorpusRows(counts)


def test_the_corpus_backs_off_from_two_tokens_to_one() -> None:
    """1 2 was followed by 3 once: 1 / (1 + 2). 2 was followed by 3 once and by 4 twice: 1/7 and 2/7 of the rest.

    The divisor is the number of tokens, 3, and 2 for each of their 2 kinds.
    """
    rows = corpus([1, 2, 3], [5, 2, 4], [5, 2, 4])
    # The second time, the row is read from the cache.
    for _ in range(2):
        probs, escape = rows.successors(1, 2)
        assert probs == pytest.approx({3: 1 / 3 + 2 / 3 / 7, 4: 2 / 3 * 2 / 7})
        assert escape == pytest.approx(2 / 3 * 4 / 7)
    assert rows.successors(9, 9) == ({}, 1.0)
    probs, escape = rows.successors(9, 2)
    assert probs == pytest.approx({4: 2 / 7, 3: 1 / 7}) and escape == pytest.approx(4 / 7)


def test_a_corpus_row_has_its_eight_likeliest_tokens() -> None:
    texts = [[1, token] for token in range(10, 20)]
    probs, escape = corpus(*texts, [1, 19], [1, 18]).successors(0, 1)
    assert list(probs) == [18, 19, *range(10, 16)] and len(probs) == NUM_TOP
    assert probs[18] == pytest.approx(2 / 32) and probs[10] == pytest.approx(1 / 32)
    assert escape == pytest.approx(20 / 32)


def test_a_corpus_row_is_read_once() -> None:
    rows = corpus([1, 2])
    first = rows.successors(0, 1)
    rows.counts = NGramCounts()
    assert rows.successors(0, 1) == first != rows.successors(0, 2)


def test_recycled_estimates_halve_from_rank_to_rank() -> None:
    recycled = Recycled()
    assert recycled.successors(0, 5) == ({}, 1.0)
    tree = TokenTree((5, 6, 6, 7), (-1, 0, 1, 0))
    scores = Scores((6, 8, 9, 4), ((6, 3), (8, 2), (9, 1), (4, 0)))
    recycled.learn(tree, verify(tree, scores))
    assert recycled.successors(0, 5) == ({6: 0.25, 3: 0.125}, 0.625)
    # Node 2 has the token 6, too, but node 1 was accepted.
    assert recycled.successors(0, 6)[0] == {8: 0.25, 2: 0.125} and recycled.successors(0, 7)[0] == {4: 0.25, 0: 0.125}


def test_with_copy_two_matched_tokens_are_preferred_to_one() -> None:
    """8 and 2 were likely after 5 6, and later 9 and 1 after 7 6. The token before the root is 3."""
    recycled = Recycled(copy=True)
    tree = TokenTree((5, 6, 7, 6), (-1, 0, 0, 2))
    recycled.learn(tree, verify(tree, Scores((0, 8, 4, 9), ((0,), (8, 2), (4,), (9, 1)))), 3)
    # A row is the number of matched tokens and the likely tokens.
    assert recycled.row(5, 6) == (2, (8, 2)) and recycled.row(7, 6) == (2, (9, 1))
    assert recycled.row(1, 6) == (1, (9, 1)) and recycled.row(3, 5) == (2, (0,)) and recycled.row(1, 1) == (0, ())
    assert recycled.successors(5, 6) == (pytest.approx({8: 0.35, 2: 0.175}), pytest.approx(0.475))
    assert recycled.successors(1, 6)[0] == {9: 0.25, 1: 0.125}
    without_copy = Recycled()
    without_copy.learn(tree, verify(tree, Scores((0, 8, 4, 9), ((0,), (8, 2), (4,), (9, 1)))), 3)
    assert without_copy.row(5, 6) == without_copy.row(7, 6) == (1, (9, 1))


def test_recycled_estimates_are_calibrated_by_match_length() -> None:
    """The prior is 4 hits of 4 expected. A row with estimates 0.25 and 0.125 then hits once and misses once."""
    recycled = Recycled(copy=True)
    recycled.rows = {(6,): (8, 2), (5, 6): (9,)}
    recycled.calibrate(1, 6, 2)
    recycled.calibrate(1, 6, 7)
    factor = 5.0 / (4.0 + 2 * 0.375)
    assert recycled.successors(1, 6)[0] == pytest.approx({8: factor * 0.25, 2: factor * 0.125})
    assert recycled.successors(5, 6)[0] == pytest.approx({9: 0.35})
    recycled.calibrate(5, 6, 7)
    assert recycled.successors(5, 6)[0] == pytest.approx({9: 0.35 * 4.0 / 4.35})
    recycled.calibrate(0, 0, 1)
    assert recycled.successors(0, 0) == ({}, 1.0)


def test_recycled_learns_from_a_target_without_top_tokens() -> None:
    recycled = Recycled()
    tree = TokenTree((5, 6, 7, 8), (-1, 0, 0, 0))
    recycled.learn(tree, verify(tree, Scores((9, 0, -1, 1))))
    assert recycled.rows == {(5,): (9,), (6,): (0,), (8,): (1,)}
    recycled.learn(TokenTree.chain(5), verify(TokenTree.chain(5), Scores((1,), (tuple(range(12)),))))
    assert recycled.rows[(5,)] == tuple(range(NUM_TOP))


def test_step_costs_start_at_one_and_have_a_floor() -> None:
    flat = StepCosts(CostCurve((1, 9), (1.0, 1.0)), 8)
    assert flat.costs == [1.0] * 9 and flat.floor == StepCosts.MIN_FLOOR and flat.knots == [8]
    steep = StepCosts(CostCurve((1, 3, 9), (1.0, 2.0, 3.0)), 8)
    assert steep.knots == [2, 8] and steep.floor == pytest.approx(2 / 8)
    assert steep.costs == pytest.approx([1.0, 1.5, *(2.0 + extra / 6 for extra in range(7))])
    no_draft = StepCosts(CostCurve((1, 9), (1.0, 2.0)), 0)
    assert (no_draft.costs, no_draft.knots, no_draft.floor) == ([1.0], [], 1.0)


def test_step_costs_include_drafting_time() -> None:
    # Drafting takes 0.1 ms and 0.02 ms for each draft token, and a row takes 2 ms.
    curve = CostCurve((1, 9), (1.0, 1.0), (ContextCost(256, 2.0, (1.0, 1.0)),))
    assert StepCosts(curve, 3).costs == pytest.approx([1.0, 1.06, 1.07, 1.08])
    assert step_costs(curve, 3) is step_costs(curve, 3)


def test_calibration_counts_expected_hits_and_hits() -> None:
    calibration = Calibration(2)
    # The prior: nine of ten expected hits came, and half of those expected in earlier outputs.
    assert (calibration.hits, calibration.expected) == ([3.6, 3.6, 3.6, 2.0, 2.0], [4.0] * 5)
    calibration.update(1, 0.5, True)
    calibration.update(1, 0.25, False)
    assert (calibration.hits[1], calibration.expected[1]) == (4.6, 4.75)
    assert calibration.factor(1, 0.5) == pytest.approx(4.6 / 4.75)
    assert calibration.factor(0, 1.0) == pytest.approx(0.9)
    calibration.update(2, 0.5, True)
    assert calibration.factor(2, 1.0) == pytest.approx(0.98) and calibration.factor(4, 1.0) == 0.5


def test_losses_pause_drafting_and_gains_reset_the_pause() -> None:
    cool_down = CoolDown()
    assert not cool_down.skip_step() and cool_down.balance == 0.0
    cool_down.record(1, 2.5)
    assert cool_down.balance == -1.5 and not cool_down.skip_step()
    cool_down.record(1, 1.5)
    assert (cool_down.pause, cool_down.balance, cool_down.next_pause) == (4, 0.0, 8)
    assert [cool_down.skip_step() for _ in range(5)] == [True] * 4 + [False]
    cool_down.record(2, 2.0)
    assert cool_down.next_pause == 8
    cool_down.record(2, 1.5)
    assert (cool_down.balance, cool_down.next_pause) == (0.5, 4)
    cool_down.record(9, 1.0)
    assert cool_down.balance == 1.0


def test_a_pause_ends_early_after_half_its_length_in_hits() -> None:
    cool_down = CoolDown()
    cool_down.record(tokens=1, cost=4.0)
    assert cool_down.pause == 4
    cool_down.watch(hit=True)
    assert cool_down.pause == 4
    cool_down.watch(hit=True)
    assert cool_down.pause == 0


def test_a_curve_that_falls_and_rises_is_priced_by_its_cheapest_rows() -> None:
    """Two rows cost less than one, and eight less than seven, so a lane pads to two or eight."""
    costs = StepCosts(CostCurve((1, 2, 4, 8, 64), (1.0, 0.97, 1.4, 1.3, 3.0)), 8)
    assert costs.knots == [1, 3, 7, 8]
    assert costs.costs[:4] == pytest.approx([1.0, 1.0, (0.97 + 1.4) / 2 / 0.97, 1.3 / 0.97])
    assert StepCosts(CostCurve((1, 4, 8), (1.0, 1.4, 1.3)), 7).costs[6] == pytest.approx(1.3)
    assert not StepCosts(CostCurve((1, 9), (1.0, 1.0)), 8).may_pay(0, 1.0, 0.0, 1.0)
