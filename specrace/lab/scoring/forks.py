"""Runs jobs in parallel in forks of this process, which share its memory, so that requests need not be copied.

This pool serves the process that reads visitors' files. That process may not start children with `multiprocessing`, and
unpickles nothing but the results of its own forks. `cells.py` has the other pool, and says why there are two. If its
parent dies, a fork exits when it next sends a result.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")
# Exit codes of a fork.
DONE, NO_MEMORY, FAILED = 0, 1, 2


def in_forks(jobs: Sequence[Job], work: Callable[[Job], Result], processes: int) -> Iterator[Result]:
    """Yield the result of each job, in the order in which the results arrive. Closing the iterator kills the forks.

    Raises MemoryError if a fork runs out of memory, and RuntimeError if `work` fails in a fork.
    """
    # Outside Linux, a fork of a process with threads may hang.
    if processes == 1 or len(jobs) < processes or sys.platform != "linux":
        yield from map(work, jobs)
        return
    forks = dict(_fork(jobs[first::processes], work) for first in range(processes))
    try:
        yield from _results(forks)
    finally:
        for reader, pid in forks.items():
            reader.close()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _results(forks: dict[Connection, int]) -> Iterator[Any]:
    """Yield results until all forks have ended; `forks`: reader -> process id."""
    while forks:
        for reader in wait(list(forks)):
            assert isinstance(reader, Connection)
            try:
                yield reader.recv()
            except EOFError:
                _, status = os.waitpid(forks.pop(reader), 0)
                reader.close()
                code = os.waitstatus_to_exitcode(status)
                if code == NO_MEMORY:
                    raise MemoryError from None
                if code != DONE:
                    raise RuntimeError(f"a fork ended with {code}") from None


def _fork(jobs: Sequence[Job], work: Callable[[Job], Result]) -> tuple[Connection, int]:
    """Start a fork that does `jobs`: (the reader of its results, its process id)."""
    reader, writer = Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        code = FAILED
        # After its jobs, a fork must run none of the parent's code: no clean-up, no test, no server.
        try:
            reader.close()
            for job in jobs:
                writer.send(work(job))
            code = DONE
        except MemoryError:
            code = NO_MEMORY
        finally:
            with contextlib.suppress(OSError):
                writer.close()
            os._exit(code)
    writer.close()
    return reader, pid
