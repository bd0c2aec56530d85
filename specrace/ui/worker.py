"""The one thread that owns the model: it loads it, then runs the races in the order in which they were asked for."""

from __future__ import annotations

import itertools
import logging
import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from specrace.core.errors import InputError
from specrace.core.events import Event

if TYPE_CHECKING:
    from specrace.workbench import Workbench

MAX_WAITING = 20
RACE_LIMIT_S = 600.0
# A race that no page has begun to watch by then is nobody's.
CLAIM_LIMIT_S = 10.0
OUR_FAULT = "Something in specrace failed; the server's log says what."
CLOSING = "The server is shutting down."

Load = Callable[[Callable[[str], None]], "Workbench"]
Run = Callable[["Workbench", Callable[[], bool]], Iterator[Event]]

log = logging.getLogger(__name__)


class Job:
    """A race in line or under way. The worker appends to `events`; whoever shows them takes them from the left.

    Who knows its `key` may claim it. `followed` is the lane whose latest steps are shown whole.
    """

    def __init__(self, number: int, session: str, run: Run) -> None:
        self.key = secrets.token_urlsafe(16)
        self.number = number
        self.session = session
        self.run = run
        self.events: deque[Event] = deque()
        self.error = ""
        self.followed = ""
        self.running = False
        self._stop = threading.Event()
        self._done = threading.Event()

    @property
    def done(self) -> bool:
        """Whether no more events will come."""
        return self._done.is_set()

    def stop(self) -> None:
        """Ask the race to end after its step; one that still waits will not begin."""
        self._stop.set()

    def wait(self, timeout: float) -> bool:
        """Block until it is done; False after `timeout` seconds."""
        return self._done.wait(timeout)

    def work(self, bench: Workbench) -> None:
        """Run the race on the worker's thread; nothing is raised, `error` says what went wrong."""
        self.running = True
        until = time.monotonic() + RACE_LIMIT_S
        try:
            for event in self.run(bench, lambda: self._stop.is_set() or time.monotonic() > until):
                self.events.append(event)
        except InputError as error:
            self.error = str(error)
        except Exception:  # a race that breaks must not take the worker, and every later race, with it
            log.exception("a race failed")
            self.error = OUR_FAULT
        finally:
            self._done.set()

    def skip(self, error: str = "") -> None:
        """End without having run."""
        self.error = error
        self._done.set()

    @property
    def stopped(self) -> bool:
        """Whether somebody asked it to end."""
        return self._stop.is_set()


class Worker:
    """Loads the workbench behind the page, then takes jobs one at a time, first come, first served.

    `load` gets a function that sets `status`: what it is doing and, at the end, what it has loaded.
    """

    def __init__(self, load: Load, max_waiting: int = MAX_WAITING) -> None:
        self._load = load
        self._max_waiting = max_waiting
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, name="race", daemon=True)
        self.closing = False
        self._line: list[Job] = []
        self._unclaimed: dict[str, Job] = {}
        self._lock = threading.Lock()
        # Numbers grow over restarts too, so that an open page never takes a new race for an old one.
        self._numbers = itertools.count(int(time.time()))
        self.status = "Starting"
        self.failure = ""
        self.bench: Workbench | None = None

    def start(self) -> None:
        """Begin to load."""
        self._thread.start()

    def close(self) -> None:
        """Stop all races, and take no more."""
        with self._lock:
            self.closing = True
            for job in self._line:
                job.stop()
        self._jobs.put(None)

    def join(self, timeout: float) -> bool:
        """Wait until it has ended; False after `timeout` seconds, for a model that loads does not stop."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def settled(self) -> bool:
        """Whether loading is over, well or not."""
        return self.bench is not None or bool(self.failure)

    def submit(self, session: str, run: Run) -> Job:
        """Put a race in line; a session's earlier one is stopped. Raises InputError when the line is full."""
        self.stop(session)
        with self._lock:
            if self.closing:
                raise InputError(CLOSING)
            if len(self._line) >= self._max_waiting:
                raise InputError(f"{self._max_waiting} races are waiting already; try again in a minute.")
            job = Job(next(self._numbers), session, run)
            self._line.append(job)
        self._jobs.put(job)
        return job

    def offer(self, job: Job) -> None:
        """Let the job be claimed by its key, once; unless that is soon, it is stopped."""
        self._unclaimed[job.key] = job
        timer = threading.Timer(CLAIM_LIMIT_S, self._give_up, [job])
        timer.daemon = True
        timer.start()

    def claim(self, key: str) -> Job | None:
        """The job that was offered under this key; None for one that is unknown, or taken."""
        return self._unclaimed.pop(key, None)

    def find(self, key: str) -> Job | None:
        """The job of this key that waits or runs."""
        with self._lock:
            return next((job for job in self._line if job.key == key), None)

    def _give_up(self, job: Job) -> None:
        if self.claim(job.key) is job:
            job.stop()

    def stop(self, session: str) -> None:
        """Stop the races of a session."""
        with self._lock:
            for job in self._line:
                if job.session == session:
                    job.stop()

    def ahead(self, job: Job) -> int:
        """How many races come before this one."""
        with self._lock:
            return self._line.index(job) if job in self._line else 0

    def _work(self) -> None:
        self._open()
        while (job := self._jobs.get()) is not None:
            if self.closing:
                job.skip(CLOSING)
            elif self.bench is None:
                job.skip(self.failure)
            elif job.stopped:
                job.skip()
            else:
                job.work(self.bench)
            with self._lock:
                self._line.remove(job)

    def _open(self) -> None:
        try:
            self.bench = self._load(self._report)
        except InputError as error:
            self.failure = self.status = str(error)
        except Exception:  # the page stays up and says that there is no model
            log.exception("loading failed")
            self.failure = self.status = OUR_FAULT

    def _report(self, message: str) -> None:
        self.status = message
