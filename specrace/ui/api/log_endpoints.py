"""The endpoints `score` and `recommend`, which work on a caller's log and run no model."""

from __future__ import annotations

import json
import threading
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from specrace.core.errors import InputError, shorten
from specrace.engine.lane_name import method_of, with_shared_options
from specrace.lab.scoring.score import ScoredLane
from specrace.ui.api import log_routes
from specrace.ui.api.callers import call_key, run_in_thread
from specrace.ui.api.schema import LOG_MB, documented
from specrace.ui.helper import log_advice, log_scores
from specrace.ui.races import race_request
from specrace.ui.races.backend import Backend
from specrace.ui.server.guard import NO_FILES
from specrace.ui.server.visitors import address_of, visitor_key
from specrace.ui.visitor_limits import MAX_LOG_BYTES


class LogEndpoints:
    """The endpoints for logs. When a caller disconnects, its work is stopped."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

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
        log_request = self._parse_log_request(lanes, columns, tokenizer)
        shared = race_request.read_options(options, log_request["lanes"])
        names = list(with_shared_options(log_request["lanes"], shared))
        log_request.update(lanes=names, options=shared)
        for name in names:
            size = ScoredLane.of(name, shared.get(method_of(name).name, {})).num_draft
            if size > race_request.MAX_TREE:
                raise InputError(f"{name} would draft {size} tokens a step; stay below {race_request.MAX_TREE}.")
        # The drafts of single requests are for the page only.
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
        log_request = self._parse_log_request(list(log_routes.DEFAULT_LANES), columns, tokenizer)
        measured = self._backend.worker.loading.measured_curve()
        log_request |= log_advice.read_costs({"curve": str(cost_curve), "batch": str(batch)}, measured)
        answer = await self._run_log_task(request, "advice", log_advice.TIME_LIMIT_S, log, text, log_request)
        advice = answer["advice"]
        engines = [entry for entry in advice.pop("engines") if engine in ("", entry["engine"])]
        return {"engines": engines, **{name: value for name, value in advice.items() if name != "tried"}}

    def _parse_log_request(self, lanes: Any, columns: Any, tokenizer: Any) -> dict[str, Any]:
        """The request for `log_scores.score_log`; `log_advice.advise_log` needs more fields. Raises InputError."""
        if not isinstance(lanes, list) or not all(isinstance(name, str) for name in lanes):
            raise InputError('The lanes are not a list of names; give ["trie", "suffix"].')
        if not isinstance(columns, str) or not isinstance(tokenizer, str):
            raise InputError("Columns and tokenizer are strings; leave them empty if they are not needed.")
        query = {"lanes": ",".join(lanes), "columns": columns, "tokenizer": tokenizer}
        return log_routes.parse_log_request(query, self._backend.models)

    async def _run_log_task(
        self, request: gr.Request, task: str, limit_s: float, log: Any, text: Any, log_request: dict[str, Any]
    ) -> Any:
        """Run a helper process's task on a log, and return the result, parsed from JSON. Raises InputError."""
        visitors, pool = self._backend.visitors, self._backend.worker.other_work.logs
        source = self._log_source(request, log, text)
        visitors.count_upload(address_of(request), 1)
        caller_left, visitor = threading.Event(), visitor_key(address_of(request))
        run = partial(pool.run, task, limit_s=limit_s + log_routes.GRACE_S, stop=caller_left.is_set)
        run = partial(run, visitor=visitor, visit=call_key(request))
        if isinstance(source, Path):
            read = partial(log_routes.read_file, run, log_request, source)
        else:
            content = source.encode("utf-8", "replace")
            read = partial(log_routes.read_content, run, log_request, _log_name(source), content)
        try:
            answer = await visitors.run_while_wanted(call_key(request), run_in_thread(pool, read))
            return json.loads(answer)
        finally:
            caller_left.set()

    def _log_source(self, request: gr.Request, log: Any, text: Any) -> Path | str:
        """The path of the uploaded log, or the log's text, whichever the caller sent. Raises InputError."""
        if not self._backend.visitors.limits.uploads:
            raise InputError(NO_FILES)
        if not isinstance(text, str):
            raise InputError("The text of a log is a string; give its lines, or upload it as log.")
        # Both were given, or neither.
        if bool(log) == bool(text.strip()):
            raise InputError("Give a log or its text, one of the two.")
        if not log:
            return text
        files = [Path(path) for path in self._backend.visitors.uploaded_paths(address_of(request), log)]
        if len(files) > 1:
            raise InputError(f"{len(files)} logs were given; give one.")
        if not files[0].exists():
            raise InputError("The log is no longer there; upload it again.")
        if files[0].stat().st_size > MAX_LOG_BYTES:
            raise InputError(f"The log is larger than {LOG_MB} MB; score it on the command line.")
        return files[0]


def _log_name(text: str) -> str:
    """A file name for a log that came as text; messages quote it, and its suffix marks a table.

    A text of several lines that does not begin like JSON is a table: the columns' names, then the rows.
    """
    first_line, _, rows = text.strip().partition("\n")
    if first_line.startswith(("{", "[")) or not rows:
        return "text"
    return "text.tsv" if "\t" in first_line else "text.csv"
