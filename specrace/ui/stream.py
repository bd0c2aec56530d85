"""Sends a race to its page as the parts of its reel, in batches at a steady rate whatever the model's speed.

Messages are server-sent events on a route of their own. As values of a Gradio component they would cost server and
browser about ten times as much, at the expense of a race on the same machine.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from math import inf
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from specrace.core.errors import InputError
from specrace.core.events import Finished, Started
from specrace.ui.guard import RECORDING
from specrace.ui.helper_process import HelperProcess
from specrace.ui.worker import CLOSING, Job, Worker
from specrace.views.frames import report

PERIOD_S = 1 / 18
# A race that is over by then is sent whole: its page then knows from the first picture how long the race is.
HELD_S = 1.0
LEFT_PERIOD_S = 0.25


class Watching(StreamingResponse):
    """A job's messages as server-sent events. However the connection ends, the race ends with it."""

    def __init__(self, worker: Worker, job: Job) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._events(worker, job), headers=headers, media_type="text/event-stream")
        self._job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the race is over or the visitor gone."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._job.leave()

    async def _events(self, worker: Worker, job: Job) -> AsyncGenerator[str]:
        async with aclosing(messages(worker, job)) as stream:
            async for message in stream:
                yield f"data: {message}\n\n"
        yield "event: end\ndata:\n\n"


def watch_route(worker: Worker) -> Route:
    """GET streams the race of a key."""

    async def watch(request: Request) -> Response:
        job = worker.claim(request.path_params["key"])
        return Response(status_code=404) if job is None else Watching(worker, job)

    # Under Gradio's own prefix, which proxies pass on.
    return Route("/gradio_api/race/{key}", watch)


def recording_route(helper: HelperProcess) -> Route:
    """POST a visitor's own recording: the answer is its reel as JSON, or a sentence with status 400."""

    async def post(request: Request) -> Response:
        content, name = await request.body(), request.query_params.get("name", "")
        gone = threading.Event()
        reading = asyncio.create_task(asyncio.to_thread(helper.run, "recording", name, content, stop=gone.is_set))
        while not (await asyncio.wait({reading}, timeout=LEFT_PERIOD_S))[0]:
            if await request.is_disconnected():
                gone.set()
        try:
            # As it came from the helper: to parse and encode it here would hold up a race.
            return Response(reading.result(), media_type="application/json")
        except InputError as error:
            return PlainTextResponse(str(error), 400)

    return Route(RECORDING, post, methods=["POST"])


async def messages(worker: Worker, job: Job) -> AsyncGenerator[str]:
    """A job as JSON messages, from its wait in line to its end. Leaving early stops the race.

    {"race", "kind", "message", "phase"} with kind "note" says why there is no race (yet); {"race", "kind", "parts"} has
    parts of the reel: kind "head", "steps" or "end". Of a race that could not be run the last message says why.
    """
    said, held_until = "", inf
    due = time.monotonic()
    try:
        while True:
            done = job.done
            if held_until == inf and job.parts:
                held_until = time.monotonic() + HELD_S
            for message in take_messages(job, held=not done and time.monotonic() < held_until):
                yield message
            if held_until == inf and not done and (news := waiting_for(worker, job)) != said:
                said = news
                yield note(job, "waiting", said)
            if done or worker.closing:
                break
            due = max(due + PERIOD_S, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
        if worker.closing:
            yield note(job, "failed", CLOSING)
        elif job.error or not job.finished:
            yield note(job, "failed" if job.error else "stopped", job.error or "Stopped.")
    finally:
        job.leave()


def take_messages(job: Job, *, held: bool) -> Iterator[str]:
    """The parts that have come since, neighbours of a kind in one message; steps stay where they are `held`."""
    while job.parts:
        kind = job.parts[0][0]
        if kind == "step" and held and not job.finished:
            return
        found = []
        while job.parts and job.parts[0][0] == kind:
            found.append(job.parts.popleft()[1])
        yield f'{{"race":{job.number},"kind":"{kind}","parts":[{",".join(found)}]}}'


async def outcome(job: Job) -> dict[str, Any]:
    """A race's report, once it is done. Leaving early stops the race. Raises InputError when it could not be run."""
    await ended(job)
    if not job.events or not isinstance(finished := job.events[-1], Finished):
        raise InputError(job.error or "The race was stopped before it began.")
    started = job.events[0]
    assert isinstance(started, Started), "a race begins so"
    return report(started, finished)


async def ended(job: Job) -> None:
    """Wait until a job is done. Leaving early stops it."""
    try:
        while not job.done:
            await asyncio.sleep(PERIOD_S)
    finally:
        job.leave()


def waiting_for(worker: Worker, job: Job) -> str:
    """Why a race has not started yet."""
    if not worker.settled:
        return f"{worker.status} … The race starts when the model is ready."
    ahead = worker.ahead(job)
    if ahead:
        return "You're next." if ahead == 1 else f"{ahead} races are before yours."
    return job.message or "Reading the documents and the question …"


def note(job: Job, phase: str, message: str) -> str:
    """A message in words only."""
    return json.dumps({"race": job.number, "kind": "note", "phase": phase, "message": message})
