"""Real races: the words that light up in a passage are exactly the words that a step accepted from it.

A token of the prompt has as its *origin* the span of passage text that it stands for, [passage, start, end], or None.
A draft token has the position in prompt and output from which it was copied (`tree.positions`). The *spans* of a step
are the origins of its accepted tokens; a *frame* is what the page shows of a lane after a step.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from specrace.core.events import Event, Started, Step
from specrace.engine.request import RaceRequest
from specrace.engine.spec import RaceSpec
from specrace.views.frames import RaceView, find_spans, read_origins
from specrace.views.reel import reel_json
from specrace.workbench import Workbench

ROOT = Path(__file__).resolve().parents[1]
LANES = ("vanilla", "trie", "suffix")
NUM_QUESTIONS = 2
NUM_STEPS = 30


@pytest.fixture(scope="module")
def races(bundled: Workbench) -> list[list[Event]]:
    """Two questions on our own documents, with the bundled model."""
    lines = (ROOT / "assets" / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line)["question"] for line in lines][:NUM_QUESTIONS]
    return [list(bundled.ask(RaceRequest(question, RaceSpec(LANES, max_new_tokens=80)))) for question in questions]


def started(race: Sequence[Event]) -> Started:
    """The first event of a race."""
    first = race[0]
    assert isinstance(first, Started)
    return first


def lit_words(about: Mapping[str, Any], spans: Sequence[Sequence[int]]) -> str:
    """The passages' text in these spans."""
    return "".join(about["passages"][passage]["text"][start:end] for passage, start, end in spans)


def without_spaces(text: str) -> str:
    """The text without spaces: a token's leading space may lie outside the passage."""
    return "".join(text.split())


def test_the_lit_words_are_the_accepted_ones(races: list[list[Event]]) -> None:
    steps = [(started(race).about, event) for race in races for event in race if isinstance(event, Step)]
    # Sorted by lane, because the order in which lanes step depends on the machine.
    steps.sort(key=lambda pair: (pair[0]["question"], pair[1].lane, pair[1].index))
    drafted = [(about, step) for about, step in steps if find_spans(step, read_origins(about))]
    chosen = random.Random(5).sample(drafted, NUM_STEPS)
    num_compared = 0
    for about, step in chosen:
        origins = read_origins(about)
        assert step.tree.positions is not None
        nodes = step.verdict.path[1 : len(step.emitted) + 1]
        positions = [step.tree.positions[node] for node in nodes]
        from_passage = [0 <= position < len(origins) and origins[position] is not None for position in positions]
        texts = [text for text, is_copied in zip(step.texts, from_passage, strict=False) if is_copied]
        assert without_spaces(lit_words(about, find_spans(step, origins))) == without_spaces("".join(texts)) != ""
        num_compared += all(from_passage)
    # In most steps every accepted token came from a passage, so that all of a step's words were compared.
    assert num_compared >= 0.6 * NUM_STEPS


def test_no_step_lights_words_that_it_did_not_accept(races: list[list[Event]]) -> None:
    for race in races:
        origins = read_origins(started(race).about)
        for event in race:
            if isinstance(event, Step) and not event.verdict.accepted:
                assert find_spans(event, origins) == []


def test_replay_frames_light_accepted_words(races: list[list[Event]]) -> None:
    """A reel is a race as the page replays it: its events, each step with a frame."""
    for race in races:
        reel, lit = json.loads(reel_json(race)), 0
        for step in reel["steps"]:
            if "spans" in step["frame"]:
                lit += 1
                accepted = len(step["event"]["verdict"]["path"]) - 1
                text = "".join(step["event"]["texts"][:accepted])
                assert without_spaces(lit_words(reel["head"], step["frame"]["spans"])) in without_spaces(text)
        assert lit > 5


def test_every_token_is_counted_under_one_source(races: list[list[Event]]) -> None:
    for race in races:
        view = RaceView()
        for event in race:
            view.add(event)
        lane_frames = view.keyframe().lanes
        assert len(lane_frames) == len(LANES)
        for frame in lane_frames:
            assert sum(frame.sources) == frame.meters.tokens
            # Tokens that were not drafted come from the target, which is source 0.
            assert frame.sources[0] >= frame.meters.tokens - frame.meters.accepted
        # The bundled model quotes, so most of a copying lane's answer comes from the passages, which are sources 4 on.
        assert sum(lane_frames[1].sources[4:]) > 0.5 * lane_frames[1].meters.tokens
