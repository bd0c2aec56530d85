"""Reels: a race as the page plays it, whole, or in parts while the race runs.

A reel is one JSON object:

    race        the race's number on its page
    phase       "finished" or "stopped"
    head        the whole race as `frames.describe_race` describes it
    steps       in race time, each {"event", "frame"}: the Step as JSON, and the lane's frame after it, without what
                the event has (text, draft, counts, end) and what is unchanged since the lane's last frame; `spans`:
                the parts of the passages that the accepted tokens were copied from
    headline    the race in a sentence or two
    results     the rows of the results table
    pace        whether the machine was disturbed, and what that means for the figures; null if that is not known
    repeated    the speedups over several runs (`frames.describe_repeated`); null if there was only one
    started, finished, again    the events Started, Finished and, if the race was repeated, Repeated as JSON

Its events are those of the recording, so the page can save a recording without the server.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from specrace.core.errors import InputError
from specrace.core.events import Event, Finished, Repeated, Started, Step
from specrace.engine.recording import to_json
from specrace.views.frames import Frame, RaceView, describe_race

METERS = ("speedup", "tokens_per_s", "tau", "ms")
END = ("phase", "headline", "results", "pace", "repeated")


class ReelParts:
    """Turns a race's events, one by one, into the parts of its reel."""

    def __init__(self, race: int = 0) -> None:
        self._view = RaceView(race)
        self._numbers: dict[str, int] = {}
        self._last_frames: dict[str, Frame] = {}

    def add(self, event: Event) -> Frame:
        """Add an event. Returns an element of the reel's `steps` for a Step, fields of the reel for any other event."""
        self._view.add(event)
        if isinstance(event, Started):
            self._numbers = {info.lane: number for number, info in enumerate(event.lanes)}
            return {"head": describe_race(event), "started": to_json(event)}
        if isinstance(event, Step):
            frame = self._view.lane_frame(self._numbers[event.lane])
            changes = _changes(frame, self._last_frames.get(event.lane, {}))
            self._last_frames[event.lane] = frame
            return {"event": to_json(event), "frame": changes}
        keyframe = self._view.keyframe()
        name = "finished" if isinstance(event, Finished) else "again"
        return {**{field: keyframe[field] for field in END}, name: to_json(event)}


def make_reel(events: Sequence[Event], race: int = 0) -> Frame:
    """The reel of a whole race: Started, Steps in race time, Finished, perhaps Repeated."""
    assert isinstance(events[0], Started) and isinstance(events[-1], Finished | Repeated), "a race begins and ends"
    parts = ReelParts(race)
    steps = list[Frame]()
    reel: Frame = {"race": race, "steps": steps}
    for event in events:
        part = parts.add(event)
        if isinstance(event, Step):
            steps.append(part)
        else:
            reel |= part
    return reel


def reel_json(events: Sequence[Event], race: int = 0) -> str:
    """The reel as compact JSON. Raises InputError for NaN and infinity, which JSON does not have."""
    return part_json({"kind": "reel", **make_reel(events, race)})


def part_json(part: Frame) -> str:
    """A reel, or a part of one, as compact JSON in ASCII. Raises InputError for NaN and infinity."""
    try:
        # In ASCII, because a text may contain half a character, which UTF-8 cannot encode.
        return json.dumps(part, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise InputError("The race has a figure that is not a finite number, so it cannot be replayed.") from error


def _changes(frame: Frame, before: Frame) -> Frame:
    """The parts of a lane's frame that the event does not have: meters, spans, and changes from the frame `before`."""
    changes = {name: frame[name] for name in ("badge", "sources", "loops") if frame[name] != before.get(name)}
    # At most one piece of a step's text has spans: that of the accepted tokens.
    spans = [piece[3] for piece in frame["runs"] if len(piece) > 3]
    meters = {name: frame["meters"][name] for name in METERS}
    return {"meters": meters, **changes, **({"spans": spans[0]} if spans else {})}
