"""A finished race as a page replays it.

A reel is one JSON object:

    race        the race's number on its page
    phase       "finished" or "stopped"
    head        the whole race as a keyframe describes it (`frames.describe_race`)
    steps       in race time, each {"event", "frame"}: the Step as JSON, and the lane's delta frame after it without
                what the event has (text, draft, counts, end), and without what is as in the lane's frame before;
                `spans`: the places in the passages that the accepted tokens were drafted from
    headline    the race in a sentence or two
    results     the lines of the results table
    pace        whether the machine was disturbed, and what that means for the figures; null where that is not known
    started, finished   the race's first and last event as JSON

The events in it are those of the recording, so the page can save the file by itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from specrace.core.errors import InputError
from specrace.core.events import Event, Finished, Started, Step
from specrace.engine.recording import to_json
from specrace.views.frames import Frame, RaceView

KEPT = ("race", "phase", "head", "headline", "results", "pace")
METERS = ("speedup", "tokens_per_s", "tau", "ms")


def make_reel(events: Sequence[Event], race: int = 0) -> Frame:
    """The reel of a whole race: Started, Steps in race time, Finished."""
    started, finished = events[0], events[-1]
    assert isinstance(started, Started) and isinstance(finished, Finished), "a race begins and ends"
    view, steps = RaceView(race), []
    places = {info.lane: number for number, info in enumerate(started.lanes)}
    shown: dict[str, Frame] = {info.lane: {} for info in started.lanes}
    for event in events:
        view.add(event)
        if isinstance(event, Step):
            frame = view.lane_frame(places[event.lane])
            steps.append({"event": to_json(event), "frame": _changes(frame, shown[event.lane])})
            shown[event.lane] = frame
    last = view.keyframe()
    kept = {name: last[name] for name in KEPT}
    return {**kept, "steps": steps, "started": to_json(started), "finished": to_json(finished)}


def reel_json(events: Sequence[Event], race: int = 0) -> str:
    """The reel as compact JSON in ASCII. Raises InputError for numbers that JSON does not know (NaN, infinity)."""
    try:
        # In ASCII, for a text may hold half a character, which UTF-8 refuses.
        return json.dumps({"kind": "reel", **make_reel(events, race)}, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise InputError("The race has a figure that is not a finite number, so it cannot be replayed.") from error


def _changes(frame: Frame, before: Frame) -> Frame:
    changes = {name: frame[name] for name in ("badge", "sources", "loops") if frame[name] != before.get(name)}
    spans = [run[3] for run in frame["runs"] if len(run) > 3]
    meters = {name: frame["meters"][name] for name in METERS}
    return {"meters": meters, **changes, **({"spans": spans[0]} if spans else {})}
