"""Fusion's sources by hand: rows of the corpus, the target's tokens at rejected nodes; costs and calibration."""

from __future__ import annotations

import pytest

from specrace.core.cost_curve import ContextCost, CostCurve
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, verify
from specrace.drafters.fusion_calibration import Calibration
from specrace.drafters.fusion_payoff import CoolDown, StepCosts, step_costs
from specrace.drafters.fusion_sources import NUM_TOP, CorpusRows, Recycled
from specrace.ngrams.counts import NGramCounts


def corpus(*texts: list[int]) -> CorpusRows:
    counts = NGramCounts()
    counts.extend_apart(texts)
    return CorpusRows(counts)


def test_the_corpus_backs_off_from_two_tokens_to_one() -> None:
    """After 1 2: 3 once, so 1 / (1 + 2). After 2: 3 once and 4 twice, so 1/7 and 2/7 of the two thirds left."""
    rows = corpus([1, 2, 3], [5, 2, 4], [5, 2, 4])
    for _ in range(2):
        probs, rest = rows.successors(1, 2)
        assert probs == pytest.approx({3: 1 / 3 + 2 / 3 / 7, 4: 2 / 3 * 2 / 7})
        assert rest == pytest.approx(2 / 3 * 4 / 7)
    assert rows.successors(9, 9) == ({}, 1.0)
    probs, rest = rows.successors(9, 2)
    assert probs == pytest.approx({4: 2 / 7, 3: 1 / 7}) and rest == pytest.approx(4 / 7)


def test_a_row_has_its_likeliest_eight() -> None:
    texts = [[1, token] for token in range(10, 20)]
    probs, rest = corpus(*texts, [1, 19], [1, 18]).successors(0, 1)
    assert list(probs) == [18, 19, *range(10, 16)] and len(probs) == NUM_TOP
    assert probs[18] == pytest.approx(2 / 32) and probs[10] == pytest.approx(1 / 32)
    assert rest == pytest.approx(20 / 32)


def test_a_row_is_read_once() -> None:
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
    # Node 2 carries 6 as well, but node 1 was accepted.
    assert recycled.successors(0, 6)[0] == {8: 0.25, 2: 0.125} and recycled.successors(0, 7)[0] == {4: 0.25, 0: 0.125}


def test_with_copy_two_tokens_go_before_one() -> None:
    """6 stood after 5, where 8 and 2 were likely, and later after 7, where 9 was."""
    recycled = Recycled(copy=True)
    tree = TokenTree((5, 6, 7, 6), (-1, 0, 0, 2))
    recycled.learn(tree, verify(tree, Scores((0, 8, 4, 9), ((0,), (8, 2), (4,), (9, 1)))), 3)
    assert recycled.row(5, 6) == (2, (8, 2)) and recycled.row(7, 6) == (2, (9, 1))
    assert recycled.row(1, 6) == (1, (9, 1)) and recycled.row(3, 5) == (2, (0,)) and recycled.row(1, 1) == (0, ())
    assert recycled.successors(5, 6) == (pytest.approx({8: 0.35, 2: 0.175}), pytest.approx(0.475))
    assert recycled.successors(1, 6)[0] == {9: 0.25, 1: 0.125}
    plain = Recycled()
    plain.learn(tree, verify(tree, Scores((0, 8, 4, 9), ((0,), (8, 2), (4,), (9, 1)))), 3)
    assert plain.row(5, 6) == plain.row(7, 6) == (1, (9, 1))


def test_recycled_estimates_are_calibrated_by_the_tokens_matched() -> None:
    """Starting from 4 hits in 4 expected, a row of 0.25 + 0.125 hits once and misses once."""
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


def test_a_target_with_its_own_token_only_is_learned_from_too() -> None:
    recycled = Recycled()
    tree = TokenTree((5, 6, 7, 8), (-1, 0, 0, 0))
    recycled.learn(tree, verify(tree, Scores((9, 0, 1, -1))))
    assert recycled.rows == {(5,): (9,), (6,): (0,), (7,): (1,)}
    recycled.learn(TokenTree.chain(5), verify(TokenTree.chain(5), Scores((1,), (tuple(range(12)),))))
    assert recycled.rows[5,] == tuple(range(NUM_TOP))


def test_no_draft_costs_one_step_and_hopeless_tokens_have_a_floor() -> None:
    free = StepCosts(CostCurve((1, 9), (1.0, 1.0)), 8)
    assert free.costs == [1.0] * 9 and free.floor == StepCosts.MIN_FLOOR and free.knots == [8]
    dear = StepCosts(CostCurve((1, 3, 9), (1.0, 2.0, 3.0)), 8)
    assert dear.knots == [2, 8] and dear.floor == pytest.approx(2 / 8)
    assert dear.costs == pytest.approx([1.0, 1.5, *(2.0 + extra / 6 for extra in range(7))])
    none = StepCosts(CostCurve((1, 9), (1.0, 2.0)), 0)
    assert (none.costs, none.knots, none.floor) == ([1.0], [], 1.0)


def test_a_draft_takes_time_and_each_node_a_little_more() -> None:
    curve = CostCurve((1, 9), (1.0, 1.0), (ContextCost(256, 2.0, (1.0, 1.0)),))
    assert StepCosts(curve, 3).costs == pytest.approx([1.0, 1.06, 1.07, 1.08])
    assert step_costs(curve, 3) is step_costs(curve, 3)


def test_calibration_counts_expected_hits_and_hits() -> None:
    calibration = Calibration(2)
    assert (calibration.hits, calibration.expected) == ([3.6, 3.6, 3.6, 2.0, 2.0], [4.0] * 5)
    calibration.update(1, 0.5, True)
    calibration.update(1, 0.25, False)
    assert (calibration.hits[1], calibration.expected[1]) == (4.6, 4.75)
    assert calibration.factor(1, 0.5) == pytest.approx(4.6 / 4.75)
    assert calibration.factor(0, 1.0) == pytest.approx(0.9)
    calibration.update(2, 0.5, True)
    assert calibration.factor(2, 1.0) == pytest.approx(0.98) and calibration.factor(4, 1.0) == 0.5


def test_the_cool_down_by_hand() -> None:
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


def test_a_curve_that_falls_and_rises_is_priced_by_its_cheapest_rows() -> None:
    """Two rows cost less than one, and eight less than seven: a lane runs the cheaper ones."""
    costs = StepCosts(CostCurve((1, 2, 4, 8, 64), (1.0, 0.97, 1.4, 1.3, 3.0)), 8)
    assert costs.knots == [1, 3, 7, 8]
    assert costs.costs[:4] == pytest.approx([1.0, 1.0, (0.97 + 1.4) / 2 / 0.97, 1.3 / 0.97])
    assert StepCosts(CostCurve((1, 4, 8), (1.0, 1.4, 1.3)), 7).costs[6] == pytest.approx(1.3)
    assert not StepCosts(CostCurve((1, 9), (1.0, 1.0)), 8).may_pay(0, 1.0, 0.0, 1.0)
