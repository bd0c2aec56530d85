"""A process beside the server's, for what visitors open and upload.

To read and audit a large file is seconds of pure Python. In a thread it would take the interpreter from the race under
way, whose clocks count that wait; in a process of low priority it costs a race next to nothing. A file that takes too
long or too much memory ends that process only.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from specrace.core.errors import InputError
from specrace.ui.gallery import open_recorded
from specrace.ui.http_server import log_discreetly
from specrace.ui.log_advice import advise_log
from specrace.ui.log_scores import score_log
from specrace.ui.uploads import read_uploads

# Yields its progress.
Going = Generator[bytes, None, bytes]
Tell = Callable[[bytes], None]
# Each takes a file's name and bytes, and returns bytes that the server passes on as they are.
TASKS: dict[str, Callable[[str, bytes], bytes | Going]] = {
    "recording": open_recorded,
    "uploads": read_uploads,
    "log": score_log,
    "advice": advise_log,
}
PROGRESS = b"progress"
# Far more than any file takes, also on a busy machine, where the least priority gets little.
LIMIT_S = 120.0
MEMORY_BYTES = 2**30
MAX_WAITING = 4
LOOK_S = 0.05
OUR_FAULT = "Something in specrace failed; the server's log says what."

log = logging.getLogger(__name__)


class HelperProcess:
    """Runs TASKS one at a time. Its process starts with the first task, and again after it has ended."""

    def __init__(self) -> None:
        self._places, self._turn = threading.BoundedSemaphore(MAX_WAITING), threading.Lock()
        self._busy, self._last = False, float("-inf")
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None

    def worked_since(self, moment: float) -> bool:
        """Whether a task runs, or ended after `moment` on the monotonic clock."""
        return self._busy or self._last > moment

    def run(
        self,
        task: str,
        name: str,
        content: bytes,
        *,
        limit_s: float = LIMIT_S,
        stop: Callable[[], bool] = lambda: False,
        tell: Tell = lambda _: None,
    ) -> bytes:
        """A task's result. Raises InputError where it refuses, takes too much, is stopped, or too many wait.

        `tell` gets the progress.
        """
        with self._waiting_turn(stop):
            try:
                kind, answer = self._exchange(json.dumps([task, name]).encode(), content, limit_s, stop, tell)
            except (EOFError, OSError) as error:
                self.close()
                raise InputError(f"{name or 'This'} takes too much memory to read; give a smaller file.") from error
            except InputError:
                self.close()
                raise
        if kind != b"done":
            raise InputError(answer.decode())
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None and self._connection is not None:
            self._connection.close()
            self._process.kill()
            self._process.join()
        self._process = self._connection = None

    @contextlib.contextmanager
    def _waiting_turn(self, stop: Callable[[], bool]) -> Iterator[None]:
        if not self._places.acquire(blocking=False):
            raise InputError("The server is reading other visitors' files; try again in a minute.")
        try:
            while not self._turn.acquire(timeout=LOOK_S):
                if stop():
                    raise InputError("Stopped.")
            self._busy = True
            try:
                yield
            finally:
                self._busy, self._last = False, time.monotonic()
                self._turn.release()
        finally:
            self._places.release()

    def _exchange(
        self, head: bytes, content: bytes, limit_s: float, stop: Callable[[], bool], tell: Tell
    ) -> tuple[bytes, bytes]:
        connection, until = self._connected(), time.monotonic() + limit_s
        connection.send_bytes(head)
        connection.send_bytes(content)
        while True:
            while not connection.poll(LOOK_S):
                if stop():
                    raise InputError("Stopped.")
                if time.monotonic() > until:
                    raise InputError(f"This takes more than {limit_s:g} seconds to read; give a smaller file.")
            kind, answer = connection.recv_bytes(), connection.recv_bytes()
            if kind != PROGRESS:
                return kind, answer
            tell(answer)

    def _connected(self) -> Connection:
        if self._connection is None or self._process is None or not self._process.is_alive():
            self.close()
            # Spawned, for a fork would copy the model and its threads' locks.
            context = multiprocessing.get_context("spawn")
            self._connection, other = context.Pipe()
            self._process = context.Process(target=_serve, args=[other], name="helper", daemon=True)
            with _single_threaded():
                self._process.start()
            other.close()
        return self._connection


@contextlib.contextmanager
def _single_threaded() -> Iterator[None]:
    """What is started here has no thread for each processor: their stacks and buffers would fill its memory."""
    former = {name: os.environ.get(name) for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
    os.environ.update(dict.fromkeys(former, "1"))
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _serve(connection: Connection) -> None:
    """Run tasks until the server goes. Only bytes cross: nothing from a visitor is ever unpickled."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log_discreetly()
    _be_modest()
    with contextlib.suppress(EOFError, OSError):
        while True:
            task, name = json.loads(connection.recv_bytes())

            def tell(progress: bytes) -> None:
                connection.send_bytes(PROGRESS)
                connection.send_bytes(progress)

            for part in _answer(task, name, connection.recv_bytes(), tell):
                connection.send_bytes(part)


def _answer(task: str, name: str, content: bytes, tell: Tell = lambda _: None) -> tuple[bytes, bytes]:
    try:
        found = TASKS[task](name, content)
        return b"done", found if isinstance(found, bytes) else _finish(found, tell)
    except InputError as error:
        return b"refused", str(error).encode("utf-8", "replace")
    except MemoryError:
        return b"refused", b"This takes too much memory to read; give a smaller file."
    except Exception:  # one file must not end the process for the next
        log.exception("%s failed", task)
        return b"refused", OUR_FAULT.encode()


def _finish(going: Going, tell: Tell) -> bytes:
    while True:
        try:
            tell(next(going))
        except StopIteration as over:
            return bytes(over.value)


def _be_modest() -> None:
    """The least priority, and bounded memory, where the system knows such things."""
    with contextlib.suppress(ImportError, OSError, ValueError, AttributeError):
        os.nice(19)
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
