"""From the worker's events to frames, at a steady pace whatever the model's speed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

from specrace.errors import InputError
from specrace.events import Event, Finished, Started
from specrace.reel import make_reel
from specrace.ui.worker import Job, Worker
from specrace.view import Frame, RaceView, report

PERIOD_S = 1 / 19


async def frames(worker: Worker, job: Job) -> AsyncGenerator[Frame]:
    """The frames of a job, from its wait in line to its end. Leaving early stops the race.

    Before the last frame comes the race's reel: Gradio sends the last value twice, and the reel is large.
    Raises InputError, after a last frame, when the race could not be run.
    """
    view, message = RaceView(job.number), ""
    seen: list[Event] = []
    due = time.monotonic()
    try:
        while True:
            done = job.done
            while job.events:
                seen.append(job.events.popleft())
                view.add(seen[-1])
            frame = view.frame(time.monotonic())
            if frame is None and view.started is None and not done and (news := waiting_for(worker, job)) != message:
                message = news
                frame = note(job, "waiting", message)
            if view.finished is not None and frame is not None:
                yield {"kind": "reel", **await asyncio.to_thread(make_reel, seen, job.number)}
            if frame is not None:
                yield frame
            if done:
                break
            due = max(due + PERIOD_S, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
        if view.finished is None:
            yield note(job, "failed" if job.error else "stopped", job.error or "Stopped.")
        if job.error:
            raise InputError(job.error)
    finally:
        job.stop()


async def outcome(job: Job) -> dict[str, Any]:
    """A job's report, once it is done. Leaving early stops the race. Raises InputError when it could not be run."""
    started: Started | None = None
    try:
        while True:
            done = job.done
            while job.events:
                event = job.events.popleft()
                started = event if isinstance(event, Started) else started
                if isinstance(event, Finished) and started is not None:
                    return report(started, event)
            if done:
                raise InputError(job.error or "The race was stopped before it began.")
            await asyncio.sleep(PERIOD_S)
    finally:
        job.stop()


def waiting_for(worker: Worker, job: Job) -> str:
    """Why a race does not move yet."""
    if not worker.settled:
        return f"{worker.status} … The race starts when the model is ready."
    ahead = worker.ahead(job)
    if ahead:
        return f"Another race is running: yours is number {ahead} in line."
    return "Reading the documents and the question …"


def note(job: Job, phase: str, message: str) -> Frame:
    """A frame that carries a sentence only."""
    return {"race": job.number, "kind": "note", "phase": phase, "message": message}
