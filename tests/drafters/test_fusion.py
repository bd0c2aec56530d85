"""Fusion: a tree by hand, the cut against every other size, the cool-down, each source, and where tokens come from."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrace.core.cost_curve import ASSUMED_CPU, ASSUMED_GPU, ContextCost, CostCurve, assumed_curve
from specrace.core.events import Started
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, verify
from specrace.drafters import METHODS, Drafter
from specrace.drafters.fusion import FusionDrafter
from specrace.drafters.fusion_calibration import Calibration
from specrace.drafters.fusion_payoff import CoolDown, StepCosts
from specrace.drafters.fusion_sources import NUM_TOP
from specrace.engine.generate import generate
from specrace.engine.race import race
from specrace.engine.setup import make_lane
from specrace.engine.spec import RaceSpec, plan_lane
from specrace.ngrams.automaton import NO_STATE, ROOT
from specrace.ngrams.counts import NGramCounts
from specrace.ngrams.past import PastOutputs
from tests.parts import VOCAB, TableTarget, inputs, random_prompt, step_verdict

FREE = CostCurve((1, 65), (1.0, 1.0))
STEEP = CostCurve((1, 2, 64), (1.0, 2.5, 100.0))
# Two and three rows cost more than four, as in fp32 on a CPU.
CLIFF = CostCurve((1, 2, 3, 4, 8, 64), (1.0, 1.5, 1.6, 1.2, 1.5, 5.0))
# Two rows cost less than one.
NOISY = CostCurve((1, 2, 4, 8, 64), (1.0, 0.97, 1.4, 1.3, 3.0))
CURVES = {"gpu": ASSUMED_GPU, "cpu": ASSUMED_CPU, "cliff": CLIFF, "noisy": NOISY, "steep": STEEP}


def fusion(prompt: Sequence[int], curve: CostCurve = FREE, longest: int = 8, **values: Any) -> FusionDrafter:
    options = {name: values.pop(name) for name in ("past_outputs", "recycling", "copy") if name in values}
    options |= {"corpus": True}
    past = options.pop("past_outputs", ())
    return FusionDrafter(inputs(prompt, curve=curve, past=past, **values), longest=longest, **options)


def path_probs(tree: TokenTree) -> list[float]:
    """The path probability of each draft node."""
    assert tree.probs is not None
    probs = [1.0]
    for node in range(1, len(tree)):
        probs.append(probs[tree.parents[node]] * tree.probs[node])
    return probs[1:]


def test_the_tree_by_hand() -> None:
    """After 2 came 3, twice: 2 / (2 + 2 * 1), less the tenth that is not trusted yet. The rest goes by frequency.

    Of 8 tokens, of 4 kinds, 2 is three and 1 is two; a tenth of that is not trusted either. After 3 came 9 and 1:
    1 / (2 + 2 * 2) each.
    """
    prompt = [1, 2, 3, 9, 2, 3, 1, 2]
    tree = fusion(prompt, longest=1).propose(prompt, 5)
    assert tree.tokens == (2, 3, 2, 9, 1, 1) and tree.parents == (-1, 0, 0, 1, 1, 0)
    copied, rest = 0.9 * 2 / 4, 0.9 * (1 - 0.9 * 2 / 4)
    assert tree.probs == pytest.approx((1.0, copied, rest * 3 / 16, 0.9 / 6, 0.9 / 6, rest * 2 / 16))
    assert tree.positions == (-1, 2, -1, 3, 6, -1)


def test_nodes_are_ranked_by_their_path_probability() -> None:
    chance = random.Random(5)
    for _ in range(30):
        prompt = random_prompt(chance)
        probs = path_probs(fusion(prompt).propose(prompt, 40))
        assert probs == sorted(probs, reverse=True)


@settings(deadline=None)
@given(seed=st.integers(0, 400), curve=st.sampled_from(sorted(CURVES)), budget=st.integers(1, 40))
def test_the_cut_is_the_best_of_all_sizes(seed: int, curve: str, budget: int) -> None:
    """Every size of the uncut tree is tried; tokens below the cost floor are left out of both."""
    prompt = random_prompt(random.Random(seed))
    floor = StepCosts(CURVES[curve], budget).floor
    whole = fusion(prompt).propose(prompt, budget)
    sums, total = [1.0], 1.0
    for prob in path_probs(whole):
        if prob < floor:
            break
        total += prob
        sums.append(total)
    costs = StepCosts(CURVES[curve], budget).costs
    gains = [tokens / costs[count] for count, tokens in enumerate(sums)]
    best = max(gains)
    tree = fusion(prompt, CURVES[curve]).propose(prompt, budget)
    assert gains[tree.num_draft] == pytest.approx(best)
    assert tree.tokens == whole.tokens[: len(tree)] and tree.parents == whole.parents[: len(tree)]


@settings(deadline=None)
@given(seed=st.integers(0, 200), depth=st.integers(1, 5))
def test_near_the_length_limit_the_draft_can_count(seed: int, depth: int) -> None:
    """Among the nodes that are not too deep, none that was left out is likelier than one that was taken."""
    prompt = random_prompt(random.Random(seed))
    whole, tree = fusion(prompt).propose(prompt, 400), fusion(prompt).propose(prompt, 12, depth)
    assert max(tree.depths) <= depth
    shallow = sorted(
        (prob for prob, node_depth in zip(path_probs(whole), whole.depths[1:], strict=True) if node_depth <= depth)
    )
    assert path_probs(tree) == pytest.approx(shallow[::-1][:12])


def test_a_dear_row_is_never_bought_and_a_cheap_one_always() -> None:
    prompt = [1, 2, 3, 4] * 6
    assert fusion(prompt, STEEP).propose(prompt, 40).num_draft == 0
    assert fusion(prompt, FREE).propose(prompt, 40).num_draft == 40
    # Three draft tokens cost less than one or two.
    assert fusion([1, 2, 3, 4] * 2, CLIFF).propose([1, 2, 3, 4] * 2, 3).num_draft in (0, 3)


def test_the_machine_that_was_not_measured_is_assumed() -> None:
    assert assumed_curve("cuda") is ASSUMED_GPU and assumed_curve("cpu") is ASSUMED_CPU
    prompt = random_prompt(random.Random(1))
    assert (
        fusion(prompt, ASSUMED_CPU).propose(prompt, 32).num_draft
        < fusion(prompt, ASSUMED_GPU).propose(prompt, 32).num_draft
    )


def test_padded_rows_and_drafting_time_are_paid_for() -> None:
    """Two and three rows are run as four. With a row of 1 ms a draft costs a tenth of it, and a node a fiftieth."""
    assert StepCosts(CLIFF, 4).costs == pytest.approx([1.0, 1.2, 1.2, 1.2, 1.275])
    slow = CostCurve(CLIFF.rows, CLIFF.ratio, (ContextCost(256, 1.0, CLIFF.ratio),))
    assert StepCosts(slow, 4).costs == pytest.approx([1.0, 1.32, 1.34, 1.36, 1.455])


@pytest.mark.parametrize("measured", sorted(CURVES))
def test_no_draft_size_that_could_pay_is_missed(measured: str) -> None:
    """Whether more can pay is decided at the corners of the curve, with the same result as at every size."""
    costs, chance = StepCosts(CURVES[measured], 40), random.Random(3)
    for _ in range(300):
        count, prob, best = chance.randrange(40), chance.random(), 1 + 3 * chance.random()
        tokens = 1 + count * chance.random()
        best = max(best, tokens / costs.costs[count])
        pays = [tokens + prob * (size - count) > best * costs.costs[size] for size in range(count + 1, 41)]
        assert costs.may_pay(count, tokens, prob, best) == any(pays)


# Calibration and the cool-down.


def test_calibration_follows_hits() -> None:
    calibration = Calibration(3)
    assert calibration.factor(2, 0.5) == pytest.approx(0.9)
    for _ in range(40):
        calibration.update(2, 0.9, False)
    assert calibration.factor(2, 0.9) < 0.1
    assert calibration.factor(1, 0.5) == pytest.approx(0.9)
    for _ in range(400):
        calibration.update(3, 0.5, True)
    assert calibration.factor(3, 0.9) * 0.9 == pytest.approx(Calibration.MAX_PROB)


def test_drafts_that_do_not_pay_are_suspended_for_longer_each_time() -> None:
    cool_down, pauses, drafts = CoolDown(), [], 0
    while len(pauses) < 8:
        rested = 0
        while cool_down.skip_step():
            rested += 1
        pauses += [rested] if rested else []
        cool_down.record(1, 2.4)
        drafts += 1
    assert pauses == [4, 8, 16, 32, 64, 128, 192, 192]
    assert drafts == 17
    cool_down.record(20, 2.4)
    assert cool_down.balance == CoolDown.MAX_BALANCE and cool_down.next_pause == CoolDown.SHORTEST


def test_a_pause_ends_early_where_half_of_it_is_predictable() -> None:
    """Each pause ends later, so a text that is predictable only while nothing is drafted costs little, too."""
    cool_down, skipped = CoolDown(), []
    for _ in range(7):
        cool_down.record(1, 3.0)
        steps = 0
        while cool_down.skip_step():
            cool_down.watch(steps > 0)
            steps += 1
        skipped.append(steps)
    assert skipped == [3, 5, 9, 17, 33, 65, 97]
    cool_down.record(1, 3.0)
    while cool_down.skip_step():
        cool_down.watch(False)
        steps += 1
    assert steps == 97 + 192


def test_fusion_drafts_again_once_the_text_copies_again() -> None:
    passage = list(range(2, 60))
    drafter = fusion([*passage, 61], ASSUMED_CPU)
    drafter.cool_down.pause, drafter.cool_down._wake = 100, 4
    context, drafted = [*passage, 61], list[int]()
    for token in passage[10:20]:
        tree = drafter.propose(context, 16)
        drafted.append(tree.num_draft)
        drafter.observe(tree, verify(tree, Scores((token,) * len(tree))))
        context.append(token)
    # The first token is no copy yet, the next four are watched, and the step after them drafts.
    assert drafted[:5] == [0] * 5 and drafted[5] > 0


def test_drafts_that_pay_are_never_suspended() -> None:
    cool_down = CoolDown()
    for tokens in [1, 1, 5] * 50:
        cool_down.record(tokens, 1.7)
        assert not cool_down.skip_step()


def cost_of(drafter: Drafter, prompt: Sequence[int], target_token: Any, steps: int, curve: CostCurve) -> float:
    """Mean cost of a step whose target token is `said(context, tree)` at every node."""
    context, cost = list(prompt), 0.0
    for _ in range(steps):
        tree = drafter.propose(context, 32)
        verdict = verify(tree, Scores(tuple(target_token(context, tree) for _ in range(len(tree)))))
        assert verdict.accepted == 0
        cost += curve.at(len(tree))
        drafter.observe(tree, verdict)
        context.append(verdict.bonus)
    return cost / steps


@pytest.mark.parametrize("curve", [ASSUMED_CPU, CLIFF], ids=["cpu", "cliff"])
def test_a_certain_source_that_is_always_wrong_costs_little(curve: CostCurve) -> None:
    """A prompt of one loop makes every estimate certain; the target enters it again at each step and leaves it."""
    prompt = list(range(2, 12)) * 12

    def contrary(context: Sequence[int], tree: TokenTree) -> int:
        return next(token for token in range(2 + len(context) % 10, 64) if token not in tree.children[0])

    drafter = fusion(prompt, curve)
    assert drafter.propose(prompt, 32).num_draft > 3
    assert cost_of(fusion(prompt, curve), prompt, contrary, 1000, curve) < 1 / 0.97
    restless = fusion(prompt, curve)
    restless.cool_down.skip_step = lambda: False  # type: ignore[method-assign]
    assert cost_of(restless, prompt, contrary, 1000, curve) > 1.1


@pytest.mark.parametrize("curve", [ASSUMED_CPU, CLIFF], ids=["cpu", "cliff"])
def test_a_text_with_no_overlap_costs_what_vanilla_does(curve: CostCurve) -> None:
    chance = random.Random(2)
    prompt = [chance.randrange(2, 20_000) for _ in range(200)]
    drafter = fusion(prompt, curve)
    fresh = iter(range(20_000, 30_000))
    assert cost_of(drafter, prompt, lambda *_: next(fresh), 200, curve) == 1.0


# Sources.


def test_the_corpus_gets_the_escape_mass_of_the_text() -> None:
    corpus = NGramCounts()
    corpus.extend_apart([[20, 21, 22]] * 9)
    assert 21 not in fusion([5, 20]).propose([5, 20], 8).tokens
    tree = fusion([5, 20], corpus=corpus).propose([5, 20], 8)
    assert tree.tokens[1:3] == (21, 22) and tree.positions is not None and tree.positions[1] == -1
    prompt = [20, 6] * 4 + [20]
    assert fusion(prompt, corpus=corpus).propose(prompt, 8).tokens[1] == 6


def test_earlier_outputs_are_copied_and_their_ends_are_not_drafted() -> None:
    past = ((7, 8, 9), (7, 8, 9), (7, 8))
    tree = fusion([1, 7], past_outputs=past).propose([1, 7], 20)
    assert tree.tokens[1] == 8 and 9 in tree.tokens and min(tree.tokens) >= 0
    drafter = fusion([1, 2], past_outputs=past)
    bare = drafter.propose([1, 2], 0)
    drafter.observe(bare, step_verdict(bare, [7]))
    assert drafter.propose([1, 2, 7], 20).tokens[1] == 8


def test_of_prompt_and_earlier_outputs_the_longer_match_goes_first() -> None:
    past = ((1, 2, 3), (1, 2, 3))
    assert fusion([4, 2, 9, 1, 2], past_outputs=past).propose([4, 2, 9, 1, 2], 1).tokens == (2, 3)
    assert fusion([1, 2, 9, 1, 2], past_outputs=((5, 2, 3),) * 2).propose([1, 2, 9, 1, 2], 1).tokens == (2, 9)


def test_how_outputs_begin_is_remembered_after_how_their_prompts_end() -> None:
    past = PastOutputs()
    past.add((8, 9), prompt=(1, 2, 3, 6))
    tree = fusion([4, 5, 6], past_outputs=past).propose([4, 5, 6], 20)
    assert tree.tokens[:2] == (6, 8) and 9 in tree.children[1]
    assert list(past) == [(8, 9)], "a prompt is no output"


def test_automata_of_earlier_outputs_are_shared_and_grow() -> None:
    past = PastOutputs([(1, 2)], max_outputs=4)
    automaton = past.automaton(5)
    past.add((1, 3))
    assert past.automaton(5) is automaton and automaton.counts[automaton.successor(ROOT, 1)] == 2
    for token in range(10, 13):
        past.add((token,))
    assert [output[0] for output in past] == [10, 11, 12] and past.automaton(5).successor(ROOT, 1) == NO_STATE


def test_what_the_target_thought_likely_is_recycled() -> None:
    drafter = fusion([4, 5], recycling=True)
    tree = TokenTree((5, 6), (-1, 0))
    scores = Scores((9, 12), ((9, 10), (12, 13)))
    drafter.observe(tree, verify(tree, scores))
    likely = drafter.propose([4, 5, 9], 8)
    assert likely.tokens[0] == 9
    nine = TokenTree((9,), (-1,))
    drafter.observe(nine, step_verdict(nine, [6]))
    # 6 was rejected; after it the target's likeliest were 12 and 13.
    first = drafter.propose([4, 5, 9, 6], 8)
    assert [first.tokens[node] for node in first.children[0].values()][:2] == [12, 13]


def test_copied_are_the_logits_where_the_last_two_tokens_stood() -> None:
    """6 stood after 5, where 11 was likely, and later after 7, where 12 was; now 5 and 6 come again."""
    after_five = {}
    for options in ({"recycling": True}, {"copy": True}):
        drafter = fusion([4, 5], **options)
        tree = TokenTree((5, 6, 7, 6), (-1, 0, 0, 2))
        drafter.observe(tree, verify(tree, Scores((9, 11, 0, 12), ((9, 10), (11, 13), (0, 1), (12, 14)))))
        bare = TokenTree.chain(9)
        drafter.observe(bare, step_verdict(bare, [5]))
        bare = TokenTree.chain(5)
        drafter.observe(bare, step_verdict(bare, [6]))
        first = drafter.propose([4, 5, 9, 5, 6], 8)
        after_five[next(iter(options))] = [first.tokens[node] for node in first.children[0].values()][:2]
        assert "the model's likely tokens before" in [row.label for row in drafter.note(first).rows]
    assert after_five == {"recycling": [12, 14], "copy": [11, 13]}


def test_where_copying_was_wrong_the_recycled_estimates_are_calibrated() -> None:
    drafter = fusion([4, 5], copy=True)
    assert drafter.recycled is not None
    drafter.recycled.rows = {(5,): (8, 9)}
    tree = drafter.propose([4, 5], 4)
    assert tree.tokens[:3] == (5, 8, 9)
    drafter.observe(tree, step_verdict(tree, [9, 0, 0, 0, 0]))
    assert drafter.recycled.hits[1] == 5.0 and drafter.recycled.expected[1] == pytest.approx(4.375)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("method", ["recycling", "fusion"])
def test_copied_or_not_the_text_is_vanillas(method: str, temperature: float) -> None:
    target, prompt = TableTarget(order=1), (3, 4, 5, 3, 4, 5, 3, 4)
    lanes = [("vanilla", {}), (method, {"copy": False}), (method, {"copy": True})]
    texts, steps = [], []
    for lane, options in lanes:
        lane_steps = list(generate(target, lane, prompt, max_new_tokens=32, temperature=temperature, seed=3, **options))
        texts.append([token for step in lane_steps for token in step.emitted])
        steps.append(len(lane_steps))
    assert texts[0] == texts[1] == texts[2] and steps[2] < steps[0]


def test_only_a_drafter_that_recycles_asks_for_likely_tokens() -> None:
    for name in ("recycling", "corpus"):
        assert [METHODS["fusion"].defaults(device)[name] for device in ("cpu", "cuda")] == [False, True]
    target = TableTarget()
    prefix = target.prefill([2, 3, 4])
    for value, num_top in ((False, 0), (True, NUM_TOP)):
        spec = RaceSpec(("fusion",), options={"fusion": {"recycling": value}})
        lane = make_lane(target, "fusion", prefix, inputs([2, 3, 4]), spec)
        assert lane.session.num_top == num_top  # type: ignore[attr-defined]


@given(seed=st.integers(0, 200))
def test_every_position_is_the_tokens_place_after_its_parent(seed: int) -> None:
    """In the prompt and in the output, because the page shows where a draft comes from."""
    text = list(random_prompt(random.Random(seed)))
    drafter = fusion(text[:5])
    for token in text[5:]:
        bare = TokenTree.chain(text[0])
        drafter.observe(bare, step_verdict(bare, [token]))
    tree = drafter.propose(text, 30)
    assert tree.positions is not None
    for node in range(1, len(tree)):
        position = tree.positions[node]
        if position >= 0:
            assert text[position] == tree.tokens[node] and text[position - 1] == tree.tokens[tree.parents[node]]


def test_its_size_is_not_set_by_a_profile_but_by_the_curve_it_is_given() -> None:
    """A race hands over the machine's curve; where rows are too dear, only the bare root is drafted."""
    target, prompt = TableTarget(), [2, 3, 4] * 6
    assert plan_lane(RaceSpec(("fusion",)), "fusion", "cpu", STEEP).num_draft == METHODS["fusion"].budget("cpu", {})
    drafted = {}
    for name, curve in (("free", FREE), ("steep", STEEP)):
        events = list(race(target, prompt, RaceSpec(("fusion",), max_new_tokens=24), curve=curve))
        assert isinstance(events[0], Started)
        drafted[name] = sum(step.tree.num_draft for step in events[1:-1] if step.lane == "fusion")  # type: ignore[union-attr]
    assert drafted["steep"] == 0 < drafted["free"]
    assert VOCAB > 24


def test_the_curve_of_a_generation_reaches_it() -> None:
    """Where a second row costs twenty times the first, nothing pays, however well the text repeats itself."""
    target, prompt = TableTarget(), [2, 3, 4, 5] * 8
    steep = CostCurve((1, 2, 64), (1.0, 20.0, 40.0))
    drafted = [step.tree.num_draft for step in generate(target, "fusion", prompt, max_new_tokens=24, curve=steep)]
    assert drafted == [0] * 24
    assert any(step.tree.num_draft for step in generate(target, "fusion", prompt, max_new_tokens=24))


# Tests that kill mutants of fusion.


def test_candidates_that_do_not_pay_together_are_not_drafted() -> None:
    """Three draft tokens cost as much as one: the first is a candidate, the next are too unlikely."""
    curve = CostCurve((1, 2, 3, 4, 8, 64), (1.0, 1.5, 1.6, 1.3, 1.5, 5.0))
    prompt = [*(token for after in range(20, 30) for token in (5, after)), 3]
    drafter = fusion(prompt, curve)
    tree = drafter.propose(prompt, 3)
    assert tree.num_draft == 0 and drafter.note(tree).facts["candidates"] == 1


def test_the_corpus_is_asked_with_the_two_tokens_before_each_guess() -> None:
    corpus = NGramCounts()
    corpus.extend_apart([[20, 21, 22]] * 9 + [[25, 21, 30]] * 30)
    assert fusion([5, 20], corpus=corpus).propose([5, 20], 8).tokens[:3] == (20, 21, 22)
    assert fusion([20, 21], corpus=corpus).propose([20, 21], 1).tokens == (21, 22)
    assert fusion([25, 21], corpus=corpus).propose([25, 21], 1).tokens == (21, 30)
    assert fusion([21], corpus=corpus).propose([21], 1).tokens == (21, 30)


def test_two_sources_of_a_token_add_up() -> None:
    """The text: 1/3, of which a tenth is not trusted; the corpus 3/5 of what that leaves."""
    corpus = NGramCounts()
    corpus.extend_apart([[1, 2]] * 3)
    tree = fusion([1, 2, 1], corpus=corpus).propose([1, 2, 1], 1)
    assert tree.tokens == (1, 2) and tree.probs == pytest.approx((1.0, 0.3 + 0.7 * 0.6))


def test_a_sure_copy_of_the_text_yields_to_a_longer_match_in_earlier_outputs() -> None:
    prompt = [2, 3] * 20 + [1, 2]
    assert fusion(prompt).propose(prompt, 1).tokens == (2, 3)
    assert fusion(prompt, past_outputs=((1, 2, 9),) * 4).propose(prompt, 1).tokens == (2, 9)


def test_the_place_in_earlier_outputs_is_followed_through_accepted_drafts() -> None:
    """However much of a draft was accepted, the match covers the whole earlier output so far."""
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    for accepted in (0, 1, 2):
        drafter = fusion([11, 1, 2], past_outputs=(text,) * 3)
        tree = drafter.propose([11, 1, 2], 2)
        assert tree.tokens == (2, 3, 4) and tree.is_chain
        targets = [*text[2 : 2 + accepted], text[2 + accepted], *[0] * 3][: len(tree)]
        if accepted < 2:
            tree = tree.cut(accepted)
            targets = targets[: len(tree)]
        drafter.observe(tree, step_verdict(tree, targets))
        context = [11, *text[: 3 + accepted]]
        labels = [row.label for row in drafter.note(drafter.propose(context, 1)).rows]
        assert labels == [f"earlier outputs, {len(context) - 1} tokens matched"]


def test_estimates_are_judged_by_what_came() -> None:
    """After 2 came 3 twice, 1/2; after 3 came 9 or 1. The likeliest token came, then a frequent one instead."""
    prompt = [1, 2, 3, 9, 2, 3, 1, 2]
    drafter = fusion(prompt, longest=1)
    tree = drafter.propose(prompt, 1)
    assert tree.tokens == (2, 3)
    drafter.observe(tree, step_verdict(tree, [3, 2]))
    # The last node of a draft has no children, so no estimate of its is judged.
    assert drafter.calibration.hits == pytest.approx([3.6, 4.6, 2.0])
    assert drafter.calibration.expected == pytest.approx([4.0, 4.5, 4.0])
    second = fusion(prompt, longest=1)
    tree = second.propose(prompt, 1)
    second.observe(tree, step_verdict(tree, [9, 0]))
    assert second.calibration.hits == pytest.approx([4.6, 3.6, 2.0])
    assert second.calibration.expected == pytest.approx([4.5, 4.5, 4.0])
    third = fusion(prompt, longest=1)
    tree = third.propose(prompt, 1)
    third.observe(tree, step_verdict(tree, [30, 0]))
    assert third.calibration.hits == pytest.approx([3.6, 3.6, 2.0])


def first_level(tree: TokenTree) -> dict[int, float]:
    """Token -> probability of the root's children."""
    assert tree.probs is not None
    return {token: tree.probs[node] for token, node in tree.children[0].items()}


def test_a_sure_copy_by_hand() -> None:
    """After 1 came 2 twenty times: 20/22, less a tenth. 21 of the 41 tokens, of two kinds, are 1."""
    prompt = [1, 2] * 20 + [1]
    drafter = fusion(prompt, longest=1)
    tree = drafter.propose(prompt, 40)
    share = 0.9 * 20 / 22
    assert first_level(tree) == pytest.approx({2: share, 1: (1 - share) * 0.9 * 21 / 45})
    drafter.observe(tree.cut(0), step_verdict(tree.cut(0), [2]))
    assert (drafter.calibration.hits[1], drafter.calibration.expected[1]) == pytest.approx((4.6, 4 + 20 / 22))


def test_text_and_earlier_outputs_by_hand() -> None:
    """Earlier outputs go first as far as they match longer, then the text, then earlier outputs again."""
    prompt, past = [2, 3, 1, 2], ((1, 2, 9), (5, 2, 8), (5, 2, 8))
    drafter = fusion(prompt, past_outputs=past)
    tree = drafter.propose(prompt, 1)
    assert tree.tokens == (2, 9) and tree.probs == pytest.approx((1.0, 0.5 * (1 / 3 + 4 / 9 / 7)))
    wide = first_level(fusion(prompt, past_outputs=past).propose(prompt, 40))
    assert wide[3] == pytest.approx(0.5 * 2 / 9) and wide[8] == pytest.approx(0.5 * 4 / 9 * 2 / 7)
    drafter.observe(tree, step_verdict(tree, [9, 0]))
    assert (
        drafter.calibration.expected[8 + 2] == pytest.approx(4 + 1 / 3 + 4 / 63)
        and drafter.calibration.hits[8 + 2] == 3.0
    )
    assert drafter.calibration.expected[6] == 4.0


def test_of_matches_as_long_the_text_is_asked_first_and_judged() -> None:
    drafter = fusion([1, 2, 1], past_outputs=((1, 3),))
    tree = drafter.propose([1, 2, 1], 40)
    assert tree.tokens[1] == 2
    drafter.observe(tree.cut(0), step_verdict(tree.cut(0), [2]))
    assert drafter.calibration.hits[1] == 4.6 and drafter.calibration.hits[9] == 2.0


def test_where_the_longer_contexts_leave_little_the_shorter_are_not_asked() -> None:
    """1 2 was followed by 3 or 4 forty times, which leaves 4/44; 2 alone also by 5, which counts as frequent only."""
    text = [1, 2, 3] * 38 + [1, 2, 4] * 2 + [9, 2, 5] * 3 + [1, 2]
    level = first_level(fusion(text).propose(text, 1500))
    assert level[5] == pytest.approx((1 - 0.9 * 40 / 44) * 0.9 * 3 / (len(text) + 2 * 6))
    prompt, past = [1, 2, 3, 1, 2], ((1, 2, 9),) * 18 + ((5, 2, 8),) * 18
    level = first_level(fusion(prompt, past_outputs=past).propose(prompt, 40))
    assert 9 in level and 8 not in level


def test_the_likeliest_is_judged_not_the_first_nor_the_highest() -> None:
    for followers in ([5, 4, 4], [5, 4, 4, 9]):
        prompt = [token for follower in followers for token in (2, follower)] + [2]
        drafter = fusion(prompt, longest=1)
        tree = drafter.propose(prompt, 1)
        drafter.observe(tree, step_verdict(tree, [4, 0]))
        assert tree.tokens == (2, 4) and drafter.calibration.hits[1] == 4.6


def test_frequent_tokens_are_calibrated() -> None:
    """Two tokens came that are not among them: half of what was expected twice did not come."""
    prompt = [1, 2, 3, 9, 2, 3, 1, 2]
    drafter = fusion(prompt, longest=1)
    for root, target_token in ((2, 30), (30, 31)):
        tree = drafter.propose([*prompt, root], 1).cut(0)
        drafter.observe(tree, step_verdict(tree, [target_token]))
    tree = drafter.propose([*prompt, 30, 31], 1)
    assert tree.tokens == (31, 2) and tree.probs == pytest.approx((1.0, 3.6 / 5.0 * 3 / 16))


def test_frequent_tokens_are_recounted() -> None:
    drafter = fusion([1, 2, 3])
    for token in range(100, 120):
        bare = drafter.propose([token], 0)
        drafter.observe(bare, step_verdict(bare, [30 if token % 2 else token]))
    assert drafter.propose([30, 500], 1).num_draft <= 1
    drafter.observe(TokenTree.chain(30), step_verdict(TokenTree.chain(30), [500]))
    assert drafter.propose([30, 500], 1).tokens == (500, 30)


def test_other_sources_are_asked_where_the_text_knows_nothing() -> None:
    prompt = list(range(100, 700))
    corpus = NGramCounts()
    corpus.extend_apart([[699, 5]] * 9)
    assert fusion(prompt).propose(prompt, 4).num_draft == 0
    assert fusion(prompt, corpus=corpus).propose(prompt, 1).tokens == (699, 5)
    all_sources = fusion(prompt, corpus=corpus, recycling=True, past_outputs=((1, 2),))
    assert all_sources.propose(prompt, 1).tokens == (699, 5)


def test_a_text_of_one_token_has_none_before_it() -> None:
    corpus = NGramCounts()
    corpus.extend_apart([[1, 5, 9]] * 9 + [[2, 5, 8]] * 30)
    assert fusion([5], corpus=corpus).propose([5], 1).tokens == (5, 8)


def test_earlier_outputs_may_be_left_aside_and_match_as_far_as_the_text_does() -> None:
    drafter_inputs = inputs((1, 2, 3), past=((1, 2, 3, 4),) * 2)
    assert FusionDrafter(drafter_inputs, past=False).past is None and FusionDrafter(inputs((1, 2, 3))).past is None
    drafter = FusionDrafter(inputs((1, 2), past=((1, 2, 3, 4, 5),) * 2), longest=2)
    for context in ([1, 2], [1, 2, 3], [1, 2, 3, 4]):
        tree = drafter.propose(context, 1)
        assert [row.label for row in drafter.note(tree).rows] == ["earlier outputs, 2 tokens matched"]
        drafter.observe(tree.cut(0), step_verdict(tree.cut(0), [len(context) + 1]))


def test_the_corpus_is_off_by_default() -> None:
    assert FusionDrafter(inputs((1, 2), corpus=NGramCounts())).corpus is None


def test_all_that_matches_longer_in_earlier_outputs_goes_before_the_text() -> None:
    """4 1 2 was followed by 9, 1 2 by 9 and by 8; of the text only 2 matches."""
    prompt, past = [2, 3, 4, 1, 2], ((4, 1, 2, 9), (7, 1, 2, 8))
    level = first_level(fusion(prompt, past_outputs=past).propose(prompt, 40))
    # 3, from the text, takes a third of what both leave; each of the two takes another sixth of the rest.
    share = 2 / 3 / 6 + 2 / 3 * 4 / 6 * 2 / 3 / 6
    assert level[8] == pytest.approx(0.5 * share) and level[9] == pytest.approx(0.5 * (1 / 3 + share))


@settings(deadline=None)
@given(seed=st.integers(0, 400), curve=st.sampled_from(sorted(CURVES)), budget=st.integers(1, 40))
def test_a_chain_is_the_likeliest_child_of_each_node(seed: int, curve: str, budget: int) -> None:
    """A tree grows best first, so the first child that a node gets is its likeliest."""
    prompt = random_prompt(random.Random(seed))
    chain = FusionDrafter(inputs(prompt, curve=CURVES[curve]), chain=True).propose(prompt, budget)
    wide = FusionDrafter(inputs(prompt, curve=FREE)).propose(prompt, 400)
    assert chain.is_chain and chain.num_draft <= budget
    node = 0
    for token in chain.tokens[1:]:
        if node not in wide.parents:
            break  # below the lowest probability that a tree of this size looks at
        node = wide.parents.index(node)
        assert wide.tokens[node] == token


def test_a_chain_goes_deeper_than_a_tree_of_its_size() -> None:
    prompt = [1, 2, 3, 9, 2, 3, 1, 2, 4, 2, 3]
    tree, chain = (FusionDrafter(inputs(prompt, curve=FREE), chain=on).propose(prompt, 5) for on in (False, True))
    assert tree.num_draft == chain.num_draft == 5 == max(chain.depths) > max(tree.depths)
