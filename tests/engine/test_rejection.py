"""Rejection sampling in a race: which lanes use it, what they record, and the distribution of their text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specrace.core.errors import InputError
from specrace.core.events import Event, Finished, Started, Step
from specrace.core.rejection import SAME_DISTRIBUTION, Coins, warp_probs
from specrace.core.sampling_params import SamplingParams
from specrace.drafters import METHODS, DrafterInputs
from specrace.engine.generate import generate
from specrace.engine.lane import Lane
from specrace.engine.lane_name import parse_lane
from specrace.engine.race import race
from specrace.engine.recording import from_json, save, to_json
from specrace.engine.spec import RaceSpec, plan_lane
from specrace.views.frames import RaceView
from specrace.views.headlines import final_badge
from specrace.views.recording_check import read_recording
from tests.parts import CopyingModel, TableTarget, softmax

PROMPT = (2, 3, 4, 2, 3, 5, 2, 3)
LANES = ("vanilla", "bigram", "trigram", "trie")
# Two models draw two tokens each after the root, many of them equal.
BRANCHES = {"specinfer": {"width": 2, "branch_depth": 1, "models": 2}}
REJECTION: dict[str, Any] = {"temperature": 0.8, "verifier": "rejection", "max_new_tokens": 24}


@pytest.fixture(scope="module")
def target() -> TableTarget:
    return TableTarget(order=1)


@pytest.fixture(scope="module")
def events(target: TableTarget) -> list[Event]:
    """A race in which two lanes are verified by rejection sampling."""
    return list(race(target, PROMPT, RaceSpec(LANES, **REJECTION)))


def steps_of(events: Iterable[Event], lane: str) -> list[Step]:
    return [event for event in events if isinstance(event, Step) and event.lane == lane]


def test_lanes_that_sample_use_rejection_and_the_others_match(events: list[Event]) -> None:
    started, finished = events[0], events[-1]
    assert isinstance(started, Started) and isinstance(finished, Finished)
    assert {info.lane: info.verifier for info in started.lanes} == {
        "vanilla": "match", "bigram": "rejection", "trigram": "rejection", "trie": "match",
    }  # fmt: skip
    assert started.about["settings"]["verifier"] == "rejection"
    assert started.lanes[1].options["sampled"] is True
    for result in finished.lanes:
        if result.lane in ("bigram", "trigram"):
            assert result.identical is None and result.note == SAME_DISTRIBUTION
        else:
            assert result.identical is True and result.note == ""
        assert result.first_difference is None
        assert result.tokens == 24


def test_steps_record_a_check_for_each_verified_draft_token(events: list[Event]) -> None:
    """A check holds p, q and the coin. The last check of a step may be a rejection, those before it are not."""
    assert all(step.checks is None for lane in ("vanilla", "trie") for step in steps_of(events, lane))
    for lane in ("bigram", "trigram"):
        steps = steps_of(events, lane)
        for step in steps:
            assert step.checks is not None and step.tree.probs is not None
            accepted = [check.accepted for check in step.checks]
            assert len(accepted) == min(step.verdict.accepted + 1, step.tree.num_draft)
            assert accepted == [index < step.verdict.accepted for index in range(len(accepted))]
            assert [check.q for check in step.checks] == list(step.tree.probs[1 : len(accepted) + 1])
            assert all(0 <= check.p <= 1 and 0 <= check.coin < 1 for check in step.checks)
            assert from_json(to_json(step)) == step
        outcomes = {check.accepted for step in steps for check in step.checks or ()}
        assert outcomes == {True, False}


def test_a_tree_records_each_draw_that_was_tried_with_its_node(tmp_path: Path) -> None:
    """The draws after a node are tried until one is accepted; the race's recording passes the check of recordings."""
    lane = str(parse_lane("specinfer:branch_depth=1:models=2:width=3"))
    target = TableTarget(seed=4, order=1, scale=1.0, vocab=6)
    target.drafting = CopyingModel(vocab=6)
    events = list(race(target, PROMPT, RaceSpec((lane,), **REJECTION | {"max_new_tokens": 60})))
    steps, outcomes = steps_of(events, lane), Counter[str]()
    for step in steps:
        assert step.checks is not None and step.checked_nodes is not None
        accepted = [node for node, check in zip(step.checked_nodes, step.checks, strict=True) if check.accepted]
        assert accepted == list(step.verdict.path[1:])
        for node, check in zip(step.checked_nodes, step.checks, strict=True):
            parent = step.tree.parents[node]
            assert parent in step.verdict.path and 0 <= check.p <= 1
            # Equal draws are one node; the accepted child may not be the first one of its parent.
            outcomes["repeated"] += step.checked_nodes.count(node) > 1
            outcomes["later" if check.accepted and node != min(step.tree.children[parent].values()) else "first"] += 1
        assert from_json(to_json(step)) == step
    assert outcomes["repeated"] and outcomes["later"] and any(step.verdict.accepted > 1 for step in steps)
    save(events, tmp_path / "race.jsonl")
    read_recording(tmp_path / "race.jsonl")


def test_p_is_the_targets_probability_of_the_draft_token(target: TableTarget, events: list[Event]) -> None:
    context = list(PROMPT)
    for step in steps_of(events, "trigram"):
        assert step.checks is not None
        text = [*context, *step.tree.tokens[1:]]
        for position, check in enumerate(step.checks, len(context)):
            probs = warp_probs(softmax(target.logits(text[:position])), SamplingParams(0.8))
            assert check.p == pytest.approx(probs[text[position]])
        context += step.emitted


def test_the_text_depends_on_the_seed_only(target: TableTarget) -> None:
    def text(seed: int) -> list[int]:
        steps = generate(target, "bigram", PROMPT, max_new_tokens=20, temperature=0.8, seed=seed, verifier="rejection")
        return [token for step in steps for token in step.emitted]

    assert text(1) == text(1)
    assert len({tuple(text(seed)) for seed in range(5)}) == 5


def test_sampled_drafts_verified_by_matching_print_vanillas_text(target: TableTarget) -> None:
    options = {name: {"sampled": True} for name in ("bigram", "trigram")}
    for temperature in (0.0, 0.8):
        events = list(race(target, PROMPT, RaceSpec(LANES, 24, temperature=temperature, options=options)))
        finished = events[-1]
        assert isinstance(finished, Finished) and all(lane.identical for lane in finished.lanes)
        assert all(step.tree.num_draft for step in steps_of(events, "bigram")[:-1])


def test_a_lane_with_sampled_off_uses_match(target: TableTarget) -> None:
    spec = RaceSpec(("bigram", "trigram"), options={"bigram": {"sampled": "no"}}, **REJECTION)
    assert [plan_lane(spec, name, "cpu").verifier for name in spec.lanes] == ["match", "match", "rejection"]
    finished = list(race(target, PROMPT, spec))[-1]
    assert isinstance(finished, Finished) and [lane.identical for lane in finished.lanes] == [True, True, None]


@pytest.mark.parametrize("num_draft", [0, 1, 40])
def test_lanes_end_at_the_length_limit_with_any_draft_size(target: TableTarget, num_draft: int) -> None:
    for max_new_tokens in (1, 2, 7):
        settings = REJECTION | {"max_new_tokens": max_new_tokens}
        spec = RaceSpec(LANES, **settings, num_draft=num_draft, top_p=0.7, top_k=5)
        finished = list(race(target, (4,), spec))[-1]
        assert isinstance(finished, Finished)
        assert all(lane.tokens == max_new_tokens or lane.end == "eos" for lane in finished.lanes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"verifier": "rejection"}, "temperature above 0"),
        ({"verifier": "typical", "temperature": 1.0}, "'typical' cannot be used; give match or rejection"),
    ],
)
def test_an_impossible_verifier_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RaceSpec(LANES, **settings)


def test_badges_and_headline_tell_sampled_lanes_from_identical_ones(events: list[Event]) -> None:
    view = RaceView()
    for event in events[:-1]:
        view.add(event)
    badges = [lane.badge for lane in view.keyframe().lanes]
    # A "law" badge: another text, drawn from vanilla's distribution.
    assert badges[1] == badges[2] == ("law", SAME_DISTRIBUTION) and badges[3][0] == "same"
    view.add(events[-1])
    end = view.ending()
    assert [row.badge for row in end.results][1] == ("law", SAME_DISTRIBUTION)
    assert "Bigram and Trigram sampled from vanilla's distribution" in end.headline
    assert "Every other lane printed the same text." in end.headline
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert final_badge(finished.lanes[1], finished.stopped) == ("law", SAME_DISTRIBUTION)
    assert final_badge(finished.lanes[3], finished.stopped) == ("identical", "identical to vanilla")


# The distribution of a lane's text.


def first_two_tokens(target: TableTarget, name: str, seed: int, params: SamplingParams) -> tuple[int, int]:
    """The first two tokens of a lane that is verified by rejection sampling with this seed."""
    draft_model = CopyingModel(vocab=target.vocab_size).after(PROMPT)
    inputs = DrafterInputs(PROMPT, target.vocab_size, seed, params=params, draft_models=(draft_model,) * 2)
    drafter = METHODS[name].build(inputs, sampled=True, **BRANCHES.get(name, {}))
    session = target.session(target.prefill(PROMPT), 8, params)
    lane = Lane(name, drafter, session, PROMPT, max_new_tokens=2, num_draft=6, coins=Coins(seed, name))
    while not lane.end:
        lane.step()
    return lane.tokens[0], lane.tokens[1]


# The trigram is left out: it draws like the bigram (tests/drafters/test_sampled_rows.py).
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.samples and name != "trigram"])
def test_the_first_two_tokens_follow_the_targets_distribution(name: str) -> None:
    small = TableTarget(seed=4, order=1, scale=1.0, vocab=6)
    params = SamplingParams(0.7, top_p=0.95)
    num_texts = 900
    probs = joint_distribution(small, PROMPT, params)
    texts = [first_two_tokens(small, name, seed, params) for seed in range(num_texts)]
    frequencies = np.zeros_like(probs)
    np.add.at(frequencies, tuple(np.array(texts).T), 1 / num_texts)
    # The expected total variation distance of this many draws from `probs` itself.
    expected_distance = np.sqrt(2 * probs * (1 - probs) / np.pi / num_texts).sum() / 2
    # Redrawing from all of p after a rejection would give a distance of at least 0.09, accepting every draft 0.25.
    assert np.abs(frequencies - probs).sum() / 2 < 1.7 * expected_distance < 0.08


def joint_distribution(target: TableTarget, prompt: Sequence[int], params: SamplingParams) -> np.ndarray:
    """The target's probability of each pair of tokens after the prompt, [first, second]."""

    def after(*tokens: int) -> np.ndarray:
        return warp_probs(softmax(target.logits([*prompt, *tokens])), params)

    return after()[:, None] * np.stack([after(first) for first in range(target.vocab_size)])
