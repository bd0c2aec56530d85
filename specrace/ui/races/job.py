"""A job of the worker, usually a race: its events, its time limits, and how it ends."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from specrace.core.errors import InputError, lacks_memory
from specrace.core.events import Event, Finished, Repeated, Started, Step
from specrace.ui.helper.process import OUR_FAULT
from specrace.ui.server.telemetry import Telemetry
from specrace.views.reel import ReelParts, part_json

if TYPE_CHECKING:
    from specrace.workbench import Workbench

# How long a job may run, preparation included; waiting does not count.
RACE_LIMIT_S = 600.0
# A race that is still being prepared after this time lets waiting races go first.
TURN_S = 2.0
NO_MEMORY = "The server has too little memory for this race; ask for fewer lanes, passages or new tokens."

# The kind of reel part that each type of event becomes.
PARTS: dict[type, str] = {Started: "head", Step: "step", Finished: "end", Repeated: "again"}

# What a job runs. It is called with a workbench, and with a function that returns True when the race should end. While
# it prepares the race, it yields lines about its progress, and after each line other races may go first. Then it yields
# the race's events.
RunRace = Callable[["Workbench", Callable[[], bool]], Iterator[Event | str]]

log = logging.getLogger(__name__)


class Job:
    """A race that waits, runs or has ended. The worker's thread appends to `events`. `visit`: the page or API client.

    A page's race (`for_page`) also collects the `parts` of its reel (`specrace.views.reel`), as pairs of a kind (see
    PARTS) and JSON; the page's stream removes them. The page claims its race by `key`. With `is_race` False the job is
    other work for the worker's thread: it has no events, and telemetry does not count it.
    """

    def __init__(
        self,
        number: int,
        visit: str,
        run: RunRace,
        telemetry: Telemetry,
        *,
        for_page: bool = True,
        is_race: bool = True,
    ) -> None:
        self.key = secrets.token_urlsafe(16)
        self.number = number
        self.visit = visit
        self.events: list[Event] = []
        self.parts: deque[tuple[str, str]] = deque()
        # Why it failed, in a sentence, and the latest line about its preparation; "" if there is none.
        self.error = ""
        self.message = ""
        # The moment by which a page must claim it (`JobQueue.offer`), on the monotonic clock.
        self.claim_deadline = inf
        self._reel = ReelParts(number) if for_page else None
        self._run = run
        self._is_race = is_race
        self._telemetry = telemetry
        self._requested_at = time.monotonic()
        self._result: Finished | None = None
        # What `_run` yields; None before the job's first turn.
        self._items: Iterator[Event | str] | None = None
        # The request's context, which tells ZeroGPU (it lends a GPU for single calls) whose quota the race uses.
        self._context = copy_context()
        # How long the job may still run; during its turn, `_deadline` is the moment at which that time is up.
        self._remaining_s = RACE_LIMIT_S
        self._deadline = inf
        # When the race began, on the monotonic clock; 0 before that.
        self._started_at = 0.0
        self._stop = threading.Event()
        self._done = threading.Event()

    @property
    def done(self) -> bool:
        """Whether no more events will come."""
        return self._done.is_set()

    @property
    def finished(self) -> bool:
        """Whether the race is over; it may still be repeated."""
        return self._result is not None

    @property
    def abandoned(self) -> bool:
        """Whether no page claimed the job in time."""
        return time.monotonic() > self.claim_deadline

    @property
    def stopped(self) -> bool:
        """Whether the race was told to stop, or was abandoned. It may still be in its last step."""
        return self._stop.is_set() or self.abandoned

    def stop(self) -> None:
        """End the race after its current step; a waiting race never begins."""
        self._stop.set()

    def unwatch(self) -> None:
        """Stop the race, and make no more parts: nobody watches it any longer."""
        self._reel = None
        self.stop()

    def wait(self, timeout: float) -> bool:
        """Wait until the job is done. Returns False if that takes longer than `timeout` seconds."""
        return self._done.wait(timeout)

    def skip(self, error: str = "", outcome: str = "stopped") -> None:
        """End the job without running it; `outcome` is one of telemetry's OUTCOMES."""
        self.error = error
        self._end(outcome)

    def work(
        self, workbench: Workbench, others_wait: Callable[[], bool], describe_other_work: Callable[[float], str]
    ) -> None:
        """Run the race on the worker's thread until it ends or, while it is being prepared, until its turn is over.

        In the second case another call continues the race. Raises nothing: `error` says what went wrong.
        `describe_other_work` says what else the server has done since a moment on the monotonic clock.
        """
        turn_began, outcome = time.monotonic(), ""
        self._deadline = turn_began + self._remaining_s
        try:
            self._items = self._items or self._run(workbench, lambda: self._should_end(others_wait))
            while (item := self._context.run(next, self._items, None)) is not None:
                if not isinstance(item, str):
                    self._add(item, describe_other_work)
                    continue
                self.message = item
                if time.monotonic() > self._deadline:
                    raise InputError(f"Preparing this takes more than {RACE_LIMIT_S:g} s; give fewer or smaller files.")
                if self.stopped:
                    break
                if time.monotonic() > turn_began + TURN_S and others_wait():
                    self._remaining_s = self._deadline - time.monotonic()
                    return
        except InputError as error:
            self.error, outcome = str(error), "refused"
        except Exception as error:  # a race that fails must not end the worker, and with it every later race
            log.exception("a race failed")
            self.error = NO_MEMORY if lacks_memory(error) else OUR_FAULT
            outcome = "failed"
        is_complete = self._result is not None and not self._result.stopped
        self._end(outcome or ("finished" if is_complete else "stopped"))

    def _should_end(self, others_wait: Callable[[], bool]) -> bool:
        """Whether the race should end now. A race that is only being repeated ends as soon as others wait."""
        return self.stopped or time.monotonic() > self._deadline or (self.finished and others_wait())

    def _end(self, outcome: str) -> None:
        if self._is_race:
            self._telemetry.ended(self.number, outcome, self._result, time.monotonic() - self._requested_at)
        self._done.set()

    def _add(self, event: Event, describe_other_work: Callable[[float], str]) -> None:
        """Store an event. Notes on results are extended by what else the server did during the race."""
        if isinstance(event, Started):
            self._started_at = time.monotonic()
            self._telemetry.began(self.number, event, self._started_at - self._requested_at)
        elif isinstance(event, Repeated):
            if work := describe_other_work(self._started_at):
                event = replace(event, note=f"{event.note} {work}")
        # `pace` says how steady the machine was.
        elif isinstance(event, Finished) and event.pace and (work := describe_other_work(self._started_at)):
            event = replace(event, pace=replace(event.pace, note=f"{event.pace.note} {work}"))
        self.events.append(event)
        # The JSON is made here, between two steps on the worker's thread, while no lane's clock runs.
        if (reel := self._reel) is not None:
            self.parts.append((PARTS[type(event)], part_json(reel.add(event))))
        if isinstance(event, Finished):
            self._result = event
