"""What programs and agents call by name: race, retrieve, score and recommend, documented where they list endpoints."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import gradio as gr

from specrace.core.errors import InputError, shorten
from specrace.core.settings import SETTINGS, Setting
from specrace.drafters import native_methods
from specrace.engine.spec import DEFAULT_LANES
from specrace.lab.presets import GPUS
from specrace.lab.recommend import BATCHES
from specrace.lab.score import ScoredLane, scorable_lanes
from specrace.ui import log_advice, log_routes, log_scores, race_request, uploads
from specrace.ui.guard import NO_FILES
from specrace.ui.model_choices import ModelChoices
from specrace.ui.stream import ended, outcome
from specrace.ui.tasks import racing, retrieving
from specrace.ui.visitors import Visitors, address_of
from specrace.ui.worker import Job, Worker

if TYPE_CHECKING:
    from specrace.retrieval.retriever import Hit

# As Gradio's own file components describe theirs: clients upload such a value, and their documentation shows a path.
FILE = {
    "title": "FileData",
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "meta": {"type": "object", "properties": {"_type": {"const": "gradio.FileData", "type": "string"}}},
    },
    "required": ["path", "meta"],
}
RESULT = {"type": "object", "additionalProperties": {}}
SENT = "over HTTP, a path that POST /gradio_api/upload returned"
LOG_MB = log_scores.MAX_BYTES // 10**6
# What a parameter is, beside the settings of a race.
HELP = {
    "question": f"About the documents; at most {race_request.MAX_QUESTION_CHARACTERS:,} characters.",
    "lanes": f"Names, up to {race_request.MAX_LANES}.",
    "options": 'Lanes\' options, as {"trie": {"n": 5}}; what is left out is at its default.',
    "model": "Of those that this server offers; empty: its own.",
    "dtype": "Precision of the weights, of those that this server offers; empty: the server's default.",
    "files": f"Your documents, in place of the server's: up to {uploads.MAX_FILES} files, 2 MB in all; {SENT}.",
    "log": f"A file of logged requests and outputs, up to {LOG_MB} MB, in a format that `score` reads; {SENT}.",
    "text": 'The log as text in place of a file, say lines of {"prompt": ..., "output": ...}; up to 250 kB.',
    "columns": "Columns of a table, as prompt=question,output=answer.",
    "engine": f"Of {', '.join(log_advice.TITLES)}; empty: all.",
    "cost_curve": f"What a forward costs: {', '.join(log_advice.CURVES)}, {log_advice.MEASURED} (this server, if it is "
    f"calibrated), or a GPU ({', '.join(GPUS)}) and a size ({', '.join(map(str, log_advice.SIZES))}), as h100-8b.",
    "batch": f"Requests that the engine decodes at a time: {', '.join(map(str, BATCHES))}.",
    "tokenizer": "Of which model, for logs of text; empty: of the server's own. Token ids need none.",
}
# Of parameters whose type is not all that there is to say.
TYPES: dict[str, dict[str, Any]] = {
    "files": {"type": "array", "items": FILE},
    "log": FILE,
    "engine": {"enum": ["", *log_advice.TITLES]},
    "batch": {"enum": list(BATCHES)},
    "options": {"type": "object", "additionalProperties": {"type": "object"}},
}
# An agent's tool names a file by the path that its upload was answered with.
TOOL_TYPES = {"files": {"type": "array", "items": {"type": "string"}}, "log": {"type": "string"}}


def documented(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a line for each parameter to a docstring, where MCP's tools take theirs from."""
    names = [name for name in inspect.signature(function).parameters if name in HELP or name in SETTINGS]
    lines = [f"    {name}: {describe(name)}" for name in names]
    head, _, returns = inspect.cleandoc(function.__doc__ or "").partition("Returns:")
    # Gradio puts commas between the lines of what it returns.
    function.__doc__ = "\n".join(
        [head.rstrip(), "", "Args:", *lines, "", "Returns:", f"    {' '.join(returns.split())}"]
    )
    return function


def describe(name: str) -> str:
    """A parameter in words; those of a race as the page has them."""
    if name in HELP:
        return HELP[name]
    return f"{SETTINGS[name].help} Give {SETTINGS[name].range(shared=True)}."


class Endpoints:
    """The endpoints of a page. Work for a caller who leaves is stopped."""

    def __init__(
        self, worker: Worker, benches: uploads.VisitWorkbenches, models: ModelChoices, visitors: Visitors
    ) -> None:
        self._worker, self._benches, self._models, self._visitors = worker, benches, models, visitors

    def add_to(self, page: gr.Blocks) -> None:
        """Add them, with what Gradio does not take from their signatures: help, bounds, names of lanes, and files."""
        for function in (self.race, self.retrieve, self.score, self.recommend):
            gr.api(function, concurrency_limit=None)
            added = page.fns[max(page.fns)]
            names = [name for name in inspect.signature(function).parameters if name != "request"]
            lanes = scorable_lanes() if function == self.score else tuple(native_methods())
            for name, component in zip(names, added.inputs, strict=True):
                component.label, component._api_info = name, schema(name, component._api_info, lanes)
                if name == "max_new_tokens":
                    component._api_info["maximum"] = self._visitors.limits.race_tokens
            rows = function == self.retrieve
            added.outputs[0].label = "passages" if rows else "result"
            added.outputs[0]._api_info = {"type": "array", "items": RESULT} if rows else RESULT

    @documented
    async def race(
        self,
        request: gr.Request,
        question: str,
        lanes: list[str] = list(DEFAULT_LANES),  # noqa: B006  Gradio reads the default for its documentation
        max_new_tokens: int = SETTINGS["max_new_tokens"].default,
        temperature: float = SETTINGS["temperature"].default,
        top_p: float = SETTINGS["top_p"].default,
        seed: int = SETTINGS["seed"].default,
        num_draft: int | Literal["auto"] = "auto",
        passages: int | Literal["auto"] = "auto",
        verifier: str = SETTINGS["verifier"].default,
        options: dict[str, dict[str, Any]] | None = None,
        model: str = "",
        dtype: str = "",
        files: Any = None,
    ) -> dict[str, Any]:
        """Race draft-and-verify decoders on a question about the documents.

        Vanilla, one token a step, always runs too: it is the baseline for speed and text.

        Returns:
            The question's passages, and for each lane its text, tokens per step, speedup, whether it printed vanilla's
            text, and its other figures, as `race --json` prints them.
        """
        given = {
            "max_new_tokens": max_new_tokens, "temperature": temperature, "top_p": top_p, "seed": seed,
            "num_draft": num_draft, "passages": passages, "verifier": verifier,
        }  # fmt: skip
        with self._worker.telemetry.refusals():
            asked = race_request.parse_request(question, lanes, given, options, model, dtype)
            self._models.check(asked.model, asked.dtype)
            self._visitors.race(address_of(request), asked.spec.max_new_tokens)
        session = _session(request)
        upload = await self._upload(request, files)
        job = self._worker.submit(session, racing(asked, self._benches, self._models, session, upload), for_page=False)
        return await self._visitors.wanted(request.session_hash or "", outcome(job))

    @documented
    async def retrieve(
        self, request: gr.Request, question: str, passages: int | Literal["auto"] = "auto", files: Any = None
    ) -> list[dict[str, Any]]:
        """Find the passages of the documents that answer a question, best first.

        Returns:
            Passages with document, title, place, start and end (characters in the document's text), score (cosine to
            the question), text, and evidence: the start and end of its telling sentences in that text.
        """
        question = race_request.read_question(question)
        top = SETTINGS["passages"].check(passages, shared=True)
        self._visitors.retrieval(address_of(request))
        session = _session(request)
        found: list[Hit] = []
        upload = await self._upload(request, files)
        run = retrieving(question, top, self._benches, session, upload, found)
        job = self._worker.submit(session, run, for_page=False, is_race=False)
        await self._visitors.wanted(request.session_hash or "", _ended_well(job))
        return [_passage(hit) for hit in found]

    @documented
    async def score(
        self,
        request: gr.Request,
        log: Any = None,
        text: str = "",
        lanes: list[str] = list(log_routes.DEFAULT_LANES),  # noqa: B006
        columns: str = "",
        tokenizer: str = "",
        options: dict[str, dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """Score what drafting would yield on your own logged requests, without running a model.

        Returns:
            `groups` with a row for each lane and category (tokens per step as `tau`, drafted tokens, acceptance rate),
            as `score --json` prints them, and the log's format, requests, and lines that were left out, by reason.
        """
        names, asked = self._asked_of_log(lanes, columns, tokenizer)
        asked["options"] = race_request.read_options(options, names)
        for name in names:
            size = ScoredLane.of(name, asked["options"].get(name, {})).num_draft
            if size > race_request.MAX_TREE:
                raise InputError(f"{name} would draft {size} tokens a step; stay below {race_request.MAX_TREE}.")
        asked["shown"] = False
        found = await self._read_log(request, "log", log_scores.SECONDS, log, text, asked)
        return {name: value for name, value in found["scores"].items() if name != "requests"}

    @documented
    async def recommend(
        self,
        request: gr.Request,
        log: Any = None,
        text: str = "",
        engine: str = "",
        cost_curve: str = log_advice.ASSUMED,
        batch: int = 1,
        columns: str = "",
        tokenizer: str = "",
    ) -> dict[str, Any]:
        """Recommend which drafter and settings pay on your own logged requests, with the evidence, ready to paste.

        No model runs. Many settings are tried on a sample of the log, and the best ones on all of it.

        Returns:
            For each of `engines`: the recommendation (lane, options, num_draft, and tokens per step `tau` and speedup
            with their intervals), the same by category in `groups`, the advice in words in `text`, what to paste in
            `export`, and what was `not_tested`.
        """
        if engine not in ("", *log_advice.TITLES):
            raise InputError(f"There is no engine {shorten(engine, 40)!r}; choose from {', '.join(log_advice.TITLES)}.")
        _, asked = self._asked_of_log(list(log_routes.DEFAULT_LANES), columns, tokenizer)
        measured = self._worker.workbench.curve if self._worker.workbench is not None else None
        asked |= log_advice.read_costs({"curve": str(cost_curve), "batch": str(batch)}, measured)
        found = (await self._read_log(request, "advice", log_advice.ADVICE_SECONDS, log, text, asked))["advice"]
        engines = [each for each in found.pop("engines") if engine in ("", each["engine"])]
        return {"engines": engines, **{name: value for name, value in found.items() if name != "tried"}}

    def _asked_of_log(self, lanes: Any, columns: Any, tokenizer: Any) -> tuple[list[str], dict[str, Any]]:
        """The lanes, and what `log_routes.parse_log_request` makes of these. Raises InputError."""
        if not isinstance(lanes, list) or not all(isinstance(name, str) for name in lanes):
            raise InputError('The lanes are not a list of names; give ["trie", "suffix"].')
        if not isinstance(columns, str) or not isinstance(tokenizer, str):
            raise InputError("Columns and tokenizer are texts; leave them empty where they are not needed.")
        asked = log_routes.parse_log_request(
            {"lanes": ",".join(lanes), "columns": columns, "tokenizer": tokenizer}, self._models
        )
        return asked["lanes"], asked

    async def _read_log(
        self, request: gr.Request, task: str, limit_s: float, log: Any, text: Any, asked: dict[str, Any]
    ) -> Any:
        """The result of a task of the process beside the server, as JSON's value. Raises InputError."""
        content = self._log_of(request, log, text)
        self._visitors.upload(address_of(request), 1)
        gone = threading.Event()
        run = partial(self._worker.scorer.run, task, limit_s=limit_s + log_routes.GRACE_S, stop=gone.is_set)
        if isinstance(content, Path):
            read = partial(log_routes.read_file, run, asked, content)
        else:
            read = partial(log_routes.read_content, run, asked, _name(content), content.encode("utf-8", "replace"))
        try:
            return json.loads(await self._visitors.wanted(request.session_hash or "", asyncio.to_thread(read)))
        finally:
            gone.set()

    def _log_of(self, request: gr.Request, log: Any, text: Any) -> Path | str:
        """The one of the two that was given. Raises InputError."""
        if not self._visitors.limits.uploads:
            raise InputError(NO_FILES)
        if not isinstance(text, str) or bool(log) == bool(text.strip()):
            raise InputError("Give a log or its text, one of the two.")
        if not log:
            return text
        files = [Path(each) for each in self._visitors.own_files(address_of(request), log)]
        if len(files) > 1:
            raise InputError(f"{len(files)} logs were given; give one.")
        if not files[0].exists():
            raise InputError("The log is no longer there; upload it again.")
        if files[0].stat().st_size > log_scores.MAX_BYTES:
            raise InputError(f"The log is larger than {LOG_MB} MB; score it on the command line.")
        return files[0]

    async def _upload(self, request: gr.Request, files: Any) -> uploads.Upload | None:
        """The caller's own documents, read. Raises InputError."""
        paths = self._visitors.own_files(address_of(request), files)
        return await asyncio.to_thread(self._benches.read, _session(request), paths) if paths else None


def schema(name: str, derived: Mapping[str, Any], lanes: Sequence[str]) -> dict[str, Any]:
    """A parameter's JSON schema: the one `derived` from its type with the bounds and the help of its setting."""
    found = dict(TYPES.get(name, derived))
    if name == "lanes":
        found["items"] = {"type": "string", "enum": list(lanes)}
    elif name in SETTINGS:
        found = _bounded(SETTINGS[name], found)
    return found | {"additional_description": describe(name)}


def _bounded(setting: Setting, derived: dict[str, Any]) -> dict[str, Any]:
    if setting.choices:
        return {"enum": list(setting.choices)}
    low, high = setting.bounds(shared=True)
    if setting.default is None:
        return {"anyOf": [{"type": "integer", "minimum": low, "maximum": high}, {"const": "auto"}]}
    return derived | {"minimum": low, "maximum": high}


def _session(request: gr.Request) -> str:
    """Whose work it is: a program's, which has no session of a page."""
    return f"api {address_of(request)}"


async def _ended_well(job: Job) -> None:
    await ended(job)
    if job.error:
        raise InputError(job.error)


def _passage(hit: Hit) -> dict[str, Any]:
    ranked = sorted((each for each in hit.sentences if each.evidence), key=lambda each: each.evidence)
    passage = hit.passage
    return {
        "document": passage.document,
        "title": passage.title,
        "place": passage.place,
        "start": passage.start,
        "end": passage.end,
        "score": round(float(hit.score), 4),
        "text": passage.text,
        "evidence": [[each.start, each.end] for each in ranked],
    }


def _name(text: str) -> str:
    """A name for a log that came as text: tables are recognised by theirs."""
    first = text.lstrip().partition("\n")[0]
    return "log" if first.startswith(("{", "[")) else "log.tsv" if "\t" in first else "log.csv"
