"""Reels: they have every event once, and only the parts of frames that the events lack."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.core.events import Event, Finished, LaneInfo, LaneResult, Started, Step, Timing
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, Verdict
from specrace.engine.recording import from_json
from specrace.views.frames import RaceView
from specrace.views.reel import ReelParts, part_json, reel_json


def step(lane: str, index: int, at_ms: float, accepted: int) -> Step:
    """A step in which the trie drafts 1 2 3, and the other lane nothing; the bonus is 9."""
    tree = TokenTree.chain(0, [1, 2, 3]) if lane == "trie" else TokenTree.chain(0)
    verdict = Verdict(tuple(range(accepted + 1)), 9, Scores((0,) * len(tree)))
    emitted = (*tree.tokens[1 : accepted + 1], 9)
    texts = tuple(f" {token}" for token in emitted)
    pieces = tuple(f"p{token}" for token in tree.tokens)
    return Step(lane, index, at_ms, tree, verdict, emitted, Timing(0.5, 1.0, 0.5), texts=texts, pieces=pieces)


def make_race(**about: Any) -> list[Event]:
    """The events of a race of two lanes."""
    lanes = (LaneInfo("vanilla", "Vanilla", 0), LaneInfo("trie", "N-gram trie", 3))
    steps = [step("trie", 0, 2.0, 2), step("vanilla", 0, 2.5, 0), step("trie", 1, 4.0, 0), step("vanilla", 1, 5.0, 0)]
    # Four tokens in two steps; the other figures do not matter here.
    results = tuple(
        LaneResult(name, 4, 2, 2.0, 3.0, 0.3, 4.0, 1000.0, 1.0, True, None, "eos", 0) for name in ("vanilla", "trie")
    )
    return [Started(lanes, 10, 5.0, {"question": "q", **about}), *steps, Finished(results)]


def test_a_reel_has_every_event_of_its_race() -> None:
    events = make_race()
    reel = json.loads(reel_json(events, race=7))
    assert (reel["race"], reel["phase"], len(reel["results"])) == (7, "finished", 2)
    rebuilt = [reel["started"], *(step_row["event"] for step_row in reel["steps"]), reel["finished"]]
    assert [from_json(row) for row in rebuilt] == events


def test_a_steps_frame_has_only_changes_that_its_event_lacks() -> None:
    events = make_race()
    view = RaceView()
    # For each lane, its frame with all changes so far.
    lanes: dict[str, Any] = {"vanilla": {}, "trie": {}}
    frames = iter(step_row["frame"] for step_row in json.loads(reel_json(events))["steps"])
    for event in events:
        view.add(event)
        if not isinstance(event, Step):
            continue
        whole_frame = json.loads(json.dumps(asdict(view.lane_frame(list(lanes).index(event.lane)))))
        frame = next(frames)
        assert {"runs", "draft", "end", "lane"}.isdisjoint(frame)
        lane = lanes[event.lane]
        assert all(lane.get(name) != frame[name] for name in ("badge", "sources", "loops") if name in frame)
        lane |= frame
        assert {name: whole_frame[name] for name in ("badge", "sources", "loops")}.items() <= lane.items()
        assert frame["meters"].items() <= whole_frame["meters"].items()


def test_the_parts_of_a_reel_together_are_the_reel() -> None:
    events = make_race()
    parts = ReelParts(7)
    head, *steps, end = (json.loads(part_json(parts.add(event))) for event in events)
    assert json.loads(reel_json(events, 7)) == {"race": 7, "steps": steps, **head, **end}


def test_nan_in_a_race_is_refused() -> None:
    with pytest.raises(InputError, match="not a finite number"):
        reel_json(make_race(retrieve_ms=float("nan")))
