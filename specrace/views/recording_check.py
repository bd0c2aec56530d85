"""Checks every recording that is opened: whether it can be shown, and whether its results follow from its steps.

A recording may come from anybody and contain anything. A recording that passes has events of the right types, and its
results and badges are those computed from its steps. The times of the steps cannot be checked.
"""

from __future__ import annotations

import codecs
import math
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from specrace.core.errors import InputError
from specrace.core.events import Event, Finished, LaneInfo, LaneResult, Pace, Repeated, Started, Step
from specrace.core.metrics import MAX_PER_TAU, LaneMetrics, loop_tokens, start_metrics, too_fast
from specrace.core.note import NoteRow
from specrace.core.rejection import SAME_DISTRIBUTION
from specrace.core.settings import MATCH, MAX_PAGE_LANES, VERIFIERS
from specrace.engine.lane_name import names_other_method
from specrace.engine.pace import TOO_FAST, disturb
from specrace.engine.recording import convert, parse
from specrace.views.comparison import Output, compare_lane, has_vanilla_as_reference
from specrace.views.served_check import check_drafted, check_references, check_served, check_spread, check_totals
from specrace.views.step_check import MAX_NODES, TOLERANCE, TextCheck, check_step, is_duration, pieces_of, require

# The maximum lengths of a name and a note, in characters. These limits are guesses, far above what we record.
MAX_NAME = 200
MAX_NOTE = 1000
MAX_PASSAGES = 64
MAX_RUNS = 10_000
# The text of a control token, such as <|im_end|> or </s>.
_CONTROL = re.compile(r"<\|[^|<>]{1,40}\|>|</?s>")


@dataclass(frozen=True)
class RecordingLimits:
    """The largest size in bytes, number of lanes and number of steps of a recording that is opened."""

    size: int
    lanes: int
    steps: int


# Guesses: the largest recording that ships has 2 MB, and a lane on a public page at most 512 steps. A terminal gets the
# user's own files.
PAGE_LIMITS = RecordingLimits(16_000_000, MAX_PAGE_LANES, 20_000)
TERMINAL_LIMITS = RecordingLimits(200_000_000, 64, 1_000_000)


@dataclass(frozen=True)
class _Sentence:
    start: int
    end: int
    evidence: float | None = None


@dataclass(frozen=True)
class _Passage:
    title: str
    document: str
    text: str
    score: float
    sentences: tuple[_Sentence, ...] | None = None
    place: str | None = None


@dataclass(frozen=True)
class _About:
    """The parts of a race's description that are shown, and therefore checked; other parts may be anything."""

    question: str | None = None
    date: str | None = None
    model: str | None = None
    dtype: str | None = None
    device: str | None = None
    engine: str | None = None
    parameters: float | None = None
    threads: float | None = None
    retrieve_ms: float | None = None
    settings: Mapping[str, bool | int | float | str | None] | None = None
    passages: tuple[_Passage, ...] | None = None
    thinking: str | None = None
    thoughts: tuple[str, str] | None = None
    origins: tuple[tuple[int, int, int] | None, ...] | None = None
    servers_left_out: tuple[str, ...] | None = None


@dataclass
class _Lane:
    """The totals of a lane's steps."""

    info: LaneInfo
    metrics: LaneMetrics
    output: Output
    # The steps in the recording; a server's metrics may have another number, or none.
    num_steps: int = 0

    def add(self, step: Step) -> None:
        self.metrics.add(step)
        self.num_steps += 1
        self.output.add(step)


def read_recording(path: Path, limits: RecordingLimits = PAGE_LIMITS) -> list[Event]:
    """The events of a recording's file, checked. Raises InputError for anything that is not a valid recording."""
    try:
        # O_NONBLOCK, because opening a pipe without a writer would wait forever.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError(f"{path} cannot be read (not a regular file); give a file that race --save wrote.")
            data = file.read(limits.size + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); give a file that race --save wrote.") from error
    return open_recording(data, str(path), limits)


def open_recording(data: bytes, name: str, limits: RecordingLimits = PAGE_LIMITS) -> list[Event]:
    """The events in the bytes of a recording called `name`, checked. Raises InputError for anything else.

    A recording that is cut off gets a Finished event (`cut`) with the totals of its steps.
    """
    if len(data) > limits.size:
        raise InputError(f"{name} is larger than {limits.size // 1_000_000} MB; open a shorter race.")
    try:
        # A file that is cut off may end inside a character.
        text, _ = codecs.utf_8_decode(data, "strict", False)
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not text; open a race that was saved here.") from error
    events = parse(text, name)
    try:
        return hide_control_tokens(check_race(events, limits))
    except ValueError as error:
        raise InputError(f"{name} cannot be shown: {error}.") from error


def hide_control_tokens(events: Sequence[Event]) -> list[Event]:
    """The events with empty texts for control tokens (<|im_end|>, </s>), whose texts older versions recorded.

    A token counts as a control token if its whole text looks like one, and if no step prints such a text for it.
    """
    steps = [event for event in events if isinstance(event, Step)]
    control_tokens = {token for step in steps for token, piece in pieces_of(step) if _CONTROL.fullmatch(piece)}
    printed = (pair for step in steps for pair in zip(step.emitted, step.texts, strict=False))
    control_tokens -= {token for token, text in printed if _CONTROL.search(text)}
    if not control_tokens:
        return list(events)

    def hide(tokens: Sequence[int], pieces: Sequence[str]) -> tuple[str, ...]:
        return tuple("" if token in control_tokens else piece for token, piece in zip(tokens, pieces, strict=False))

    def hide_row(row: NoteRow) -> NoteRow:
        return replace(row, pieces=hide(row.tokens, row.pieces), after_text=_CONTROL.sub("", row.after_text))

    def hide_in_step(step: Step) -> Step:
        note = step.note and replace(step.note, rows=tuple(map(hide_row, step.note.rows)))
        return replace(step, pieces=hide(step.tree.tokens, step.pieces), note=note)

    return [hide_in_step(event) if isinstance(event, Step) else event for event in events]


def check_race(events: Sequence[Event], limits: RecordingLimits = PAGE_LIMITS) -> list[Event]:
    """The events, with a Finished event added if it is missing. Raises ValueError unless they are a valid race."""
    started, *steps = events  # `parse` refuses events without a step, so `steps` is not empty
    repeated = steps.pop() if isinstance(steps[-1], Repeated) else None
    finished = steps.pop() if isinstance(steps[-1], Finished) else None
    require(isinstance(started, Started), "it does not begin with 'started'")
    assert isinstance(started, Started)
    check_start(started, limits)
    require(len(steps) <= limits.steps, f"it has more than {limits.steps} steps")
    lanes = {info.lane: _Lane(info, start_metrics(info), Output.of(info)) for info in started.lanes}
    texts, last_ms = TextCheck(), 0.0
    for step in steps:
        if not isinstance(step, Step) or step.lane not in lanes or lanes[step.lane].output.end:
            raise ValueError("it has a step of an unknown lane, or of a lane that has ended")
        lane = lanes[step.lane]
        check_step(step, lane.info, lane.num_steps, last_ms)
        check_drafted(step, lane.info.served)
        texts.add(step)
        lane.add(step)
        last_ms = step.at_ms
    for lane in lanes.values():
        check_totals(lane.info, lane.metrics, lane.num_steps)
    stopped = any(not lane.output.end for lane in lanes.values())
    expected = [add_up(lane, lanes) for lane in lanes.values()]
    metrics = {name: lane.metrics for name, lane in lanes.items()}
    if finished is None:
        require(repeated is None, "it was repeated before its end")
        return [*events, Finished(tuple(result for result, _ in expected), stopped=True, cut=True)]
    assert isinstance(finished, Finished)
    require(finished.stopped == (stopped or finished.cut), "its field 'stopped' contradicts its steps")
    check_pace(finished.pace)
    require([lane.lane for lane in finished.lanes] == list(lanes), "its results are not those of its lanes")
    results: list[LaneResult] = []
    for result, (computed, position) in zip(finished.lanes, expected, strict=True):
        # A Finished that was added to a recording that was cut off (below) says not where a text differs.
        check_result(result, computed, None if finished.cut else position)
        # Older versions recognised fewer loops.
        results.append(replace(result, loop_tokens=computed.loop_tokens))
    finished = replace(finished, lanes=tuple(results), pace=check_speeds(finished.pace, metrics))
    if isinstance(repeated, Repeated):
        require(not stopped, "it was stopped, but also repeated")
        check_repeated(repeated, metrics, finished.pace)
    return [started, *steps, finished, *([repeated] if repeated else [])]


def check_start(started: Started, limits: RecordingLimits) -> None:
    """Check the lanes, the prompt, and the description of the race. Raises ValueError."""
    names = [info.lane for info in started.lanes]
    require(1 <= len(names) <= limits.lanes, f"it has {len(names)} lanes, and 1 to {limits.lanes} can be shown")
    require(names[0] == "vanilla", "its first lane is not vanilla")
    require(len(set(names)) == len(names), "it has a lane twice")
    require(started.prompt_tokens >= 0 and is_duration(started.prefill_ms), "its prompt has an impossible size or time")
    for info in started.lanes:
        where = f"the lane {info.lane[:40]}"
        require(len(info.lane) <= MAX_NAME, f"{where} has a name that is too long")
        require(info.verifier in VERIFIERS, f"{where} has an unknown verifier")
        require(
            is_duration(info.build_ms, info.prefill_ms, info.shared_ms), f"{where} took an impossible time to build"
        )
        require(0 <= info.num_draft < MAX_NODES, f"{where} has an impossible number of draft tokens")
        if info.served is not None:
            check_served(info, info.served, where)
        elif names_other_method(info.lane, info.title):
            raise ValueError(f"{where} has the title of another method")
    check_references({info.lane: info for info in started.lanes})
    require(started.lanes[0].verifier == MATCH, "vanilla has another verifier")
    require(started.lanes[0].num_draft == 0, "vanilla drafts, but it is the model alone")
    require(started.lanes[0].served is None, "vanilla was decoded by a server")
    check_about(convert(started.about, _About))


def check_about(about: _About) -> None:
    """Check the passages, and that sentences and origins lie inside their texts. Raises ValueError."""
    passages = about.passages or ()
    require(is_duration(about.retrieve_ms or 0.0), "its retrieval took an impossible time")
    require(len(passages) <= MAX_PASSAGES, f"it has more than {MAX_PASSAGES} passages")
    spans = [
        (number, sentence.start, sentence.end)
        for number, passage in enumerate(passages)
        for sentence in passage.sentences or ()
    ]
    for number, start, end in (*spans, *filter(None, about.origins or ())):
        inside = 0 <= number < len(passages) and 0 <= start <= end <= len(passages[number].text)
        require(inside, "it refers to text outside its passages")


def check_pace(pace: Pace | None) -> None:
    """Check that the numbers in a pace are neither negative nor NaN. Raises ValueError."""
    if pace is None:
        return
    numbers = [value for value in asdict(pace).values() if not isinstance(value, str)]
    require(all(number >= 0 for number in numbers), "its pace has a negative number or NaN")


def check_speeds(pace: Pace | None, lanes: Mapping[str, LaneMetrics]) -> Pace | None:
    """The pace, marked as disturbed if a lane is faster than its tokens per step allow."""
    if (pace is not None and pace.disturbed) or not too_fast(lanes):
        return pace
    # The pace of a recording that has none: nothing was probed, and the slowdown was 1 throughout.
    return disturb(pace or Pace(0, 0.0, 1.0, 1.0, 0.0, 0.0, 0, False, ""), TOO_FAST)


def check_repeated(repeated: Repeated, lanes: Mapping[str, LaneMetrics], pace: Pace | None) -> None:
    """Check the speedups over several runs. Raises ValueError.

    A lane's range must include its median, and also its speedup in the first run if that run counts.
    """
    require([spread.lane for spread in repeated.lanes] == list(lanes), "its repeated runs are not of its lanes")
    require(1 <= repeated.runs <= MAX_RUNS, f"it was not run 1 to {MAX_RUNS} times")
    require(len(repeated.note) <= MAX_NOTE, "its repeated runs have a note that is too long")
    first_run_counts = pace is not None and not pace.disturbed and not repeated.disturbed
    for spread in repeated.lanes:
        where = f"{spread.lane[:40]}'s repeated runs"
        metrics = lanes[spread.lane]
        speedup = metrics.speedup(lanes["vanilla"])
        require(0 <= spread.low <= spread.speedup <= spread.high < math.inf, f"{where} have an impossible range")
        rates = (spread.slowest, spread.tokens_per_s, spread.fastest or spread.tokens_per_s)
        require(0 <= rates[0] <= rates[1] <= rates[2] < math.inf, f"{where} have an impossible rate")
        inside = spread.low - TOLERANCE <= speedup <= spread.high + TOLERANCE
        require(inside or not first_run_counts, f"{where} do not include the first")
        check_spread(spread, metrics, where)
        # As in `too_fast`, a lane with fewer tokens than vanilla is not judged.
        is_possible = metrics.tokens < lanes["vanilla"].tokens or spread.high <= MAX_PER_TAU * metrics.tau + TOLERANCE
        require(is_possible or repeated.disturbed, f"{where} are faster than its tokens per step allow")
    require(repeated.lanes[0].low == repeated.lanes[0].high == 1, "vanilla's speedup is not 1")


def add_up(lane: _Lane, lanes: Mapping[str, _Lane]) -> tuple[LaneResult, int | None]:
    """(the result computed from a lane's steps, the first position at which its text differs from vanilla's).

    If one of the two lanes was stopped, they are compared up to the end of the shorter one. A lane under rejection
    sampling is not compared.
    """
    is_compared = lane.info.verifier == MATCH
    identical, position = None, None
    if is_compared:
        identical, position = compare_lane(lane.info, {name: other.output for name, other in lanes.items()})
    result = LaneResult(
        lane=lane.info.lane,
        **lane.metrics.summary(),
        speedup=lane.metrics.speedup(lanes["vanilla"].metrics),
        identical=identical,
        first_difference=None,
        end=lane.output.end or "stopped",
        loop_tokens=loop_tokens(lane.output.tokens),
        text=lane.output.text.strip(),
        note="" if is_compared else SAME_DISTRIBUTION,
        differs_at=None if has_vanilla_as_reference(lane.info) else position,
    )
    return result, position if has_vanilla_as_reference(lane.info) else None


def check_result(result: LaneResult, computed: LaneResult, position: int | None) -> None:
    """Check a recorded result against the one `computed` from the steps. Raises ValueError if they differ.

    `position`: where the lane first differs from vanilla, if it does.
    """
    lane = computed.lane[:40]
    recorded_position = result.first_difference.position if result.first_difference else None
    same_badge = result.identical == computed.identical and recorded_position == position
    require(same_badge, f"{lane}'s badge contradicts its tokens")
    for name, expected in asdict(replace(computed, first_difference=result.first_difference)).items():
        recorded = getattr(result, name)
        if isinstance(expected, float):
            close = math.isclose(recorded, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
            require(close, f"{lane}'s {name} is {recorded:g}, but {expected:g} by its steps")
        elif name not in ("first_difference", "loop_tokens"):
            require(recorded == expected, f"{lane}'s {name} contradicts its steps")
