"""Work for several processors in forks of this process, which share its memory: requests need not be copied to them.

For the process that reads visitors' files: it may have no children by `multiprocessing`, and only bytes may come to it
from elsewhere. A fork ends with its parent, at the next result that it cannot hand over.
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

J = TypeVar("J")
R = TypeVar("R")
# What a fork ends with.
DONE, NO_MEMORY, FAILED = 0, 1, 2


def in_forks(jobs: Sequence[J], work: Callable[[J], R], processes: int) -> Iterator[R]:
    """The result of each job, in the order in which they come. Closing it ends the forks.

    Raises MemoryError where a fork has not enough, and RuntimeError where `work` fails in one.
    """
    # Elsewhere a fork of a process with threads may hang.
    if processes == 1 or len(jobs) < processes or sys.platform != "linux":
        yield from map(work, jobs)
        return
    forks = dict(_fork(jobs[place::processes], work) for place in range(processes))
    try:
        yield from _results(forks)
    finally:
        for reader, pid in forks.items():
            reader.close()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _results(forks: dict[Connection, int]) -> Iterator[Any]:
    while forks:
        for reader in wait(list(forks)):
            assert isinstance(reader, Connection)
            try:
                yield reader.recv()
            except EOFError:
                _, status = os.waitpid(forks.pop(reader), 0)
                reader.close()
                if (code := os.waitstatus_to_exitcode(status)) != DONE:
                    raise MemoryError if code == NO_MEMORY else RuntimeError(f"a fork ended with {code}") from None


def _fork(jobs: Sequence[J], work: Callable[[J], R]) -> tuple[Connection, int]:
    """A fork for some of the jobs: where its results come from, and its id."""
    reader, writer = Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        code = FAILED
        # Nothing of the parent's may run here: no clean-up, no test, no server.
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
