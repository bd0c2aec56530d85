"""The routes that take recordings from visitors: to play one, and to keep one under a short link."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path

from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from specrace.core.errors import InputError
from specrace.ui.helper.pool import HelperPool
from specrace.ui.helper.shares import HOUR_S, Shares
from specrace.ui.server.guard import RECORDING, SHARED
from specrace.ui.server.stored_body import NO_ROOM, stored_body
from specrace.ui.server.visitors import TooManyError, Visitors, address_of, visitor_key

# How often the server checks whether the page that sent a recording has disconnected.
DISCONNECT_PERIOD_S = 0.25
NOT_KEPT = "This link's race is not on this server, which keeps a race for {} or until a restart. Ask for a new link."


def recording_route(helper: HelperPool, visitors: Visitors) -> Route:
    """The route to which a page POSTs a visitor's own recording.

    It answers with the reel as JSON, or with an error's status and sentence.
    """

    async def post(request: Request) -> Response:
        result = await _read_recording(request, "recording", helper, visitors)
        # Not parsed: decoding and encoding the reel here would delay a race.
        return result if isinstance(result, Response) else Response(result, media_type="application/json")

    return Route(RECORDING, post, methods=["POST"])


def share_routes(helper: HelperPool, visitors: Visitors, shares: Shares) -> list[Route]:
    """The routes of short links. A POST of a recording to SHARED keeps its race, and answers with the link's code.

    A GET of SHARED/CODE answers with the race's reel as JSON. Errors are sentences, with status 404 for a race that is
    not kept.
    """

    async def keep(request: Request) -> Response:
        result = await _read_recording(request, "share", helper, visitors)
        if isinstance(result, Response):
            return result
        try:
            code = await to_thread.run_sync(shares.keep, visitor_key(address_of(request)), result)
        except OSError:
            return PlainTextResponse(NO_ROOM, 507)
        # `Shares` deletes races whose time is over only when it is called, which may not happen for long.
        asyncio.get_running_loop().call_later(shares.hours * HOUR_S + 1, shares.forget_ended)
        return PlainTextResponse(code)

    async def show(request: Request) -> Response:
        reel = await to_thread.run_sync(shares.find, request.path_params["code"])
        if reel is None:
            return PlainTextResponse(NOT_KEPT.format(describe_hours(shares.hours)), 404)
        headers = {"Content-Encoding": "gzip", "Cache-Control": "no-store"}
        return Response(reel, media_type="application/json", headers=headers)

    return [Route(SHARED, keep, methods=["POST"]), Route(f"{SHARED}/{{code}}", show)]


def describe_hours(hours: int) -> str:
    """A number of hours in words."""
    return "an hour" if hours == 1 else f"{hours} hours"


async def _read_recording(request: Request, task: str, helper: HelperPool, visitors: Visitors) -> bytes | Response:
    """The result of a helper's task on the recording in a request's body, or the refusal."""
    name = request.query_params.get("name", "")
    try:
        visitors.count_recording(address_of(request))
        async with stored_body(request, name) as path:
            return await _run_while_connected(request, task, helper, path)
    except HTTPException as refusal:
        return PlainTextResponse(refusal.detail, refusal.status_code)
    except InputError as error:
        return PlainTextResponse(str(error), 429 if isinstance(error, TooManyError) else 400)


async def _run_while_connected(request: Request, task: str, helper: HelperPool, path: Path) -> bytes:
    """The result of a helper's task on a file. Stops the task if the page disconnects. Raises InputError."""
    page_left = threading.Event()
    name, visitor = request.query_params.get("name", ""), visitor_key(address_of(request))
    # Each stored body has a folder of its own, whose name serves as the id of a visit.
    visit = path.parent.name
    run = partial(helper.run, task, name, path, stop=page_left.is_set, visitor=visitor, visit=visit)
    reading = asyncio.get_running_loop().run_in_executor(helper.threads, run)
    try:
        # `wait` returns the tasks that are done, then those that are not.
        while not (await asyncio.wait({reading}, timeout=DISCONNECT_PERIOD_S))[0]:
            if await request.is_disconnected():
                page_left.set()
        return reading.result()
    finally:
        page_left.set()
