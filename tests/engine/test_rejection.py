"""Rejection sampling in a race: which lanes use it, what they record, and the distribution of their text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from specrace.core.errors import InputError
from specrace.core.events import Event, Finished, Started, Step
from specrace.core.rejection import NOTE, Coins, warp_probs
from specrace.core.sampling_params import SamplingParams
from specrace.drafters import METHODS, DrafterInputs
from specrace.engine.generate import generate
from specrace.engine.lane import Lane
from specrace.engine.race import race
from specrace.engine.recording import from_json, to_json
from specrace.engine.spec import RaceSpec, plan_lane
from specrace.views.frames import RaceView
from specrace.views.headlines import final_badge
from tests.parts import CopyingModel, TableTarget, softmax

PROMPT = (2, 3, 4, 2, 3, 5, 2, 3)
LANES = ("vanilla", "bigram", "trigram", "trie")
REJECTION: dict[str, Any] = {"temperature": 0.8, "verifier": "rejection", "max_new_tokens": 24}


@pytest.fixture(scope="module")
def target() -> TableTarget:
    return TableTarget(order=1)


@pytest.fixture(scope="module")
def events(target: TableTarget) -> list[Event]:
    return list(race(target, PROMPT, RaceSpec(LANES, **REJECTION)))


def steps_of(events: Iterable[Event], lane: str) -> list[Step]:
    return [event for event in events if isinstance(event, Step) and event.lane == lane]


def test_lanes_that_can_sample_take_the_rule_and_the_others_match(events: list[Event]) -> None:
    started, finished = events[0], events[-1]
    assert isinstance(started, Started) and isinstance(finished, Finished)
    assert {info.lane: info.verifier for info in started.lanes} == {
        "vanilla": "match", "bigram": "rejection", "trigram": "rejection", "trie": "match",
    }  # fmt: skip
    assert started.about["settings"]["verifier"] == "rejection"
    assert started.lanes[1].options["sampled"] is True
    for result in finished.lanes:
        rejecting = result.lane in ("bigram", "trigram")
        assert result.identical is (None if rejecting else True)
        assert result.note == (NOTE if rejecting else "") and result.first_difference is None
        assert result.tokens == 24


def test_every_verified_guess_has_its_p_its_q_and_its_coin(events: list[Event]) -> None:
    assert all(step.checks is None for lane in ("vanilla", "trie") for step in steps_of(events, lane))
    for lane in ("bigram", "trigram"):
        steps = steps_of(events, lane)
        for step in steps:
            assert step.checks is not None and step.tree.probs is not None
            accepted = [check.accepted for check in step.checks]
            assert accepted == [True] * step.verdict.accepted + [False] * (len(accepted) - step.verdict.accepted)
            assert len(accepted) == min(step.verdict.accepted + 1, step.tree.num_draft)
            assert [check.q for check in step.checks] == list(step.tree.probs[1 : len(accepted) + 1])
            assert all(0 <= check.p <= 1 and 0 <= check.coin < 1 for check in step.checks)
            assert from_json(to_json(step)) == step
        outcomes = {check.accepted for step in steps for check in step.checks or ()}
        assert outcomes == {True, False}


def test_p_is_the_targets_own_at_that_place(target: TableTarget, events: list[Event]) -> None:
    context = list(PROMPT)
    for step in steps_of(events, "trigram"):
        assert step.checks is not None
        path = [*context, *step.tree.tokens[1:]]
        for index, check in enumerate(step.checks):
            before = path[: len(context) + index]
            probs = warp_probs(softmax(target.logits(before)), SamplingParams(0.8))
            assert check.p == pytest.approx(probs[path[len(before)]])
        context += step.emitted


def test_the_same_seed_says_the_same_and_another_otherwise(target: TableTarget) -> None:
    def text(seed: int) -> list[int]:
        steps = generate(target, "bigram", PROMPT, max_new_tokens=20, temperature=0.8, seed=seed, verifier="rejection")
        return [token for step in steps for token in step.emitted]

    assert text(1) == text(1)
    assert len({tuple(text(seed)) for seed in range(5)}) == 5


def test_sampled_drafts_that_are_matched_print_vanillas_text(target: TableTarget) -> None:
    options = {name: {"sampled": True} for name in ("bigram", "trigram")}
    for temperature in (0.0, 0.8):
        events = list(race(target, PROMPT, RaceSpec(LANES, 24, temperature=temperature, options=options)))
        finished = events[-1]
        assert isinstance(finished, Finished) and all(lane.identical for lane in finished.lanes)
        assert all(step.tree.num_draft for step in steps_of(events, "bigram")[:-1])


def test_a_lane_that_is_told_not_to_sample_matches(target: TableTarget) -> None:
    spec = RaceSpec(("bigram", "trigram"), options={"bigram": {"sampled": "no"}}, **REJECTION)
    assert [plan_lane(spec, name, "cpu").verifier for name in spec.lanes] == ["match", "match", "rejection"]
    finished = list(race(target, PROMPT, spec))[-1]
    assert isinstance(finished, Finished) and [lane.identical for lane in finished.lanes] == [True, True, None]


@pytest.mark.parametrize("num_draft", [0, 1, 40])
def test_budgets_and_lengths_at_the_edge(target: TableTarget, num_draft: int) -> None:
    for length in (1, 2, 7):
        spec = RaceSpec(LANES, **{**REJECTION, "max_new_tokens": length}, num_draft=num_draft, top_p=0.7, top_k=5)
        finished = list(race(target, (4,), spec))[-1]
        assert isinstance(finished, Finished)
        assert all(lane.tokens == length or lane.end == "eos" for lane in finished.lanes)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"verifier": "rejection"}, "temperature above 0"),
        ({"verifier": "typical", "temperature": 1.0}, "'typical' cannot be used; give match or rejection"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        RaceSpec(LANES, **values)


def test_the_badge_says_what_is_the_same(events: list[Event]) -> None:
    view = RaceView()
    for event in events[:-1]:
        view.add(event)
    badges = [lane["badge"] for lane in view.keyframe()["lanes"]]
    assert badges[1] == badges[2] == ("law", NOTE) and badges[3][0] == "same"
    view.add(events[-1])
    frame = view.keyframe()
    assert [row["badge"] for row in frame["results"]][1] == ("law", NOTE)
    assert "Bigram and Trigram sampled from vanilla's distribution" in frame["headline"]
    assert "Every other lane printed the same text." in frame["headline"]
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert final_badge(finished.lanes[1], finished.stopped) == ("law", NOTE)
    assert final_badge(finished.lanes[3], finished.stopped) == ("identical", "identical to vanilla")


# The law.


def first_two(target: TableTarget, name: str, seed: int, params: SamplingParams) -> tuple[int, int]:
    draft_model = CopyingModel(vocab=target.vocab_size).after(PROMPT)
    inputs = DrafterInputs(PROMPT, target.vocab_size, seed, params=params, draft_model=draft_model)
    drafter = METHODS[name].build(inputs, sampled=True)
    session = target.session(target.prefill(PROMPT), 8, params)
    lane = Lane(name, drafter, session, PROMPT, max_new_tokens=2, num_draft=2, coins=Coins(seed, name))
    while not lane.end:
        lane.step()
    return lane.tokens[0], lane.tokens[1]


# The trigram draws as the bigram does (tests/drafters/test_sampled_rows.py).
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.samples and name != "trigram"])
def test_two_tokens_of_a_lane_have_the_law_of_ancestral_sampling(name: str) -> None:
    small, params, count = TableTarget(4, order=1, scale=1.0, vocab=6), SamplingParams(0.7, top_p=0.95), 900
    law = joint_law(small, PROMPT, params)
    texts = [first_two(small, name, seed, params) for seed in range(count)]
    frequencies = np.zeros_like(law)
    np.add.at(frequencies, tuple(np.array(texts).T), 1 / count)
    # The mean distance with this many fair draws.
    fair = np.sqrt(2 * law * (1 - law) / np.pi / count).sum() / 2
    # A lane that redraws from all of p after a rejection is off by 0.09 or more, one that takes every guess by 0.25.
    assert np.abs(frequencies - law).sum() / 2 < 1.7 * fair < 0.08


def joint_law(target: TableTarget, prompt: Sequence[int], params: SamplingParams) -> np.ndarray:
    """P(first, second) by the target's own distributions."""

    def after(*tokens: int) -> np.ndarray:
        return warp_probs(softmax(target.logits([*prompt, *tokens])), params)

    return after()[:, None] * np.stack([after(first) for first in range(target.vocab_size)])
