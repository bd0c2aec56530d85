"""How the server starts and shuts down."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from specrace.cli import app as app_command
from specrace.core.errors import InputError
from specrace.ui.server import http_server
from specrace.ui.server.http_server import ForwardedHeaders, known_proxies, open_sockets
from tests import processes
from tests.ui.served import Served, read_until, serving
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


def test_a_server_that_shuts_down_ends_the_pages_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page keeps this stream open while it is shown. uvicorn would wait for its end, here longer than the test."""
    monkeypatch.setattr(http_server, "CLOSE_LIMIT_S", 2 * LONG_S)
    with serving() as served:
        connection = served.connect()
        connection.request("GET", "/gradio_api/heartbeat/a-session")
        heartbeat = connection.getresponse()
        assert heartbeat.readline() == b"data: ALIVE\n"
    assert heartbeat.read() == b"\n"
    connection.close()


def test_the_first_free_port_is_used() -> None:
    first, second = open_sockets("127.0.0.1", None), open_sockets("127.0.0.1", None)
    try:
        # A hundred ports from 7860 on are tried.
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


def test_addresses_that_this_machine_does_not_have_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host name may resolve to ::1 on a machine without IPv6."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: address_infos("192.0.2.1", "127.0.0.1"))
    (opened,) = open_sockets("localhost", 7900)
    assert opened.getsockname()[0] == "127.0.0.1"
    opened.close()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: address_infos("192.0.2.1"))
    with pytest.raises(InputError, match="cannot be served on"):
        open_sockets("localhost", 7900)


async def forwarded(proxies: list[str], peer: str) -> tuple[str, str, bool]:
    """The visitor's address, the scheme, and whether X-Forwarded-Host is kept, for a request from `peer`."""
    seen: list[Any] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope)

    headers = [(b"x-forwarded-for", b"192.0.2.7"), (b"x-forwarded-proto", b"https"), (b"x-forwarded-host", b"a")]
    scope: Any = {"type": "http", "client": (peer, 1), "scheme": "http", "headers": headers}
    unused: Any = None
    await ForwardedHeaders(app, known_proxies(proxies))(scope, unused, unused)
    (scope,) = seen
    return scope["client"][0], scope["scheme"], b"x-forwarded-host" in dict(scope["headers"])


@pytest.mark.parametrize("space", [False, True])
def test_only_named_proxies_may_report_visitors_addresses(monkeypatch: pytest.MonkeyPatch, space: bool) -> None:
    for name in ("SPACE_ID", "FORWARDED_ALLOW_IPS"):
        monkeypatch.delenv(name, raising=False)
    if space:
        monkeypatch.setenv("SPACE_ID", "someone/race")
    seen = {peer: asyncio.run(forwarded(["10.1.0.0/16"], peer)) for peer in ("127.0.0.1", "10.1.2.3", "10.2.0.1")}
    named, unknown = ("192.0.2.7", "https", True), ("", "http", False)
    # On a Space, all peers are its own proxies.
    believed = {"10.1.2.3"} | ({"127.0.0.1", "10.2.0.1"} if space else set())
    assert seen == {peer: named if peer in believed else (peer, *unknown[1:]) for peer in seen}
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "192.0.2.1, 192.0.2.2")
    assert asyncio.run(forwarded([], "192.0.2.2")) == named


@pytest.mark.parametrize(
    ("arguments", "log", "words"),
    [(["--proxies", "my-proxy"], "text", "--proxies has 'my-proxy'"), ([], "JSON", "SPECRACE_LOG is JSON; set it")],
)
def test_invalid_proxies_and_log_formats_are_refused(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], log: str, words: str
) -> None:
    monkeypatch.setenv("SPECRACE_LOG", log)
    with pytest.raises(InputError, match=words):
        app_command.read_config(app_command.parse(arguments))
