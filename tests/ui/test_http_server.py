"""How the server starts and shuts down."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from specrace.cli import app as front_door
from specrace.core.errors import InputError
from specrace.ui.http_server import Server, open_sockets
from tests import processes
from tests.ui.served import Served, read_until
from tests.ui.waiting import LONG_S


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_races_with_a_message_and_leaves_no_files(number: int, code: int, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    environment.pop("GRADIO_TEMP_DIR", None)
    process = processes.start(["-m", "tests.ui.served"], env=environment)
    try:
        greeting = process.stdout.readline()
        assert greeting.startswith("specrace serves http://127.0.0.1:")
        served = Served(int(greeting.rpartition(":")[2]), tmp_path)
        assert served.upload({"owls.md": b"Owls hear."}).status == 200
        assert served.files() == ["owls.md"]
        with served.watching(served.race()["key"]) as frames:
            # Wait until the race has started.
            read_until(frames, b"head")
            process.send_signal(number)
            lines = frames.read().splitlines()
        messages = [json.loads(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: {")]
        notes = [(message["phase"], message["message"]) for message in messages if message["kind"] == "note"]
        assert notes == [("failed", "The server is shutting down.")]
        assert process.wait(LONG_S) == code
        assert process.stdout.read() == ""
    finally:
        process.kill()
        process.wait()
    assert list(tmp_path.iterdir()) == []


def test_the_first_free_port_is_used() -> None:
    first, second = open_sockets("127.0.0.1", None), open_sockets("127.0.0.1", None)
    try:
        assert 7860 <= first[0].getsockname()[1] < second[0].getsockname()[1] < 7960
        with pytest.raises(InputError, match="cannot be served on"):
            open_sockets("127.0.0.1", first[0].getsockname()[1])
    finally:
        for listener in (*first, *second):
            listener.close()


def test_localhost_listens_on_all_its_addresses() -> None:
    opened = open_sockets("localhost", None)
    addresses = {info[4][0] for info in socket.getaddrinfo("localhost", None, type=socket.SOCK_STREAM)}
    assert {listener.getsockname()[0] for listener in opened} == addresses
    for listener in opened:
        listener.close()


def address_infos(*addresses: str) -> list[tuple[Any, ...]]:
    """Return what `socket.getaddrinfo` returns for a host name with these addresses."""
    families = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in addresses]
    return [
        (family, socket.SOCK_STREAM, 6, "", (address, 0, 0, 0) if ":" in address else (address, 0))
        for family, address in zip(families, addresses, strict=True)
    ]


def test_addresses_that_this_machine_lacks_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host name may resolve to ::1 on a machine without IPv6."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: address_infos("192.0.2.1", "127.0.0.1"))
    (opened,) = open_sockets("localhost", 7900)
    assert opened.getsockname()[0] == "127.0.0.1"
    opened.close()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: address_infos("192.0.2.1"))
    with pytest.raises(InputError, match="cannot be served on"):
        open_sockets("localhost", 7900)


@pytest.mark.parametrize("space", [False, True])
def test_named_proxies_may_report_visitors_addresses(monkeypatch: pytest.MonkeyPatch, space: bool) -> None:
    def end_nothing() -> None:
        pass

    monkeypatch.delenv("SPACE_ID", raising=False)
    assert "10.1.0.0/16" not in str(Server(Starlette(), end_nothing).config.forwarded_allow_ips)
    if space:
        monkeypatch.setenv("SPACE_ID", "someone/race")
    allowed = Server(Starlette(), end_nothing, ["10.1.0.0/16"]).config.forwarded_allow_ips
    assert {"127.0.0.1", "::1", "10.1.0.0/16"} <= set(allowed) and ("10.0.0.0/8" in allowed) is space


@pytest.mark.parametrize(
    ("arguments", "log", "words"),
    [(["--proxies", "my-proxy"], "text", "--proxies has 'my-proxy'"), ([], "JSON", "SPECRACE_LOG is JSON; set it")],
)
def test_invalid_proxies_and_log_formats_are_refused(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], log: str, words: str
) -> None:
    monkeypatch.setenv("SPECRACE_LOG", log)
    with pytest.raises(InputError, match=words):
        front_door.check(front_door.parse(arguments))
