"""The thread that owns the model: it loads the model, then runs races in the order of their requests."""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from specrace.core.errors import InputError, lacks_memory
from specrace.core.memory import return_memory
from specrace.ui.helper.fetcher import Fetcher
from specrace.ui.helper.pool import CLOSING, HelperPool
from specrace.ui.helper.process import OUR_FAULT
from specrace.ui.races.job import Job, RunRace
from specrace.ui.server.telemetry import Telemetry
from specrace.ui.server.visitors import CLAIM_LIMIT_S, VisitorLimits

if TYPE_CHECKING:
    from specrace.workbench import Workbench

OTHER_WORK = "The server also read other visitors' files during this race."
SCORED = "The server also scored a log during this race."
FETCHED = "The server also fetched a model during this race."
# See `helper_pool.TURN_S`; a large log takes longer than documents.
SCORING_TURN_S = 60.0
SMALL = "The server has too little memory to load model and documents; start it with smaller ones."

Load = Callable[[Callable[[str], None]], "Workbench"]

log = logging.getLogger(__name__)


@dataclass
class Starting:
    """A visit's race that is about to be submitted, and whether the visit has stopped its races meanwhile."""

    visit: str
    stopped: bool = False


class Worker:
    """Loads the workbench behind the page, then runs jobs one at a time, first come, first served.

    `load` reports its progress, and at the end what it loaded, to the function that it is called with; the report
    becomes the worker's `status`. The `fetcher`, if any, starts at the same time. A job that is still being prepared
    after its turn goes to the end of the line.
    """

    def __init__(
        self,
        load: Load,
        limits: VisitorLimits | None = None,
        fetcher: Fetcher | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._load = load
        self.fetcher = fetcher
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
        # Numbers also grow across restarts, so that an open page never mistakes a new race for an old one.
        self._numbers = itertools.count(int(time.time()))
        # Random, so that a page recognises a new server even if the clock was set back.
        self.name = secrets.token_urlsafe(8)
        # Two pools, because logs take long and other files must not wait for them.
        self.helper = HelperPool()
        self.scorer = HelperPool(2, SCORING_TURN_S)
        self.status = "Starting"
        self.failure = ""
        self.workbench: Workbench | None = None

    def start(self) -> None:
        """Start the thread, which begins by loading."""
        self._thread.start()

    def close(self) -> None:
        """Stop all races, and accept no more."""
        with self._change:
            self.closing = True
            self._end_jobs(lambda _: True, CLOSING)
            self._change.notify()
        if self.fetcher is not None:
            self.fetcher.close()
        self.helper.close()
        self.scorer.close()

    def join(self, timeout: float) -> bool:
        """Wait for the thread; False if it runs on after `timeout` seconds, since loading a model cannot be stopped."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def state(self) -> str:
        """One word for the operator: loading, ready, failed or closing."""
        if self.closing:
            return "closing"
        if self.failure:
            return "failed"
        return "ready" if self.workbench is not None else "loading"

    @property
    def settled(self) -> bool:
        """Whether loading has ended, with success or not."""
        return self.workbench is not None or bool(self.failure)

    def submit(self, visit: str, run: RunRace, *, for_page: bool = True, is_race: bool = True) -> Job:
        """Put a race, or other work for the worker's thread, in line.

        A page has one race: its earlier one is stopped. An API client may have `races_at_once`. Raises InputError if
        the client has that many, or if the line is full.
        """

        def is_replaced(job: Job) -> bool:
            return job.stopped or (for_page and job.visit == visit)

        with self.telemetry.refusals() if is_race else nullcontext(), self._change:
            if self.closing:
                raise InputError(CLOSING)
            others = [job for job in self._unfinished() if not is_replaced(job)]
            if not for_page:
                self._check_client_jobs(sum(job.visit == visit for job in others))
            # Once the model is loaded, the first of these jobs is running, or about to run, and does not wait.
            self._check_waiting(len(others[1:] if self.settled else others))
            self._end_jobs(is_replaced)
            job = Job(next(self._numbers), visit, run, self.telemetry, for_page=for_page, is_race=is_race)
            self._line.append(job)
            self._change.notify()
        return job

    def _check_client_jobs(self, num_jobs: int) -> None:
        """Raise InputError if an API client already has `races_at_once` jobs."""
        limit = self._limits.races_at_once
        if num_jobs < limit:
            return
        if limit == 1:
            raise InputError("1 race of yours is in line already; wait for it.")
        raise InputError(f"{limit} races of yours are in line already; wait for one of them.")

    def _check_waiting(self, num_jobs: int) -> None:
        """Raise InputError if the line is full."""
        limit = self._limits.queue
        if num_jobs >= limit:
            races = "1 race is" if limit == 1 else f"{limit} races are"
            raise InputError(f"{races} waiting already; try again in a minute.")

    def refuse(self, visit: str, error: InputError) -> Job:
        """Return a job that has already ended, with an error for its page to show."""
        job = Job(next(self._numbers), visit, lambda *_: iter(()), self.telemetry)
        job.skip(str(error), "refused")
        return job

    def offer(self, job: Job) -> None:
        """Let a page claim the job by its key, once. If no page does within CLAIM_LIMIT_S, the job is stopped."""
        job.claim_until = time.monotonic() + CLAIM_LIMIT_S
        with self._change:
            still_offered = {key: offered for key, offered in self._offered.items() if not offered.abandoned}
            self._offered = still_offered | {job.key: job}

    def claim(self, key: str) -> Job | None:
        """The job that was offered under this key; None if the key is unknown, claimed already or abandoned."""
        with self._change:
            job = self._offered.pop(key, None)
        if job is None or job.abandoned:
            return None
        job.claim_until = inf
        return job

    def find(self, key: str) -> Job | None:
        """The waiting or running job with this key, if any."""
        with self._change:
            return next((job for job in self._unfinished() if job.key == key), None)

    @contextmanager
    def starting(self, visit: str) -> Iterator[Starting]:
        """Yield a `Starting`, whose `stopped` becomes True if the visit stops its races inside the `with` block."""
        starting = Starting(visit)
        with self._change:
            self._starting.append(starting)
        try:
            yield starting
        finally:
            with self._change:
                self._starting.remove(starting)

    def stop(self, visit: str) -> None:
        """Stop the visit's races. Waiting ones leave the line immediately; those not submitted yet never run."""
        with self._change:
            for starting in self._starting:
                if starting.visit == visit:
                    starting.stopped = True
            self._end_jobs(lambda job: job.visit == visit)

    @property
    def has_waiting_jobs(self) -> bool:
        """Whether jobs are in line behind the one that runs."""
        return bool(self._line)

    def num_ahead(self, job: Job) -> int:
        """The number of jobs before this one, running or in line."""
        with self._change:
            self._end_jobs(lambda waiting: waiting.stopped)
            jobs = self._unfinished()
            return jobs.index(job) if job in jobs else 0

    def _unfinished(self) -> list[Job]:
        """The running job, if any, and then those in line."""
        if self._current is None or self._current.done:
            return list(self._line)
        return [self._current, *self._line]

    def _end_jobs(self, is_chosen: Callable[[Job], bool], reason: str = "") -> None:
        """Stop the chosen jobs; those in line end immediately, with `reason` as their error."""
        for job in filter(is_chosen, self._unfinished()):
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
                job.work(self.workbench, lambda: self.has_waiting_jobs, self._describe_other_work)
            with self._change:
                self._current = None
                if not job.done:
                    self._line.append(job)
            if job.done:
                # While the thread waits, this reference would keep the visitor's documents in memory.
                job = None
                return_memory()

    def _next(self) -> Job | None:
        """Wait for the next job, and make it the current one; None when the server closes."""
        with self._change:
            self._end_jobs(lambda job: job.stopped)
            while not self._line and not self.closing:
                self._change.wait()
            self._current = None if self.closing else self._line.pop(0)
            return self._current

    def _describe_other_work(self, moment: float) -> str:
        """What the server has done beside races since `moment` on the monotonic clock, in sentences; "" if nothing."""
        processes = ((OTHER_WORK, self.helper), (SCORED, self.scorer), (FETCHED, self.fetcher))
        return " ".join(
            sentence for sentence, process in processes if process is not None and process.worked_since(moment)
        )

    def open(self) -> None:
        """Load the workbench. The worker's thread does this unless the caller did it before `start`."""
        try:
            self.workbench = self._load(self._set_status)
        except InputError as error:
            self.failure = self.status = str(error)
        except Exception as error:  # the page stays up and shows that there is no model
            log.exception("loading failed")
            self.failure = self.status = SMALL if lacks_memory(error) else OUR_FAULT

    def _set_status(self, message: str) -> None:
        self.status = message
