"""Scores a visitor's log without a model: every lane's metrics, and the drafts of some requests token by token.

A log holds prompts and the outputs that some model gave. To score a lane, which is a drafter with its options, each
output is decoded again, as if a target model wrote just its tokens. This runs in a helper process
(`helper/process.py`).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from specrace.core.errors import InputError, shorten
from specrace.core.events import Step
from specrace.engine.lane_name import method_of
from specrace.lab.advice.forecast import ratio_interval, resamples
from specrace.lab.logs.files.tables import read_columns
from specrace.lab.logs.formats.base import Message, Tokens
from specrace.lab.logs.transcripts import Transcript, TranscriptFile
from specrace.lab.scoring.acceptance import Acceptance
from specrace.lab.scoring.score import Scoreboard, ScoredLane
from specrace.model.chat.tokenizer import ChatTokenizer, load_tokenizer
from specrace.ui.wire import LogGroup, LogLane, LogLine, LogProgress, LogRequest, MeasuredGroup, ScoredLog, to_json
from specrace.views.detokenize import Detokenizer
from specrace.views.frames import REJECTED_SHOWN

# The page scores at most this many requests of a log, and for at most this time. These numbers and those below are
# guesses; the command line has no such limits.
MAX_REQUESTS = 2000
TIME_LIMIT_S = 120.0
# After this number of different categories, all others are counted together, as OTHERS.
MAX_CATEGORIES = 20
OTHERS = "other categories"
# Characters of the name of a request or a category.
MAX_NAME = 80
# Requests whose drafts are shown: the first ones of the log, and each lane's best and worst.
NUM_FIRST_KEPT = 20
NUM_EXTREMES_KEPT = 5
# Beyond this number of stored requests, those that would not be shown are dropped.
MAX_IN_MEMORY = 200
# Bounds on what is shown of a request: tokens of its output, bytes of its JSON, tokens at the end of its prompt.
MAX_SHOWN_TOKENS = 2000
MAX_SHOWN_BYTES = 160_000
MAX_PROMPT_TOKENS = 400
PROGRESS_PERIOD_S = 0.2

# A step as the page shows it: how many tokens were accepted and drafted, and the first rejected branch's tokens.
ShownStep = tuple[int, int, tuple[int, ...]]


class _OutOfTimeError(Exception):
    """The time ran out before a request was scored."""


class LogTokenizer:
    """Turns a log's texts into token ids, and ids back into text. The tokenizer is loaded when it is first needed.

    `source` is the argument of `load_tokenizer`. `decodes_ids`: whether token ids in the log are this tokenizer's.
    """

    def __init__(self, source: str, *, decodes_ids: bool) -> None:
        self._source = source
        self._decodes_ids = decodes_ids
        # Whether it has tokenized any text of the log, and whether any of the latest request.
        self.used = False
        self._used_for_latest = False

    @cached_property
    def _tokenizer(self) -> ChatTokenizer:
        return load_tokenizer(self._source)

    def __call__(self, text: str) -> Sequence[int]:
        """The ids of a text."""
        self.used = self._used_for_latest = True
        return self._tokenizer(text)

    def chat(
        self,
        messages: list[Message],
        answer: Message,
        tools: list[Any] | None,
        documents: list[Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[Sequence[int], Sequence[int], tuple[str, ...]]:
        """The ids of a chat's prompt and of its answer, and warnings (`ChatTokenizer.chat`)."""
        self.used = self._used_for_latest = True
        return self._tokenizer.chat(messages, answer, tools, documents, options)

    def fits_latest(self) -> bool:
        """Whether the latest request's ids are this tokenizer's. Call this exactly once after each request."""
        used, self._used_for_latest = self._used_for_latest, False
        return used or self._decodes_ids

    def texts(self, ids: Sequence[int], *, fits: bool) -> list[str]:
        """The text that each of the ids adds; " #id" for each unless the ids are this tokenizer's (`fits`)."""
        if not fits:
            return [f" #{token}" for token in ids]
        detokenizer = Detokenizer(self._tokenizer.decode)
        parts = detokenizer.feed(ids)
        # The text after the last complete character is held back until `flush`.
        return [*parts[:-1], parts[-1] + detokenizer.flush()] if parts else []

    def piece(self, token: int, *, fits: bool) -> str:
        """The text of one id by itself; " #id" unless the ids are this tokenizer's (`fits`)."""
        return self._piece(token) if fits else f" #{token}"

    @cached_property
    def _piece(self) -> Any:
        """The function that decodes one id; it remembers its results."""
        return cache(lambda token: self._tokenizer.decode([token]))


@dataclass(frozen=True)
class KeptRequest:
    """A request kept for viewing: the end of its prompt, the first tokens of its output, and each lane's steps.

    `about`: the fields of `LogRequest` from `number` to `prompt_tokens`. `tau`: each lane's tokens per step. `fits`:
    whether the log's tokenizer can decode the ids.
    """

    about: dict[str, Any]
    tau: list[float]
    prompt: Tokens
    output: Tokens
    lanes: list[list[ShownStep]]
    fits: bool

    @property
    def number(self) -> int:
        """The request's number among the scored requests, counted from 1."""
        return int(self.about["number"])

    def shown(self, tokenizer: LogTokenizer) -> LogRequest:
        """The request as the page shows it. Its output is cut in half until the JSON fits into MAX_SHOWN_BYTES."""
        num_tokens = len(self.output)
        texts = self._texts(tokenizer, num_tokens)
        while num_tokens > 1 and len(json.dumps(texts)) > MAX_SHOWN_BYTES:
            num_tokens //= 2
            texts = self._texts(tokenizer, num_tokens)
        return LogRequest(**self.about, tau=self.tau, **texts)

    def _texts(self, tokenizer: LogTokenizer, num_tokens: int) -> dict[str, Any]:
        """The texts of the prompt, of the first `num_tokens` of the output, and of every lane's drafts for these."""
        lanes = []
        for steps in self.lanes:
            position = 0
            lane: list[Any] = []
            for accepted, drafted, rejected in steps:
                if position >= num_tokens:
                    break
                lane.append([accepted, drafted, [tokenizer.piece(token, fits=self.fits) for token in rejected]])
                # The target's own token follows the accepted ones.
                position += accepted + 1
            lanes.append(lane)
        return {
            "prompt": "".join(tokenizer.texts(self.prompt, fits=self.fits)),
            "texts": tokenizer.texts(self.output[:num_tokens], fits=self.fits),
            "lanes": lanes,
        }


@dataclass
class _LaneSteps:
    """A lane's steps on one request with `num_tokens` output tokens, of which the first `position` are decoded.

    `tenths` [10, 3] counts, for each tenth of the output: steps, steps whose whole draft was rejected, and steps
    without a draft.
    """

    num_tokens: int
    position: int = 0
    tenths: np.ndarray = field(default_factory=lambda: np.zeros((10, 3), int))
    shown: list[ShownStep] = field(default_factory=list)
    acceptance: Acceptance = field(default_factory=Acceptance)

    def add(self, step: Step) -> None:
        """Count a step."""
        self.acceptance.add(step)
        has_draft = step.tree.num_draft > 0
        all_rejected = has_draft and not step.accepted
        self.tenths[10 * self.position // self.num_tokens] += (1, int(all_rejected), int(not has_draft))
        self.position += len(step.emitted)
        if len(self.shown) < MAX_SHOWN_TOKENS:
            branch = step.rejected_branch[:REJECTED_SHOWN]
            rejected = tuple(step.tree.tokens[node] for node in branch)
            self.shown.append((step.accepted, step.tree.num_draft, rejected))


class LogScores:
    """The scores of a log so far, and the requests kept for viewing. `deadline` is on the monotonic clock."""

    def __init__(self, lanes: list[ScoredLane], tokenizer: LogTokenizer, deadline: float) -> None:
        self._tokenizer = tokenizer
        self._deadline = deadline
        self.board = Scoreboard(lanes, by_category=True)
        self._acceptance = {lane.name: Acceptance() for lane in lanes}
        self._tenths = {lane.name: np.zeros((10, 3), int) for lane in lanes}
        # For each request: the number of its output tokens, then each lane's number of steps.
        self._counts: list[tuple[int, ...]] = []
        self._limit_category = limit_categories()
        self._requests: list[KeptRequest] = []

    def add(self, transcript: Transcript) -> None:
        """Score a request. If the time runs out before its end, leaves it out and raises _OutOfTimeError."""
        steps = {name: _LaneSteps(len(transcript.output)) for name in self._acceptance}

        def watch(lane: str, step: Step) -> None:
            if time.monotonic() > self._deadline:
                raise _OutOfTimeError
            steps[lane].add(step)

        transcript = self._limit_category(transcript)
        # How many outputs so far loop: they contain the same tokens many times in a row.
        looping_before = self.board.looping
        self.board.add(transcript, watch)
        for lane, lane_steps in steps.items():
            self._acceptance[lane].merge(lane_steps.acceptance)
            self._tenths[lane] += lane_steps.tenths
        self._counts.append((len(transcript.output), *(lane_steps.acceptance.steps for lane_steps in steps.values())))
        self._remember(transcript, list(steps.values()), looping=self.board.looping > looping_before)

    def requests_to_show(self) -> list[KeptRequest]:
        """The requests to show: the first ones, and each lane's with the most and the fewest tokens per step."""
        numbers = {request.number for request in self._requests if request.number <= NUM_FIRST_KEPT}
        for lane in range(len(self._acceptance)):
            ranked = sorted(self._requests, key=partial(_rank, lane))
            extremes = [*ranked[:NUM_EXTREMES_KEPT], *ranked[-NUM_EXTREMES_KEPT:]]
            numbers |= {request.number for request in extremes}
        return [request for request in self._requests if request.number in numbers]

    def summary(self) -> dict[str, Any]:
        """The metrics of all requests so far, as fields of ScoredLog."""
        lanes = [
            LogLane(
                lane=lane.name,
                num_draft=lane.num_draft,
                # `part` is "" if the whole method can be scored without its model.
                scored=lane.part or "whole",
                **self._acceptance[lane.name].summary(),
                tau_low=low,
                tau_high=high,
                tenths=[(steps, rejected, no_draft) for steps, rejected, no_draft in self._tenths[lane.name].tolist()],
            )
            for lane, (low, high) in zip(self.board.lanes, self._intervals(), strict=True)
        ]
        board = self.board
        return {
            "groups": [LogGroup(**row) for row in board.groups()],
            "outputs": board.outputs,
            "looping": board.looping,
            "lanes": lanes,
            # What the engine that answered counted itself, if the log says so.
            "measured": [
                MeasuredGroup(row["category"], row["outputs"], row["tau"], row["tau_high"])
                for row in board.measured.rows()
            ],
            "measured_text": list(board.measured.sentences()),
        }

    def _intervals(self) -> list[tuple[float | None, float | None]]:
        """Each lane's bootstrap interval of tokens per step over requests; (None, None) for a single request."""
        if len(self._counts) < 2:
            return [(None, None)] * len(self.board.lanes)
        draws = resamples(len(self._counts), seed=0)
        tokens, *steps = np.array(self._counts).T
        return [ratio_interval(draws, tokens, lane_steps) for lane_steps in steps]

    def _remember(self, transcript: Transcript, steps: list[_LaneSteps], *, looping: bool) -> None:
        """Store a request, which may be shown later."""
        about = {
            "number": self.board.outputs,
            "id": transcript.id[:MAX_NAME],
            "category": transcript.category,
            "looping": looping,
            "tokens": len(transcript.output),
            "prompt_tokens": len(transcript.prompt),
        }
        tau = [len(transcript.output) / lane_steps.acceptance.steps for lane_steps in steps]
        prompt, output = transcript.prompt[-MAX_PROMPT_TOKENS:], transcript.output[:MAX_SHOWN_TOKENS]
        shown = [lane_steps.shown for lane_steps in steps]
        self._requests.append(KeptRequest(about, tau, prompt, output, shown, self._tokenizer.fits_latest()))
        if len(self._requests) > MAX_IN_MEMORY:
            self._requests = self.requests_to_show()


def limit_categories() -> Callable[[Transcript], Transcript]:
    """A function that shortens a request's category, or replaces it by OTHERS after MAX_CATEGORIES different ones."""
    names: set[str] = set()

    def limit(transcript: Transcript) -> Transcript:
        name = shorten(transcript.category, MAX_NAME)
        if name not in names and len(names) == MAX_CATEGORIES:
            name = OTHERS
        else:
            names.add(name)
        return replace(transcript, category=name)

    return limit


def _rank(lane: int, request: KeptRequest) -> tuple[float, int]:
    """The key that sorts requests by a lane's tokens per step, and later requests first if these are equal."""
    return request.tau[lane], -request.number


def score_log(_: str, log_request: bytes) -> Generator[bytes, None, bytes]:
    """Yield progress, then return the scores, both as JSON. An InputError does not show this machine's paths.

    The first argument, which all tasks of a helper have, is not used. `log_request` is JSON: the log's "path"; the
    "lanes" and their "options" (may be missing); a table's "columns"; the "tokenizer", the "name" by which visitors
    know it, and "decodes_ids" as in `LogTokenizer`; "shown": whether the answer has requests to show (default true).
    """
    settings = json.loads(log_request)
    with explain_to_visitor(settings):
        return (yield from _score(Path(settings["path"]), settings))


@contextmanager
def explain_to_visitor(settings: Mapping[str, Any]) -> Iterator[None]:
    """Replace this machine's paths in an InputError by the names that the visitor knows."""
    folder = Path(settings["path"]).parent
    try:
        yield
    except InputError as error:
        sentence = str(error).replace(f"{folder}{os.sep}", "")
        raise InputError(sentence.replace(repr(settings["tokenizer"]), repr(settings["name"]))) from None


def open_log(path: Path, settings: Mapping[str, Any]) -> tuple[TranscriptFile, LogTokenizer]:
    """The log's transcripts, and its tokenizer."""
    tokenizer = LogTokenizer(settings["tokenizer"], decodes_ids=settings["decodes_ids"])
    columns = read_columns(settings["columns"]) if settings["columns"] else None
    return TranscriptFile(path, tokenize=tokenizer, chat=tokenizer.chat, skip_bad=True, columns=columns), tokenizer


def _score(path: Path, settings: dict[str, Any]) -> Generator[bytes, None, bytes]:
    """Yield progress, then return the scores, both as JSON."""
    file, tokenizer = open_log(path, settings)
    options = settings.get("options", {})
    lanes = [ScoredLane.of(name, options.get(method_of(name).name, {})) for name in settings["lanes"]]
    scores = LogScores(lanes, tokenizer, time.monotonic() + TIME_LIMIT_S)
    size = path.stat().st_size
    progress_due = 0.0
    left_out = ""
    for transcript in file:
        if scores.board.outputs == MAX_REQUESTS:
            left_out = f"the page scores {MAX_REQUESTS:,} requests"
            break
        try:
            scores.add(transcript)
        except _OutOfTimeError:
            left_out = f"the page scores for {TIME_LIMIT_S:g} seconds"
            break
        if time.monotonic() > progress_due:
            progress_due = time.monotonic() + PROGRESS_PERIOD_S
            share = file.bytes_read / size if size else 0.0
            yield to_json(LogLine(progress=LogProgress(scores.board.outputs, share))).encode()
    if not scores.board.outputs:
        raise InputError(explain_no_requests(path, file, left_out))
    format_name, format_title = file.describe()
    result = ScoredLog(
        format=format_name,
        title=format_title,
        tokenizer=settings["name"] if tokenizer.used else "",
        left_out=left_out,
        skipped=file.skipped,
        skipped_by_reason=file.faults.most_common(),
        remarks=file.remarks.sentences(),
        **scores.summary(),
        requests=[request.shown(tokenizer) for request in scores.requests_to_show()]
        if settings.get("shown", True)
        else [],
    )
    return to_json(LogLine(scores=result)).encode()


def explain_no_requests(path: Path, file: TranscriptFile, left_out: str) -> str:
    """Why no request of the log could be used, in a sentence. `left_out` is "" if the log was read to its end."""
    if left_out:
        return f"{path.name} begins with a request too long for the page; score it on the command line."
    # Both map reasons to counts. A line that cannot be read is a fault; an answer may be left out of a line that can.
    counts = [("line", file.faults), ("answer", file.remarks.left_out)]
    reasons = [
        f"{reason} ({count} {noun}{'s' if count != 1 else ''})"
        for noun, counter in counts
        for reason, count in counter.most_common(2)
    ]
    return f"{'; '.join([f'{path.name} holds no request that can be scored', *reasons])}."
