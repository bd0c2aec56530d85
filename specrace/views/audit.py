"""A recorded race from elsewhere: is it one that a page can show, and do its figures follow from its own steps?

Whoever made the file may have written anything into it. What passes here has the shape that the page expects, and its
results table and badges are those that its steps give; the times themselves have to be believed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specrace.core.errors import InputError
from specrace.core.events import Event, Finished, LaneResult, Pace, Started, Step
from specrace.core.metrics import LaneMetrics, compare
from specrace.core.settings import MATCH
from specrace.engine.recording import parse

MAX_BYTES = 16_000_000
MAX_LANES = 6
MAX_STEPS = 20_000
MAX_NODES = 1025
MAX_TOKEN = 2**31 - 1
MAX_TEXT = 100_000
MAX_PASSAGES = 64
TEXTS = ("question", "date", "model", "dtype", "device")
NUMBERS = ("parameters", "threads", "retrieve_ms")
TOLERANCE = 1e-6


def open_recording(data: str, name: str) -> list[Event]:
    """The events in the text of a recording called `name`. Raises InputError, one sentence, for all else."""
    if len(data) > MAX_BYTES:
        raise InputError(f"{name} is larger than {MAX_BYTES // 1_000_000} MB; open a shorter race.")
    events = parse(data.split("\n"), name)  # not splitlines: a text may hold the line separators that it knows
    try:
        check(events)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        words = str(error) if isinstance(error, ValueError) else "a part of it is missing or of the wrong kind"
        raise InputError(f"{name} cannot be shown: {words}.") from error
    return events


def check(events: Sequence[Event]) -> None:
    """Raises ValueError, or what reading a wrong shape raises, unless `events` are a race that a page can show."""
    started, *steps, finished = events
    if not isinstance(started, Started) or not isinstance(finished, Finished):
        raise ValueError("it is not one whole race")
    names = [info.lane for info in started.lanes]
    require(1 <= len(names) <= MAX_LANES, f"it has {len(names)} lanes, and the page shows 1 to {MAX_LANES}")
    require(names[0] == "vanilla" and len(set(names)) == len(names), "its lanes are not vanilla and others, each once")
    require([result.lane for result in finished.lanes] == names, "its results are not those of its lanes")
    require(len(steps) <= MAX_STEPS, f"it has more than {MAX_STEPS} steps")
    check_about(started.about)
    tokens: dict[str, list[int]] = {name: [] for name in names}
    ended: set[str] = set()
    metrics = {info.lane: LaneMetrics(draft_ms=info.build_ms) for info in started.lanes}
    before = 0.0
    for step in steps:
        if not isinstance(step, Step) or step.lane not in metrics or step.lane in ended:
            raise ValueError("it has a step of no lane that still runs")
        check_step(step, metrics[step.lane].steps, before)
        before = step.at_ms
        metrics[step.lane].add(step)
        tokens[step.lane] += step.emitted
        ended |= {step.lane} if step.end else set()
    check_pace(finished.pace)
    for info, result in zip(started.lanes, finished.lanes, strict=True):
        check_figures(result, metrics[info.lane], metrics["vanilla"])
        if info.verifier == MATCH:
            whole = {info.lane, "vanilla"} <= ended
            check_badge(result, tokens[info.lane], tokens["vanilla"], whole=whole)


def require(condition: bool, words: str) -> None:
    """Raises ValueError with `words` unless the condition holds."""
    if not condition:
        raise ValueError(words)


def check_step(step: Step, index: int, before: float) -> None:
    """One step: in its place and time, and emitting what its verdict says."""
    where = f"step {step.index} of {step.lane[:40]}"
    require(step.index == index, f"{where} is out of place")
    require(before <= step.at_ms < math.inf, f"{where} is out of time")
    timing = (step.timing.draft_ms, step.timing.target_ms, step.timing.keep_ms)
    require(all(0 <= part < math.inf for part in timing), f"{where} has an impossible duration")
    require(len(step.tree) <= MAX_NODES, f"{where} has more than {MAX_NODES} nodes")
    seen = (*step.tree.tokens, *step.emitted, *step.verdict.scores.targets)
    require(all(0 <= token <= MAX_TOKEN for token in seen), f"{where} has an impossible token")
    said = tuple(step.verdict.output(step.tree))
    require(
        len(step.emitted) > 0 and step.emitted == said[: len(step.emitted)], f"{where} emits what it did not accept"
    )
    require(len(step.texts) in (0, len(step.emitted)), f"{where} has not one text a token")
    require(len(step.pieces) in (0, len(step.tree)), f"{where} has not one text a node")
    require(all(len(text) <= MAX_TEXT for text in (*step.texts, *step.pieces)), f"{where} has a text that is too long")


def check_pace(pace: Pace | None) -> None:
    """What is said of the machine's pace: numbers, and a sentence."""
    if pace is not None:
        numbers = (pace.probes, pace.probe_ms, pace.low, pace.high, pace.jumps, pace.waited_ms, pace.threads)
        require(all(0 <= number < math.inf for number in numbers), "its pace is no number")
        require(len(pace.note) <= MAX_TEXT, "what it says of its pace is too long")


def check_about(about: Mapping[str, Any]) -> None:
    """The description of the race: words, numbers, passages, and every prompt token's place in them."""
    for name in TEXTS:
        value = about.get(name)
        require(value is None or (isinstance(value, str) and len(value) <= MAX_TEXT), f"its {name} is no text")
    for name in NUMBERS:
        require(about.get(name) is None or is_number(about[name]), f"its {name} is no number")
    settings = about.get("settings") or {}
    require(all(value is None or isinstance(value, int | float | str) for value in settings.values()), "its settings")
    passages, origins = about.get("passages") or (), about.get("origins") or ()
    require(len(passages) <= MAX_PASSAGES, f"it has more than {MAX_PASSAGES} passages")
    for passage in passages:
        check_passage(passage)
    for origin in origins:
        if origin is not None:
            number, start, end = origin
            check_span(start, end, passages[number]["text"])


def check_passage(passage: Mapping[str, Any]) -> None:
    """A passage: its words, its score, its sentences."""
    words = (passage["title"], passage["document"], passage["text"])
    require(all(isinstance(text, str) and len(text) <= MAX_TEXT for text in words), "a passage of it is no text")
    require(is_number(passage["score"]), "a passage's score is no number")
    for sentence in passage.get("sentences") or ():
        check_span(sentence["start"], sentence["end"], passage["text"])
        require(sentence["evidence"] is None or is_number(sentence["evidence"]), "a sentence's rank is no number")


def check_span(start: Any, end: Any, text: str) -> None:
    """`start` and `end` are places in `text`."""
    whole = type(start) is int and type(end) is int
    require(whole and 0 <= start <= end <= len(text), "it points to a place outside its passages")


def is_number(value: Any) -> bool:
    """A finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_figures(result: LaneResult, own: LaneMetrics, vanilla: LaneMetrics) -> None:
    """The results table says what the steps say."""
    pairs: Iterable[tuple[str, float, float]] = (
        ("tokens", result.tokens, own.tokens),
        ("steps", result.steps, own.steps),
        ("tokens per step", result.tau, own.tau),
        ("drafted tokens a step", result.drafted_per_step, own.drafted_per_step),
        ("acceptance rate", result.acceptance_rate, own.acceptance_rate),
        ("time", result.decode_ms, own.decode_ms),
        ("tokens per second", result.tokens_per_s, own.tokens_per_s),
        ("speedup", result.speedup, own.speedup(vanilla)),
    )
    for words, said, found in pairs:
        same = math.isclose(said, found, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        require(same, f"{result.lane[:40]}'s {words} is given as {said:g}, and its steps make it {found:g}")


def check_badge(result: LaneResult, own: Sequence[int], vanilla: Sequence[int], *, whole: bool) -> None:
    """A lane is called identical to vanilla exactly where its tokens are; as far as both got, unless both ended."""
    given = result.identical, result.first_difference.position if result.first_difference else None
    fits = given == compare(own, vanilla, ended=whole)
    require(fits, f"{result.lane[:40]}'s badge is not what its tokens say")
