"""Long copies: how often copies continue is learned; what that changes in a tree, and where drafts are cut.

A `Holding` counts failures: a copy's first token was right, and a later one is not. Its factor, failures over expected
failures, multiplies the probability of a failure.
"""

from __future__ import annotations

import random
from itertools import accumulate, pairwise

import pytest

from specrace.core.cost_curve import CostCurve
from specrace.drafters.base import DrafterInputs
from specrace.drafters.fusion.copies import EarlierAnswers
from specrace.drafters.fusion.drafter import FusionDrafter
from specrace.drafters.fusion.holding import Holding
from specrace.drafters.fusion.long_copies import WORTH, LongCopyFusion
from specrace.ngrams.counts import NGramCounts
from specrace.ngrams.past import PastOutputs
from tests.parts import step_verdict

# A sentence that the answers copy, and a curve on which each further row costs a tenth of the first.
SENTENCE = tuple(range(10, 26))
CURVE = CostCurve((1, 33), (1.0, 4.2))
PROMPT = (*SENTENCE, 3, 4, *SENTENCE[:4])


def fusion_of(prompt: tuple[int, ...], past: PastOutputs | None = None, curve: CostCurve = CURVE) -> LongCopyFusion:
    """The drafter under test, which copies from the prompt and from `past`, over a vocabulary of 99 tokens."""
    inputs = DrafterInputs(prompt, vocab_size=99, curve=curve, past=past or ())
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
    # One failure of two expected is the prior; 40 tokens with a probability of 0.9 add four expected failures.
    for _ in range(40):
        holding.record(0.9, held=True)
    assert holding.factor() == pytest.approx(1.0 / 6.0)
    for _ in range(20):
        holding.record(0.9, held=False)
    assert holding.factor() == Holding.HIGHEST
    # A failure of 1, estimated at 0.4, is 1.5 times as likely, and so are the other tokens.
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
    # A few failures are taken over unchanged.
    few = Holding()
    for _ in range(3):
        few.record(0.9, held=False)
    assert (Holding(few).expected, Holding(few).failures) == (few.expected, few.failures)


def test_earlier_answers_tell_how_often_copies_went_on() -> None:
    """Copies that never break off lower the factor, and others raise it; a copy's first token does not count."""
    faithful, broken = EarlierAnswers(8), EarlierAnswers(8)
    for number in range(6):
        copied = tuple(range(100 + 20 * number, 120 + 20 * number))
        prompt = (*copied, 3, 4, copied[0])
        faithful.add(prompt, copied[1:])
        # A new token ends the copy after every third one.
        spans = [(*copied[index : index + 3], 1000 + 20 * number + index) for index in range(1, 17, 3)]
        broken.add(prompt, [token for span in spans for token in span])
    assert faithful.holding.failures == Holding.PRIOR * Holding.PRIOR_RATE
    assert faithful.holding.factor() < Holding.PRIOR_RATE < broken.holding.factor()
    assert broken.holding.failures > 5
    single = EarlierAnswers(8)
    single.add((1, 2, 3, 1), (9, 1, 8, 1))
    assert single.holding.expected == Holding.PRIOR
    # A single correct prediction, which follows no other, is not counted.
    single.add((*SENTENCE, 3, 4, *SENTENCE[:4]), SENTENCE[4:5])
    assert single.holding.expected == Holding.PRIOR


def test_what_is_expected_of_a_copy_is_what_earlier_answers_taught() -> None:
    """Copies that never break off are expected to fail less with each answer."""
    answers, expected = EarlierAnswers(8), [Holding.PRIOR]
    for number in range(4):
        copied = tuple(range(100 + 20 * number, 120 + 20 * number))
        answers.add((*copied, 3, 4, copied[0]), copied[1:])
        expected.append(answers.holding.expected)
    added = [after - before for before, after in pairwise(expected)]
    assert added == sorted(added, reverse=True) and added[-1] < 0.8 * added[0]


def test_the_likeliest_token_counts_and_not_the_one_with_the_highest_id() -> None:
    """4 5 was followed by 6 three times, and by 9 once."""
    prompt = (4, 5, 6) * 3 + (4, 5, 9, 4)
    answers = EarlierAnswers(8)
    answers.add(prompt, (5, 6))
    assert answers.holding.expected > Holding.PRIOR and answers.holding.failures == Holding.PRIOR * Holding.PRIOR_RATE
    drafter = fusion_of(prompt)
    tree = drafter.propose(prompt, 2)
    drafter.observe(tree, step_verdict(tree, (5, 6, 7)))
    assert tree.tokens == (4, 5, 6) and drafter.holding.expected > Holding.PRIOR
    assert drafter.holding.failures == Holding.PRIOR * Holding.PRIOR_RATE


def test_later_tokens_are_corrected_and_the_first_is_not() -> None:
    drafter, plain = fusion_of(PROMPT), FusionDrafter(DrafterInputs(PROMPT, vocab_size=99, curve=CURVE))
    tree, plain_tree = drafter.propose(PROMPT, 12), plain.propose(PROMPT, 12)
    assert tree.tokens[:3] == plain_tree.tokens[:3] == SENTENCE[3:6]
    assert tree.probs is not None and plain_tree.probs is not None
    assert tree.probs[1] == plain_tree.probs[1]
    assert 1.0 - tree.probs[2] == pytest.approx(Holding.PRIOR_RATE * (1.0 - plain_tree.probs[2]))


def test_what_is_learned_is_whether_drafted_tokens_went_on() -> None:
    # The bounds of the factor, which is 0.5 at first; a copy that does not hold breaks off after its first token.
    for held, factors in ((True, (0.1, 0.5)), (False, (0.5, 1.0))):
        drafter = fusion_of(PROMPT)
        tree = drafter.propose(PROMPT, 8)
        assert tree.is_chain and tree.num_draft >= 3
        targets = list(SENTENCE[4 : 4 + len(tree)]) if held else [tree.tokens[1], *[7] * (len(tree) - 1)]
        drafter.observe(tree, step_verdict(tree, targets))
        low, high = factors
        assert low < drafter.holding.factor() < high


def test_with_earlier_answers_each_token_must_yield_its_worth() -> None:
    """An unsure step drafts less than plain fusion, a sure one more, and no other cut gains more.

    A token's worth, `WORTH`, is the number of tokens that it must yield for the cost of a one-row forward.
    """
    past = past_of(6)
    drafter = fusion_of(PROMPT, past)
    plain = FusionDrafter(DrafterInputs(PROMPT, vocab_size=99, curve=CURVE, past=past))
    tree = drafter.propose(PROMPT, 32)
    assert tree.num_draft > plain.propose(PROMPT, 32).num_draft
    assert drafter.growth is not None
    probs, costs = drafter.growth.tree(len(drafter.growth.tokens)).path_probs(), drafter.step_costs.costs
    gains = [sum(probs[: size + 1]) - WORTH * costs[size] for size in range(len(probs))]
    assert gains[tree.num_draft] == max(gains)
    # 5 was followed by six tokens, once each: none of them is worth a row.
    unsure = tuple(token for follower in range(6) for token in (5, 30 + follower)) + (5,)
    assert fusion_of(unsure, past).propose(unsure, 32).num_draft == 0
    assert FusionDrafter(DrafterInputs(unsure, vocab_size=99, curve=CURVE, past=past)).propose(unsure, 32).num_draft > 0


def test_a_first_token_is_as_likely_as_fusion_says_and_later_ones_as_earlier_answers_did() -> None:
    past = past_of(6)
    drafter = fusion_of(PROMPT, past)
    plain = FusionDrafter(DrafterInputs(PROMPT, vocab_size=99, curve=CURVE, past=past))
    tree, plain_tree = drafter.propose(PROMPT, 12), plain.propose(PROMPT, 12)
    assert tree.probs is not None and plain_tree.probs is not None and tree.probs[1] == plain_tree.probs[1]
    assert drafter.holding.expected > Holding.PRIOR and drafter.holding.factor() < Holding.PRIOR_RATE


def test_the_frequent_tokens_of_a_text_are_as_likely_as_fusion_says() -> None:
    """After a new token only frequent tokens are drafted, and these have been wrong so far."""
    context = (1, 2, 1, 3) * 8 + (50,)
    inputs = DrafterInputs(context, vocab_size=99, past=past_of(1))
    drafters = LongCopyFusion(inputs, corpus=False, past=True, recycling=False), FusionDrafter(inputs)
    for drafter in drafters:
        for _ in range(4):
            drafter.calibration.learn(0, 1, 0.5, 7)
    trees = [drafter.propose(context, 2) for drafter in drafters]
    assert trees[0].tokens[:2] == (50, 1) and trees[0].probs is not None and trees[1].probs is not None
    assert trees[0].probs[1] == trees[1].probs[1]


@pytest.mark.parametrize("has_earlier", [False, True])
def test_the_corpus_is_read_with_the_last_two_tokens_of_each_path(has_earlier: bool) -> None:
    """20 21 is followed by 22, and 21 mostly by 30."""
    corpus = NGramCounts()
    corpus.extend_apart([[20, 21, 22, 23]] * 9 + [[25, 21, 30]] * 30 + [[26, 22, 31]] * 30)
    past = past_of(1) if has_earlier else ()
    for context, drafted in (((5, 20), (21, 22, 23)), ((20, 21), (22, 23))):
        inputs = DrafterInputs(context, vocab_size=99, corpus=corpus, past=past)
        drafter = LongCopyFusion(inputs, corpus=True, past=True, recycling=False)
        assert drafter.propose(context, 8).tokens[1 : 1 + len(drafted)] == drafted


CURVES = (
    CURVE,
    CostCurve((1, 2, 3, 5, 9, 17), (1.0, 1.3, 1.32, 1.34, 1.9, 2.0)),
    CostCurve((1, 4, 5, 16), (1.0, 1.05, 1.4, 1.5)),
)


@pytest.mark.parametrize("seed", range(6))
def test_the_cut_gains_the_most_of_all_cuts(seed: int) -> None:
    """On a flat curve every candidate is drafted, so the uncut tree contains every possible cut."""
    rng = random.Random(seed)
    text = tuple(token for _ in range(12) for token in (*rng.choice(((1, 2, 3, 4, 5), (3, 4, 6, 2))), rng.randrange(9)))
    past = PastOutputs()
    past.add(text[20:40], text[:20])
    num_draft, num_cut = 0, 0
    for end in range(30, len(text)):
        prompt = text[:end]
        uncut = fusion_of(prompt, past, CostCurve((1, 33), (1.0, 1.0))).propose(prompt, 24)
        for curve in CURVES:
            drafter = fusion_of(prompt, past, curve)
            tree = drafter.propose(prompt, 24)
            costs, floor = drafter.step_costs.costs, drafter.step_costs.floor
            # Tokens less likely than the floor are no candidates on this curve.
            sums = accumulate(prob for prob in uncut.path_probs() if prob >= floor)
            gains = [total - WORTH * (costs[size] - 1.0) for size, total in enumerate(sums)]
            assert tree.tokens == uncut.tokens[: len(tree)]
            assert gains[tree.num_draft] == pytest.approx(max(gains), abs=1e-9)
            num_draft += tree.num_draft
            num_cut += tree.num_draft < uncut.num_draft
    assert num_draft and num_cut


def test_a_note_says_how_often_copies_broke_off() -> None:
    drafter = fusion_of(PROMPT)
    assert drafter.note(drafter.propose(PROMPT, 12)).facts["copies break off"] == "0.50 times as often as estimated"
    assert "copies break off" not in drafter.note(drafter.propose(PROMPT, 0)).facts
