"""A finished race as a page replays it: every step with its time, what its pane shows of it, and the event itself.

A reel is one JSON object:

    race        the race's number on its page
    phase       "finished" or "stopped"
    head        what a keyframe says of the whole race (`view.describe_race`)
    steps       in race time, each {"lane", "index", "at", "frame", "event"}: the lane's place among the lanes, the
                step's number in its lane, race time in ms, the lane's delta frame for this one step, the Step as JSON
    headline    the race in a sentence or two
    results     the lines of the results table
    pace        whether the machine was disturbed, and what that means for the figures; null where that is not known
    started, finished   the race's first and last event as JSON

The events in it are those of the recording, so the page can save the file without asking anybody.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from specrace.core.errors import InputError
from specrace.core.events import Event, Finished, Started, Step
from specrace.engine.recording import to_json
from specrace.views.frames import Frame, RaceView


def make_reel(events: Sequence[Event], race: int = 0) -> Frame:
    """The reel of a whole race: Started, Steps in race time, Finished."""
    started, finished = events[0], events[-1]
    assert isinstance(started, Started) and isinstance(finished, Finished), "a race begins and ends"
    view, steps = RaceView(race), []
    places = {info.lane: number for number, info in enumerate(started.lanes)}
    for event in events:
        view.add(event)
        if isinstance(event, Step):
            place = places[event.lane]
            steps.append(
                {
                    "lane": place,
                    "index": event.index,
                    "at": event.at_ms,
                    "frame": view.lane_frame(place),
                    "event": to_json(event),
                }
            )
    last = view.keyframe()
    kept = {name: last[name] for name in ("race", "phase", "head", "headline", "results", "pace")}
    return {**kept, "steps": steps, "started": to_json(started), "finished": to_json(finished)}


def reel_json(events: Sequence[Event], race: int = 0) -> str:
    """The reel as compact JSON in ASCII. Raises InputError for numbers that JSON does not know (NaN, infinity)."""
    try:
        # In ASCII, for a text may hold half a character, which UTF-8 refuses.
        return json.dumps({"kind": "reel", **make_reel(events, race)}, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise InputError("The race has a figure that is not a finite number, so it cannot be replayed.") from error
