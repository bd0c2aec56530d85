"""What a page or a terminal shows of a race: events in, small JSON frames out.

A lane's text is a list of runs, `[kind, text, tokens]` or `[kind, text, tokens, spans]`: kind "own" is the target's own
tokens, "accepted" accepted draft tokens, with the places in the passages, `[passage, start, end]` in characters, that
they were drafted from. `sources` counts the lane's tokens by origin: the target's own, drafted from no known place,
from the output, from the rest of the prompt, and from each passage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from typing import Any

from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError
from specrace.core.events import Event, Finished, LaneInfo, LaneResult, LaneSpread, Repeated, Started, Step
from specrace.core.metrics import (
    LOOP_PERIOD,
    LOOP_TURNS,
    LaneMetrics,
    describe_difference,
    first_difference,
    loop_tokens,
    format_speedup,
)
from specrace.core.rejection import NOTE
from specrace.core.settings import REJECTION

OWN, ACCEPTED = "own", "accepted"
CUT = "The recording is cut off here; the figures are those of the steps that it has."
# What a keyframe repeats of a race's description.
ABOUT = ["question", "date", "model", "parameters", "dtype", "device", "engine", "threads", "retrieve_ms", "settings"]
# What a pane has room for.
ACCEPTED_SHOWN = 16
REJECTED_SHOWN = 8
# Enough to see any loop that the metrics know.
LOOP_TAIL = LOOP_PERIOD * LOOP_TURNS

Frame = dict[str, Any]
Frames = list[Any]
Span = list[int]
Badge = tuple[str, str]
Origins = Sequence[Span | None]


@dataclass
class _LaneView:
    """One lane so far. `sent` runs were in a lane's frame already."""

    info: LaneInfo
    metrics: LaneMetrics
    tokens: list[int] = field(default_factory=list)
    runs: list[Frames] = field(default_factory=list)
    sent: int = 0
    agreed: int = 0
    sources: list[int] = field(default_factory=list)
    draft: Frame | None = None
    end: str = ""
    result: LaneResult | None = None

    def add(self, step: Step, spans: list[Span], sources: Sequence[int]) -> None:
        """Take in one step; `spans` as of `find_spans`, `sources` as of `count_sources`."""
        self.metrics.add(step)
        self.tokens += step.emitted
        self._append(ACCEPTED, step.texts[: step.accepted], step.accepted, spans)
        self._append(OWN, step.texts[step.accepted :], len(step.emitted) - step.accepted, [])
        self.sources = [sum(pair) for pair in zip_longest(self.sources, sources, fillvalue=0)]
        self.draft = describe_draft(step)
        self.end = step.end

    def _append(self, kind: str, texts: Sequence[str], count: int, spans: list[Span]) -> None:
        """Add a run of `count` tokens; own tokens join an own run that no frame has carried yet."""
        if not count:
            return
        last = self.runs[-1] if len(self.runs) > self.sent else None
        if kind == OWN and last is not None and last[0] == OWN:
            last[1] += "".join(texts)
            last[2] += count
        else:
            self.runs.append([kind, "".join(texts), count, *([spans] if spans else [])])

    def fresh(self) -> list[Frames]:
        """The runs that were not sent, which count as sent from now on."""
        runs = self.runs[self.sent :]
        self.sent = len(self.runs)
        return runs


class RaceView:
    """Turns a race's events into frames.

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
        """Take in one event."""
        if isinstance(event, Started):
            self.started, self.phase = event, "running"
            self._lanes = {info.lane: _LaneView(info, LaneMetrics(draft_ms=info.build_ms)) for info in event.lanes}
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

    def keyframe(self) -> Frame:
        """The whole race so far."""
        frame: Frame = {"race": self.race, "phase": self.phase, "clock": round(self.clock_ms, 1)}
        frame["lanes"] = [self.lane_frame(number) | {"runs": lane.runs} for number, lane in enumerate(self._all())]
        frame["head"] = describe_race(self.started) if self.started else None
        if self.started and self.finished:
            frame["headline"] = headline(self.started, self.finished, self.repeated)
            frame["results"] = [self._row(lane) for lane in self._all()]
            frame["pace"] = describe_pace(self.finished)
            frame["repeated"] = describe_repeated(self.repeated)
        return frame

    def _all(self) -> list[_LaneView]:
        return list(self._lanes.values())

    def lane_frame(self, number: int) -> Frame:
        """A lane's state, and its text since the last frame of it."""
        lane = self._all()[number]
        return {"lane": number, "runs": lane.fresh(), **self._state(lane)}

    def _state(self, lane: _LaneView) -> Frame:
        return {
            "meters": self._meters(lane),
            "badge": self._badge(lane),
            "draft": lane.draft,
            "sources": lane.sources,
            "loops": loop_tokens(lane.tokens[-LOOP_TAIL:]) > 0,
            "end": lane.end,
        }

    def _meters(self, lane: _LaneView) -> Frame:
        """The lane's figures so far, on its own clock."""
        own = lane.metrics
        speedup = own.speedup(self._all()[0].metrics)
        return {**_figures(own, speedup), "accepted": own.accepted, "drafted": own.drafted}

    def _badge(self, lane: _LaneView) -> Badge:
        if lane.result is not None and self.finished is not None:
            return final_badge(lane.result, self.finished.stopped)
        vanilla = self._all()[0]
        if lane is vanilla:
            return "reference", "reference"
        if lane.info.verifier == REJECTION:
            return "law", NOTE
        if not lane.tokens:
            return "none", ""
        position = first_difference(lane.tokens, vanilla.tokens, ended=False, agreed=lane.agreed)
        lane.agreed = min(len(lane.tokens), len(vanilla.tokens)) if position is None else position
        return ("same", "identical so far") if position is None else ("differs", f"differs at token {position}")

    def _row(self, lane: _LaneView) -> Frame:
        """A line of the results table."""
        metrics = lane.metrics
        assert lane.result is not None, "the race is finished"
        result = with_medians(lane.result, self.repeated)
        return {
            "lane": lane.info.lane,
            "title": lane.info.title,
            **_figures(result, result.speedup),
            # Unrounded: the page rounds it as the headline does.
            "speedup": result.speedup,
            "accepted": metrics.accepted,
            "drafted": metrics.drafted,
            "drafted_per_step": round(result.drafted_per_step, 2),
            "end": result.end,
            "loops": result.loop_tokens > 0,
            "badge": self._badge(lane),
        }


def _figures(found: LaneMetrics | LaneResult, speedup: float) -> Frame:
    # Six decimals, so that rounded once more it is the headline's figure.
    rounded = {"speedup": round(speedup, 6), "tokens_per_s": round(found.tokens_per_s, 1), "tau": round(found.tau, 3)}
    return {**rounded, "tokens": found.tokens, "steps": found.steps, "ms": round(found.decode_ms, 1)}


def describe_draft(step: Step) -> Frame:
    """A step's draft as a pane shows it: its size, the accepted pieces, and the first rejected branch after them."""
    pieces = step.pieces or ("",) * len(step.tree)
    return {
        "step": step.index,
        "drafted": step.tree.num_draft,
        "accepted": step.accepted,
        "yes": "".join(pieces[node] for node in step.accepted_nodes[-ACCEPTED_SHOWN:]),
        "no": [pieces[node] for node in step.rejected_branch[:REJECTED_SHOWN]],
    }


def read_origins(about: Mapping[str, Any]) -> Origins:
    """Each prompt token's place in the passages, [passage, start, end], or None."""
    return tuple(row and list(row) for row in about.get("origins") or ())


def find_spans(step: Step, origins: Origins) -> list[Span]:
    """Where in the passages the accepted tokens were drafted from; neighbours are one span, output has none."""
    spans: list[Span] = []
    for _, origin in _drafted_from(step, origins):
        if origin is None:
            continue
        passage, start, end = origin
        if spans and spans[-1][0] == passage and spans[-1][2] == start:
            spans[-1][2] = end
        else:
            spans.append([passage, start, end])
    return spans


def count_sources(step: Step, origins: Origins) -> list[int]:
    """A step's tokens by origin.

    [own, from no known place, from the output, from the prompt outside the passages, from passage 0, 1, ...].
    """
    counts = [len(step.emitted) - step.accepted, 0, 0, 0]
    for position, origin in _drafted_from(step, origins):
        place = 1 if position < 0 else 2 if position >= len(origins) else 3 if origin is None else 4 + origin[0]
        counts += [0] * (place + 1 - len(counts))
        counts[place] += 1
    return counts


def _drafted_from(step: Step, origins: Origins) -> list[tuple[int, Span | None]]:
    """For each accepted token its position in prompt and output, -1 for nowhere, and its place in the passages."""
    known = step.tree.positions
    positions = [-1 if known is None else known[node] for node in step.accepted_nodes]
    return [(each, origins[each] if 0 <= each < len(origins) else None) for each in positions]


def final_badge(result: LaneResult, stopped: bool, dtype: str = "") -> Badge:
    """A finished lane's badge: its state and its words, with the target's `dtype` where that explains a difference."""
    if result.lane == "vanilla":
        return "reference", "reference"
    if result.note:
        return "law", result.note
    if result.identical is None:
        return "none", "not compared"
    if result.identical:
        return ("same", "identical so far") if stopped else ("identical", "identical to vanilla")
    difference = result.first_difference
    if difference is None:
        return "differs", "differs from vanilla"
    return "differs", describe_difference(difference, dtype)


def find_spread(lane: str, repeated: Repeated | None) -> LaneSpread | None:
    """A lane's figures over several runs; None if the race was run once."""
    return None if repeated is None else next(spread for spread in repeated.lanes if spread.lane == lane)


def with_medians(result: LaneResult, repeated: Repeated | None) -> LaneResult:
    """The result with the median speedup and tokens per second of several runs, if there were."""
    spread = find_spread(result.lane, repeated)
    return replace(result, speedup=spread.speedup, tokens_per_s=spread.tokens_per_s) if spread else result


def range_words(lane: str, repeated: Repeated | None, over: str = "") -> str:
    """The words " (2.2 to 2.6)", `over` before the bracket; "" if the race was run once."""
    spread = find_spread(lane, repeated)
    return f" ({format_speedup(spread.low)[:-1]} to {format_speedup(spread.high)[:-1]}{over})" if spread else ""


def headline(started: Started, finished: Finished, repeated: Repeated | None = None) -> str:
    """The race in a sentence or two: the fastest lane, and whether the texts are equal."""
    if finished.stopped:
        return CUT if finished.cut else "Stopped before the end; the figures are those of the tokens so far."
    titles = {info.lane: info.title for info in started.lanes}
    fastest = max((with_medians(lane, repeated) for lane in finished.lanes), key=lambda lane: lane.speedup)
    if len(finished.lanes) == 1:
        return f"{titles[fastest.lane]} wrote {fastest.tokens} tokens at {fastest.tokens_per_s:.0f} a second."
    by = f", with {fastest.tau:.1f} tokens per step" if fastest.tau > 1 else ""
    over = "" if repeated is None else f" over {repeated.runs} runs"
    times = format_speedup(fastest.speedup)
    won = f"{titles[fastest.lane]} is fastest: {times} vanilla{range_words(fastest.lane, repeated, over)}{by}."
    if fastest.lane == "vanilla" or times == format_speedup(1):
        won = "No lane was faster than vanilla."
    if repeated is not None and repeated.disturbed:
        won = repeated.note
    elif repeated is None and finished.pace is not None and finished.pace.disturbed:
        won = f"{finished.pace.note} Race again."
    words = f"{won} {_comparison(finished, titles)}"
    looping = any(lane.loop_tokens for lane in finished.lanes)
    return f"{words} The text repeats itself, which flatters copying." if looping else words


def _comparison(finished: Finished, titles: Mapping[str, str]) -> str:
    """Which lanes printed vanilla's text, which did not, and which drew their own."""
    differing = [titles[lane.lane] for lane in finished.lanes if lane.identical is False]
    own = [titles[lane.lane] for lane in finished.lanes if lane.note]
    sentences = []
    if differing:
        sentences.append(f"{' and '.join(differing)} differ{'s' if len(differing) == 1 else ''} from vanilla.")
    elif len(own) < len(finished.lanes) - 1:
        sentences.append(f"Every {'other ' if own else ''}lane printed the same text.")
    if own:
        sentences.insert(0, f"{' and '.join(own)} sampled from vanilla's distribution.")
    return " ".join(sentences)


def describe_race(started: Started) -> Frame:
    """The whole race in a keyframe: the lanes, the model, the passages."""
    about = started.about
    return {
        **{name: about.get(name) for name in ABOUT},
        "prompt_tokens": started.prompt_tokens,
        "prefill_ms": round(started.prefill_ms, 1),
        "cost_curve": describe_curve(about.get("cost_curve"), started.prompt_tokens),
        "lanes": [
            {
                "lane": info.lane,
                "title": info.title,
                "num_draft": info.num_draft,
                "build_ms": round(info.build_ms, 2),
                "prefill_ms": round(info.prefill_ms, 1),
            }
            for info in started.lanes
        ],
        "passages": [describe_passage(passage) for passage in about.get("passages") or ()],
    }


def describe_pace(finished: Finished) -> Frame | None:
    """How steady the machine was, or where the recording ends; None where it does not know."""
    if finished.cut:
        return {"disturbed": False, "note": CUT}
    pace = finished.pace
    return None if pace is None else {"disturbed": pace.disturbed, "note": pace.note}


def describe_repeated(repeated: Repeated | None) -> Frame | None:
    """The figures over several runs, the lanes' as [median, minimum, maximum]; None if the race was run once."""
    if repeated is None:
        return None
    lanes = [[round(value, 6) for value in (each.speedup, each.low, each.high)] for each in repeated.lanes]
    return {"runs": repeated.runs, "disturbed": repeated.disturbed, "note": repeated.note, "lanes": lanes}


def describe_curve(found: Any, prompt_tokens: int) -> Frame | None:
    """The machine's recorded cost curve for this prompt; None where that is no curve."""
    try:
        curve = CostCurve.from_json(found).near(prompt_tokens)
    except (InputError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
    context = curve.contexts[0].context if curve.contexts else None
    return {"rows": list(curve.rows), "ratio": [round(ratio, 3) for ratio in curve.ratio], "context": context}


def describe_passage(passage: Mapping[str, Any]) -> Frame:
    """A retrieved passage: its text, its score, and its evidence as [start, end, rank]."""
    sentences = passage.get("sentences") or ()
    return {
        "title": passage["title"],
        "document": passage["document"],
        "place": str(passage.get("place") or ""),
        "score": round(float(passage["score"]), 3),
        "text": passage["text"],
        "evidence": [[each["start"], each["end"], each["evidence"]] for each in sentences if each.get("evidence")],
    }


def report(started: Started, finished: Finished, repeated: Repeated | None = None) -> Frame:
    """A finished race as one JSON object: its description, and every lane's figures.

    If it was `repeated`, speedup and tokens per second are medians; the other figures are the first run's.
    """
    about = {name: value for name, value in started.about.items() if name != "origins"}
    infos = {info.lane: info for info in started.lanes}
    lanes = []
    for lane in finished.lanes:
        info = infos[lane.lane]
        options = dict(info.options) | {"num_draft": info.num_draft}
        spread = find_spread(lane.lane, repeated)
        bounds = {"speedup_low": spread and spread.low, "speedup_high": spread and spread.high}
        figures = asdict(with_medians(lane, repeated)) | bounds
        lanes.append(figures | {"options": options, "draft_prefill_ms": info.prefill_ms})
    return {
        **about,
        "prompt_tokens": started.prompt_tokens,
        "prefill_ms": started.prefill_ms,
        "stopped": finished.stopped,
        "pace": finished.pace and asdict(finished.pace),
        "runs": repeated.runs if repeated else 1,
        "repeated": repeated and {"disturbed": repeated.disturbed, "note": repeated.note},
        "lanes": lanes,
    }
