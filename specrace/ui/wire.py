"""The JSON that the page gets from the server, besides the races themselves (`specrace.views.reel`).

`python -m tests.measure.wire_types` writes these structs as types for the page's scripts (`static/lib/wire.d.ts`), and
the scripts are checked against those. If a field is renamed here, that check fails until the scripts follow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from specrace.engine.recording import plain


def to_json(value: Struct) -> str:
    """The struct as compact JSON in ASCII, because a text may contain a lone surrogate, which UTF-8 cannot encode."""
    return json.dumps(to_values(value), separators=(",", ":"))


def to_values(value: Any) -> Any:
    """The struct, or the structs in a list, as JSON values. Fields that are not set are left out."""
    return msgspec.to_builtins(value, enc_hook=plain)


class WatchMessage(Struct, frozen=True, tag_field="kind", tag="watch"):
    """A race of this page is in line; the page can watch it by its key. `server`: an id, new at each server's start."""

    race: int
    key: str
    server: str


class NoteMessage(Struct, frozen=True, tag_field="kind", tag="note"):
    """Why a race has not started yet, or did not finish. With `race` 0: what is wrong with the page's address."""

    race: int
    phase: str
    message: str


class ListedMessage(Struct, frozen=True, tag_field="kind", tag="listed"):
    """The answer to a question of a list (*Questions*). `id` is random, so that no two messages are alike.

    `phase` is "waiting" if the race can be watched by its `key`, "busy" if a limit is reached for now (`message` says
    which one), or "refused" (`message` says why).
    """

    id: str
    phase: str
    key: str = ""
    message: str = ""


class SuggestedMessage(Struct, frozen=True, tag_field="kind", tag="suggested"):
    """Questions about the documents in use, for a list. `id` is random, so that no two messages are alike."""

    id: str
    questions: list[str]
    message: str = ""


class HeadMessage(Struct, frozen=True, tag_field="kind", tag="head"):
    """The start of a race: that part of its reel, the JSON that the page plays (`views.reel`)."""

    race: int
    parts: list[Annotated[Raw, Meta(title="HeadPart")]]


class StepMessage(Struct, frozen=True, tag_field="kind", tag="step"):
    """Steps of a race: those parts of its reel, as JSON."""

    race: int
    parts: list[Annotated[Raw, Meta(title="StepPart")]]


class EndMessage(Struct, frozen=True, tag_field="kind", tag="end"):
    """The end of a race: that part of its reel, as JSON."""

    race: int
    parts: list[Annotated[Raw, Meta(title="EndPart")]]


class AgainMessage(Struct, frozen=True, tag_field="kind", tag="again"):
    """The end of a race with the figures of its runs so far, as JSON; the latest part replaces those before it."""

    race: int
    parts: list[Annotated[Raw, Meta(title="EndPart")]]


class Status(Struct, frozen=True):
    """The line about the model; `state` is "loading", "ready" or "failed"."""

    state: str
    text: str


class MethodCard(Struct, frozen=True):
    """What the page knows of a method before a race. `hue` is the number of its colour."""

    lane: str
    title: str
    summary: str
    hue: int


class RaceCard(Struct, frozen=True):
    """A recorded race that the page offers, with facts from its recording; `ms`: the race time of its last step."""

    name: str
    question: str | None
    date: str | None
    model: str | None
    parameters: float | None
    dtype: str | None
    device: str | None
    lanes: list[str]
    fastest: str
    speedup: float
    temperature: float
    ms: float


class StageSettings(Struct, frozen=True):
    """What the stage is drawn with. `lanes` are shown before a race; `takes_files`: whether visitors may open files.

    While no visitor acts, the first `num_offered` races of the gallery play.
    """

    methods: list[MethodCard]
    lanes: list[str]
    gallery: list[RaceCard]
    only_replay: bool
    takes_files: bool
    num_offered: int


class ExportSettings(Struct, frozen=True):
    """What the stage of an exported file is drawn with: its first `num_offered` races play, or the tour opens."""

    methods: list[MethodCard]
    lanes: list[str]
    num_offered: int
    opens_tour: bool


class RecordedAnswer(Struct, frozen=True):
    """A recorded race as the JSON of its reel, or why there is none."""

    reel: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


class OpenedPoll(Struct, frozen=True):
    """A poll of the audience: its code, the key that controls it, its link, and the link's QR code, rows of 0 and 1."""

    code: str
    key: str
    link: str
    qr: list[str]


class PollState(Struct, frozen=True):
    """What the stage and a phone show of a poll. `mine` is this phone's vote; `wait_ms`: when to ask again.

    `hues`: the number of each lane's colour.
    """

    round: int
    question: str
    lanes: list[str]
    hues: list[int]
    open: bool
    winner: int | None
    counts: list[int]
    mine: int | None
    wait_ms: int


class PollError(Struct, frozen=True):
    """Why a poll's request is refused, in a sentence."""

    error: str


class LogLimits(Struct, frozen=True):
    """Bounds on a log that the page scores: bytes of the file, requests, seconds, lanes."""

    bytes: int
    requests: int
    seconds: float
    lanes: int


class AdviceChoices(Struct, frozen=True):
    """The choices for a forecast: engines (name, title), GPUs, models' billions of parameters, cost curves, batches."""

    engines: list[tuple[str, str]]
    gpus: list[str]
    sizes: Sequence[int]
    curves: list[tuple[str, str]]
    batches: Sequence[int]


class LogChoices(Struct, frozen=True):
    """The choices for scoring a log: tokenizers, lanes (ours, engines', those ticked at first), formats and limits."""

    tokenizers: list[str]
    lanes: list[str]
    engines: list[str]
    chosen: Sequence[str]
    formats: list[str]
    limits: LogLimits
    advice: AdviceChoices


class LogProgress(Struct, frozen=True):
    """How far the work on a log is.

    While it is read: its requests so far, and perhaps the share of the file. While settings are tried: `done` of
    `cells`, each of which is one of the `settings` on some of the `requests`.
    """

    requests: int
    share: float | UnsetType = UNSET
    settings: int | UnsetType = UNSET
    done: int | UnsetType = UNSET
    cells: int | UnsetType = UNSET


class LogGroup(Struct, frozen=True):
    """A lane's figures on a category of requests or on "all", as `score --json` prints them; `tau`: tokens per step."""

    lane: str
    category: str
    outputs: int
    looping: int
    tokens: int
    steps: int
    tau: float
    tau_without_looping: float | None
    drafted_per_step: float
    acceptance_rate: float
    draft_ms_per_step: float
    build_ms_per_output: float
    num_draft: int
    scored: str


class LogLane(Struct, frozen=True):
    """A lane's figures on a log.

    `emitted`[i]: steps that emitted i tokens. `drafted`[i]: steps whose draft was deeper than i tokens. `accepted`[i]:
    steps that accepted more than i. `tau_low` to `tau_high`: the interval of the tokens per step. `tenths`: for each
    tenth of the outputs its steps, those whose draft was rejected at its first token, and those without a draft.
    `scored`: "whole", or which part of the method can be scored without its model.
    """

    lane: str
    num_draft: int
    scored: str
    emitted: list[int]
    drafted: list[int]
    accepted: list[int]
    tau_low: float | None
    tau_high: float | None
    tenths: list[tuple[int, int, int]]


class LogRequest(Struct, frozen=True):
    """A request of a log, token by token. `lanes`: each lane's steps, (accepted, drafted, texts of rejected tokens)."""

    number: int
    id: str
    category: str
    looping: bool
    tokens: int
    prompt_tokens: int
    tau: list[float]
    prompt: str
    texts: list[str]
    lanes: list[list[tuple[int, int, list[str]]]]


class MeasuredGroup(Struct, frozen=True):
    """What engines counted on `outputs` requests of a category: tokens per step, between `tau` and `tau_high`."""

    category: str
    outputs: int
    tau: float
    tau_high: float


class ScoredLog(Struct, frozen=True):
    """The scores of a log, and some of its requests. `left_out`: why the rest was not scored, or "".

    `measured`: what the engine that answered counted, with `measured_text` in words; empty without counts in the log.
    """

    format: str
    title: str
    tokenizer: str
    left_out: str
    skipped: int
    skipped_by_reason: list[tuple[str, int]]
    remarks: list[str]
    groups: list[LogGroup]
    outputs: int
    looping: int
    lanes: list[LogLane]
    measured: list[MeasuredGroup]
    measured_text: list[str]
    requests: list[LogRequest]


class Recommendation(Struct, frozen=True):
    """A lane and its settings, with the forecast of its tokens per step and its speedup, and their intervals."""

    lane: str
    options: Mapping[str, Any]
    num_draft: int
    tau: float
    tau_low: float
    tau_high: float
    speedup: float
    speedup_low: float
    speedup_high: float


class AdviceGroup(Recommendation, frozen=True, kw_only=True):
    """The recommendation's figures on a category of requests, the best lane there, and what to do there."""

    category: str
    requests: int
    advice: str
    best: Recommendation


class RequestEffect(Struct, frozen=True):
    """What an engine does differently with requests that set one of these `options`, and how many requests do."""

    options: list[str]
    requests: int
    share: float
    effect: str
    sentence: str


class EngineExport(Struct, frozen=True):
    """What to paste into an engine (`lab.advice.exports.base.Export`), and the figures of the lane that it is for."""

    lane: str
    options: Mapping[str, Any]
    num_draft: int
    tau: float
    speedup: float
    version: str
    settings: str
    synthetic: str
    convention: str
    files: Mapping[str, str]
    notes: Sequence[str]
    requests: list[RequestEffect]


class EngineAdvice(Struct, frozen=True):
    """The advice for an engine, in figures and in words (`text`)."""

    engine: str
    title: str
    export: EngineExport
    recommendation: Recommendation
    groups: list[AdviceGroup]
    text: list[str]
    not_tested: list[str]
    batches: list[dict[str, Any]]


class LogAdvice(Struct, frozen=True):
    """What a log recommends. `tried`: a setting's (lane, options, draft tokens, requests, tokens per step, speedup)."""

    engines: list[EngineAdvice]
    requests: int
    scored: int
    looping: int
    left_out: str
    remarks: list[str]
    tried: list[tuple[str, Mapping[str, Any], int, int, float, float]]


class LogLine(Struct, frozen=True):
    """A line of the answer to a log: the progress, then the scores, the advice, or an error as a sentence."""

    progress: LogProgress | UnsetType = UNSET
    scores: ScoredLog | UnsetType = UNSET
    advice: LogAdvice | UnsetType = UNSET
    error: str | UnsetType = UNSET
