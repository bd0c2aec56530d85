"""The threads that run the compiled decoder's jobs with the caller's, asleep in between."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

import numpy as np

from specrace.model.compiled.decoder import compile_ahead, compiled_step
from specrace.model.compiled.records import JOB


class Workers:
    """One job at a time, by the caller's thread and as many others as are asked for.

    The others wait in compiled code, where no other Python thread can hold them up, and end with this object. `lanes`
    is the width of the vectors.
    """

    def __init__(self, lanes: int) -> None:
        # Before there are threads: one that fails would be waited for.
        compile_ahead(lanes)
        self._step = compiled_step(lanes)
        # The first bytes of a second record count arrivals: in the array that the threads keep alive.
        self.jobs: np.ndarray = np.zeros(2, JOB)
        self._arrived = self.jobs[1:].view(np.int64)[:1]
        self.jobs["arrived"][0] = self._arrived.ctypes.data
        self._pipes: list[int] = []
        self._process = os.getpid()

    @property
    def job(self) -> np.void:
        """The job, to be filled in."""
        found: np.void = self.jobs[0]
        return found

    def run(self, threads: int) -> None:
        """Run the job with so many threads."""
        if self._process != os.getpid():
            # A forked process has the pipes, but not the threads. The other one's threads see its own end closed.
            for pipe in self._pipes:
                os.close(pipe)
            self._pipes, self._process = [], os.getpid()
        while len(self._pipes) < threads - 1:
            self._add()
        self.job["threads"], self.job["met"] = threads, self._arrived[0]
        self._step(self.jobs, 0, np.array(self._pipes[: threads - 1], np.int64))

    def _add(self) -> None:
        """Start one more thread."""
        reading, writing = os.pipe()
        arguments = (self._step, self.jobs, len(self._pipes) + 1, reading)
        try:
            threading.Thread(target=_serve, args=arguments, daemon=True, name="compiled-decoder").start()
        except RuntimeError:  # the system has no more threads
            os.close(reading)
            os.close(writing)
            raise
        self._pipes.append(writing)
        # Not at the interpreter's exit: a race may still run, and the threads end with the process.
        weakref.finalize(self, _close, writing, self._process).atexit = False


def _serve(step: Any, jobs: np.ndarray, number: int, pipe: int) -> None:
    """Take part in jobs until the pipe is closed."""
    try:
        step(jobs, number, np.array([pipe], np.int64))
    finally:
        os.close(pipe)


def _close(pipe: int, process: int) -> None:
    """Let a thread end: it reads from a closed pipe."""
    if process == os.getpid():
        os.close(pipe)
