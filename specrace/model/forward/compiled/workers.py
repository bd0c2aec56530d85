"""Threads that help the caller's thread run the compiled decoder's jobs, and sleep between jobs."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

import numpy as np

from specrace.model.forward.compiled.decoder import compile_ahead, compiled_step
from specrace.model.forward.compiled.records import JOB


class Workers:
    """Runs one job at a time, in the caller's thread and any number of helper threads.

    The helpers wait in compiled code, where the GIL cannot hold them up, and end with this object.
    `vector_width`: see `compiled_step`.
    """

    def __init__(self, vector_width: int) -> None:
        # Compile before starting threads: the caller would wait forever for a thread that failed to compile.
        compile_ahead(vector_width)
        self._step = compiled_step(vector_width)
        # The barrier counter is in the first bytes of a second record: like the job, it lives as long as any thread.
        self.jobs: np.ndarray = np.zeros(2, JOB)
        self._arrived = self.jobs[1:].view(np.int64)[:1]
        self.jobs["arrived"][0] = self._arrived.ctypes.data
        self._pipes: list[int] = []
        self._process = os.getpid()

    @property
    def job(self) -> np.void:
        """The job, for callers to fill in."""
        job: np.void = self.jobs[0]
        return job

    def run(self, threads: int) -> None:
        """Run the job in `threads` threads, the caller's included."""
        if self._process != os.getpid():
            # A forked process has copies of the pipes, but no threads. It closes them, so that the parent's threads
            # notice when the parent closes its own.
            for pipe in self._pipes:
                os.close(pipe)
            self._pipes, self._process = [], os.getpid()
        while len(self._pipes) < threads - 1:
            self._start_helper()
        self.job["threads"], self.job["arrived_before"] = threads, self._arrived[0]
        self._step(self.jobs, 0, np.array(self._pipes[: threads - 1], np.int64))

    def _start_helper(self) -> None:
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
        # Do not close the pipe at interpreter exit: a race may still be running, and the process ends the threads.
        weakref.finalize(self, _close, writing, self._process).atexit = False


def _serve(step: Any, jobs: np.ndarray, number: int, pipe: int) -> None:
    """Run this thread's part of every job until the pipe is closed."""
    try:
        step(jobs, number, np.array([pipe], np.int64))
    finally:
        os.close(pipe)


def _close(pipe: int, process: int) -> None:
    """End a helper thread by closing its pipe; do nothing in a forked process, which has no helpers."""
    if process == os.getpid():
        os.close(pipe)
