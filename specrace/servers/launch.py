"""Starts a server with a command, waits until it answers, and stops it with all its processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from specrace.core.errors import InputError, shorten
from specrace.core.files import as_input_error
from specrace.servers import keeper
from specrace.servers.address import KEY_VARIABLE, PORT, Launch, ServerAddress
from specrace.servers.connection import Connection, Waits

# Loading a large model from disk takes minutes.
START_S = 1800.0
_POLL_S = 0.5
_WAITS = Waits(connect_s=2.0, read_s=5.0)
# The last line of a log is searched for in this many bytes at its end.
_LOG_TAIL = 4000


@contextmanager
def launched(launch: Launch, log: Path, start_s: float = START_S) -> Iterator[ServerAddress]:
    """Start the server, and yield its address when it answers; stop it at the end of the block.

    It is also stopped if this process is killed. What it prints is appended to `log`. Raises InputError if it ends
    early, or does not answer within `start_s`.
    """
    port = _free_port()
    command = [word.replace(PORT, str(port)) for word in launch.command]
    with as_input_error(log, "--out"), log.open("ab") as out:
        # -I: neither the current folder nor PYTHONPATH decides which modules are imported.
        process = subprocess.Popen(
            [sys.executable, "-I", keeper.__file__, *command],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    assert process.stdin is not None
    try:
        address = ServerAddress(launch.name, f"http://127.0.0.1:{port}", os.environ.get(KEY_VARIABLE, ""))
        _wait(address, process, log, start_s)
        yield address
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(address: ServerAddress, process: subprocess.Popen[bytes], log: Path, start_s: float) -> None:
    """Wait until the server lists its models. Raises InputError."""
    ends_s = time.monotonic() + start_s
    with Connection(address, _WAITS) as connection:
        while time.monotonic() < ends_s:
            if process.poll() is not None:
                raise InputError(f"The server {address.name} ended before it answered ({_last_line(log)}); see {log}.")
            try:
                if connection.find_json("/v1/models") is not None:
                    return
            except InputError as error:
                # Requests fail until the server listens and has loaded its model, so try again; not with a wrong key.
                if KEY_VARIABLE in str(error):
                    raise
            time.sleep(_POLL_S)
    raise InputError(f"The server {address.name} did not answer within {start_s:.0f} s; see {log}.")


def _last_line(log: Path) -> str:
    """The last line of a server's log that is not blank, shortened."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _LOG_TAIL))
        lines = [line.strip() for line in stream.read().decode("utf-8", "replace").splitlines()]
    return shorten(next((line for line in reversed(lines) if line), "it printed nothing"), 160)
