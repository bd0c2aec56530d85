"""Reels: what the page plays of a race, whole, or in parts while the race runs.

A reel's events are those of the recording, so the page can save a recording without the server.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from specrace.core.errors import InputError
from specrace.core.events import Event, Finished, Repeated, Started, Step
from specrace.engine.recording import plain, to_json
from specrace.views.frames import RaceView, describe_race
from specrace.views.shown import Badge, LaneFrame, RaceHead, ResultRow, ShownPace, ShownRepeated

# An event as `recording.to_json` writes it: the title names its type for the page's scripts.
StartedJson = Annotated[dict[str, Any], Meta(title="Started")]
StepJson = Annotated[dict[str, Any], Meta(title="Step")]
FinishedJson = Annotated[dict[str, Any], Meta(title="Finished")]
RepeatedJson = Annotated[dict[str, Any], Meta(title="Repeated")]


class StepMeters(Struct, frozen=True):
    """The figures of LaneMeters that the page cannot count itself."""

    speedup: float
    tokens_per_s: float
    tau: float
    ms: float


class FrameChanges(Struct, frozen=True):
    """A lane's frame after a step, without what the step's event says and what has not changed since the last frame.

    `spans`: the parts of the passages that the accepted tokens were copied from, as (passage, start, end). `counts`: a
    server's (steps, draft tokens, accepted draft tokens, tokens) so far, which its events do not always tell.
    """

    meters: StepMeters
    badge: Badge | UnsetType = UNSET
    sources: Sequence[int] | UnsetType = UNSET
    loops: bool | UnsetType = UNSET
    spans: Sequence[tuple[int, int, int]] | UnsetType = UNSET
    counts: tuple[int, int, int, int] | UnsetType = UNSET


class HeadPart(Struct, frozen=True):
    """The start of a race."""

    head: RaceHead
    started: StartedJson


class StepPart(Struct, frozen=True):
    """A step of a race."""

    event: StepJson
    frame: FrameChanges


class EndPart(Struct, frozen=True):
    """The end of a race (`finished`), or its figures after another run (`again`)."""

    phase: str
    headline: str
    results: list[ResultRow]
    pace: ShownPace | None
    repeated: ShownRepeated | None
    finished: FinishedJson | UnsetType = UNSET
    again: RepeatedJson | UnsetType = UNSET


class Reel(EndPart, frozen=True, kw_only=True):
    """A whole race: the fields of its parts, with `steps` in race time. `race` is its number on its page."""

    race: int
    head: RaceHead
    started: StartedJson
    steps: list[StepPart]


ReelPart = HeadPart | StepPart | EndPart


class ReelParts:
    """Turns a race's events, one by one, into the parts of its reel."""

    def __init__(self, race: int = 0) -> None:
        self._view = RaceView(race)
        self._indices: dict[str, int] = {}
        self._served: set[str] = set()
        self._last_frames: dict[str, LaneFrame] = {}

    def add(self, event: Event) -> ReelPart:
        """Add an event, and return its part of the reel."""
        self._view.add(event)
        if isinstance(event, Started):
            self._indices = {info.lane: index for index, info in enumerate(event.lanes)}
            self._served = {info.lane for info in event.lanes if info.served is not None}
            return HeadPart(describe_race(event), to_json(event))
        if isinstance(event, Step):
            frame = self._view.lane_frame(self._indices[event.lane])
            changes = _changes(frame, self._last_frames.get(event.lane), is_served=event.lane in self._served)
            self._last_frames[event.lane] = frame
            return StepPart(to_json(event), changes)
        kind = "finished" if isinstance(event, Finished) else "again"
        fields = vars(self._view.ending()) | {kind: to_json(event)}
        return EndPart(**fields)


def make_reel(events: Sequence[Event], race: int = 0) -> Reel:
    """The reel of a whole race: Started, Steps in race time, Finished, perhaps Repeated."""
    assert isinstance(events[0], Started) and isinstance(events[-1], Finished | Repeated), "not a whole race"
    parts = ReelParts(race)
    steps = list[StepPart]()
    other_fields: dict[str, Any] = {}
    for event in events:
        part = parts.add(event)
        if isinstance(part, StepPart):
            steps.append(part)
        else:
            other_fields |= {name: value for name, value in structs.asdict(part).items() if value is not UNSET}
    return Reel(race=race, steps=steps, **other_fields)


def reel_json(events: Sequence[Event], race: int = 0) -> str:
    """The reel as compact JSON. Raises InputError for NaN and infinity, which JSON does not have."""
    return part_json(make_reel(events, race))


def part_json(part: Reel | ReelPart) -> str:
    """A reel, or a part of one, as compact JSON in ASCII. Raises InputError for NaN and infinity."""
    try:
        # The JSON is ASCII, because a text may contain half a character (a lone surrogate), which UTF-8 cannot encode.
        return json.dumps(msgspec.to_builtins(part, enc_hook=plain), allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise InputError("The race has a figure that is not a finite number, so it cannot be replayed.") from error


def _changes(frame: LaneFrame, before: LaneFrame | None, *, is_served: bool) -> FrameChanges:
    """The parts of a lane's frame that the event does not have: meters, spans, and changes from the frame `before`.

    `is_served`: a server decoded the lane.
    """
    # At most one piece of a step's text has spans: the piece of the accepted tokens.
    spans = [piece[3] for piece in frame.runs if len(piece) > 3]
    meters = frame.meters
    return FrameChanges(
        meters=StepMeters(meters.speedup, meters.tokens_per_s, meters.tau, meters.ms),
        badge=UNSET if before and before.badge == frame.badge else frame.badge,
        sources=UNSET if before and before.sources == frame.sources else frame.sources,
        loops=UNSET if before and before.loops == frame.loops else frame.loops,
        spans=spans[0] if spans else UNSET,
        counts=(meters.steps, meters.drafted, meters.accepted, meters.tokens) if is_served else UNSET,
    )
