"""Fusion: worked examples, the cut compared with every other size, the cool-down, and each source.

A `bare` tree is a root without a draft. The escape mass is the probability that a source leaves to the sources after
it; the floor is the lowest probability with which a token may pay.
"""

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
from specrace.drafters.fusion.calibration import Calibration
from specrace.drafters.fusion.drafter import FusionDrafter
from specrace.drafters.fusion.payoff import CoolDown, StepCosts
from specrace.drafters.fusion.sources import NUM_TOP
from specrace.engine.generate import generate
from specrace.engine.race import race
from specrace.engine.setup import RaceSetup
from specrace.engine.spec import RaceSpec, plan_lane
from specrace.ngrams.automaton import NO_STATE, ROOT
from specrace.ngrams.counts import NGramCounts
from specrace.ngrams.past import PastOutputs
from tests.parts import TableTarget, inputs, random_prompt, step_verdict

# Cost curves: measured numbers of rows, and what a forward over them costs, in forwards over one row.
# More rows cost nothing.
FREE = CostCurve((1, 65), (1.0, 1.0))
# A second row costs more than a whole step.
STEEP = CostCurve((1, 2, 64), (1.0, 2.5, 100.0))
# Two and three rows cost more than four, as in fp32 on a CPU.
CLIFF = CostCurve((1, 2, 3, 4, 8, 64), (1.0, 1.5, 1.6, 1.2, 1.5, 5.0))
# Two rows cost less than one.
NOISY = CostCurve((1, 2, 4, 8, 64), (1.0, 0.97, 1.4, 1.3, 3.0))
CURVES = {"gpu": ASSUMED_GPU, "cpu": ASSUMED_CPU, "cliff": CLIFF, "noisy": NOISY, "steep": STEEP}


def fusion(
    prompt: Sequence[int],
    curve: CostCurve = FREE,
    longest: int = 8,
    past_outputs: Any = (),
    corpus: NGramCounts | None = None,
    **options: bool,
) -> FusionDrafter:
    """A fusion drafter that reads `corpus`, if there is one, with further options."""
    drafter_inputs = inputs(prompt, curve=curve, past=past_outputs, corpus=corpus)
    return FusionDrafter(drafter_inputs, longest=longest, corpus=True, **options)


def path_probs(tree: TokenTree) -> list[float]:
    """The path probability of each draft node."""
    assert tree.probs is not None
    probs = [1.0]
    for node in range(1, len(tree)):
        probs.append(probs[tree.parents[node]] * tree.probs[node])
    return probs[1:]


def test_worked_example_of_a_tree() -> None:
    """A token that came c of n times, among k kinds of tokens, gets c / (n + 2 k), times 0.9 before any calibration.

    2 was followed by 3 twice: 2 / (2 + 2 * 1). The rest is split by frequency: of the 8 tokens, of 4 kinds, three are 2
    and two are 1. 3 was followed by 9 and 1, once each: 1 / (2 + 2 * 2).
    """
    prompt = [1, 2, 3, 9, 2, 3, 1, 2]
    tree = fusion(prompt, longest=1).propose(prompt, 5)
    assert tree.tokens == (2, 3, 2, 9, 1, 1) and tree.parents == (-1, 0, 0, 1, 1, 0)
    copied = 0.9 * 2 / 4
    frequent = 0.9 * (1 - copied)
    assert tree.probs == pytest.approx((1.0, copied, frequent * 3 / 16, 0.9 / 6, 0.9 / 6, frequent * 2 / 16))
    # Where in the prompt a token was copied from; the frequent tokens 2 and 1 are no copies.
    assert tree.positions == (-1, 2, -1, 3, 6, -1)


def test_nodes_are_ranked_by_their_path_probability() -> None:
    rng = random.Random(5)
    for _ in range(30):
        prompt = random_prompt(rng)
        probs = path_probs(fusion(prompt).propose(prompt, 40))
        assert probs == sorted(probs, reverse=True)


@settings(deadline=None)
@given(seed=st.integers(0, 400), curve=st.sampled_from(sorted(CURVES)), budget=st.integers(1, 40))
def test_the_cut_has_the_best_gain_of_all_sizes(seed: int, curve: str, budget: int) -> None:
    """Every size of the uncut tree is tried. Tokens below the cost floor are left out of both trees."""
    prompt = random_prompt(random.Random(seed))
    floor = StepCosts(CURVES[curve], budget).floor
    uncut = fusion(prompt).propose(prompt, budget)
    # The expected tokens of a step, the bonus token included, by draft size.
    sums, total = [1.0], 1.0
    for prob in path_probs(uncut):
        if prob < floor:
            break
        total += prob
        sums.append(total)
    costs = StepCosts(CURVES[curve], budget).costs
    gains = [tokens / costs[count] for count, tokens in enumerate(sums)]
    best = max(gains)
    tree = fusion(prompt, CURVES[curve]).propose(prompt, budget)
    assert gains[tree.num_draft] == pytest.approx(best)
    assert tree.tokens == uncut.tokens[: len(tree)] and tree.parents == uncut.parents[: len(tree)]


@settings(deadline=None)
@given(seed=st.integers(0, 200), depth=st.integers(1, 5))
def test_near_the_length_limit_the_likeliest_shallow_nodes_are_drafted(seed: int, depth: int) -> None:
    """Of the nodes that are not too deep, the likeliest are drafted."""
    prompt = random_prompt(random.Random(seed))
    uncut, tree = fusion(prompt).propose(prompt, 400), fusion(prompt).propose(prompt, 12, depth)
    assert max(tree.depths) <= depth
    nodes = zip(path_probs(uncut), uncut.depths[1:], strict=True)
    shallow_probs = [prob for prob, node_depth in nodes if node_depth <= depth]
    assert path_probs(tree) == pytest.approx(sorted(shallow_probs, reverse=True)[:12])


def test_expensive_rows_are_not_drafted_but_free_rows_are() -> None:
    prompt = [1, 2, 3, 4] * 6
    assert fusion(prompt, STEEP).propose(prompt, 40).num_draft == 0
    assert fusion(prompt, FREE).propose(prompt, 40).num_draft == 40
    # Three draft tokens cost less than one or two.
    assert fusion([1, 2, 3, 4] * 2, CLIFF).propose([1, 2, 3, 4] * 2, 3).num_draft in (0, 3)


def test_an_unmeasured_machine_has_an_assumed_curve() -> None:
    assert assumed_curve("cuda") is ASSUMED_GPU and assumed_curve("cpu") is ASSUMED_CPU
    prompt = random_prompt(random.Random(1))
    on_cpu, on_gpu = fusion(prompt, ASSUMED_CPU), fusion(prompt, ASSUMED_GPU)
    assert on_cpu.propose(prompt, 32).num_draft < on_gpu.propose(prompt, 32).num_draft


def test_costs_include_padded_rows_and_drafting_time() -> None:
    """Two and three rows are padded to four. If a row takes 1 ms, drafting costs 1/10 of a row and 1/50 a node.

    Five rows cost 1.275: a quarter of the way from 1.2, for four rows, to 1.5, for eight.
    """
    assert StepCosts(CLIFF, 4).costs == pytest.approx([1.0, 1.2, 1.2, 1.2, 1.275])
    # After a prompt of 256 tokens, a row takes 1 ms.
    one_ms_curve = CostCurve(CLIFF.rows, CLIFF.ratio, (ContextCost(256, 1.0, CLIFF.ratio),))
    assert StepCosts(one_ms_curve, 4).costs == pytest.approx([1.0, 1.32, 1.34, 1.36, 1.455])


@pytest.mark.parametrize("curve", sorted(CURVES))
def test_no_draft_size_that_could_pay_is_missed(curve: str) -> None:
    """`may_pay` tries only the measured row counts, with the same result as trying every draft size."""
    costs, rng = StepCosts(CURVES[curve], 40), random.Random(3)
    for _ in range(300):
        count, prob, best = rng.randrange(40), rng.random(), 1 + 3 * rng.random()
        tokens = 1 + count * rng.random()
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


def test_each_pause_is_twice_as_long_as_the_last() -> None:
    cool_down, pauses, drafts = CoolDown(), [], 0
    while len(pauses) < 8:
        pause = 0
        while cool_down.skip_step():
            pause += 1
        if pause:
            pauses.append(pause)
        cool_down.record(1, 2.4)
        drafts += 1
    assert pauses == [4, 8, 16, 32, 64, 128, 192, 192]
    # Two drafts lose 2.8 tokens, which starts a pause; the last draft follows the eighth pause.
    assert drafts == 17
    cool_down.record(20, 2.4)
    assert cool_down.balance == CoolDown.MAX_BALANCE and cool_down.next_pause == CoolDown.SHORTEST


def test_a_pause_ends_early_after_correct_predictions() -> None:
    """Later pauses are still longer, so a text that is predictable only during pauses costs little."""
    cool_down, skipped = CoolDown(), []
    for _ in range(7):
        cool_down.record(1, 3.0)
        steps = 0
        # The prediction at a pause's first step is wrong, all others are right.
        while cool_down.skip_step():
            cool_down.watch(steps > 0)
            steps += 1
        skipped.append(steps)
    assert skipped == [3, 5, 9, 17, 33, 65, 97]
    # A pause without a right prediction has its full length. `steps` still counts the last pause, of 97 steps.
    cool_down.record(1, 3.0)
    while cool_down.skip_step():
        cool_down.watch(False)
        steps += 1
    assert steps == 97 + 192


def test_fusion_drafts_again_once_the_text_copies_again() -> None:
    passage = list(range(2, 60))
    drafter = fusion([*passage, 61], ASSUMED_CPU)
    # A pause of 100 steps, which four right predictions in a row end.
    drafter.cool_down.pause, drafter.cool_down._hits_to_resume = 100, 4
    context, drafted = [*passage, 61], list[int]()
    for token in passage[10:20]:
        tree = drafter.propose(context, 16)
        drafted.append(tree.num_draft)
        drafter.observe(tree, verify(tree, Scores((token,) * len(tree))))
        context.append(token)
    # The first token is not a copy yet. The next four are predicted correctly, and the step after them drafts.
    assert drafted[:5] == [0] * 5 and drafted[5] > 0


def test_a_step_without_candidates_interrupts_correct_predictions() -> None:
    """61 is new, so nothing is predicted after it, and the next correct prediction is the first in a row again."""
    passage = list(range(2, 60))
    drafter = fusion([*passage, 61], ASSUMED_CPU)
    # A pause of 100 steps, which four right predictions in a row end; three have come.
    drafter.cool_down.pause, drafter.cool_down._hits_to_resume = 100, 4
    for _ in range(3):
        drafter.cool_down.watch(True)
    context, looked_up = [*passage, 61], list[bool]()
    for token in passage[10:12]:
        tree = drafter.propose(context, 16)
        looked_up.append(drafter.growth is not None)
        drafter.observe(tree, verify(tree, Scores((token,) * len(tree))))
        context.append(token)
    # Each of the two steps shortens the pause by one; three hits and then one do not end it.
    assert looked_up == [False, True] and drafter.cool_down.pause == 98


def test_drafts_that_pay_are_never_paused() -> None:
    cool_down = CoolDown()
    for tokens in [1, 1, 5] * 50:
        cool_down.record(tokens, 1.7)
        assert not cool_down.skip_step()


def mean_step_cost(drafter: Drafter, prompt: Sequence[int], target_token: Any, steps: int, curve: CostCurve) -> float:
    """The mean cost of `steps` steps whose drafts are all rejected.

    The target's token at every node is `target_token(context, tree)`, which must not be a draft token.
    """
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
    """The prompt repeats one loop, so every estimate is certain, but the target rejects every draft."""
    prompt = list(range(2, 12)) * 12

    def rejecting_token(context: Sequence[int], tree: TokenTree) -> int:
        return next(token for token in range(2 + len(context) % 10, 64) if token not in tree.children[0])

    drafter = fusion(prompt, curve)
    assert drafter.propose(prompt, 32).num_draft > 3
    # At most 3 % slower than vanilla.
    assert mean_step_cost(fusion(prompt, curve), prompt, rejecting_token, 1000, curve) < 1 / 0.97
    without_cool_down = fusion(prompt, curve)
    without_cool_down.cool_down.skip_step = lambda: False  # type: ignore[method-assign]
    assert mean_step_cost(without_cool_down, prompt, rejecting_token, 1000, curve) > 1.1


@pytest.mark.parametrize("curve", [ASSUMED_CPU, CLIFF], ids=["cpu", "cliff"])
def test_a_text_without_matches_costs_what_vanilla_does(curve: CostCurve) -> None:
    rng = random.Random(2)
    prompt = [rng.randrange(2, 20_000) for _ in range(200)]
    drafter = fusion(prompt, curve)
    new_tokens = iter(range(20_000, 30_000))
    assert mean_step_cost(drafter, prompt, lambda *_: next(new_tokens), 200, curve) == 1.0


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


def test_the_longer_match_in_text_or_earlier_outputs_comes_first() -> None:
    past = ((1, 2, 3), (1, 2, 3))
    assert fusion([4, 2, 9, 1, 2], past_outputs=past).propose([4, 2, 9, 1, 2], 1).tokens == (2, 3)
    assert fusion([1, 2, 9, 1, 2], past_outputs=((5, 2, 3),) * 2).propose([1, 2, 9, 1, 2], 1).tokens == (2, 9)


def test_the_start_of_an_earlier_output_follows_the_end_of_its_prompt() -> None:
    past = PastOutputs()
    past.add((8, 9), prompt=(1, 2, 3, 6))
    tree = fusion([4, 5, 6], past_outputs=past).propose([4, 5, 6], 20)
    assert tree.tokens[:2] == (6, 8) and 9 in tree.children[1]
    assert list(past) == [(8, 9)], "the prompt is not an output"


def test_outputs_added_during_a_request_are_copied_once_they_are_read() -> None:
    prompt, past = [4, 2, 9, 1, 2], PastOutputs([(1, 2, 3), (1, 2, 3)])
    with_outputs, without_outputs = fusion(prompt, past_outputs=past), fusion(prompt)
    for output in ((4, 1, 2, 7, 8), (9, 1, 2, 7, 8), (5, 1, 2, 7, 8)):
        past.add(output)
    assert fusion(prompt, past_outputs=past).propose(prompt, 3).tokens[:3] == (2, 7, 8)
    for drafter in (with_outputs, without_outputs):
        # A draft was made and is not yet verified.
        drafter.propose(prompt, 3)
        drafter.read_past(past)
        assert drafter.propose(prompt, 3).tokens[:3] == (2, 7, 8)
        drafter.propose(prompt, 3)
        drafter.read_past(past)
        bare = TokenTree.chain(2)
        drafter.observe(bare, step_verdict(bare, [7]))
        assert drafter.propose([*prompt, 7], 1).tokens == (7, 8)


def test_automata_of_earlier_outputs_are_shared_and_grow() -> None:
    past = PastOutputs([(1, 2)], max_outputs=4)
    automaton = past.automaton(5)
    past.add((1, 3))
    assert past.automaton(5) is automaton and automaton.counts[automaton.successor(ROOT, 1)] == 2
    # The fifth output is one too many, so the older two of the first four are dropped.
    for token in range(10, 13):
        past.add((token,))
    assert [output[0] for output in past] == [10, 11, 12] and past.automaton(5).successor(ROOT, 1) == NO_STATE


def test_the_targets_likely_tokens_are_recycled() -> None:
    drafter = fusion([4, 5], recycling=True)
    tree = TokenTree((5, 6), (-1, 0))
    scores = Scores((9, 12), ((9, 10), (12, 13)))
    drafter.observe(tree, verify(tree, scores))
    assert drafter.propose([4, 5, 9], 8).tokens[0] == 9
    bare = TokenTree.chain(9)
    drafter.observe(bare, step_verdict(bare, [6]))
    # 6 was rejected in the first step; 12 and 13 were the target's likeliest tokens after it.
    tree = drafter.propose([4, 5, 9, 6], 8)
    assert [tree.tokens[node] for node in tree.children[0].values()][:2] == [12, 13]


def test_copy_drafts_the_likely_tokens_after_the_last_two_tokens() -> None:
    """11 and 13 were likely after 5 6, and later 12 and 14 after 7 6; now 5 6 comes again."""
    first_drafts = {}
    for option in ("recycling", "copy"):
        drafter = fusion([4, 5], **{option: True})
        tree = TokenTree((5, 6, 7, 6), (-1, 0, 0, 2))
        drafter.observe(tree, verify(tree, Scores((9, 11, 0, 12), ((9, 10), (11, 13), (0, 1), (12, 14)))))
        bare = TokenTree.chain(9)
        drafter.observe(bare, step_verdict(bare, [5]))
        bare = TokenTree.chain(5)
        drafter.observe(bare, step_verdict(bare, [6]))
        tree = drafter.propose([4, 5, 9, 5, 6], 8)
        first_drafts[option] = [tree.tokens[node] for node in tree.children[0].values()][:2]
        assert "the model's likely tokens before" in [row.label for row in drafter.note(tree).rows]
    assert first_drafts == {"recycling": [12, 14], "copy": [11, 13]}


def test_recycled_estimates_are_calibrated_where_no_copy_was_right() -> None:
    drafter = fusion([4, 5], copy=True)
    assert drafter.recycled is not None
    drafter.recycled.rows = {(5,): (8, 9)}
    tree = drafter.propose([4, 5], 4)
    assert tree.tokens[:3] == (5, 8, 9)
    drafter.observe(tree, step_verdict(tree, [9, 0, 0, 0, 0]))
    # The prior is 4 hits of 4 expected. It gets one hit, and the two estimates, 0.25 and 0.125, as expected hits.
    assert drafter.recycled.hits[1] == 5.0 and drafter.recycled.expected[1] == pytest.approx(4.375)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("method", ["recycling", "fusion"])
def test_the_output_is_vanillas_with_and_without_copy(method: str, temperature: float) -> None:
    target, prompt = TableTarget(order=1), (3, 4, 5, 3, 4, 5, 3, 4)
    lanes = [("vanilla", {}), (method, {"copy": False}), (method, {"copy": True})]
    texts, steps = [], []
    for lane, options in lanes:
        lane_steps = list(generate(target, lane, prompt, max_new_tokens=32, temperature=temperature, seed=3, **options))
        texts.append([token for step in lane_steps for token in step.emitted])
        steps.append(len(lane_steps))
    assert texts[0] == texts[1] == texts[2] and steps[2] < steps[0]


def test_likely_tokens_are_requested_only_with_recycling() -> None:
    for name in ("recycling", "corpus"):
        assert [METHODS["fusion"].defaults(device)[name] for device in ("cpu", "cuda")] == [False, True]
    target = TableTarget()
    prefix = target.prefill([2, 3, 4])
    for value, num_top in ((False, 0), (True, NUM_TOP)):
        spec = RaceSpec(("fusion",), options={"fusion": {"recycling": value}})
        lane = RaceSetup(target, (2, 3, 4), prefix, spec).make_lane("fusion")
        assert lane.session.num_top == num_top  # type: ignore[attr-defined]


@given(seed=st.integers(0, 200))
def test_positions_are_indices_of_the_token_after_its_parent(seed: int) -> None:
    """The indices are in prompt and output, because the page shows where a draft token was copied from."""
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


def test_the_cost_curve_decides_the_draft_size() -> None:
    """A race passes the machine's curve to fusion. If rows are too expensive, nothing is drafted."""
    target, prompt = TableTarget(), [2, 3, 4] * 6
    assert plan_lane(RaceSpec(("fusion",)), "fusion", "cpu", STEEP).num_draft == METHODS["fusion"].budget("cpu", {})
    drafted = {}
    for name, curve in (("free", FREE), ("steep", STEEP)):
        events = list(race(target, prompt, RaceSpec(("fusion",), max_new_tokens=24), curve=curve))
        assert isinstance(events[0], Started)
        drafted[name] = sum(step.tree.num_draft for step in events[1:-1] if step.lane == "fusion")  # type: ignore[union-attr]
    assert drafted["steep"] == 0 < drafted["free"]


def test_generate_passes_the_cost_curve_to_fusion() -> None:
    """If a second row costs twenty times the first, nothing is drafted, even though the text repeats itself."""
    target, prompt = TableTarget(), [2, 3, 4, 5] * 8
    steep_curve = CostCurve((1, 2, 64), (1.0, 20.0, 40.0))
    drafted = [step.tree.num_draft for step in generate(target, "fusion", prompt, max_new_tokens=24, curve=steep_curve)]
    assert drafted == [0] * 24
    assert any(step.tree.num_draft for step in generate(target, "fusion", prompt, max_new_tokens=24))


# Details that only these tests check: without one of them, a mutant of fusion would go unnoticed (see tests/mutation).


def test_candidates_that_do_not_pay_together_are_not_drafted() -> None:
    """One to three draft tokens cost the same. The first is a candidate, but the next are too unlikely to pay."""
    curve = CostCurve((1, 2, 3, 4, 8, 64), (1.0, 1.5, 1.6, 1.3, 1.5, 5.0))
    prompt = [*(token for after in range(20, 30) for token in (5, after)), 3]
    drafter = fusion(prompt, curve)
    tree = drafter.propose(prompt, 3)
    assert tree.num_draft == 0 and drafter.note(tree).facts["candidates"] == 1


def test_the_corpus_is_read_with_the_last_two_tokens_of_each_path() -> None:
    corpus = NGramCounts()
    corpus.extend_apart([[20, 21, 22]] * 9 + [[25, 21, 30]] * 30)
    assert fusion([5, 20], corpus=corpus).propose([5, 20], 8).tokens[:3] == (20, 21, 22)
    assert fusion([20, 21], corpus=corpus).propose([20, 21], 1).tokens == (21, 22)
    assert fusion([25, 21], corpus=corpus).propose([25, 21], 1).tokens == (21, 30)
    assert fusion([21], corpus=corpus).propose([21], 1).tokens == (21, 30)


def test_estimates_of_two_sources_add_up() -> None:
    """The text gives 1/3, times 0.9 before any calibration; the corpus gives 3/5 of the other 0.7."""
    corpus = NGramCounts()
    corpus.extend_apart([[1, 2]] * 3)
    tree = fusion([1, 2, 1], corpus=corpus).propose([1, 2, 1], 1)
    assert tree.tokens == (1, 2) and tree.probs == pytest.approx((1.0, 0.3 + 0.7 * 0.6))


def test_a_longer_match_in_earlier_outputs_comes_before_a_certain_copy() -> None:
    prompt = [2, 3] * 20 + [1, 2]
    assert fusion(prompt).propose(prompt, 1).tokens == (2, 3)
    assert fusion(prompt, past_outputs=((1, 2, 9),) * 4).propose(prompt, 1).tokens == (2, 9)


def test_the_match_in_earlier_outputs_grows_with_accepted_drafts() -> None:
    """After any number of accepted draft tokens, the match covers all output tokens so far."""
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    for accepted in (0, 1, 2):
        drafter = fusion([11, 1, 2], past_outputs=(text,) * 3)
        tree = drafter.propose([11, 1, 2], 2)
        assert tree.tokens == (2, 3, 4) and tree.is_chain
        # 2 is the pending token, so `text[2:]` comes next: the accepted draft tokens and a bonus token.
        targets = [*text[2 : 3 + accepted], 0, 0, 0][: len(tree)]
        if accepted < 2:
            tree = tree.cut(accepted)
            targets = targets[: len(tree)]
        drafter.observe(tree, step_verdict(tree, targets))
        context = [11, *text[: 3 + accepted]]
        labels = [row.label for row in drafter.note(drafter.propose(context, 1)).rows]
        assert labels == [f"earlier outputs, {len(context) - 1} tokens matched"]


def test_calibration_counts_whether_the_likeliest_token_came() -> None:
    """After 2, the token 3 is expected with probability 1/2.

    What comes is 3 for the first drafter, the frequent token 9 for the second, and the new token 30 for the third.
    """
    prompt = [1, 2, 3, 9, 2, 3, 1, 2]
    drafter = fusion(prompt, longest=1)
    tree = drafter.propose(prompt, 1)
    assert tree.tokens == (2, 3)
    drafter.observe(tree, step_verdict(tree, [3, 2]))
    # By length: 0 for frequent tokens, 1 for a match in the text, 2 for a match in earlier outputs. They start with
    # 3.6, 3.6 and 2 hits of 4. The last node of a draft has no children and so no prediction.
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


def root_children(tree: TokenTree) -> dict[int, float]:
    """The probability of each of the root's children, by token."""
    assert tree.probs is not None
    return {token: tree.probs[node] for token, node in tree.children[0].items()}


def test_worked_example_of_a_certain_copy() -> None:
    """1 was followed by 2 twenty times: 20/22, times 0.9. Of the 41 tokens, of two kinds, 21 are 1."""
    prompt = [1, 2] * 20 + [1]
    drafter = fusion(prompt, longest=1)
    tree = drafter.propose(prompt, 40)
    share = 0.9 * 20 / 22
    assert root_children(tree) == pytest.approx({2: share, 1: (1 - share) * 0.9 * 21 / 45})
    drafter.observe(tree.cut(0), step_verdict(tree.cut(0), [2]))
    assert (drafter.calibration.hits[1], drafter.calibration.expected[1]) == pytest.approx((4.6, 4 + 20 / 22))


def test_worked_example_of_text_and_earlier_outputs() -> None:
    """First come longer contexts in earlier outputs, then the text, then shorter contexts in earlier outputs.

    In earlier outputs 9 followed 1 2 once: 1/3. The text gives 3 a third of the other 2/3, which leaves 4/9. Of these,
    9 gets 1/7 and 8 gets 2/7, as they followed 2 once and twice. All is halved, as matches in earlier outputs are
    before any calibration.
    """
    prompt, past = [2, 3, 1, 2], ((1, 2, 9), (5, 2, 8), (5, 2, 8))
    drafter = fusion(prompt, past_outputs=past)
    tree = drafter.propose(prompt, 1)
    assert tree.tokens == (2, 9) and tree.probs == pytest.approx((1.0, 0.5 * (1 / 3 + 4 / 9 / 7)))
    children = root_children(fusion(prompt, past_outputs=past).propose(prompt, 40))
    assert children[3] == pytest.approx(0.5 * 2 / 9) and children[8] == pytest.approx(0.5 * 4 / 9 * 2 / 7)
    drafter.observe(tree, step_verdict(tree, [9, 0]))
    # A match of two tokens in earlier outputs is counted at `longest` + 2.
    assert drafter.calibration.expected[8 + 2] == pytest.approx(4 + 1 / 3 + 4 / 63)
    assert drafter.calibration.hits[8 + 2] == 3.0
    assert drafter.calibration.expected[6] == 4.0


def test_of_equally_long_matches_the_text_comes_first() -> None:
    drafter = fusion([1, 2, 1], past_outputs=((1, 3),))
    tree = drafter.propose([1, 2, 1], 40)
    assert tree.tokens[1] == 2
    drafter.observe(tree.cut(0), step_verdict(tree.cut(0), [2]))
    # The hit is added to the 3.6 of the text, and not to the 2 of earlier outputs.
    assert drafter.calibration.hits[1] == 4.6 and drafter.calibration.hits[9] == 2.0


def test_shorter_contexts_are_skipped_once_little_mass_is_left() -> None:
    """1 2 was followed by 3 or 4 forty times, which leaves 4/44 of the mass to shorter contexts.

    So 5, which followed 2 but not 1 2, gets only the share of a frequent token.
    """
    text = [1, 2, 3] * 38 + [1, 2, 4] * 2 + [9, 2, 5] * 3 + [1, 2]
    children = root_children(fusion(text).propose(text, 1500))
    assert children[5] == pytest.approx((1 - 0.9 * 40 / 44) * 0.9 * 3 / (len(text) + 2 * 6))
    # In earlier outputs, too, 8 followed 2 but not 1 2.
    prompt, past = [1, 2, 3, 1, 2], ((1, 2, 9),) * 18 + ((5, 2, 8),) * 18
    children = root_children(fusion(prompt, past_outputs=past).propose(prompt, 40))
    assert 9 in children and 8 not in children


def test_the_likeliest_token_is_calibrated_not_the_first_or_largest() -> None:
    for followers in ([5, 4, 4], [5, 4, 4, 9]):
        prompt = [token for follower in followers for token in (2, follower)] + [2]
        drafter = fusion(prompt, longest=1)
        tree = drafter.propose(prompt, 1)
        drafter.observe(tree, step_verdict(tree, [4, 0]))
        # One hit is added to the prior's 3.6.
        assert tree.tokens == (2, 4) and drafter.calibration.hits[1] == 4.6


def test_frequent_tokens_are_calibrated() -> None:
    """Twice an infrequent token comes where a frequent one was expected with probability 0.5."""
    prompt = [1, 2, 3, 9, 2, 3, 1, 2]
    drafter = fusion(prompt, longest=1)
    for root, target_token in ((2, 30), (30, 31)):
        tree = drafter.propose([*prompt, root], 1).cut(0)
        drafter.observe(tree, step_verdict(tree, [target_token]))
    tree = drafter.propose([*prompt, 30, 31], 1)
    assert tree.tokens == (31, 2) and tree.probs == pytest.approx((1.0, 3.6 / 5.0 * 3 / 16))


def test_frequent_tokens_are_updated_as_the_text_grows() -> None:
    drafter = fusion([1, 2, 3])
    # Every second output token is 30, and the others are new.
    for token in range(100, 120):
        bare = drafter.propose([token], 0)
        drafter.observe(bare, step_verdict(bare, [30 if token % 2 else token]))
    assert drafter.propose([30, 500], 1).num_draft <= 1
    drafter.observe(TokenTree.chain(30), step_verdict(TokenTree.chain(30), [500]))
    assert drafter.propose([30, 500], 1).tokens == (500, 30)


def test_other_sources_draft_where_the_text_has_no_match() -> None:
    prompt = list(range(100, 700))
    corpus = NGramCounts()
    corpus.extend_apart([[699, 5]] * 9)
    assert fusion(prompt).propose(prompt, 4).num_draft == 0
    assert fusion(prompt, corpus=corpus).propose(prompt, 1).tokens == (699, 5)
    all_sources = fusion(prompt, corpus=corpus, recycling=True, past_outputs=((1, 2),))
    assert all_sources.propose(prompt, 1).tokens == (699, 5)


def test_a_text_of_one_token_uses_the_corpus_bigram() -> None:
    corpus = NGramCounts()
    corpus.extend_apart([[1, 5, 9]] * 9 + [[2, 5, 8]] * 30)
    assert fusion([5], corpus=corpus).propose([5], 1).tokens == (5, 8)


def test_earlier_outputs_can_be_disabled_and_match_up_to_longest_tokens() -> None:
    drafter_inputs = inputs((1, 2, 3), past=((1, 2, 3, 4),) * 2)
    assert FusionDrafter(drafter_inputs, past=False).past is None and FusionDrafter(inputs((1, 2, 3))).past is None
    drafter = FusionDrafter(inputs((1, 2), past=((1, 2, 3, 4, 5),) * 2), longest=2)
    for context in ([1, 2], [1, 2, 3], [1, 2, 3, 4]):
        tree = drafter.propose(context, 1)
        assert [row.label for row in drafter.note(tree).rows] == ["earlier outputs, 2 tokens matched"]
        drafter.observe(tree.cut(0), step_verdict(tree.cut(0), [len(context) + 1]))


def test_the_corpus_is_off_by_default() -> None:
    assert FusionDrafter(inputs((1, 2), corpus=NGramCounts())).corpus is None


def test_all_longer_contexts_in_earlier_outputs_come_before_the_text() -> None:
    """4 1 2 was followed by 9, and 1 2 by 9 and by 8. In the text only 2 matches."""
    prompt, past = [2, 3, 4, 1, 2], ((4, 1, 2, 9), (7, 1, 2, 8))
    children = root_children(fusion(prompt, past_outputs=past).propose(prompt, 40))
    # 4 1 2 leaves 2/3, of which 8 and 9 get a sixth each after 1 2. From what is left the text's 3 gets a third, and of
    # the rest 8 and 9 get another sixth each.
    share = 2 / 3 / 6 + 2 / 3 * 4 / 6 * 2 / 3 / 6
    assert children[8] == pytest.approx(0.5 * share) and children[9] == pytest.approx(0.5 * (1 / 3 + share))


@settings(deadline=None)
@given(seed=st.integers(0, 400), curve=st.sampled_from(sorted(CURVES)), budget=st.integers(1, 40))
def test_a_chain_is_the_likeliest_child_of_each_node(seed: int, curve: str, budget: int) -> None:
    """A tree always adds the likeliest node next, so the first child that a node gets is its likeliest."""
    prompt = random_prompt(random.Random(seed))
    chain = FusionDrafter(inputs(prompt, curve=CURVES[curve]), chain=True).propose(prompt, budget)
    tree = FusionDrafter(inputs(prompt, curve=FREE)).propose(prompt, 400)
    assert chain.is_chain and chain.num_draft <= budget
    node = 0
    for token in chain.tokens[1:]:
        if node not in tree.parents:
            break  # the next token is too unlikely for a tree of this size
        node = tree.parents.index(node)
        assert tree.tokens[node] == token


def test_a_chain_goes_deeper_than_a_tree_of_its_size() -> None:
    prompt = [1, 2, 3, 9, 2, 3, 1, 2, 4, 2, 3]
    tree = FusionDrafter(inputs(prompt, curve=FREE)).propose(prompt, 5)
    chain = FusionDrafter(inputs(prompt, curve=FREE), chain=True).propose(prompt, 5)
    assert tree.num_draft == chain.num_draft == max(chain.depths) == 5
    assert max(tree.depths) < 5


def test_only_the_corpus_option_reads_the_documents() -> None:
    assert [METHODS["fusion"].corpus_part_with({"corpus": corpus}) for corpus in (True, False)] == ["corpus", ""]


def test_a_new_curve_cuts_the_next_draft() -> None:
    prompt = [1, 2, 3, 4] * 6
    drafter = fusion(prompt, FREE)
    for curve, num_draft in ((STEEP, 0), (FREE, 20)):
        drafter.change_curve(curve)
        assert drafter.propose(prompt, 20).num_draft == num_draft


def test_an_index_of_the_same_size_is_another_one_if_an_output_was_dropped() -> None:
    past = PastOutputs([(1, 2, 3)], max_outputs=1)
    drafter = fusion([4, 1, 2], past_outputs=past)
    drafter.propose([4, 1, 2], 1)
    growth = drafter.growth
    drafter.read_past(past)
    assert drafter.growth is growth, "nothing was added, so the draft is still the same"
    past.add((1, 2, 7))
    drafter.read_past(past)
    assert drafter.propose([4, 1, 2], 1).tokens == (2, 7)


def test_a_step_that_may_not_draft_says_nothing_about_predictions() -> None:
    drafter = fusion([1, 2, 3, 1, 2])
    # A pause of 100 steps, which four right predictions in a row end; three have come.
    drafter.cool_down.pause, drafter.cool_down._hits_to_resume = 100, 4
    for _ in range(3):
        drafter.cool_down.watch(True)
    bare = drafter.propose([1, 2], 0)
    drafter.observe(bare, step_verdict(bare, [9]))
    assert drafter.cool_down.pause == 100
    drafter.cool_down.watch(True)
    assert drafter.cool_down.pause == 0


def test_a_note_says_how_long_a_pause_is() -> None:
    drafter = fusion([1, 2, 3, 1, 2])
    drafter.cool_down.pause, drafter.cool_down._hits_to_resume = 6, 6
    assert drafter.note(drafter.propose([1, 2], 4)).facts["why"] == "earlier drafts did not pay; none for 5 more steps"


def test_a_draft_of_another_drafter_calibrates_the_prediction_at_the_root() -> None:
    """Counts and matches are then those of a fusion drafter that observed the same text in its own steps."""
    prompt, past = [1, 2, 3, 9, 1, 2], ((1, 2, 9, 4, 5),) * 2
    follower, drafter = fusion(prompt, past_outputs=past), fusion(prompt, past_outputs=past)
    follower.propose(prompt, 4)
    other = TokenTree.chain(2, [9, 4])
    follower.follow(other, step_verdict(other, [9, 4, 7]))
    context = list(prompt)
    for token in (9, 4, 7):
        drafter.propose(context, 4 if token == 9 else 0)
        bare = TokenTree.chain(context[-1])
        drafter.observe(bare, step_verdict(bare, [token]))
        context.append(token)
    assert follower.calibration.hits == drafter.calibration.hits
    assert follower.calibration.expected == drafter.calibration.expected
    assert follower._past_match == drafter._past_match
    assert follower.propose(context, 8).tokens == drafter.propose(context, 8).tokens


def test_after_another_drafters_step_earlier_outputs_are_matched_with_what_came() -> None:
    """Fusion expected 3, the other drafter 8; the next draft continues the 9 that came."""
    prompt = [1, 2, 3, 1, 2]
    drafter = fusion(prompt, past_outputs=((1, 2, 3, 4), (9, 6, 7)) * 2)
    assert drafter.propose(prompt, 4).tokens[1] == 3
    other = TokenTree.chain(2, [8])
    drafter.follow(other, step_verdict(other, [9, 0]))
    assert drafter.propose([*prompt, 9], 4).tokens[:2] == (9, 6)


def test_a_copied_row_of_likely_tokens_belongs_to_the_two_tokens_before() -> None:
    drafter, context = fusion([5, 6], copy=True), [5, 6]
    for token in (5, 6, 9):
        drafter.propose(context, 2)
        bare = TokenTree.chain(context[-1])
        drafter.observe(bare, step_verdict(bare, [token]))
        context.append(token)
    assert drafter.recycled is not None
    assert drafter.recycled.rows == {(5, 6): (9,), (6, 5): (6,), (6,): (9,), (5,): (6,)}
    # The third step used the row after 5 6, and 9 was not in it.
    assert drafter.recycled.hits == [4.0] * 3
    assert drafter.recycled.expected[1] == 4.0 < drafter.recycled.expected[2]


def test_before_a_texts_first_token_is_none() -> None:
    drafter = fusion([6], copy=True)
    bare = drafter.propose([6], 0)
    drafter.observe(bare, step_verdict(bare, [7]))
    # -1 stands for the missing token before 6.
    assert drafter.recycled is not None and set(drafter.recycled.rows) == {(-1, 6), (6,)}
