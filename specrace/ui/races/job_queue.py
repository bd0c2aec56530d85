"""The queue of jobs: who may add one, in which order they run, and which page may watch one."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from math import inf

from specrace.core.errors import InputError
from specrace.ui.helper.pool import CLOSING
from specrace.ui.races.job import Job, RunRace
from specrace.ui.races.load_state import LoadState
from specrace.ui.server.telemetry import Telemetry
from specrace.ui.server.visitors import CLAIM_LIMIT_S, TooManyError
from specrace.ui.visitor_limits import VisitorLimits


@dataclass
class Starting:
    """A race that a visit is about to submit. `stopped`: the visit has stopped its races meanwhile."""

    visit: str
    stopped: bool = False


class JobQueue:
    """The job that runs and those that wait: first come, first served. All threads may use it.

    A job that is still being prepared after its turn (`Job.work`) goes to the end of the queue. The worker takes the
    first job once `loading` is settled.
    """

    def __init__(self, loading: LoadState, limits: VisitorLimits, telemetry: Telemetry) -> None:
        self._loading = loading
        self._limits = limits
        self._telemetry = telemetry
        self.closing = False
        self._waiting: list[Job] = []
        self._current: Job | None = None
        # Key -> a job that no page has claimed yet.
        self._offered: dict[str, Job] = {}
        self._starting: list[Starting] = []
        self._change = threading.Condition()
        telemetry.watch_queue(lambda: len(self._waiting), lambda: self._current is not None)
        # They start at the time, to grow across restarts: an open page never mistakes a new race for an old one.
        self._numbers = itertools.count(int(time.time()))

    def close(self) -> None:
        """Stop all jobs, and accept no more."""
        with self._change:
            self.closing = True
            self._end_jobs(lambda _: True, CLOSING)
            self._change.notify()

    def submit(self, visit: str, run: RunRace, *, for_page: bool = True, is_race: bool = True) -> Job:
        """Add a race to the queue, or with `is_race` False other work for the worker's thread.

        A page has one race: its earlier one is stopped. An API client may have `races_at_once` unfinished jobs. Raises
        InputError if the client has that many, or if the queue is full.
        """

        def is_replaced(job: Job) -> bool:
            return job.stopped or (for_page and job.visit == visit)

        with self._telemetry.refusals() if is_race else nullcontext(), self._change:
            if self.closing:
                raise InputError(CLOSING)
            others = [job for job in self._unfinished() if not is_replaced(job)]
            if not for_page:
                self._check_client_jobs(sum(job.visit == visit for job in others))
            # Once loading is settled, the first of the other jobs runs or is about to run, so it does not wait.
            self._check_waiting(len(others[1:] if self._loading.settled else others))
            self._end_jobs(is_replaced)
            job = Job(next(self._numbers), visit, run, self._telemetry, for_page=for_page, is_race=is_race)
            self._waiting.append(job)
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
        """Raise InputError if the queue is full."""
        limit = self._limits.queue
        if num_jobs >= limit:
            races = "1 race is" if limit == 1 else f"{limit} races are"
            raise TooManyError(f"{races} waiting already; try again in a minute.")

    def refuse(self, visit: str, error: InputError) -> Job:
        """Return a job that has already ended, with an error for its page to show."""
        job = Job(next(self._numbers), visit, lambda *_: iter(()), self._telemetry)
        job.skip(str(error), "refused")
        return job

    def offer(self, job: Job) -> None:
        """Let a page claim the job by its key, once. If no page does within CLAIM_LIMIT_S, the job is stopped."""
        job.claim_deadline = time.monotonic() + CLAIM_LIMIT_S
        with self._change:
            still_offered = {key: offered for key, offered in self._offered.items() if not offered.abandoned}
            self._offered = still_offered | {job.key: job}

    def claim(self, key: str) -> Job | None:
        """The job that was offered under this key; None if the key is unknown, claimed already or abandoned."""
        with self._change:
            job = self._offered.pop(key, None)
        if job is None or job.abandoned:
            return None
        job.claim_deadline = inf
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
        """Stop the visit's races. Waiting ones leave the queue immediately; those not submitted yet never run."""
        with self._change:
            for starting in self._starting:
                if starting.visit == visit:
                    starting.stopped = True
            self._end_jobs(lambda job: job.visit == visit)

    def others_wait(self) -> bool:
        """Whether jobs wait behind the one that runs."""
        return bool(self._waiting)

    def num_ahead(self, job: Job) -> int:
        """The number of jobs before this one, running or waiting."""
        with self._change:
            self._end_jobs(lambda waiting: waiting.stopped)
            jobs = self._unfinished()
            return jobs.index(job) if job in jobs else 0

    def take(self) -> Job | None:
        """Wait for the next job, and make it the one that runs. Returns None when the queue closes."""
        with self._change:
            self._end_jobs(lambda job: job.stopped)
            while not self._waiting and not self.closing:
                self._change.wait()
            self._current = None if self.closing else self._waiting.pop(0)
            return self._current

    def give_back(self, job: Job) -> None:
        """Note that the job no longer runs. If it is not done, it waits for its next turn."""
        with self._change:
            self._current = None
            if not job.done:
                self._waiting.append(job)

    def _unfinished(self) -> list[Job]:
        """The running job, if any, and then those that wait."""
        if self._current is None or self._current.done:
            return list(self._waiting)
        return [self._current, *self._waiting]

    def _end_jobs(self, is_chosen: Callable[[Job], bool], reason: str = "") -> None:
        """Stop the chosen jobs; those that wait end immediately, with `reason` as their error."""
        for job in filter(is_chosen, self._unfinished()):
            job.stop()
            if job is not self._current:
                self._waiting.remove(job)
                job.skip(reason)
