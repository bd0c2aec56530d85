"""Routes that score visitors' logs, and recommend settings from them, in helper processes.

Each log is deleted as soon as its answer has been sent.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError
from specrace.core.settings import MAX_PAGE_LANES
from specrace.drafters import METHODS
from specrace.engine.lane_name import method_of, parse_lanes
from specrace.lab.logs.formats import FORMATS
from specrace.lab.scoring.score import scorable_lanes
from specrace.model.weights.source import find_source
from specrace.ui.helper import log_advice, log_scores
from specrace.ui.helper.log_advice import describe_advice, read_costs
from specrace.ui.helper.log_scores import MAX_NAME, MAX_REQUESTS
from specrace.ui.helper.pool import HelperPool
from specrace.ui.races.model_choices import ModelChoices
from specrace.ui.server.guard import ADVICE, LOGS
from specrace.ui.server.stored_body import safe_name, stored_body, visitors_folder
from specrace.ui.server.visitors import TooManyError, Visitors, address_of, visitor_key
from specrace.ui.visitor_limits import MAX_LOG_BYTES
from specrace.ui.wire import LogChoices, LogLimits, LogLine, to_json

# The lanes that are scored if the visitor names none. They draft from the request itself.
DEFAULT_LANES = ("trigram", "lookahead", "trie", "prompt-lookup", "suffix", "fusion")
# What the page lists after the FORMATS of logs.
TABLES = ("CSV, TSV and Parquet tables with named columns",)
# Added to the task's own time limit: time to finish the request that is being scored then, and to decode texts.
GRACE_S = 60.0
# How often the latest progress is sent.
POLL_PERIOD_S = 0.1
# Characters of the parameter "columns", which names a few columns of a table.
MAX_COLUMNS = 500


def log_routes(
    scorer: HelperPool, models: ModelChoices, visitors: Visitors, measured_curve: Callable[[], CostCurve | None]
) -> list[Route]:
    """The routes LOGS and ADVICE. `measured_curve` returns this machine's cost curve, or None if it was not measured.

    GET LOGS returns the choices for scoring a log (`LogChoices`). POST of a log returns lines of JSON (`LogLine`): the
    progress any number of times, then an error or the result, which is scores from LOGS and advice from ADVICE.
    """

    async def answer(request: Request) -> Response:
        if request.method != "POST":
            return Response(to_json(describe(models, measured_curve())), media_type="application/json")
        try:
            log_request = parse_log_request(request.query_params, models)
            task, limit_s = "log", log_scores.TIME_LIMIT_S
            if request.url.path.endswith(ADVICE):
                log_request |= read_costs(request.query_params, measured_curve())
                task, limit_s = "advice", log_advice.TIME_LIMIT_S
            visitors.count_upload(address_of(request), 1)
        except InputError as error:
            return PlainTextResponse(str(error), 429 if isinstance(error, TooManyError) else 400)
        stack = AsyncExitStack()
        try:
            path = await stack.enter_async_context(stored_body(request, request.query_params.get("name", "")))
        except HTTPException as refusal:
            return PlainTextResponse(refusal.detail, refusal.status_code)
        # Each stored body has a folder of its own, whose name serves as the id of a visit.
        visitor, visit = visitor_key(address_of(request)), path.parent.name
        run = partial(scorer.run, task, limit_s=limit_s + GRACE_S, visitor=visitor, visit=visit)
        return AnswerLines(partial(_answer, log_request=log_request, path=path), run, scorer.threads, stack)

    return [Route(LOGS, answer, methods=["GET", "POST"]), Route(ADVICE, answer, methods=["POST"])]


def describe(models: ModelChoices, measured: CostCurve | None) -> LogChoices:
    """The choices for scoring a log; the server's own tokenizer is the first. `measured`: this machine's cost curve.

    `lanes` are our own methods, `engines` other engines' drafters, and `chosen` the default.
    """
    lanes = [lane for lane in scorable_lanes() if lane != "vanilla"]
    return LogChoices(
        tokenizers=list(_tokenizers(models)),
        lanes=[lane for lane in lanes if not METHODS[lane].twin_of],
        engines=[lane for lane in lanes if METHODS[lane].twin_of],
        chosen=DEFAULT_LANES,
        formats=[*(log_format.title for log_format in FORMATS.values()), *TABLES],
        limits=LogLimits(MAX_LOG_BYTES, MAX_REQUESTS, log_scores.TIME_LIMIT_S, MAX_PAGE_LANES),
        advice=describe_advice(measured),
    )


def parse_log_request(query: Mapping[str, str], models: ModelChoices) -> dict[str, Any]:
    """The request for `log_scores.score_log`. Raises InputError about the first wrong value.

    If no tokenizer was chosen, texts are tokenized by that of the server's model. Token ids in the log are then not
    decoded, because it is not known which tokenizer made them.
    """
    tokenizers, chosen = _tokenizers(models), query.get("tokenizer", "")
    name = chosen or next(iter(tokenizers))
    if name not in tokenizers:
        raise InputError(f"There is no tokenizer {name[:MAX_NAME]!r} here; choose from {', '.join(tokenizers)}.")
    lanes = list(parse_lanes(filter(None, query.get("lanes", ",".join(DEFAULT_LANES)).split(",")), {}))
    offered = scorable_lanes()
    for lane in lanes:
        if method_of(lane).name not in offered:
            raise InputError(f"The lane {lane[:MAX_NAME]!r} cannot be scored; choose from {', '.join(offered)}.")
    if not 1 <= len(lanes) <= MAX_PAGE_LANES:
        raise InputError(f"{len(lanes)} lanes were chosen; choose 1 to {MAX_PAGE_LANES}.")
    columns = query.get("columns", "")[:MAX_COLUMNS]
    tokenizer = {"name": name, "tokenizer": str(find_source(tokenizers[name]).location), "decodes_ids": bool(chosen)}
    return {"lanes": lanes, "columns": columns, **tokenizer}


def _tokenizers(models: ModelChoices) -> dict[str, str | Path]:
    """Name -> folder or hub id of the models whose tokenizers are on offer; the bundled model's if there are none."""
    return models.offered or {BUNDLED_MODEL.name: BUNDLED_MODEL}


class AnswerLines(StreamingResponse):
    """A response of lines of JSON: progress, then the answer. When the connection closes, the work ends.

    After the response `stack` is closed, which removes the log. `answer(run)` returns the last line; `run` is
    `HelperPool.run` with some of its arguments.
    """

    def __init__(
        self, answer: Callable[..., bytes], run: Callable[..., bytes], threads: Executor, stack: AsyncExitStack
    ) -> None:
        caller_left = threading.Event()
        stack.callback(caller_left.set)
        self._stack = stack
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        lines = _stream_lines(answer, partial(run, stop=caller_left.is_set), threads)
        super().__init__(lines, headers=headers, media_type="application/x-ndjson")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send lines until the answer has been sent or the visitor leaves."""
        async with self._stack:
            await super().__call__(scope, receive, send)


async def _stream_lines(
    answer: Callable[..., bytes], run: Callable[..., bytes], threads: Executor
) -> AsyncGenerator[bytes]:
    """Run `answer(run)` in one of the threads. Yields the latest progress as it changes, then the answer."""
    progress: deque[bytes] = deque(maxlen=1)
    work = asyncio.get_running_loop().run_in_executor(threads, answer, partial(run, on_progress=progress.append))
    # `wait` returns the tasks that are done, then those that are not.
    while not (await asyncio.wait({work}, timeout=POLL_PERIOD_S))[0]:
        if progress:
            yield progress.pop() + b"\n"
    yield work.result() + b"\n"


def _answer(run: Callable[..., bytes], log_request: dict[str, Any], path: Path) -> bytes:
    """The result of a helper's task on a log file, or the error, as JSON."""
    try:
        return read_file(run, log_request, path)
    except InputError as error:
        return to_json(LogLine(error=str(error))).encode()


def read_content(run: Callable[..., bytes], log_request: Mapping[str, Any], name: str, content: bytes) -> bytes:
    """The result of a helper's task on a log's content, which is in a file while the task runs. Raises InputError."""
    with tempfile.TemporaryDirectory(prefix="log-", dir=visitors_folder()) as folder:
        path = Path(folder, safe_name(name))
        path.write_bytes(content)
        return read_file(run, log_request, path)


def read_file(run: Callable[..., bytes], log_request: Mapping[str, Any], path: Path) -> bytes:
    """The result of a helper's task on a log file; `run` starts the task. Raises InputError."""
    return run(path.name, json.dumps({"path": str(path), **log_request}).encode())
