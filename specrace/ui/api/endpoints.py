"""The endpoints that programs and agents call: race, retrieve, score and recommend, with their schemas and help."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import gradio as gr

from specrace.core.errors import InputError, shorten
from specrace.core.settings import MAX_PAGE_LANES, MAX_QUESTION_CHARACTERS, SETTINGS, Setting
from specrace.drafters import native_methods
from specrace.engine.spec import DEFAULT_LANES
from specrace.lab.advice.presets import GPUS
from specrace.lab.advice.recommend import BATCHES
from specrace.lab.scoring.score import ScoredLane, scorable_lanes
from specrace.ui.api import log_routes
from specrace.ui.helper import log_advice, log_scores, uploads
from specrace.ui.helper.pool import HelperPool
from specrace.ui.limits import MAX_LOG_BYTES, MAX_UPLOAD_FILES
from specrace.ui.races import race_request
from specrace.ui.races.job import Job
from specrace.ui.races.model_choices import ModelChoices
from specrace.ui.races.stream import race_report, wait_until_done
from specrace.ui.races.tasks import race_task, retrieval_task
from specrace.ui.races.worker import Worker
from specrace.ui.server.guard import NO_FILES
from specrace.ui.server.visitors import Visitors, address_of, visitor_key

if TYPE_CHECKING:
    from specrace.retrieval.retriever import Hit

T = TypeVar("T")
# The schema of Gradio's file components: Gradio's clients upload such a value, and show it as a path in their help.
FILE = {
    "title": "FileData",
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "meta": {"type": "object", "properties": {"_type": {"const": "gradio.FileData", "type": "string"}}},
    },
    "required": ["path", "meta"],
}
# An object with any keys.
RESULT = {"type": "object", "additionalProperties": {}}
UPLOADED = "over HTTP, a path that POST /gradio_api/upload returned"
LOG_MB = MAX_LOG_BYTES // 10**6
# The help of parameters that are not settings of a race.
HELP = {
    "question": f"About the documents; at most {MAX_QUESTION_CHARACTERS:,} characters.",
    "lanes": f"Names, up to {MAX_PAGE_LANES}.",
    "options": 'Lanes\' options, as {"trie": {"n": 5}}; those left out keep their defaults.',
    "model": "One of those that this server offers; empty: its own.",
    "dtype": "Precision of the weights, one of those that this server offers; empty: its default.",
    "files": f"Your documents, in place of the server's: up to {MAX_UPLOAD_FILES} files, 2 MB in all; {UPLOADED}.",
    "log": f"A file of logged requests and outputs, up to {LOG_MB} MB, in a format that `score` reads; {UPLOADED}.",
    "text": 'The log as text in place of a file, say lines of {"prompt": ..., "output": ...}; up to 250 kB.',
    "columns": "Columns of a table, as prompt=question,output=answer.",
    "engine": f"One of {', '.join(log_advice.TITLES)}; empty: all.",
    "cost_curve": f"What a forward costs: {', '.join(log_advice.CURVES)}, {log_advice.MEASURED} (this server, if it is "
    f"calibrated), or a GPU ({', '.join(GPUS)}) and a size ({', '.join(map(str, log_advice.SIZES))}), as h100-8b.",
    "batch": f"Requests that the engine decodes at a time: {', '.join(map(str, BATCHES))}.",
    "tokenizer": "The model whose tokenizer reads a log of text; empty: the server's own. Token ids need none.",
}
# Schemas that are more precise than the parameters' Python types.
TYPES: dict[str, dict[str, Any]] = {
    "files": {"type": "array", "items": FILE},
    "log": FILE,
    "engine": {"enum": ["", *log_advice.TITLES]},
    "batch": {"enum": list(BATCHES)},
    "options": {"type": "object", "additionalProperties": {"type": "object"}},
}
# In a call of an agent's tool, a file is the path that its upload returned.
TOOL_TYPES = {"files": {"type": "array", "items": {"type": "string"}}, "log": {"type": "string"}}


def documented(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a line for each parameter to the docstring, from which Gradio takes the help of MCP's tools."""
    names = [name for name in inspect.signature(function).parameters if name in HELP or name in SETTINGS]
    lines = [f"    {name}: {describe(name)}" for name in names]
    head, _, returns = inspect.cleandoc(function.__doc__ or "").partition("Returns:")
    # On one line, because Gradio puts commas between the lines of this section.
    function.__doc__ = "\n".join(
        [head.rstrip(), "", "Args:", *lines, "", "Returns:", f"    {' '.join(returns.split())}"]
    )
    return function


def describe(name: str) -> str:
    """A parameter's help. For a setting of a race it is the page's help and the valid values."""
    if name in HELP:
        return HELP[name]
    return f"{SETTINGS[name].help} Give {SETTINGS[name].range(shared=True)}."


class Endpoints:
    """The endpoints of a page. When a caller disconnects, its work is stopped."""

    def __init__(
        self, worker: Worker, workbenches: uploads.VisitWorkbenches, models: ModelChoices, visitors: Visitors
    ) -> None:
        self._worker = worker
        self._workbenches = workbenches
        self._models = models
        self._visitors = visitors

    def add_to(self, page: gr.Blocks) -> None:
        """Add the endpoints to `page`. Adds to their schemas what Gradio cannot derive from the signatures."""
        for function in (self.race, self.retrieve, self.score, self.recommend):
            gr.api(function, concurrency_limit=None)
            added = page.fns[max(page.fns)]
            names = [name for name in inspect.signature(function).parameters if name != "request"]
            lanes = scorable_lanes() if function == self.score else tuple(native_methods())
            for name, component in zip(names, added.inputs, strict=True):
                component.label, component._api_info = name, schema(name, component._api_info, lanes)
                if name == "max_new_tokens":
                    component._api_info["maximum"] = self._visitors.limits.race_tokens
            is_list = function == self.retrieve
            added.outputs[0].label = "passages" if is_list else "result"
            added.outputs[0]._api_info = {"type": "array", "items": RESULT} if is_list else RESULT

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
        settings = {
            "max_new_tokens": max_new_tokens, "temperature": temperature, "top_p": top_p, "seed": seed,
            "num_draft": num_draft, "passages": passages, "verifier": verifier,
        }  # fmt: skip
        with self._worker.telemetry.refusals():
            race = race_request.parse_request(question, lanes, settings, options, model, dtype)
            self._models.check(race.model, race.dtype)
            self._visitors.count_race(address_of(request), race.spec.max_new_tokens)
        caller = _caller(request)
        upload = await self._upload(request, files)
        task = race_task(race, self._workbenches, self._models, caller, upload)
        job = self._worker.queue.submit(caller, task, for_page=False)
        return await self._visitors.run_while_wanted(_call(request), race_report(job))

    @documented
    async def retrieve(
        self, request: gr.Request, question: str, passages: int | Literal["auto"] = "auto", files: Any = None
    ) -> list[dict[str, Any]]:
        """Find the passages of the documents that answer a question, best first.

        Returns:
            Passages with document, title, place, start and end (characters in the document's text), score (cosine to
            the question), text, and evidence: start and end in that text of the sentences that answer.
        """
        question = race_request.read_question(question)
        top = SETTINGS["passages"].check(passages, shared=True)
        self._visitors.count_retrieval(address_of(request))
        caller = _caller(request)
        hits: list[Hit] = []
        upload = await self._upload(request, files)
        task = retrieval_task(question, top, self._workbenches, caller, upload, hits)
        job = self._worker.queue.submit(caller, task, for_page=False, is_race=False)
        await self._visitors.run_while_wanted(_call(request), _wait_for_success(job))
        return [_passage(hit) for hit in hits]

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
        names, log_request = self._parse_log_request(lanes, columns, tokenizer)
        log_request["options"] = race_request.read_options(options, names)
        for name in names:
            size = ScoredLane.of(name, log_request["options"].get(name, {})).num_draft
            if size > race_request.MAX_TREE:
                raise InputError(f"{name} would draft {size} tokens a step; stay below {race_request.MAX_TREE}.")
        log_request["shown"] = False
        answer = await self._run_log_task(request, "log", log_scores.TIME_LIMIT_S, log, text, log_request)
        return {name: value for name, value in answer["scores"].items() if name != "requests"}

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
        """Recommend the drafter and settings that pay on your own logged requests, with evidence, ready to paste.

        No model runs. Many settings are tried on a sample of the log, and the best ones on all of it.

        Returns:
            For each of `engines`: the recommendation (lane, options, num_draft, and tokens per step `tau` and speedup
            with their intervals), the same by category in `groups`, the advice in words in `text`, what to paste in
            `export`, and what was `not_tested`.
        """
        if engine not in ("", *log_advice.TITLES):
            raise InputError(f"There is no engine {shorten(engine, 40)!r}; choose from {', '.join(log_advice.TITLES)}.")
        _, log_request = self._parse_log_request(list(log_routes.DEFAULT_LANES), columns, tokenizer)
        measured = self._worker.loading.measured_curve
        log_request |= log_advice.read_costs({"curve": str(cost_curve), "batch": str(batch)}, measured)
        answer = await self._run_log_task(request, "advice", log_advice.TIME_LIMIT_S, log, text, log_request)
        advice = answer["advice"]
        engines = [entry for entry in advice.pop("engines") if engine in ("", entry["engine"])]
        return {"engines": engines, **{name: value for name, value in advice.items() if name != "tried"}}

    def _parse_log_request(self, lanes: Any, columns: Any, tokenizer: Any) -> tuple[list[str], dict[str, Any]]:
        """The lanes, and the request for `score_log`; `advise_log` needs more fields. Raises InputError."""
        if not isinstance(lanes, list) or not all(isinstance(name, str) for name in lanes):
            raise InputError('The lanes are not a list of names; give ["trie", "suffix"].')
        if not isinstance(columns, str) or not isinstance(tokenizer, str):
            raise InputError("Columns and tokenizer are strings; leave them empty if they are not needed.")
        query = {"lanes": ",".join(lanes), "columns": columns, "tokenizer": tokenizer}
        log_request = log_routes.parse_log_request(query, self._models)
        return log_request["lanes"], log_request

    async def _run_log_task(
        self, request: gr.Request, task: str, limit_s: float, log: Any, text: Any, log_request: dict[str, Any]
    ) -> Any:
        """The result of a helper process's task on a log, parsed from JSON. Raises InputError."""
        source = self._log_source(request, log, text)
        self._visitors.count_upload(address_of(request), 1)
        caller_left = threading.Event()
        scorer, visitor = self._worker.other_work.logs, visitor_key(address_of(request))
        run = partial(scorer.run, task, limit_s=limit_s + log_routes.GRACE_S, stop=caller_left.is_set)
        run = partial(run, visitor=visitor, visit=_call(request))
        if isinstance(source, Path):
            read = partial(log_routes.read_file, run, log_request, source)
        else:
            content = source.encode("utf-8", "replace")
            read = partial(log_routes.read_content, run, log_request, _log_name(source), content)
        try:
            return json.loads(await self._visitors.run_while_wanted(_call(request), _in_thread(scorer, read)))
        finally:
            caller_left.set()

    def _log_source(self, request: gr.Request, log: Any, text: Any) -> Path | str:
        """The path of the uploaded log, or the log's text, whichever the caller sent. Raises InputError."""
        if not self._visitors.limits.uploads:
            raise InputError(NO_FILES)
        if not isinstance(text, str) or bool(log) == bool(text.strip()):
            raise InputError("Give a log or its text, one of the two.")
        if not log:
            return text
        files = [Path(path) for path in self._visitors.uploaded_paths(address_of(request), log)]
        if len(files) > 1:
            raise InputError(f"{len(files)} logs were given; give one.")
        if not files[0].exists():
            raise InputError("The log is no longer there; upload it again.")
        if files[0].stat().st_size > MAX_LOG_BYTES:
            raise InputError(f"The log is larger than {LOG_MB} MB; score it on the command line.")
        return files[0]

    async def _upload(self, request: gr.Request, files: Any) -> uploads.Upload | None:
        """Read the caller's documents; returns None if there are none. Raises InputError."""
        address = address_of(request)
        paths = self._visitors.uploaded_paths(address, files)
        if not paths:
            return None
        read = partial(self._workbenches.read, _caller(request), paths, address, _call(request))
        return await _in_thread(self._worker.other_work.files, read)


def schema(name: str, derived: Mapping[str, Any], lanes: Sequence[str]) -> dict[str, Any]:
    """A parameter's JSON schema: the one `derived` from its type, with its setting's bounds and help."""
    json_schema = dict(TYPES.get(name, derived))
    if name == "lanes":
        json_schema["items"] = {"type": "string", "enum": list(lanes)}
    elif name in SETTINGS:
        json_schema = _bounded(SETTINGS[name], json_schema)
    return json_schema | {"additional_description": describe(name)}


def _bounded(setting: Setting, derived: dict[str, Any]) -> dict[str, Any]:
    """The schema `derived` from a setting's type, with the setting's choices or bounds."""
    if setting.choices:
        return {"enum": list(setting.choices)}
    low, high = setting.bounds(shared=True)
    if setting.default is None:
        return {"anyOf": [{"type": "integer", "minimum": low, "maximum": high}, {"const": "auto"}]}
    return derived | {"minimum": low, "maximum": high}


def _caller(request: gr.Request) -> str:
    """The key of an API client's jobs, in place of a visit's id. Clients are distinguished by their address."""
    return f"api {address_of(request)}"


def _call(request: gr.Request) -> str:
    """The key of one call, under which its reader is known."""
    return request.session_hash or ""


async def _in_thread(pool: HelperPool, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool.threads, work)


async def _wait_for_success(job: Job) -> None:
    """Wait for a job. Raises InputError if it failed."""
    await wait_until_done(job)
    if job.error:
        raise InputError(job.error)


def _passage(hit: Hit) -> dict[str, Any]:
    evidence = [sentence for sentence in hit.sentences if sentence.evidence]
    ranked = sorted(evidence, key=lambda sentence: sentence.evidence)
    passage = hit.passage
    return {
        "document": passage.document,
        "title": passage.title,
        "place": passage.place,
        "start": passage.start,
        "end": passage.end,
        "score": round(float(hit.score), 4),
        "text": passage.text,
        "evidence": [[sentence.start, sentence.end] for sentence in ranked],
    }


def _log_name(text: str) -> str:
    """A file name for a log that came as text, because tables are recognised by their suffix."""
    first_line = text.lstrip().partition("\n")[0]
    if first_line.startswith(("{", "[")):
        return "log"
    return "log.tsv" if "\t" in first_line else "log.csv"
