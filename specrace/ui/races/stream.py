"""Streams a race to its page: the parts of its reel (`specrace.views.reel`), in batches at a steady rate.

A reel is the JSON that the page plays. Its parts are a head, the steps of the lanes, an end, and repeats.

The messages are server-sent events on a route of their own. As values of a Gradio component they would cost the server
and the browser about ten times as much processor time, and slow down a race on the same machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from math import inf
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from specrace.core.errors import InputError
from specrace.core.events import Finished, Started
from specrace.ui.helper.pool import CLOSING
from specrace.ui.races.job import Job
from specrace.ui.races.worker import Worker
from specrace.ui.server.guard import RACE
from specrace.ui.wire import AgainMessage, EndMessage, HeadMessage, NoteMessage, StepMessage, to_json
from specrace.views.frames import report

# The time between two batches of messages: short enough to look like motion; a guess, because drawing costs time, too.
PERIOD_S = 1 / 18
# A race's steps are held back for this long after its first part. A race that ends sooner is sent in one piece, so that
# the page knows its length from the start.
HOLD_S = 1.0
# Kind of part (`Job.parts`) -> the message that carries such parts.
MESSAGES = {"head": HeadMessage, "step": StepMessage, "end": EndMessage, "again": AgainMessage}


class RaceStream(StreamingResponse):
    """A response with a job's messages as server-sent events. When the connection closes, the race is stopped."""

    def __init__(self, worker: Worker, job: Job) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._events(worker, job), headers=headers, media_type="text/event-stream")
        self._job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send messages until the race is over or the visitor leaves."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._job.unwatch()

    async def _events(self, worker: Worker, job: Job) -> AsyncGenerator[str]:
        async with aclosing(messages(worker, job)) as stream:
            async for message in stream:
                yield f"data: {message}\n\n"
        yield "event: end\ndata:\n\n"


def watch_route(worker: Worker) -> Route:
    """The route RACE/KEY, by which a page claims the race that was offered under this key and receives its messages."""

    async def watch(request: Request) -> Response:
        job = worker.queue.claim(request.path_params["key"])
        return Response(status_code=404) if job is None else RaceStream(worker, job)

    # RACE is below Gradio's own prefix, which proxies pass on.
    return Route(f"{RACE}/{{key}}", watch)


async def messages(worker: Worker, job: Job) -> AsyncGenerator[str]:
    """Yield a race as JSON messages, from its wait in the queue to its end. Closing the generator stops the race.

    A NoteMessage says why the race has not started, or why it did not finish; the other messages have parts of its
    reel.
    """
    # `held_until` is set when the race's first part comes.
    last_note, held_until = "", inf
    due = time.monotonic()
    try:
        while True:
            done = job.done
            if held_until == inf and job.parts:
                held_until = time.monotonic() + HOLD_S
            for message in take_messages(job, held=not done and time.monotonic() < held_until):
                yield message
            if held_until == inf and not done:
                text = describe_wait(worker, job)
                if text != last_note:
                    last_note = text
                    yield note(job, "waiting", text)
            if done or worker.queue.closing:
                break
            due = max(due + PERIOD_S, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
        if worker.queue.closing:
            yield note(job, "failed", CLOSING)
        elif job.error or not job.finished:
            yield note(job, "failed" if job.error else "stopped", job.error or "Stopped.")
    finally:
        job.unwatch()


def take_messages(job: Job, *, held: bool) -> Iterator[str]:
    """Remove the parts that the job has so far, and yield them as messages; neighbours of one kind share one.

    If `held`, steps and the parts after them stay in the job until the race has finished.
    """
    while job.parts:
        kind, _ = job.parts[0]
        if kind == "step" and held and not job.finished:
            return
        parts = []
        while job.parts and job.parts[0][0] == kind:
            _, part_json = job.parts.popleft()
            parts.append(msgspec.Raw(part_json))
        yield msgspec.json.encode(MESSAGES[kind](job.number, parts)).decode()


async def race_report(job: Job) -> dict[str, Any]:
    """Wait for a race, and return its report. Cancelling this stops the race. Raises InputError if it did not run."""
    await wait_until_done(job)
    if not job.events or not isinstance(finished := job.events[-1], Finished):
        raise InputError(job.error or "The race was stopped before it began.")
    started = job.events[0]
    assert isinstance(started, Started), "the first event of a race"
    return report(started, finished)


async def wait_until_done(job: Job) -> None:
    """Wait for a job to end. Cancelling this stops it."""
    try:
        while not job.done:
            await asyncio.sleep(PERIOD_S)
    finally:
        job.unwatch()


def describe_wait(worker: Worker, job: Job) -> str:
    """Why a race has not started yet, in a sentence."""
    if not worker.loading.settled:
        return f"{worker.loading.status} … The race starts when the model is ready."
    ahead = worker.queue.num_ahead(job)
    if ahead:
        return "You're next." if ahead == 1 else f"{ahead} races are before yours."
    return job.message or "Reading the documents and the question …"


def note(job: Job, phase: str, message: str) -> str:
    """The JSON of a note: a sentence for the page."""
    return to_json(NoteMessage(job.number, phase, message))
