"""Starts Python processes that need not import the libraries again, which would cost seconds of processor time each.

The first call starts a parent process that imports the libraries, unless `tests/conftest.py` has started one for the
whole run; each call makes the parent fork. A fork has its own arguments, folder, environment, signals and exit code,
and imports `specrace` itself. But the libraries read the parent's environment when they were imported, so a test of
such variables, of imports or of interpreter flags must start `sys.executable` instead.
"""

from __future__ import annotations

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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

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
) -> Process:
    """Start `python ARGUMENTS`: `-m MODULE`, `-c CODE` or a script, followed by its arguments.

    Output goes to the process's `stdout`, or to the file descriptor `output`. Errors go where output goes, or to the
    file descriptor `errors`.
    """
    read, write = os.pipe()
    status, status_write = os.pipe()
    request = {"argv": [*map(str, arguments)], "cwd": str(cwd), "env": dict(os.environ if env is None else env)}
    message = json.dumps(request).encode()
    assert len(message) < MAX_REQUEST
    output = write if output is None else output
    socket.send_fds(_parent(), [message], [output, output if errors is None else errors, status_write])
    os.close(write)
    os.close(status_write)
    return Process(status, os.fdopen(read))


def run(
    arguments: Sequence[object], *, cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Start a process, wait for its end, and return its output and errors."""
    with os.fdopen(os.memfd_create("stderr"), "r+") as errors:
        process = start(arguments, cwd=cwd, env=env, errors=errors.fileno())
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
    assert threading.active_count() == 1, "a fork has one thread only"
    # The parent does not wait for the processes that watch the forks; the kernel cleans up after them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, *_ = select.select([requests, lifetime], [], [])
        if lifetime in ready:
            os._exit(0)
        message, files, *_ = socket.recv_fds(requests, MAX_REQUEST, 3)
        if not os.fork():
            requests.close()
            os.close(lifetime)
            _watch(files.pop())
            for number, file in enumerate(files, 1):
                os.dup2(file, number)
                os.close(file)
            request: dict[str, Any] = json.loads(message)
            return request
        for file in files:
            os.close(file)


def _watch(status: int) -> None:
    """Fork again, and return in the new process only; the old one writes the new one's id and exit code to `status`."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if not pid:
        os.close(status)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return
    os.write(status, f"{pid}\n".encode())
    # Close the fork's output here, too: its reader waits until no process has it open for writing.
    os.closerange(0, status)
    os.closerange(status + 1, status + 64)
    _, ended = os.waitpid(pid, 0)
    os.write(status, f"{os.waitstatus_to_exitcode(ended)}\n".encode())
    os._exit(0)


def _become(argv: list[str], cwd: str, env: dict[str, str]) -> None:
    """Turn this process into `python ARGV`."""
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


if __name__ == "__main__":
    _become(**_serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])))
