"""Servers that are started with a command: they answer, are stopped with all their processes, and may fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from specrace.core.errors import InputError
from specrace.servers import keeper
from specrace.servers.address import parse_launch
from specrace.servers.connection import Connection
from specrace.servers.launch import launched

# A server that starts a child process, and writes the child's id into a file.
SERVER = """
    import json, subprocess, sys
    from http.server import BaseHTTPRequestHandler, HTTPServer
    worker = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    open(sys.argv[2], "w").write(str(worker.pid))
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"data": []}).encode())
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
LIMIT_S = 300.0


def command(folder: Path) -> str:
    """The command of a server that writes its child's id to `folder`/worker; -S makes Python start faster."""
    script = folder / "server.py"
    script.write_text(textwrap.dedent(SERVER))
    return f"{sys.executable} -S {script} {{port}} {folder / 'worker'}"


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until `holds()` is true; fail after `LIMIT_S`, which is enough for a busy machine."""
    ends_s = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < ends_s
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, even if it is still a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_server_answers_and_is_stopped_with_its_processes(tmp_path: Path) -> None:
    launch = parse_launch(f"plain={command(tmp_path)}")
    with launched(launch, tmp_path / "log", LIMIT_S) as address:
        assert address.name == "plain"
        with Connection(address) as connection:
            assert connection.find_json("/v1/models") == {"data": []}
        worker = int((tmp_path / "worker").read_text())
        assert not is_gone(worker)
    wait_until(lambda: is_gone(worker))


def test_a_server_does_not_stay_behind_when_its_starter_is_killed(tmp_path: Path) -> None:
    words = [word.replace("{port}", "0") for word in parse_launch(f"plain={command(tmp_path)}").command]
    read, write = os.pipe()
    process = subprocess.Popen([sys.executable, "-I", keeper.__file__, *words], stdin=read, start_new_session=True)
    os.close(read)
    wait_until(lambda: (tmp_path / "worker").exists() and (tmp_path / "worker").read_text() != "")
    worker = int((tmp_path / "worker").read_text())
    # The system closes the pipes of a process that is killed.
    os.close(write)
    assert process.wait(LIMIT_S) == -signal.SIGKILL
    wait_until(lambda: is_gone(worker))


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("raise SystemExit('no such model')", "ended before it answered (no such model)"),
        ("pass", "ended before it answered (it printed nothing)"),
    ],
)
def test_a_server_that_ends_is_reported_with_its_last_words(tmp_path: Path, script: str, words: str) -> None:
    launch = parse_launch(f'plain={sys.executable} -S -c "{script}" {{port}}')
    with pytest.raises(InputError) as error, launched(launch, tmp_path / "log", LIMIT_S):
        pass
    assert words in str(error.value)


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"no-such-program: No such file"),
        launched(parse_launch("plain=no-such-program {port}"), tmp_path / "log", LIMIT_S),
    ):
        pass


def test_a_server_that_never_answers_is_stopped(tmp_path: Path) -> None:
    launch = parse_launch(f'plain={sys.executable} -S -c "import time; time.sleep(600)" {{port}}')
    with pytest.raises(InputError, match=r"did not answer within 0 s"), launched(launch, tmp_path / "log", 0.0):
        pass


@pytest.mark.parametrize("text", ["plain", "plain=vllm serve m", "a b=x {port}", "plain='x {port}", "=x {port}"])
def test_a_command_without_a_name_a_port_or_quotes_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--launch"):
        parse_launch(text)
