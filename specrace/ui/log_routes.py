"""Where visitors' logs arrive: each is scored in a process of its own, answered, and deleted."""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError
from specrace.drafters import METHODS
from specrace.lab.formats import FORMATS
from specrace.lab.score import scorable_lanes
from specrace.model.names import resolve
from specrace.ui.guard import ADVICE, LOGS
from specrace.ui.helper_process import HelperProcess
from specrace.ui.log_advice import ADVICE_SECONDS, describe_advice, read_costs
from specrace.ui.log_scores import MAX_BYTES, MAX_NAME, MAX_REQUESTS, SECONDS
from specrace.ui.model_choices import ModelChoices
from specrace.ui.race_request import MAX_LANES
from specrace.ui.visitors import TooManyError, Visitors

# Those that draft from the request itself.
DEFAULT_LANES = ("trigram", "lookahead", "trie", "prompt-lookup", "suffix", "fusion")
TABLES = ("CSV, TSV and Parquet tables with named columns",)
# After its own time a request that is being scored may end, and the texts are made.
GRACE_S = 60.0
LOOK_S = 0.1
MAX_COLUMNS = 500


def log_routes(
    scorer: HelperProcess, models: ModelChoices, visitors: Visitors, measured: Callable[[], CostCurve | None]
) -> list[Route]:
    """GET of LOGS: what a log can be scored with. POST a log: lines of JSON, {"progress"}..., then {"error"}, or
    {"scores"} from LOGS and {"advice"} from ADVICE. `measured`: this machine's cost curve, if any.
    """

    async def answer(request: Request) -> Response:
        if request.method != "POST":
            return JSONResponse(describe(models) | {"advice": describe_advice(measured())})
        try:
            asked = parse_log_request(request.query_params, models)
            task, limit_s = "log", SECONDS + GRACE_S
            if request.url.path.endswith(ADVICE):
                asked |= read_costs(request.query_params, measured())
                task, limit_s = "advice", ADVICE_SECONDS + GRACE_S
            visitors.upload(request.client.host if request.client else None, 1)
        except InputError as error:
            return PlainTextResponse(str(error), 429 if isinstance(error, TooManyError) else 400)
        run = partial(scorer.run, task, limit_s=limit_s)
        lines = _lines(run, asked, request.query_params.get("name", ""), await request.body())
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(lines, headers=headers, media_type="application/x-ndjson")

    return [Route(LOGS, answer, methods=["GET", "POST"]), Route(ADVICE, answer, methods=["POST"])]


def describe(models: ModelChoices) -> dict[str, Any]:
    """Tokenizers, the server's own first; our lanes, those of engines, those chosen at first; formats and limits."""
    lanes = [lane for lane in scorable_lanes() if lane != "vanilla"]
    return {
        "tokenizers": list(_tokenizers(models)),
        "lanes": [lane for lane in lanes if not METHODS[lane].twin_of],
        "engines": [lane for lane in lanes if METHODS[lane].twin_of],
        "chosen": DEFAULT_LANES,
        "formats": [*(each.title for each in FORMATS.values()), *TABLES],
        "limits": {"bytes": MAX_BYTES, "requests": MAX_REQUESTS, "seconds": SECONDS, "lanes": MAX_LANES},
    }


def parse_log_request(query: Mapping[str, str], models: ModelChoices) -> dict[str, Any]:
    """What `score_log` is to do. Raises InputError that names the first value that is wrong.

    Without a tokenizer the server's own makes ids of texts, and ids stay ids.
    """
    known, given = _tokenizers(models), query.get("tokenizer", "")
    name = given or next(iter(known))
    if name not in known:
        raise InputError(f"There is no tokenizer {name[:MAX_NAME]!r} here; choose from {', '.join(known)}.")
    lanes = list(dict.fromkeys(filter(None, query.get("lanes", ",".join(DEFAULT_LANES)).split(","))))
    offered = scorable_lanes()
    for lane in lanes:
        if lane not in offered:
            raise InputError(f"The lane {lane[:MAX_NAME]!r} cannot be scored; choose from {', '.join(offered)}.")
    if not 1 <= len(lanes) <= MAX_LANES:
        raise InputError(f"{len(lanes)} lanes were chosen; choose 1 to {MAX_LANES}.")
    columns = query.get("columns", "")[:MAX_COLUMNS]
    tokenizer = {"name": name, "tokenizer": str(resolve(known[name])), "decodes_ids": bool(given)}
    return {"lanes": lanes, "columns": columns, **tokenizer}


def _tokenizers(models: ModelChoices) -> dict[str, str | Path]:
    """Of the models that may be chosen; without any of the bundled one."""
    return models.known or {BUNDLED_MODEL.name: BUNDLED_MODEL}


async def _lines(run: Callable[..., bytes], asked: dict[str, Any], name: str, content: bytes) -> AsyncGenerator[bytes]:
    """Progress as it comes, and the answer. Leaving early ends the work."""
    gone, told = threading.Event(), deque[bytes](maxlen=1)
    working = asyncio.create_task(asyncio.to_thread(_answer, run, asked, name, content, told.append, gone.is_set))
    try:
        while not (await asyncio.wait({working}, timeout=LOOK_S))[0]:
            if told:
                yield told.pop() + b"\n"
        yield working.result() + b"\n"
    finally:
        gone.set()


def _answer(
    run: Callable[..., bytes],
    asked: dict[str, Any],
    name: str,
    content: bytes,
    tell: Callable[[bytes], None],
    stop: Callable[[], bool],
) -> bytes:
    """The answer as JSON."""
    try:
        return read_content(partial(run, tell=tell, stop=stop), asked, name, content)
    except InputError as error:
        return json.dumps({"error": str(error)}).encode()


def read_content(run: Callable[..., bytes], asked: Mapping[str, Any], name: str, content: bytes) -> bytes:
    """The result of a task on a log, which lies on the disk only until then. Raises InputError."""
    # In the server's own folder, which goes with it, where it has one.
    with tempfile.TemporaryDirectory(prefix="log-", dir=os.environ.get("GRADIO_TEMP_DIR")) as folder:
        path = Path(folder, re.sub(r"[^\w.-]", "_", name)[-MAX_NAME:].lstrip(".") or "log")
        path.write_bytes(content)
        return read_file(run, asked, path)


def read_file(run: Callable[..., bytes], asked: Mapping[str, Any], path: Path) -> bytes:
    """The result of a task on a log that is on the disk already. Raises InputError."""
    return run(path.name, json.dumps({"path": str(path), **asked}).encode())
