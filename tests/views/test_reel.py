from __future__ import annotations

import json
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.core.events import Event, Finished, LaneInfo, LaneResult, Started, Step, Timing
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, Verdict
from specrace.engine.recording import from_json
from specrace.views.frames import RaceView
from specrace.views.reel import ReelParts, make_reel, reel_json


def step(lane: str, index: int, at_ms: float, accepted: int) -> Step:
    tree = TokenTree.chain(0, [1, 2, 3]) if lane == "trie" else TokenTree.chain(0)
    verdict = Verdict(tuple(range(accepted + 1)), 9, Scores((0,) * len(tree)))
    emitted = (*tree.tokens[1 : accepted + 1], 9)
    texts = tuple(f" {token}" for token in emitted)
    pieces = tuple(f"p{token}" for token in tree.tokens)
    return Step(lane, index, at_ms, tree, verdict, emitted, Timing(0.5, 1.0, 0.5), texts=texts, pieces=pieces)


def a_race(**about: Any) -> list[Event]:
    lanes = (LaneInfo("vanilla", "Vanilla", 0), LaneInfo("trie", "N-gram trie", 3))
    steps = [step("trie", 0, 2.0, 2), step("vanilla", 0, 2.5, 0), step("trie", 1, 4.0, 0), step("vanilla", 1, 5.0, 0)]
    results = tuple(
        LaneResult(name, 4, 2, 2.0, 3.0, 0.3, 4.0, 1000.0, 1.0, True, None, "eos", 0) for name in ("vanilla", "trie")
    )
    return [Started(lanes, 10, 5.0, {"question": "q", **about}), *steps, Finished(results)]


def test_a_reel_has_every_event_once() -> None:
    events = a_race()
    reel = json.loads(json.dumps(make_reel(events, race=7)))
    assert (reel["race"], reel["phase"], len(reel["results"])) == (7, "finished", 2)
    rebuilt = [reel["started"], *(step_row["event"] for step_row in reel["steps"]), reel["finished"]]
    assert [from_json(row) for row in rebuilt] == events


def test_a_step_s_frame_has_what_its_event_has_not_and_nothing_twice() -> None:
    events, view = a_race(), RaceView()
    state: dict[str, Any] = {}
    frames = iter(step_row["frame"] for step_row in make_reel(events)["steps"])
    for event in events:
        view.add(event)
        if not isinstance(event, Step):
            continue
        whole, frame = view.lane_frame(int(event.lane == "trie")), next(frames)
        assert {"runs", "draft", "end", "lane"}.isdisjoint(frame)
        lane = state.setdefault(event.lane, {})
        assert all(lane.get(name) != frame[name] for name in ("badge", "sources", "loops") if name in frame)
        lane |= frame
        assert {name: whole[name] for name in ("badge", "sources", "loops")}.items() <= lane.items()
        assert frame["meters"].items() <= whole["meters"].items()


def test_the_parts_of_a_reel_make_the_whole() -> None:
    events, maker = a_race(), ReelParts(7)
    head, *steps, end = (maker.add(event) for event in events)
    assert make_reel(events, 7) == {"race": 7, "steps": steps, **head, **end}


def test_figures_that_are_no_numbers_are_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match="not a finite number"):
        reel_json(a_race(retrieve_ms=float("nan")))
    assert json.loads(reel_json(a_race()))["kind"] == "reel"
