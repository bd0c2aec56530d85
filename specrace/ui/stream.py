"""Sends a race's events to its page as frames, at a steady rate whatever the model's speed.

Frames are server-sent events on a route of their own. As values of a Gradio component they would cost server and
browser about ten times as much, at the expense of a race on the same machine.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from specrace.core.errors import InputError
from specrace.core.events import Event, Finished, Started, Step
from specrace.engine.recording import to_json
from specrace.ui.file_reader import FileReader
from specrace.ui.guard import RECORDING
from specrace.ui.worker import CLOSING, Job, Worker
from specrace.views.frames import Frame, RaceView, report

PERIOD_S = 1 / 18
TREE_PERIOD_S = 0.25
LEFT_PERIOD_S = 0.25
MAX_LANE_NAME = 40


class Watching(StreamingResponse):
    """A job's frames as server-sent events. However the connection ends, the race ends with it."""

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

    async def _events(self, worker: Worker, job: Job) -> AsyncGenerator[str | bytes]:
        async with aclosing(frames(worker, job)) as stream:
            async for frame in stream:
                yield f"data: {frame_json(frame)}\n\n"
        if job.reel:
            yield b"data: " + job.reel + b"\n\n"
        yield "event: end\ndata:\n\n"


def watch_route(worker: Worker) -> Route:
    """GET streams the race of a key; POST names the lane whose steps the page wants whole."""

    async def watch(request: Request) -> Response:
        job = worker.claim(request.path_params["key"])
        return Response(status_code=404) if job is None else Watching(worker, job)

    async def follow(request: Request) -> Response:
        """The body is the lane's name; empty for none."""
        job, lane = worker.find(request.path_params["key"]), b""
        async for part in request.stream():
            lane = (lane + part)[:MAX_LANE_NAME]
        if job is not None:
            job.followed = lane.decode(errors="replace")
        return Response(status_code=404 if job is None else 204)

    async def serve(request: Request) -> Response:
        return await (follow if request.method == "POST" else watch)(request)

    # Under Gradio's own prefix, which proxies pass on.
    return Route("/gradio_api/race/{key}", serve, methods=["GET", "POST"])


def recording_route(helper: FileReader) -> Route:
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


def frame_json(frame: Frame) -> str:
    """A frame on the wire."""
    return json.dumps(frame, separators=(",", ":"))


async def frames(worker: Worker, job: Job) -> AsyncGenerator[Frame]:
    """The frames of a job, from its wait in line to its end. Leaving early stops the race.

    Of a race that could not be run the last frame says why.
    """
    view, message, seen = RaceView(job.number), "", 0
    due = tree_due = time.monotonic()
    try:
        while True:
            done = job.done
            while seen < len(job.events):
                view.add(job.events[seen])
                seen += 1
            frame = view.frame(time.monotonic())
            if frame is None and view.started is None and not done and (news := waiting_for(worker, job)) != message:
                message = news
                frame = note(job, "waiting", message)
            if frame is not None:
                if job.followed and time.monotonic() >= tree_due and (step := latest_step(job.events, job.followed)):
                    frame["step"], tree_due = to_json(step), time.monotonic() + TREE_PERIOD_S
                yield frame
            if done or worker.closing:
                break
            due = max(due + PERIOD_S, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
        if worker.closing:
            yield note(job, "failed", CLOSING)
        elif job.error or view.finished is None:
            yield note(job, "failed" if job.error else "stopped", job.error or "Stopped.")
    finally:
        job.leave()


async def outcome(job: Job) -> dict[str, Any]:
    """A job's report, once it is done. Leaving early stops the race. Raises InputError when it could not be run."""
    try:
        while not job.done:
            await asyncio.sleep(PERIOD_S)
        if not job.events or not isinstance(finished := job.events[-1], Finished):
            raise InputError(job.error or "The race was stopped before it began.")
        started = job.events[0]
        assert isinstance(started, Started), "a race begins so"
        return report(started, finished)
    finally:
        job.leave()


def latest_step(events: Sequence[Event], lane: str) -> Step | None:
    """The last step of a lane, if it has one."""
    return next((event for event in reversed(events) if isinstance(event, Step) and event.lane == lane), None)


def waiting_for(worker: Worker, job: Job) -> str:
    """Why a race has not started yet."""
    if not worker.settled:
        return f"{worker.status} … The race starts when the model is ready."
    ahead = worker.ahead(job)
    if ahead:
        return "You're next." if ahead == 1 else f"{ahead} races are before yours."
    return job.message or "Reading the documents and the question …"


def note(job: Job, phase: str, message: str) -> Frame:
    """A frame with a message only."""
    return {"race": job.number, "kind": "note", "phase": phase, "message": message}
