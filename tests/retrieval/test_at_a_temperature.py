"""At a temperature every lane prints vanilla's text: the bundled model in float32, twenty-two questions, all lanes."""

from __future__ import annotations

import json
from collections import Counter

from specrace.core.bundled import QUESTIONS
from specrace.core.events import Finished, LaneResult
from specrace.drafters import native_methods
from specrace.engine.spec import RaceSpec
from specrace.workbench import Workbench

MORE = (
    "What are glaciers made of?",
    "Who built the first lighthouse?",
    "How do whales breathe?",
    "Why is the sky after rain full of colours?",
    "Describe how a volcano erupts.",
    "Why does a large batch change the gain of speculation?",
    "Tell me about token recycling.",
)


def test_every_lane_equals_vanilla_at_a_temperature(bundled: Workbench) -> None:
    assert bundled.target.describe()["dtype"] == "float32"
    lines = QUESTIONS.read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line)["question"] for line in lines[::2]] + [*MORE]
    assert len(set(questions)) == 22
    results: list[LaneResult] = []
    for seed, question in enumerate(questions):
        spec = RaceSpec(tuple(native_methods()), max_new_tokens=12, num_draft=4, temperature=0.8, top_p=0.9, seed=seed)
        *_, finished = bundled.ask(question, spec, top=1)
        assert isinstance(finished, Finished)
        assert [lane.lane for lane in finished.lanes if not lane.identical] == [], question
        results += finished.lanes
    # Else this would be vanilla against itself. Lanes that begin with nothing have saved little by so few tokens.
    saved = Counter[str]()
    for lane in results:
        saved[lane.lane] += lane.tokens - lane.steps
    assert sum(count > 25 for count in saved.values()) >= 6, saved
    assert sum(lane.tokens for lane in results if lane.lane == "vanilla") > 22 * 11


def test_so_does_every_lane_where_the_draw_decides(bundled: Workbench) -> None:
    """At 0.8 this model hardly ever wavers; at 4 each seed is another text, and drafts have to follow it."""
    texts = set()
    for seed in range(3):
        spec = RaceSpec(tuple(native_methods()), max_new_tokens=14, num_draft=4, temperature=4.0, top_p=0.9, seed=seed)
        *_, finished = bundled.ask(MORE[0], spec, top=1)
        assert isinstance(finished, Finished)
        assert [lane.lane for lane in finished.lanes if not lane.identical] == []
        texts.add(finished.lanes[0].text)
    assert len(texts) == 3
