"""Starts Python processes that need not import the libraries again, which would cost seconds of processor time each.

The first call starts a parent process that imports the libraries, unless `tests/conftest.py` has started one for the
whole run; each call makes the parent fork. A fork has its own arguments, folder, environment, signals and exit code,
and imports `specrace` itself. But the libraries read the parent's environment when they were imported, so a test of
such variables, of imports or of interpreter flags must start `sys.executable` instead.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from tests.short_races import shorten_races

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = (
    "numpy",
    "torch",
    "transformers",
    "transformers.models.llama",
    "sentence_transformers",
    "gradio",
    "numba",
    "faiss",
    "gguf",
)
MAX_REQUEST = 1 << 20
# The environment variable with the name of the parent process's socket.
PARENT = "SPECRACE_TEST_PARENT"


class Process:
    """A started process, with the part of `subprocess.Popen` that tests need."""

    def __init__(self, status: int, stdout: IO[str]) -> None:
        self._status, self.stdout = os.fdopen(status), stdout
        self.returncode: int | None = None

    @functools.cached_property
    def pid(self) -> int:
        """The process's id. Waits until the process has started, which takes seconds while its parent starts."""
        return int(self._status.readline())

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended; return its exit code, negative after a signal."""
        if self.pid and self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def poll(self) -> int | None:
        """The exit code, or None while the process runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send the process a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, unless the process has ended."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM, unless the process has ended."""
        self.send_signal(signal.SIGTERM)


def start(
    arguments: Sequence[object],
    *,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    output: int | None = None,
    errors: int | None = None,
    short: bool = True,
) -> Process:
    """Start `python ARGUMENTS`: `-m MODULE`, `-c CODE` or a script, followed by its arguments.

    Output goes to the process's `stdout`, or to the file descriptor `output`. Errors go where output goes, or to the
    file descriptor `errors`. `short`: `tests.short_races` shortens the process's races.
    """
    read, write = os.pipe()
    status, status_write = os.pipe()
    variables = dict(os.environ if env is None else env)
    request = {"argv": [*map(str, arguments)], "cwd": str(cwd), "env": variables, "short": short}
    message = json.dumps(request).encode()
    assert len(message) < MAX_REQUEST
    output = write if output is None else output
    socket.send_fds(_parent(), [message], [output, output if errors is None else errors, status_write])
    os.close(write)
    os.close(status_write)
    return Process(status, os.fdopen(read))


def run(
    arguments: Sequence[object], *, cwd: Path = ROOT, env: Mapping[str, str] | None = None, short: bool = True
) -> subprocess.CompletedProcess[str]:
    """Start a process, wait for its end, and return its output and errors."""
    with os.fdopen(os.memfd_create("stderr"), "r+") as errors:
        process = start(arguments, cwd=cwd, env=env, errors=errors.fileno(), short=short)
        output = process.stdout.read()
        code = process.wait()
        errors.seek(0)
        return subprocess.CompletedProcess([*map(str, arguments)], code, output, errors.read())


@functools.cache
def start_parent() -> str:
    """Start a parent process, which ends with this process; return the name of its socket for requests."""
    name = f"specrace-tests-{os.getpid()}"
    lifetime, _ends_with_this_process = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as requests:
        # A name that begins with a null byte is no file.
        requests.bind(f"\0{name}")
        files = (requests.fileno(), lifetime)
        subprocess.Popen([sys.executable, "-m", "tests.processes", *map(str, files)], cwd=ROOT, pass_fds=files)
    os.close(lifetime)
    return name


@functools.cache
def _parent() -> socket.socket:
    """A connection to the parent process."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    connection.connect(f"\0{os.environ.get(PARENT) or start_parent()}")
    return connection


def _serve(requests: socket.socket, lifetime: int) -> dict[str, Any]:
    """Fork for every request; return the request in the fork, and never in the parent process.

    The parent process ends when the process that started it has closed the pipe `lifetime`.
    """
    # Importing creates hardly any garbage, and looking for it takes a sixth of the time.
    gc.disable()
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 10, 10)
    assert threading.active_count() == 1, "a fork has one thread only"
    # A file descriptor that becomes readable when a fork has ended -> the fork's id, and its pipe for the exit code.
    forks: dict[int, tuple[int, int]] = {}
    while True:
        for ready in select.select([requests, lifetime, *forks], [], [])[0]:
            if ready == lifetime:
                os._exit(0)
            if ready in forks:
                _report(ready, *forks.pop(ready))
                continue
            message, files, *_ = socket.recv_fds(requests, MAX_REQUEST, 3)
            pid = os.fork()
            if not pid:
                requests.close()
                for file in (lifetime, files.pop(), *forks, *(status for _, status in forks.values())):
                    os.close(file)
                for number, file in enumerate(files, 1):
                    os.dup2(file, number)
                    os.close(file)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                request: dict[str, Any] = json.loads(message)
                return request
            *outputs, status = files
            for file in outputs:
                os.close(file)
            forks[os.pidfd_open(pid)] = pid, status
            _write(status, pid)


def _report(fork: int, pid: int, status: int) -> None:
    """Write the exit code of the fork that has ended to its pipe `status`."""
    _, ended = os.waitpid(pid, 0)
    _write(status, os.waitstatus_to_exitcode(ended))
    os.close(status)
    os.close(fork)


def _write(status: int, number: int) -> None:
    """Write a number to a fork's pipe, unless the process that started the fork has ended."""
    with suppress(BrokenPipeError):
        os.write(status, f"{number}\n".encode())


def _become(argv: list[str], cwd: str, env: dict[str, str], *, short: bool) -> None:
    """Turn this process into `python ARGV`."""
    if short:
        shorten_races()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    first, *others = argv
    paths = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [cwd, *paths, *(path for path in sys.path if path not in (str(ROOT), ""))]
    if first == "-c":
        sys.argv = ["-c", *others[1:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(others[0], "<string>", "exec"), main.__dict__)
    elif first == "-m":
        sys.argv = others
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = argv
        runpy.run_path(first, run_name="__main__")


def _end(run: Callable[[], None]) -> NoReturn:
    """Run this process's program, and end the process as the interpreter does, except for the destruction of modules.

    With all libraries imported, destroying them takes half a second of processor time.
    """
    code: object = None
    try:
        run()
    except SystemExit as exit_:
        code = exit_.code
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        print(f"Exception ignored while flushing sys.stdout: {error!r}", file=sys.stderr)
        code = 120
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    _end(functools.partial(_become, **_serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))))
