"""A helper process, which reads what visitors open and upload.

Reading and checking a large file takes seconds of pure Python. A thread would hold the interpreter's lock, and the
clocks of the race under way would count the wait for it; a process of low priority costs a race next to nothing. A file
that takes too long or too much memory ends only that process. `helper/pool.py` shares such processes among visitors.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Generator, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from specrace.core.errors import InputError
from specrace.ui.helper.gallery import compress_recorded, open_recorded
from specrace.ui.helper.log_advice import advise_log
from specrace.ui.helper.log_scores import score_log
from specrace.ui.helper.priority import lower_priority
from specrace.ui.helper.upload_reader import read_uploads
from specrace.ui.server.http_server import configure_logging

# A task under way: yields its progress, returns its result.
RunningTask = Generator[bytes, None, bytes]
OnProgress = Callable[[bytes], None]
# Name -> task. A task's arguments are a file name for error messages ("" if it needs none), and its input: a
# recording's content, or JSON that names files.
TASKS: dict[str, Callable[[str, bytes], bytes | RunningTask]] = {
    "recording": open_recorded,
    "share": compress_recorded,
    "uploads": read_uploads,
    "log": score_log,
    "advice": advise_log,
}
# The kind of a message with progress. A task's last message is "done" or "refused".
PROGRESS = b"progress"
# A task's time limit: far more than any file takes, even at a low priority on a busy machine.
LIMIT_S = 120.0
# The limit on the process's data (RLIMIT_DATA), twice what `UPLOADS` gives to the parsers that it starts.
MEMORY_BYTES = 2**30
# How often a task under way is checked: was it stopped, or is its time up?
POLL_PERIOD_S = 0.05
OUR_FAULT = "Something in specrace failed; the server's log says what."

log = logging.getLogger(__name__)


class HelperProcess:
    """Runs TASKS, one at a time. The process starts with the first task; if it has ended, the next task restarts it."""

    def __init__(self) -> None:
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None

    def run(
        self,
        task: str,
        name: str,
        content: bytes | Path,
        *,
        limit_s: float = LIMIT_S,
        stop: Callable[[], bool] = lambda: False,
        on_progress: OnProgress | None = None,
    ) -> bytes:
        """Run a task on `content`, or on the content of a file, and return its result.

        Raises InputError if the task raises one, takes too much time or memory, or is stopped.
        """
        try:
            if isinstance(content, Path):
                content = content.read_bytes()
            kind, answer = self._exchange(json.dumps([task, name]).encode(), content, limit_s, stop, on_progress)
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
        """End the process, and those that it started."""
        if self._process is not None and self._connection is not None:
            self._connection.close()
            with contextlib.suppress(AttributeError, OSError, TypeError):
                os.killpg(self._process.pid, signal.SIGKILL)  # type: ignore[arg-type]
            self._process.kill()
            self._process.join()
        self._process = self._connection = None

    def _exchange(
        self,
        task_and_name: bytes,
        content: bytes,
        limit_s: float,
        stop: Callable[[], bool],
        on_progress: OnProgress | None,
    ) -> tuple[bytes, bytes]:
        """Send a task to the process, and wait for its answer. Returns the answer's kind and body."""
        connection = self._connect()
        deadline = time.monotonic() + limit_s
        connection.send_bytes(task_and_name)
        connection.send_bytes(content)
        while True:
            while not connection.poll(POLL_PERIOD_S):
                if stop():
                    raise InputError("Stopped.")
                if time.monotonic() > deadline:
                    raise InputError(f"This takes more than {limit_s:g} seconds to read; give a smaller file.")
            kind, answer = connection.recv_bytes(), connection.recv_bytes()
            if kind != PROGRESS:
                return kind, answer
            if on_progress is not None:
                on_progress(answer)

    def _connect(self) -> Connection:
        """The connection to the process, which is started if it is not running."""
        if self._connection is None or self._process is None or not self._process.is_alive():
            self.close()
            # Spawned: a fork would copy the model and the locks of its threads.
            context = multiprocessing.get_context("spawn")
            self._connection, process_end = context.Pipe()
            self._process = context.Process(target=_serve, args=[process_end], name="helper", daemon=True)
            with _single_threaded():
                self._process.start()
            process_end.close()
        return self._connection


@contextlib.contextmanager
def _single_threaded() -> Iterator[None]:
    """Make libraries use one thread in a process that is started inside the `with` block.

    With a thread for each processor, the threads' stacks and buffers would use up the memory that the process may have.
    """
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
    """Run tasks until the server ends. Only bytes are exchanged: nothing from a visitor is ever unpickled."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(AttributeError, OSError):
        # A process group of its own, so that parsers that this process starts can be ended with it.
        os.setpgid(0, 0)
    configure_logging()
    _limit_resources()
    with contextlib.suppress(EOFError, OSError):
        while True:
            task, name = json.loads(connection.recv_bytes())

            def send_progress(progress: bytes) -> None:
                connection.send_bytes(PROGRESS)
                connection.send_bytes(progress)

            for message in _answer(task, name, connection.recv_bytes(), send_progress):
                connection.send_bytes(message)


def _answer(task: str, name: str, content: bytes, on_progress: OnProgress) -> tuple[bytes, bytes]:
    """Run a task. Returns the last two messages: "done" and its result, or "refused" and the reason."""
    try:
        result = TASKS[task](name, content)
        if not isinstance(result, bytes):
            result = _finish(result, on_progress)
        return b"done", result
    except InputError as error:
        return b"refused", str(error).encode("utf-8", "replace")
    except MemoryError:
        return b"refused", b"This takes too much memory to read; give a smaller file."
    except Exception:  # a file that fails must not end the process, which the next file needs
        log.exception("%s failed", task)
        return b"refused", OUR_FAULT.encode()


def _finish(running: RunningTask, on_progress: OnProgress) -> bytes:
    """Run a task under way to its end, pass on its progress, and return its result."""
    while True:
        try:
            progress = next(running)
        except StopIteration as finished:
            return bytes(finished.value)
        on_progress(progress)


def _limit_resources() -> None:
    """Set a low priority and a limit on memory, on systems that can."""
    lower_priority()
    with contextlib.suppress(ImportError, OSError, ValueError, AttributeError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
