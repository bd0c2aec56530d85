"""What a page or a terminal shows of a race, as data classes; `frames` makes them from the race's events.

The page gets them as JSON (`specrace.views.reel`), and its scripts are checked against them (`static/lib/wire.d.ts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specrace.core.events import Served

# [kind, text, number of tokens] or [kind, text, number of tokens, spans].
Piece = list[Any]
# [passage, start, end] in characters.
Span = Sequence[int]
# (state, text); the page styles a badge by its state (`data-badge`). State "law": another text, drawn from vanilla's
# distribution by rejection sampling.
Badge = tuple[str, str]


@dataclass(frozen=True)
class LaneMeters:
    """A lane's figures so far, or at the end; `ms` is the time on the lane's own clock, `tau` the tokens per step.

    `accepted` and `drafted` count draft tokens.
    """

    speedup: float
    tokens_per_s: float
    tau: float
    tokens: int
    steps: int
    ms: float
    accepted: int
    drafted: int


@dataclass(frozen=True)
class ShownDraft:
    """A step's draft: its size, the texts of the last accepted tokens, and those of the first rejected branch's tokens.

    `drafted` is None in a step of a server that did not report it.
    """

    step: int
    drafted: int | None
    accepted: int
    accepted_texts: list[str]
    rejected: list[str]


@dataclass(frozen=True)
class LaneFrame:
    """A lane's state, and its text since its last frame: `runs` are pieces of text, not runs of the race.

    `sources` counts its tokens by origin; see `frames`.
    `draft` is None before the first step, and in a server's lane whose chunks are not steps. `sources` is empty in a
    server's lane, because no server tells where its drafts come from.
    """

    lane: int
    runs: list[Piece]
    meters: LaneMeters
    badge: Badge
    draft: ShownDraft | None
    sources: Sequence[int]
    loops: bool
    end: str


@dataclass(frozen=True)
class ResultRow(LaneMeters):
    """A row of the results table. `speedup` is not rounded: the page rounds it to the figure in the headline.

    `measured`: how a server's lane was measured, in a sentence or two; "" for our own lanes. A server's lane has no
    speedup (0), and a count of 0 in it was not reported.
    """

    lane: str
    title: str
    drafted_per_step: float
    end: str
    loops: bool
    badge: Badge
    measured: str


@dataclass(frozen=True)
class ShownPace:
    """Whether the machine was disturbed, or a note that the recording is cut off."""

    disturbed: bool
    note: str


@dataclass(frozen=True)
class ShownRepeated(ShownPace):
    """The speedups over several runs, each lane's as (median, minimum, maximum)."""

    runs: int
    lanes: Sequence[tuple[float, float, float]]


@dataclass(frozen=True)
class ShownCurve:
    """The machine's cost curve: the cost `ratio` of a forward over each number of `rows`, after `context` tokens."""

    rows: Sequence[int]
    ratio: Sequence[float]
    context: int | None


@dataclass(frozen=True)
class ShownLane:
    """A lane before its first step; the times are those of `LaneInfo`, rounded.

    `served`: what is known about the server that decoded it; None in our own lanes. `reference` is that of `LaneInfo`.
    """

    lane: str
    title: str
    num_draft: int
    build_ms: float
    shared_ms: float
    prefill_ms: float
    served: Served | None
    reference: str


@dataclass(frozen=True)
class ShownPassage:
    """A retrieved passage: its text, its score, and its evidence as (start, end, rank)."""

    title: str
    document: str
    place: str
    score: float
    text: str
    evidence: Sequence[tuple[int, int, float]]


@dataclass(frozen=True)
class RaceHead:
    """A race's description: the question, the model, the lanes, the passages. A fact that was not recorded is None.

    `engine`: how forwards ran, such as "CUDA graphs". `thinking`: "on" if the model was asked to think. `thoughts`: the
    marks before and after the thoughts in a text; the first is "" if a text begins with thoughts.
    """

    question: str | None
    date: str | None
    model: str | None
    parameters: float | None
    dtype: str | None
    device: str | None
    engine: str | None
    threads: float | None
    retrieve_ms: float | None
    settings: Mapping[str, Any] | None
    thinking: str | None
    thoughts: tuple[str, str] | None
    prompt_tokens: int
    prefill_ms: float
    cost_curve: ShownCurve | None
    lanes: list[ShownLane]
    passages: list[ShownPassage]
    servers_left_out: Sequence[str] | None


@dataclass(frozen=True)
class Ending:
    """The end of a race: its headline, the rows of the results table, and what is known of the machine's pace."""

    phase: str
    headline: str
    results: list[ResultRow]
    pace: ShownPace | None
    repeated: ShownRepeated | None


@dataclass(frozen=True)
class Keyframe:
    """The whole race so far; each lane's `runs` are its whole text.

    `phase`: "waiting", "running", "stopped" or "finished". `clock`: the race time in milliseconds.
    """

    race: int
    phase: str
    clock: float
    lanes: list[LaneFrame]
    head: RaceHead | None
    ending: Ending | None
