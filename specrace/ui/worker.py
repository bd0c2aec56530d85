"""The thread that owns the model: it loads the model, then runs races in the order of their requests."""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from specrace.core.errors import InputError, lacks_memory
from specrace.core.events import Event, Finished, Repeated, Started, Step
from specrace.core.memory import return_memory
from specrace.ui.fetcher import Fetcher
from specrace.ui.helper_process import OUR_FAULT, HelperProcess
from specrace.ui.telemetry import Telemetry
from specrace.ui.visitors import VisitorLimits
from specrace.views.reel import ReelParts, part_json

if TYPE_CHECKING:
    from specrace.workbench import Workbench

RACE_LIMIT_S = 600.0
# A race that still prepares after this lets waiting races go first.
TURN_S = 2.0
# A race that no page watches by then is dropped.
CLAIM_LIMIT_S = 10.0
OTHER_WORK = "The server also read other visitors' files during this race."
SCORED = "The server also scored a log during this race."
FETCHED = "The server also fetched a model during this race."
NO_MEMORY = "The server has too little memory for this race; ask for fewer lanes, passages or new tokens."
SMALL = "The server has too little memory to load model and documents; start it with smaller ones."
CLOSING = "The server is shutting down."

# Kinds of parts of a reel.
PARTS: dict[type, str] = {Started: "head", Step: "step", Finished: "end", Repeated: "again"}

Load = Callable[[Callable[[str], None]], "Workbench"]
# Yields a race's events; before them, while it prepares, a message at each point where others may go first.
RunRace = Callable[["Workbench", Callable[[], bool]], Iterator[Event | str]]

log = logging.getLogger(__name__)


class Job:
    """A race in line or under way. Its worker appends to `events`.

    A page's race has `parts` too: those of its reel, each with its kind ("head", "step", "end", "again") and as JSON,
    until they are taken. Its `key` is what claims it. A job that `is_race` not has no events, and is not counted.
    """

    def __init__(
        self,
        number: int,
        session: str,
        run: RunRace,
        telemetry: Telemetry,
        *,
        for_page: bool = True,
        is_race: bool = True,
    ) -> None:
        self.key = secrets.token_urlsafe(16)
        self.number = number
        self.session = session
        self.events: list[Event] = []
        self.parts: deque[tuple[str, str]] = deque()
        self.error = ""
        self.message = ""
        self.claim_until = inf
        self._reel = ReelParts(number) if for_page else None
        self._run, self._is_race = run, is_race
        self._telemetry, self._asked_at = telemetry, time.monotonic()
        self._result: Finished | None = None
        self._coming: Iterator[Event | str] | None = None
        # The request's own: ZeroGPU finds in it whose quota the race takes.
        self._context = copy_context()
        # The time that it has left, and until when in its present turn.
        self._left_s, self._until = RACE_LIMIT_S, inf
        self._raced_from = 0.0
        self._stop = threading.Event()
        self._done = threading.Event()

    @property
    def done(self) -> bool:
        """Whether no more events will come."""
        return self._done.is_set()

    @property
    def finished(self) -> bool:
        """Whether the race is over, though it may be repeated."""
        return self._result is not None

    @property
    def abandoned(self) -> bool:
        """Whether no page has claimed it in time."""
        return time.monotonic() > self.claim_until

    @property
    def stopped(self) -> bool:
        """Whether the race should end."""
        return self._stop.is_set() or self.abandoned

    def stop(self) -> None:
        """End the race after its current step; one that waits does not begin."""
        self._stop.set()

    def leave(self) -> None:
        """Nobody watches any longer: stop, and make no more parts."""
        self._reel = None
        self.stop()

    def wait(self, timeout: float) -> bool:
        """Block until it is done; False after `timeout` seconds."""
        return self._done.wait(timeout)

    def skip(self, error: str = "", outcome: str = "stopped") -> None:
        """End without having run."""
        self.error = error
        self._end(outcome)

    def work(self, workbench: Workbench, others_wait: Callable[[], bool], other_work: Callable[[float], str]) -> None:
        """Run the race to its end on the worker's thread, or prepare it until others should have their turn.

        Raises nothing; `error` says what went wrong. `other_work` names what else this server did since a moment.
        """
        began, outcome = time.monotonic(), ""
        self._until = began + self._left_s
        try:
            self._coming = self._coming or self._run(workbench, lambda: self._ends(others_wait))
            while (item := self._context.run(next, self._coming, None)) is not None:
                if not isinstance(item, str):
                    self._take(item, other_work)
                    continue
                self.message = item
                if time.monotonic() > self._until:
                    raise InputError(f"It was not ready within {RACE_LIMIT_S:g} seconds; give fewer or smaller files.")
                if self.stopped:
                    break
                if time.monotonic() > began + TURN_S and others_wait():
                    self._left_s = self._until - time.monotonic()
                    return
        except InputError as error:
            self.error, outcome = str(error), "refused"
        except Exception as error:  # a race that breaks must not take the worker, and every later race, with it
            log.exception("a race failed")
            self.error, outcome = NO_MEMORY if lacks_memory(error) else OUR_FAULT, "failed"
        whole = self._result is not None and not self._result.stopped
        self._end(outcome or ("finished" if whole else "stopped"))

    def _ends(self, others_wait: Callable[[], bool]) -> bool:
        """Whether it should end now. One that is only repeated gives way to others."""
        return self.stopped or time.monotonic() > self._until or (self.finished and others_wait())

    def _end(self, outcome: str) -> None:
        if self._is_race:
            self._telemetry.ended(self.number, outcome, self._result, time.monotonic() - self._asked_at)
        self._done.set()

    def _take(self, event: Event, other_work: Callable[[float], str]) -> None:
        if isinstance(event, Started):
            self._raced_from = time.monotonic()
            self._telemetry.began(self.number, event, self._raced_from - self._asked_at)
        elif isinstance(event, Repeated):
            event = replace(event, note=" ".join([event.note, *filter(None, [other_work(self._raced_from)])]))
        elif isinstance(event, Finished) and event.pace is not None and (work := other_work(self._raced_from)):
            event = replace(event, pace=replace(event.pace, note=f"{event.pace.note} {work}"))
        self.events.append(event)
        # Between two steps, on the worker's thread: nowhere else would it be off every lane's clock.
        if (reel := self._reel) is not None:
            self.parts.append((PARTS[type(event)], part_json(reel.add(event))))
        if isinstance(event, Finished):
            self._result = event


@dataclass
class Starting:
    """A session's race that is prepared, and whether the session has stopped its races since."""

    session: str
    stopped: bool = False


class Worker:
    """Loads the workbench behind the page, then takes jobs one at a time, first come, first served.

    `load` gets a function that sets `status`: its progress and, at the end, what it has loaded. The `fetcher`, if there
    is one, starts meanwhile. A job that still prepares after its turn goes to the end of the line.
    """

    def __init__(
        self,
        load: Load,
        limits: VisitorLimits | None = None,
        fetcher: Fetcher | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._load, self.fetcher = load, fetcher
        self.telemetry = telemetry or Telemetry()
        self._limits = limits or VisitorLimits()
        self._thread = threading.Thread(target=self._work, name="race", daemon=True)
        self.closing = False
        self._line: list[Job] = []
        self._current: Job | None = None
        self._offered: dict[str, Job] = {}
        self._starting: list[Starting] = []
        self._change = threading.Condition()
        self.telemetry.watch_queue(lambda: len(self._line), lambda: self._current is not None)
        # Numbers grow over restarts too, so that an open page never takes a new race for an old one.
        self._numbers = itertools.count(int(time.time()))
        # Unless the clock is set back meanwhile: then this is how a page knows the new server.
        self.name = secrets.token_urlsafe(8)
        # Logs take longer than files, which must not wait for them.
        self.helper, self.scorer = HelperProcess(), HelperProcess()
        self.status = "Starting"
        self.failure = ""
        self.workbench: Workbench | None = None

    def start(self) -> None:
        """Begin to load."""
        self._thread.start()

    def close(self) -> None:
        """Stop all races, and take no more."""
        with self._change:
            self.closing = True
            self._drop(lambda _: True, CLOSING)
            self._change.notify()
        if self.fetcher is not None:
            self.fetcher.close()

    def join(self, timeout: float) -> bool:
        """Wait until it has ended; False after `timeout` seconds, for a model that loads does not stop."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def state(self) -> str:
        """One word for the operator: loading, ready, failed or closing."""
        if self.closing:
            return "closing"
        return "failed" if self.failure else "ready" if self.workbench is not None else "loading"

    @property
    def settled(self) -> bool:
        """Whether loading is over, well or not."""
        return self.workbench is not None or bool(self.failure)

    def submit(self, session: str, run: RunRace, *, for_page: bool = True, is_race: bool = True) -> Job:
        """Put a race, or other work on the model's thread, in line. Raises InputError when the line is full.

        A page has one race, and its earlier one is stopped; an API client may have `races_at_once`.
        """

        def gives_way(job: Job) -> bool:
            return job.stopped or (for_page and job.session == session)

        with self.telemetry.refusals() if is_race else nullcontext(), self._change:
            if self.closing:
                raise InputError(CLOSING)
            others = [job for job in self._all() if not gives_way(job)]
            if not for_page:
                self._check_own([job for job in others if job.session == session])
            # Once the model is there, the first of them runs, or is about to.
            self._check_waiting(others[1:] if self.settled else others)
            self._drop(gives_way)
            job = Job(next(self._numbers), session, run, self.telemetry, for_page=for_page, is_race=is_race)
            self._line.append(job)
            self._change.notify()
        return job

    def _check_own(self, own: list[Job]) -> None:
        """Raises InputError where a program has as many races as it may."""
        if len(own) >= (most := self._limits.races_at_once):
            many = f"{most} races of yours are in line already; wait for one of them."
            raise InputError("1 race of yours is in line already; wait for it." if most == 1 else many)

    def _check_waiting(self, waiting: list[Job]) -> None:
        """Raises InputError where as many races wait as may."""
        if len(waiting) >= (most := self._limits.queue):
            races = "1 race is" if most == 1 else f"{most} races are"
            raise InputError(f"{races} waiting already; try again in a minute.")

    def refuse(self, session: str, error: InputError) -> Job:
        """A job that ended before it began, with the error for its page."""
        job = Job(next(self._numbers), session, lambda *_: iter(()), self.telemetry)
        job.skip(str(error), "refused")
        return job

    def offer(self, job: Job) -> None:
        """Let a page claim the job by its key, once and within CLAIM_LIMIT_S; else it is stopped."""
        job.claim_until = time.monotonic() + CLAIM_LIMIT_S
        with self._change:
            self._offered = {key: each for key, each in self._offered.items() if not each.abandoned} | {job.key: job}

    def claim(self, key: str) -> Job | None:
        """The job that was offered under this key; None for one that is unknown, taken or given up."""
        with self._change:
            job = self._offered.pop(key, None)
        if job is None or job.abandoned:
            return None
        job.claim_until = inf
        return job

    def find(self, key: str) -> Job | None:
        """The job of this key that waits or runs."""
        with self._change:
            return next((job for job in self._all() if job.key == key), None)

    @contextmanager
    def starting(self, session: str) -> Iterator[Starting]:
        """While a session's race is prepared, before it is submitted: a stop that comes then is noted."""
        start = Starting(session)
        with self._change:
            self._starting.append(start)
        try:
            yield start
        finally:
            with self._change:
                self._starting.remove(start)

    def stop(self, session: str) -> None:
        """Stop the races of a session; those that wait leave the line at once, those that are prepared never run."""
        with self._change:
            for start in self._starting:
                start.stopped = start.stopped or start.session == session
            self._drop(lambda job: job.session == session)

    @property
    def idle(self) -> bool:
        """Whether no race waits."""
        return not self._line

    def ahead(self, job: Job) -> int:
        """How many races come before this one."""
        with self._change:
            self._drop(lambda each: each.stopped)
            line = self._all()
            return line.index(job) if job in line else 0

    def _all(self) -> list[Job]:
        current = self._current
        return [*([current] if current and not current.done else []), *self._line]

    def _drop(self, chosen: Callable[[Job], bool], reason: str = "") -> None:
        for job in filter(chosen, self._all()):
            job.stop()
            if job is not self._current:
                self._line.remove(job)
                job.skip(reason)

    def _work(self) -> None:
        if self.fetcher is not None:
            self.fetcher.start()
        if not self.settled:
            self.open()
        while job := self._next():
            if self.workbench is None:
                job.skip(self.failure, "failed")
            else:
                job.work(self.workbench, lambda: bool(self._line), self._other_work)
            with self._change:
                self._current = None
                if not job.done:
                    self._line.append(job)
            if job.done:
                # While no other comes, its visitor's documents would stay.
                job = None
                return_memory()

    def _next(self) -> Job | None:
        """The next race; None when the server closes."""
        with self._change:
            self._drop(lambda job: job.stopped)
            while not self._line and not self.closing:
                self._change.wait()
            self._current = None if self.closing else self._line.pop(0)
            return self._current

    def _other_work(self, moment: float) -> str:
        """What this server did since then beside its races, in sentences; "" for nothing."""
        found = ((OTHER_WORK, self.helper), (SCORED, self.scorer), (FETCHED, self.fetcher))
        return " ".join(words for words, each in found if each is not None and each.worked_since(moment))

    def open(self) -> None:
        """Load the workbench. The worker's thread does, unless it was done before."""
        try:
            self.workbench = self._load(self._report)
        except InputError as error:
            self.failure = self.status = str(error)
        except Exception as error:  # the page stays up and says that there is no model
            log.exception("loading failed")
            self.failure = self.status = SMALL if lacks_memory(error) else OUR_FAULT

    def _report(self, message: str) -> None:
        self.status = message
