"""Long copies: what is learned of how often copies go on, what it changes in a tree, and where drafts are cut."""

from __future__ import annotations

import pytest

from specrace.core.cost_curve import CostCurve
from specrace.drafters.base import DrafterInputs
from specrace.drafters.fusion.copies import EarlierAnswers
from specrace.drafters.fusion.drafter import FusionDrafter
from specrace.drafters.fusion.holding import Holding
from specrace.drafters.fusion.long_copies import WORTH, LongCopyFusion
from specrace.ngrams.past import PastOutputs
from tests.parts import step_verdict

# A sentence that the answers copy, and a curve on which each further row costs 0.1.
SENTENCE = tuple(range(10, 26))
CURVE = CostCurve((1, 33), (1.0, 4.2))
PROMPT = (*SENTENCE, 3, 4, *SENTENCE[:4])


def fusion_of(prompt: tuple[int, ...], past: PastOutputs | None = None) -> LongCopyFusion:
    inputs = DrafterInputs(prompt, 99, curve=CURVE, past=past or ())
    return LongCopyFusion(inputs, corpus=False, past=True, recycling=False)


def past_of(count: int) -> PastOutputs:
    """Answers to other questions, each of which copies a sentence of its own prompt to the end."""
    past = PastOutputs()
    for number in range(count):
        copied = tuple(range(100 + 20 * number, 120 + 20 * number))
        past.add(copied[4:], (*copied, 3, 4, *copied[:4]))
    return past


def test_a_failure_gets_likelier_or_less_likely_with_what_came() -> None:
    holding = Holding()
    for _ in range(40):
        holding.record(0.9, held=True)
    assert holding.factor() == pytest.approx(1.0 / 6.0)
    for _ in range(20):
        holding.record(0.9, held=False)
    assert holding.factor() == Holding.HIGHEST
    # The other tokens share what a failure leaves.
    assert holding.revise({1: 0.6, 2: 0.2, 3: 0.2}) == pytest.approx({1: 0.4, 2: 0.3, 3: 0.3})


def test_a_token_that_is_no_likelier_than_the_others_is_neither_corrected_nor_counted() -> None:
    holding = Holding()
    holding.record(0.5, held=False)
    assert holding.factor() == Holding.PRIOR_RATE
    assert holding.revise({1: 0.5, 2: 0.4}) == {1: 0.5, 2: 0.4} and holding.revise({}) == {}


def test_earlier_answers_count_up_to_a_limit_and_are_not_changed() -> None:
    earlier = Holding()
    for _ in range(1000):
        earlier.record(0.9, held=True)
    holding = Holding(earlier)
    assert holding.expected == pytest.approx(Holding.MAX_EARLIER) and holding.factor() == Holding.LOWEST
    holding.record(0.9, held=False)
    assert earlier.failures == Holding.PRIOR * Holding.PRIOR_RATE


def test_earlier_answers_tell_how_often_copies_went_on() -> None:
    """Copies that never break off lower the factor; those that break off raise it; first tokens do not count."""
    faithful, broken = EarlierAnswers(8), EarlierAnswers(8)
    for number in range(6):
        copied = tuple(range(100 + 20 * number, 120 + 20 * number))
        prompt = (*copied, 3, 4, copied[0])
        faithful.add(prompt, copied[1:])
        # A new token ends the copy after every third one.
        parts = [(*copied[index : index + 3], 1000 + 20 * number + index) for index in range(1, 17, 3)]
        broken.add(prompt, [token for part in parts for token in part])
    assert faithful.holding.failures == Holding.PRIOR * Holding.PRIOR_RATE
    assert faithful.holding.factor() < Holding.PRIOR_RATE < broken.holding.factor()
    assert broken.holding.failures > 5
    alone = EarlierAnswers(8)
    alone.add((1, 2, 3, 1), (9, 1, 8, 1))
    assert alone.holding.expected == Holding.PRIOR


def test_later_tokens_are_corrected_and_the_first_is_not() -> None:
    drafter, plain = fusion_of(PROMPT), FusionDrafter(DrafterInputs(PROMPT, 99, curve=CURVE))
    tree, other = drafter.propose(PROMPT, 12), plain.propose(PROMPT, 12)
    assert tree.tokens[:3] == other.tokens[:3] == SENTENCE[3:6]
    assert tree.probs is not None and other.probs is not None
    assert tree.probs[1] == other.probs[1]
    assert 1.0 - tree.probs[2] == pytest.approx(Holding.PRIOR_RATE * (1.0 - other.probs[2]))


def test_what_is_learned_is_whether_drafted_tokens_went_on() -> None:
    for held, factors in ((True, (0.1, 0.5)), (False, (0.5, 1.0))):
        drafter = fusion_of(PROMPT)
        tree = drafter.propose(PROMPT, 8)
        assert tree.is_chain and tree.num_draft >= 3
        targets = list(SENTENCE[4 : 4 + len(tree)]) if held else [tree.tokens[1], *[7] * (len(tree) - 1)]
        drafter.observe(tree, step_verdict(tree, targets))
        low, high = factors
        assert low < drafter.holding.factor() < high


def test_with_earlier_answers_each_token_must_yield_its_worth() -> None:
    """An unsure step drafts less than fusion's, a sure one more, and no cut would have gained more."""
    past = past_of(6)
    drafter = fusion_of(PROMPT, past)
    plain = FusionDrafter(DrafterInputs(PROMPT, 99, curve=CURVE, past=past))
    tree = drafter.propose(PROMPT, 32)
    assert tree.num_draft > plain.propose(PROMPT, 32).num_draft
    assert drafter.growth is not None
    probs, costs = drafter.growth.tree(len(drafter.growth.tokens)).path_probs(), drafter.step_costs.costs
    gains = [sum(probs[: size + 1]) - WORTH * costs[size] for size in range(len(probs))]
    assert gains[tree.num_draft] == max(gains)
    # After 5 came six tokens, each once: none of them is worth a row.
    unsure = tuple(token for follower in range(6) for token in (5, 30 + follower)) + (5,)
    assert fusion_of(unsure, past).propose(unsure, 32).num_draft == 0
    assert FusionDrafter(DrafterInputs(unsure, 99, curve=CURVE, past=past)).propose(unsure, 32).num_draft > 0


def test_a_note_says_how_often_copies_broke_off() -> None:
    drafter = fusion_of(PROMPT)
    assert drafter.note(drafter.propose(PROMPT, 12)).facts["copies break off"] == "0.50 times as often as estimated"
    assert "copies break off" not in drafter.note(drafter.propose(PROMPT, 0)).facts
