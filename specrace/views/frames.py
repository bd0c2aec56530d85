"""Turns a race's events into small frames (`specrace.views.shown`), which a page or a terminal shows.

A lane's text is a list of pieces, `[kind, text, number of tokens]` or `[kind, text, number of tokens, spans]`. A piece
of the kind "own" holds tokens that the target chose; one of the kind "accepted" holds accepted draft tokens. `spans`
are the parts of the passages from which the accepted tokens were copied, each `[passage, start, end]` in characters.
`sources` counts a lane's tokens by origin: chosen by the target; drafted, but not copied from a known position; copied
from the output, from the prompt outside the passages, and from each passage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from typing import Any

from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError
from specrace.core.events import LEFT_OUT, Event, Finished, LaneInfo, LaneResult, Repeated, Started, Step
from specrace.core.metrics import (
    LOOP_PERIOD,
    LOOP_REPEATS,
    LaneMetrics,
    first_difference,
    loop_tokens,
    start_metrics,
)
from specrace.core.rejection import SAME_DISTRIBUTION
from specrace.core.settings import REJECTION
from specrace.views.comparison import sends_ids, unknown_figures
from specrace.views.headlines import CUT, describe_measured, final_badge, find_spread, headline, with_medians
from specrace.views.shown import (
    Badge,
    Ending,
    Keyframe,
    LaneFrame,
    LaneMeters,
    Piece,
    RaceHead,
    ResultRow,
    ShownCurve,
    ShownDraft,
    ShownLane,
    ShownPace,
    ShownPassage,
    ShownRepeated,
    Span,
)

OWN, ACCEPTED = "own", "accepted"
# The facts of a recording that a race's description repeats.
ABOUT = ["question", "date", "model", "parameters", "dtype", "device", "engine", "threads", "retrieve_ms", "settings"]
ABOUT += ["thinking", "thoughts", LEFT_OUT]
# The numbers of draft tokens that a pane has room for.
ACCEPTED_SHOWN = 16
REJECTED_SHOWN = 8
# Enough tokens to recognise any loop that the metrics know.
LOOP_TAIL = LOOP_PERIOD * LOOP_REPEATS

Origins = Sequence[Span | None]


@dataclass
class _LaneView:
    """The state of one lane.

    The first `sent` pieces of its text were already in a frame. Its first `agreed` tokens are those of its reference.
    """

    info: LaneInfo
    metrics: LaneMetrics
    tokens: list[int] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    sent: int = 0
    agreed: int = 0
    sources: list[int] = field(default_factory=list)
    draft: ShownDraft | None = None
    end: str = ""
    result: LaneResult | None = None

    def add(self, step: Step, spans: list[Span], sources: Sequence[int]) -> None:
        """Add one step; `spans` come from `find_spans`, `sources` from `count_sources`."""
        self.metrics.add(step)
        self.tokens += step.emitted
        self._append(ACCEPTED, step.texts[: step.accepted], step.accepted, spans)
        self._append(OWN, step.texts[step.accepted :], len(step.emitted) - step.accepted, [])
        served = self.info.served
        if served is None:
            self.sources = [sum(pair) for pair in zip_longest(self.sources, sources, fillvalue=0)]
        if served is None or served.chunks_are_steps:
            self.draft = describe_draft(step, is_served=served is not None)
        self.end = step.end

    def _append(self, kind: str, texts: Sequence[str], count: int, spans: list[Span]) -> None:
        """Add a piece of `count` tokens (0: only texts); the target's tokens extend an unsent piece of their kind."""
        if not count and not texts:
            return
        last = self.pieces[-1] if len(self.pieces) > self.sent else None
        if kind == OWN and last is not None and last[0] == OWN:
            last[1] += "".join(texts)
            last[2] += count
        else:
            self.pieces.append([kind, "".join(texts), count, *([spans] if spans else [])])

    def take_unsent(self) -> list[Piece]:
        """The pieces that were not sent yet; they count as sent after this."""
        pieces = self.pieces[self.sent :]
        self.sent = len(self.pieces)
        return pieces


class RaceView:
    """The state of a race, built from its events; its frames can be taken at any time.

    >>> view = RaceView()
    >>> for event in events:  # doctest: +SKIP
    ...     view.add(event)
    ...     show(view.keyframe())
    """

    def __init__(self, race: int = 0) -> None:
        self.race = race
        self.phase = "waiting"
        self.clock_ms = 0.0
        self.started: Started | None = None
        self.finished: Finished | None = None
        self.repeated: Repeated | None = None
        self._lanes: dict[str, _LaneView] = {}
        self._origins: Origins = ()

    def add(self, event: Event) -> None:
        """Add one event."""
        if isinstance(event, Started):
            self.started, self.phase = event, "running"
            self._lanes = {info.lane: _LaneView(info, start_metrics(info)) for info in event.lanes}
            self._origins = read_origins(event.about)
        elif isinstance(event, Step):
            self.clock_ms = max(self.clock_ms, event.at_ms)
            self._lanes[event.lane].add(event, find_spans(event, self._origins), count_sources(event, self._origins))
        elif isinstance(event, Repeated):
            self.repeated = event
        else:
            self.finished, self.phase = event, "stopped" if event.stopped else "finished"
            for result in event.lanes:
                self._lanes[result.lane].result = result

    def keyframe(self) -> Keyframe:
        """The whole race so far; every piece counts as sent after this."""
        lanes = [replace(self.lane_frame(index), runs=lane.pieces) for index, lane in enumerate(self._lane_views())]
        head = describe_race(self.started) if self.started else None
        ending = self.ending() if self.finished else None
        return Keyframe(self.race, self.phase, round(self.clock_ms, 1), lanes, head, ending)

    def ending(self) -> Ending:
        """The end of a race that is over."""
        assert self.started is not None and self.finished is not None, "the race has not ended"
        return Ending(
            phase=self.phase,
            headline=headline(self.started, self.finished, self.repeated),
            results=[self._row(lane) for lane in self._lane_views()],
            pace=describe_pace(self.finished),
            repeated=describe_repeated(self.repeated),
        )

    def _lane_views(self) -> list[_LaneView]:
        return list(self._lanes.values())

    def lane_frame(self, index: int) -> LaneFrame:
        """The state of the lane at this index, and its text since its last frame, which counts as sent after this."""
        lane = self._lane_views()[index]
        return LaneFrame(
            lane=index,
            runs=lane.take_unsent(),
            meters=self._meters(lane),
            badge=self._badge(lane),
            draft=lane.draft,
            sources=lane.sources,
            loops=loop_tokens(lane.tokens[-LOOP_TAIL:]) > 0,
            end=lane.end,
        )

    def _meters(self, lane: _LaneView) -> LaneMeters:
        """The lane's metrics so far, by its clock."""
        speedup = lane.metrics.speedup(self._lane_views()[0].metrics)  # lane 0 is vanilla
        # With six decimals, the page's rounding gives the same figure as the headline.
        return LaneMeters(speedup=round(speedup, 6), **_figures(lane.metrics), **_draft_counts(lane))

    def _badge(self, lane: _LaneView) -> Badge:
        """Whether the lane's text equals its reference's: finally, or so far."""
        if lane.result is not None and self.finished is not None:
            return final_badge(lane.result, self.finished.stopped, info=lane.info)
        reference = self._lanes[lane.info.reference or "vanilla"]
        if lane is reference:
            return "reference", "reference"
        if lane.info.verifier == REJECTION:
            return "law", SAME_DISTRIBUTION
        if not sends_ids(lane.info):
            return "none", "compared at the end"
        if not lane.tokens:
            return "none", ""
        position = first_difference(lane.tokens, reference.tokens, ended=False, agreed=lane.agreed)
        lane.agreed = min(len(lane.tokens), len(reference.tokens)) if position is None else position
        if position is None:
            return "same", "identical so far"
        return "differs", f"differs at token {position}"

    def _row(self, lane: _LaneView) -> ResultRow:
        """A row of the results table."""
        assert lane.result is not None, "the race has no results yet"
        result = with_medians(lane.result, self.repeated)
        return ResultRow(
            # Unrounded, because the page rounds it to the figure in the headline.
            speedup=result.speedup,
            **_figures(result),
            **_draft_counts(lane),
            lane=lane.info.lane,
            title=lane.info.title,
            drafted_per_step=round(result.drafted_per_step, 2),
            end=result.end,
            loops=result.loop_tokens > 0,
            badge=self._badge(lane),
            measured=describe_measured(lane.info, result, find_spread(lane.info.lane, self.repeated)),
        )


def _figures(metrics: LaneMetrics | LaneResult) -> dict[str, Any]:
    """The rounded fields of LaneMeters that results have too."""
    return {
        "tokens_per_s": round(metrics.tokens_per_s, 1),
        "tau": round(metrics.tau, 3),
        "tokens": metrics.tokens,
        "steps": metrics.steps,
        "ms": round(metrics.decode_ms, 1),
    }


def _draft_counts(lane: _LaneView) -> dict[str, Any]:
    return {"accepted": lane.metrics.accepted, "drafted": lane.metrics.drafted}


def describe_draft(step: Step, *, is_served: bool = False) -> ShownDraft:
    """What a pane shows of a step's draft; `is_served`: a server decoded the lane."""
    pieces = step.pieces or ("",) * len(step.tree)
    return ShownDraft(
        step=step.index,
        drafted=step.drafted if is_served else step.num_draft,
        accepted=step.accepted,
        accepted_texts=[pieces[node] for node in step.accepted_nodes[-ACCEPTED_SHOWN:]],
        rejected=[pieces[node] for node in step.rejected_branch[:REJECTED_SHOWN]],
    )


def read_origins(about: Mapping[str, Any]) -> Origins:
    """For each prompt token, its span in the passages, [passage, start, end], or None outside the passages."""
    return tuple(None if origin is None else list(origin) for origin in about.get("origins") or ())


def find_spans(step: Step, origins: Origins) -> list[Span]:
    """The spans in the passages from which the accepted tokens were copied; adjacent spans are joined."""
    spans: list[list[int]] = []
    for _, origin in _copied_from(step, origins):
        if origin is None:
            continue
        passage, start, end = origin
        if spans and spans[-1][0] == passage and spans[-1][2] == start:
            spans[-1][2] = end
        else:
            spans.append([passage, start, end])
    return list(spans)


def count_sources(step: Step, origins: Origins) -> list[int]:
    """A step's tokens, counted by origin.

    [chosen by the target; drafted, but not copied from a known position; copied from the output; from the prompt
    outside the passages; from passage 0; from passage 1; ...].
    """
    counts = [len(step.emitted) - step.accepted, 0, 0, 0]
    for position, origin in _copied_from(step, origins):
        if position < 0:
            source = 1
        elif position >= len(origins):
            source = 2
        else:
            source = 3 if origin is None else 4 + origin[0]
        counts += [0] * (source + 1 - len(counts))
        counts[source] += 1
    return counts


def _copied_from(step: Step, origins: Origins) -> list[tuple[int, Span | None]]:
    """For each accepted token, the position in prompt and output that it was copied from, and its span in a passage.

    The position is -1 if it is not known. The span is None if the position is not in a passage.
    """
    if step.tree.positions is None:
        return [(-1, None)] * len(step.accepted_nodes)
    positions = [step.tree.positions[node] for node in step.accepted_nodes]
    return [(position, origins[position] if 0 <= position < len(origins) else None) for position in positions]


def describe_race(started: Started) -> RaceHead:
    """A race's description: the lanes, the model, the passages."""
    about = started.about
    return RaceHead(
        **{name: about.get(name) for name in ABOUT},
        prompt_tokens=started.prompt_tokens,
        prefill_ms=round(started.prefill_ms, 1),
        cost_curve=describe_curve(about.get("cost_curve"), started.prompt_tokens),
        lanes=[_describe_lane(info) for info in started.lanes],
        passages=[describe_passage(passage) for passage in about.get("passages") or ()],
    )


def _describe_lane(info: LaneInfo) -> ShownLane:
    return ShownLane(
        lane=info.lane,
        title=info.title,
        num_draft=info.num_draft,
        build_ms=round(info.build_ms, 2),
        shared_ms=round(info.shared_ms, 2),
        prefill_ms=round(info.prefill_ms, 1),
        served=info.served,
        reference=info.reference,
    )


def describe_pace(finished: Finished) -> ShownPace | None:
    """Whether the machine was disturbed, or a note that the recording is cut off; None if neither was recorded."""
    if finished.cut:
        return ShownPace(disturbed=False, note=CUT)
    pace = finished.pace
    return None if pace is None else ShownPace(pace.disturbed, pace.note)


def describe_repeated(repeated: Repeated | None) -> ShownRepeated | None:
    """The speedups over several runs; None if the race was run once."""
    if repeated is None:
        return None
    lanes = [(round(spread.speedup, 6), round(spread.low, 6), round(spread.high, 6)) for spread in repeated.lanes]
    return ShownRepeated(repeated.disturbed, repeated.note, repeated.runs, lanes)


def describe_curve(recorded: Any, prompt_tokens: int) -> ShownCurve | None:
    """The machine's recorded cost curve for this prompt; None if it is not a curve."""
    try:
        curve = CostCurve.from_json(recorded).near(prompt_tokens)
    except (InputError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
    context = curve.contexts[0].context if curve.contexts else None
    return ShownCurve(list(curve.rows), [round(ratio, 3) for ratio in curve.ratio], context)


def describe_passage(passage: Mapping[str, Any]) -> ShownPassage:
    """A retrieved passage for the page."""
    return ShownPassage(
        title=passage["title"],
        document=passage["document"],
        place=str(passage.get("place") or ""),
        score=round(float(passage["score"]), 3),
        text=passage["text"],
        evidence=[
            (sentence["start"], sentence["end"], sentence["evidence"])
            for sentence in passage.get("sentences") or ()
            if sentence.get("evidence")
        ],
    )


def report(started: Started, finished: Finished, repeated: Repeated | None = None) -> dict[str, Any]:
    """A finished race as one JSON object: its description, and every lane's metrics.

    If the race was `repeated`, speedups and tokens per second are medians; other metrics are those of the first run.
    """
    about = {name: value for name, value in started.about.items() if name != "origins"}
    infos = {info.lane: info for info in started.lanes}
    lanes = []
    for lane in finished.lanes:
        info = infos[lane.lane]
        options = dict(info.options) | {"num_draft": info.num_draft}
        spread = find_spread(lane.lane, repeated)
        bounds = {"speedup_low": spread and spread.low, "speedup_high": spread and spread.high}
        metrics = asdict(with_medians(lane, repeated)) | bounds
        if info.served is not None:
            # A server's time is not race time, so the lane has no speedup, not a speedup of 0.
            metrics |= {"speedup": None, "speedup_low": None, "speedup_high": None, "served": asdict(info.served)}
            metrics |= {"first_token_ms": info.prefill_ms, "reference": info.reference or "vanilla"}
        metrics |= unknown_figures(info, metrics)
        times = {"draft_prefill_ms": info.prefill_ms, "build_ms": info.build_ms, "shared_ms": info.shared_ms}
        lanes.append(metrics | {"options": options} | times)
    return {
        **about,
        "prompt_tokens": started.prompt_tokens,
        "prefill_ms": started.prefill_ms,
        "stopped": finished.stopped,
        "pace": None if finished.pace is None else asdict(finished.pace),
        "runs": repeated.runs if repeated else 1,
        "repeated": repeated and {"disturbed": repeated.disturbed, "note": repeated.note},
        "lanes": lanes,
    }
