"""A visitor's log, scored without a model: every lane's figures, and the drafts of some requests token by token.

This runs in the process beside the server's (`file_reader`).
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
from specrace.lab.acceptance import Acceptance
from specrace.lab.forecast import ratio_interval, resamples
from specrace.lab.formats.base import Message, Tokens
from specrace.lab.formats.tables import read_columns
from specrace.lab.score import Scoreboard, ScoredLane
from specrace.lab.transcripts import Transcript, TranscriptFile
from specrace.model.chat_tokenizer import ChatTokenizer, load_tokenizer
from specrace.views.detokenize import Detokenizer
from specrace.views.frames import REJECTED_SHOWN

MAX_BYTES = 20_000_000
MAX_REQUESTS = 2000
SECONDS = 120.0
# Further ones are one category.
MAX_CATEGORIES = 20
OTHERS = "other categories"
MAX_NAME = 80
# Requests whose drafts are kept: the first ones of the log, and those that draft best and worst in each lane.
FIRST_KEPT, ENDS_KEPT = 20, 5
KEPT_AT_ONCE = 200
# Of a kept request.
SHOWN_TOKENS, SHOWN_BYTES, PROMPT_TOKENS = 2000, 160_000, 400
TELL_S = 0.2

# A step as the page shows it: accepted and drafted tokens, and the first rejected branch.
Shown = tuple[int, int, tuple[int, ...]]


class _LateError(Exception):
    """The time is over in the middle of a request."""


class LogTokenizer:
    """The tokenizer of a log, loaded when a text needs it, and the texts of ids.

    `source` is what `load_tokenizer` takes. `decodes_ids`: it also decodes ids that the log itself has.
    """

    def __init__(self, source: str, *, decodes_ids: bool) -> None:
        self._source, self._decodes_ids = source, decodes_ids
        # Whether it has made ids, ever and since `take_fits`.
        self.used = self._used_now = False

    @cached_property
    def _tokenizer(self) -> ChatTokenizer:
        return load_tokenizer(self._source)

    def __call__(self, text: str) -> Sequence[int]:
        """As the tokenizer's own."""
        self.used = self._used_now = True
        return self._tokenizer(text)

    def chat(
        self, messages: list[Message], answer: Message, tools: list[Any] | None
    ) -> tuple[Sequence[int], Sequence[int]]:
        """As the tokenizer's own."""
        self.used = self._used_now = True
        return self._tokenizer.chat(messages, answer, tools)

    def take_fits(self) -> bool:
        """Whether the tokenizer fits the ids that came since the last call: it made them, or is to decode all."""
        used, self._used_now = self._used_now, False
        return used or self._decodes_ids

    def texts(self, ids: Sequence[int], *, fits: bool) -> list[str]:
        """The share of each id in their text; " #id" where no tokenizer `fits`."""
        if not fits:
            return [f" #{token}" for token in ids]
        growing = Detokenizer(self._tokenizer.decode)
        shares = growing.feed(ids)
        return [*shares[:-1], shares[-1] + growing.flush()] if shares else []

    def piece(self, token: int, *, fits: bool) -> str:
        """The text of an id by itself."""
        return self._piece(token) if fits else f" #{token}"

    @cached_property
    def _piece(self) -> Any:
        return cache(lambda token: self._tokenizer.decode([token]))


@dataclass(frozen=True)
class Viewed:
    """A request as far as it is shown: the end of its prompt, the first tokens of its output, and each lane's steps.

    `tau`: each lane's tokens per step. `fits`: the tokenizer has texts for these ids.
    """

    about: dict[str, Any]
    tau: list[float]
    prompt: Tokens
    output: Tokens
    lanes: list[list[Shown]]
    fits: bool

    @property
    def number(self) -> int:
        """Its place among the requests that were scored, from 1."""
        return int(self.about["number"])

    def to_json(self, words: LogTokenizer) -> dict[str, Any]:
        """As the page takes it, with as many tokens as SHOWN_BYTES allow."""
        shown = len(self.output)
        while len(json.dumps(found := self._shown(words, shown))) > SHOWN_BYTES and shown > 1:
            shown //= 2
        return {**self.about, "tau": self.tau, **found}

    def _shown(self, words: LogTokenizer, shown: int) -> dict[str, Any]:
        lanes = []
        for steps in self.lanes:
            at, lane = 0, list[Any]()
            for accepted, drafted, rejected in steps:
                if at >= shown:
                    break
                lane.append([accepted, drafted, [words.piece(token, fits=self.fits) for token in rejected]])
                at += accepted + 1
            lanes.append(lane)
        return {
            "prompt": "".join(words.texts(self.prompt, fits=self.fits)),
            "texts": words.texts(self.output[:shown], fits=self.fits),
            "lanes": lanes,
        }


@dataclass
class _Steps:
    """A lane's steps on one request of so many output tokens.

    `tenths`: for each tenth of the output its steps, those whose draft was rejected at once, and those without a draft.
    """

    tokens: int
    at: int = 0
    tenths: np.ndarray = field(default_factory=lambda: np.zeros((10, 3), int))
    shown: list[Shown] = field(default_factory=list)
    acceptance: Acceptance = field(default_factory=Acceptance)

    def add(self, step: Step) -> None:
        self.acceptance.add(step)
        drafted = step.tree.num_draft > 0
        self.tenths[10 * self.at // self.tokens] += (1, drafted and not step.accepted, not drafted)
        self.at += len(step.emitted)
        if len(self.shown) < SHOWN_TOKENS:
            branch = step.rejected_branch[:REJECTED_SHOWN]
            tokens = tuple(step.tree.tokens[node] for node in branch)
            self.shown.append((step.accepted, step.tree.num_draft, tokens))


class LogScores:
    """The scores of a log as they grow, and the requests that are kept for viewing. `until` is monotonic time."""

    def __init__(self, lanes: list[ScoredLane], words: LogTokenizer, until: float) -> None:
        self._words, self._until = words, until
        self.board = Scoreboard(lanes, by_category=True)
        self._acceptance = {lane.name: Acceptance() for lane in lanes}
        self._tenths = {lane.name: np.zeros((10, 3), int) for lane in lanes}
        # Of each request its tokens, and its steps in every lane.
        self._sizes: list[tuple[int, ...]] = []
        self._sorted = categories()
        self._viewed: list[Viewed] = []

    def add(self, transcript: Transcript) -> None:
        """Score a request. Raises _LateError, and leaves it out, if the time is over before its end."""
        steps = {name: _Steps(len(transcript.output)) for name in self._acceptance}

        def watch(lane: str, step: Step) -> None:
            if time.monotonic() > self._until:
                raise _LateError
            steps[lane].add(step)

        transcript = self._sorted(transcript)
        loops = self.board.looping
        self.board.add(transcript, watch)
        for lane, own in steps.items():
            self._acceptance[lane].merge(own.acceptance)
            self._tenths[lane] += own.tenths
        self._sizes.append((len(transcript.output), *(own.acceptance.steps for own in steps.values())))
        self._view(transcript, list(steps.values()), looping=self.board.looping > loops)

    def viewed(self) -> list[Viewed]:
        """The requests that are kept: the first ones, and in each lane those with the most tokens per step and the
        fewest.
        """
        kept = {each.number for each in self._viewed if each.number <= FIRST_KEPT}
        for lane in range(len(self._acceptance)):
            ranked = sorted(self._viewed, key=partial(_rank, lane))
            kept |= {each.number for each in [*ranked[:ENDS_KEPT], *ranked[-ENDS_KEPT:]]}
        return [each for each in self._viewed if each.number in kept]

    def summary(self) -> dict[str, Any]:
        """The figures of all requests so far."""
        lanes = [
            {"lane": lane.name, "num_draft": lane.num_draft, "scored": lane.part or "whole"}
            | self._acceptance[lane.name].summary()
            | {"tau_low": low, "tau_high": high, "tenths": self._tenths[lane.name].tolist()}
            for lane, (low, high) in zip(self.board.lanes, self._intervals(), strict=True)
        ]
        board = self.board
        return {"groups": board.groups(), "outputs": board.outputs, "looping": board.looping, "lanes": lanes}

    def _intervals(self) -> list[tuple[float | None, float | None]]:
        """Bootstrap intervals over requests of each lane's tokens per step; (None, None) for a single request."""
        if len(self._sizes) < 2:
            return [(None, None)] * len(self.board.lanes)
        draws, (tokens, *steps) = resamples(len(self._sizes), 0), np.array(self._sizes).T
        return [ratio_interval(draws, tokens, own) for own in steps]

    def _view(self, transcript: Transcript, steps: list[_Steps], *, looping: bool) -> None:
        about = {
            "number": self.board.outputs,
            "id": transcript.id[:MAX_NAME],
            "category": transcript.category,
            "looping": looping,
            "tokens": len(transcript.output),
            "prompt_tokens": len(transcript.prompt),
        }
        tau = [len(transcript.output) / own.acceptance.steps for own in steps]
        prompt, output = transcript.prompt[-PROMPT_TOKENS:], transcript.output[:SHOWN_TOKENS]
        shown = [own.shown for own in steps]
        self._viewed.append(Viewed(about, tau, prompt, output, shown, self._words.take_fits()))
        if len(self._viewed) > KEPT_AT_ONCE:
            self._viewed = self.viewed()


def categories() -> Callable[[Transcript], Transcript]:
    """Gives requests short names of categories; those beyond MAX_CATEGORIES are one."""
    known = set[str]()

    def sorted_in(transcript: Transcript) -> Transcript:
        name = shorten(transcript.category, MAX_NAME)
        if name not in known and len(known) == MAX_CATEGORIES:
            name = OTHERS
        else:
            known.add(name)
        return replace(transcript, category=name)

    return sorted_in


def _rank(lane: int, each: Viewed) -> tuple[float, int]:
    return each.tau[lane], -each.number


def score_log(_: str, asked: bytes) -> Generator[bytes, None, bytes]:
    """Progress, and then the scores, as JSON. Raises InputError, without this machine's paths.

    `asked` is JSON: the log's "path", the "lanes" and their "options", a table's "columns", the "tokenizer" with its
    "name", and whether it also "decodes_ids". Requests are not "shown" where that is false.
    """
    given = json.loads(asked)
    with explain_to_visitor(given):
        return (yield from _score(Path(given["path"]), given))


@contextmanager
def explain_to_visitor(given: Mapping[str, Any]) -> Iterator[None]:
    """Sentences of errors have the visitor's names, not this machine's paths."""
    folder = Path(given["path"]).parent
    try:
        yield
    except InputError as error:
        sentence = str(error).replace(f"{folder}{os.sep}", "")
        raise InputError(sentence.replace(repr(given["tokenizer"]), repr(given["name"]))) from None


def open_log(path: Path, given: Mapping[str, Any]) -> tuple[TranscriptFile, LogTokenizer]:
    """The log, and its tokenizer."""
    words = LogTokenizer(given["tokenizer"], decodes_ids=given["decodes_ids"])
    columns = read_columns(given["columns"]) if given["columns"] else None
    return TranscriptFile(path, tokenize=words, chat=words.chat, skip_bad=True, columns=columns), words


def _score(path: Path, given: dict[str, Any]) -> Generator[bytes, None, bytes]:
    file, words = open_log(path, given)
    options = given.get("options", {})
    lanes = [ScoredLane.of(name, options.get(name, {})) for name in given["lanes"]]
    scores = LogScores(lanes, words, time.monotonic() + SECONDS)
    size, due, left_out = path.stat().st_size, 0.0, ""
    for transcript in file:
        if scores.board.outputs == MAX_REQUESTS:
            left_out = f"the page scores {MAX_REQUESTS:,} requests"
            break
        try:
            scores.add(transcript)
        except _LateError:
            left_out = f"the page scores for {SECONDS:g} seconds"
            break
        if time.monotonic() > due:
            due = time.monotonic() + TELL_S
            share = file.bytes_read / size if size else 0.0
            yield json.dumps({"progress": {"requests": scores.board.outputs, "share": share}}).encode()
    if not scores.board.outputs:
        raise InputError(nothing(path, file, left_out))
    name, title = file.describe()
    found = {
        "format": name,
        "title": title,
        "tokenizer": given["name"] if words.used else "",
        "left_out": left_out,
        "skipped": file.skipped,
        "skipped_by_reason": file.faults.most_common(),
        **scores.summary(),
        "requests": [each.to_json(words) for each in scores.viewed()] if given.get("shown", True) else [],
    }
    return json.dumps({"scores": found}, separators=(",", ":")).encode()


def nothing(path: Path, file: TranscriptFile, left_out: str) -> str:
    """Why no request could be scored."""
    if left_out:
        return f"{path.name} begins with a request too long for the page; score it on the command line."
    reasons = "; ".join(f"{reason} ({count} lines)" for reason, count in file.faults.most_common(2))
    why = f"; {reasons}" if reasons else ""
    return f"{path.name} holds no request that can be scored{why}."
