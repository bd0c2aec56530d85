"""The thread that owns the model: it loads the model, then runs the jobs of its queue (mostly races) one at a time."""

from __future__ import annotations

import secrets
import threading

from specrace.core.memory import return_memory
from specrace.ui.helper.other_work import OtherWork
from specrace.ui.races.job_queue import JobQueue
from specrace.ui.races.load_state import Load, LoadState
from specrace.ui.server.telemetry import Telemetry
from specrace.ui.visitor_limits import VisitorLimits


class Worker:
    """Loads the workbench behind the page (a model and documents), then runs one job after the other.

    `other_work` starts and ends with the worker. Results of races that it may have slowed down mention it.
    """

    def __init__(
        self,
        load: Load,
        limits: VisitorLimits | None = None,
        other_work: OtherWork | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.telemetry = telemetry or Telemetry()
        self.other_work = other_work or OtherWork()
        self.loading = LoadState(load)
        self.queue = JobQueue(self.loading, limits or VisitorLimits(), self.telemetry)
        # Random, because the numbers of races, which start at the clock's time, may repeat after a restart if the clock
        # went back. A page recognises a restarted server by this id.
        self.server_id = secrets.token_urlsafe(8)
        self._thread = threading.Thread(target=self._work, name="race", daemon=True)

    def start(self) -> None:
        """Start the thread. It begins by loading the workbench, unless the caller has done so (`loading.run`)."""
        self._thread.start()

    def close(self) -> None:
        """Stop all races and other work, and accept no more."""
        self.queue.close()
        self.other_work.close()

    def join(self, timeout: float) -> bool:
        """Wait for the thread. Returns False if it still runs after `timeout` seconds: loading cannot be stopped."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def state(self) -> str:
        """One word for the operator: loading, ready, failed or closing."""
        if self.queue.closing:
            return "closing"
        if self.loading.failure:
            return "failed"
        return "ready" if self.loading.settled else "loading"

    def _work(self) -> None:
        self.other_work.start()
        if not self.loading.settled:
            self.loading.run()
        while job := self.queue.take():
            if self.loading.workbench is None:
                job.skip(self.loading.failure, "failed")
            else:
                job.work(self.loading.workbench, self.queue.others_wait, self.other_work.describe_since)
            self.queue.give_back(job)
            if job.done:
                # While the thread waits for a job, this reference would keep the visitor's documents in memory.
                job = None
                return_memory()
