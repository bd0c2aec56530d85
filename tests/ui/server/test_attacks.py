"""Attacks by one visitor on a served app: to keep other visitors waiting, to fill the memory, to sign them out.

Nothing here is timed: a busy machine only makes it slower. `python -m tests.measure.attacks` prints seconds.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest

from specrace.ui.helper.pool import HelperPool
from specrace.ui.server import visitors as visitors_module
from specrace.ui.server.guard import LOGS, RECORDING, UPLOAD
from specrace.ui.server.visitors import LOGINS_PER_MINUTE, MAX_VISITOR_BODIES
from specrace.ui.visitor_limits import MAX_LOG_BYTES
from tests import processes
from tests.ui.served import Answer, Served, serving
from tests.ui.server.test_limits import PASSWORD, sign_in
from tests.ui.waiting import LONG_S, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other visitors come from 127.0.0.2, and /proc is read")
RETRIEVE = "/gradio_api/call/v2/retrieve"
ATTACKER = "127.0.0.2"
SERVER = """
import signal, sys
from tests.ui.served import serving
with serving(*sys.argv[1:]) as app:
    print(app.port, flush=True)
    signal.pause()
"""
# How much more memory the server may take during the attack. Without limits on bodies it took 1.5 GB.
MAX_GROWTH_BYTES = 200_000_000
# How many requests the attacker holds back.
HELD = 80


@pytest.fixture(scope="module")
def locked_app() -> Iterator[Served]:
    """A server that requires visitors to sign in."""
    with serving("--auth", f"ann:{PASSWORD}") as app:
        yield app


@contextmanager
def server(folder: Path, *arguments: str) -> Iterator[tuple[Served, processes.Process]]:
    """The app in a process of its own, whose memory is measured."""
    process = processes.start(["-c", SERVER, *arguments], env={**os.environ, "TMPDIR": str(folder)})
    try:
        yield Served(int(process.stdout.readline()), folder), process
    finally:
        process.kill()
        process.wait()


def peak_memory(process: processes.Process) -> int:
    """The peak memory of the process so far, in bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def retrieve(app: Served, paths: list[str]) -> str:
    """Ask for passages of uploaded files as a program does; returns the answer's event and data."""
    files = [{"path": path, "meta": {"_type": "gradio.FileData"}} for path in paths]
    event = app.ask("POST", RETRIEVE, {"question": "Why?", "files": files}).json()["event_id"]
    return app.ask("GET", f"{RETRIEVE}/{event}").text


def test_another_visitors_document_is_answered_while_slow_ones_are_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attacker's helper processes are suspended as they begin, so they take longer than any file could."""
    stopped: list[int] = []
    begin = HelperPool._begin

    def begin_and_stop(pool: HelperPool, turn: Any) -> None:
        begin(pool, turn)
        if turn.visitor == ATTACKER:
            turn.process._connect()
            stopped.append(turn.process._process.pid)
            os.kill(stopped[-1], signal.SIGSTOP)

    monkeypatch.setattr(HelperPool, "_begin", begin_and_stop)
    with serving() as app:
        assert app.worker is not None
        helper, attacker = app.worker.other_work.files, replace(app, source=ATTACKER)
        paths = attacker.upload({"slow.html": b"<a "}).json()
        answers: list[str] = []
        threads = [threading.Thread(target=lambda: answers.append(retrieve(attacker, paths))) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(helper._waiting) == 1 and len(helper._running) == 2)
        (path,) = app.upload({"owls.md": b"Owls hear."}).json()
        assert retrieve(app, [path]).startswith("event: complete")
        assert answers == [] and len(helper._running) == 2
        monkeypatch.setattr(HelperPool, "_begin", begin)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        for thread in threads:
            thread.join(LONG_S)
        assert len(answers) == 3


def hold(app: Served, path: str, length: int) -> socket.socket:
    """Send a request except for its last byte. Stops sending as soon as the server answers."""
    connection = app.connect_raw()
    connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode())
    num_unsent, piece = length - 1, b"x" * 500_000
    while num_unsent:
        if select.select([connection], [], [], 0)[0]:
            break
        try:
            num_unsent -= connection.send(piece[:num_unsent])
        except OSError:
            break
    return connection


def statuses(connections: list[socket.socket], num_answers: int) -> Counter[int]:
    """Wait for `num_answers` answers; returns how often the server answered with each status."""
    answered: dict[socket.socket, int] = {}
    while len(answered) < num_answers:
        ready, _, _ = select.select([held for held in connections if held not in answered], [], [], LONG_S)
        assert ready, "the server did not answer"
        for connection in ready:
            answered[connection] = int(connection.recv(1000).split()[1])
    return Counter(answered.values())


@pytest.mark.parametrize("needs_sign_in", [False, True])
def test_bodies_that_are_held_back_fill_neither_the_memory_nor_the_server(tmp_path: Path, needs_sign_in: bool) -> None:
    arguments = ["--auth", f"ann:{PASSWORD}"] if needs_sign_in else []
    with server(tmp_path, *arguments) as (app, process), ExitStack() as stack:
        # The first request loads what every server needs; it does not count.
        app.ask("GET", "/config")
        before = peak_memory(process)
        attacker = replace(app, source=ATTACKER)
        connections = [stack.enter_context(hold(attacker, LOGS, MAX_LOG_BYTES)) for _ in range(HELD)]
        # Without a sign-in all are refused; with none needed, those beyond the visitor's limit.
        expected = {401: HELD} if needs_sign_in else {429: HELD - MAX_VISITOR_BODIES}
        assert statuses(connections, sum(expected.values())) == expected
        assert app.ask("GET", "/healthz").status == 200
        assert needs_sign_in or app.ask("POST", LOGS, b"hello").status == 200
        assert peak_memory(process) - before < MAX_GROWTH_BYTES


def test_an_arrived_body_makes_room_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors_module, "MAX_VISITOR_BODIES", 1)
    with serving() as app, ExitStack() as stack:
        held = stack.enter_context(hold(app, LOGS, 100_000))
        wait_until(lambda: app.ask("POST", LOGS, b"x" * 100_000).status == 429)
        assert app.ask("POST", LOGS, b"small").status == 200
        assert replace(app, source=ATTACKER).ask("POST", LOGS, b"x" * 100_000).status == 200
        held.sendall(b"x")
        assert b" 200 " in held.recv(100)
        assert app.ask("POST", LOGS, b"x" * 100_000).status == 200


def refused_before_arrival(app: Served, path: str) -> bool:
    """Whether the server refuses a file when it has only read the request's head."""
    with app.connect_raw() as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x"
        connection.sendall(f"{head}\r\nContent-Length: 9000000\r\n\r\n".encode())
        return b" 429 " in connection.recv(100)


def test_files_beyond_the_hourly_limit_are_refused_before_they_arrive() -> None:
    """The limit holds on every route that takes files, and refused files count, so that nobody repeats them forever."""
    with serving("--uploads-per-hour", "2") as app:
        # Every visitor has another address.
        visitor = replace(app, source="127.0.1.1")
        assert visitor.upload({"a.md": b"A.", "b.md": b"B."}).status == 200
        assert refused_before_arrival(visitor, UPLOAD)
        for address, path in (("127.0.1.2", LOGS), ("127.0.1.3", RECORDING)):
            visitor = replace(app, source=address)
            assert all(visitor.ask("POST", path, b"x").status in (200, 400) for _ in range(2)), path
            assert refused_before_arrival(visitor, path), path
        visitor, files = replace(app, source="127.0.1.4"), {f"{number}.md": b"A." for number in range(3)}
        assert [visitor.upload(files).text for _ in range(3)] == [
            "More than 2 files came from you within an hour; try later."
        ] * 3
        assert refused_before_arrival(visitor, UPLOAD)


def cookies(answer: Answer) -> str:
    return "; ".join(f"{morsel.key}={morsel.value}" for morsel in SimpleCookie(answer.headers["set-cookie"]).values())


def test_signing_out_takes_a_press_of_the_button_and_ends_one_session(locked_app: Served) -> None:
    app = locked_app
    first, second = (cookies(sign_in(app, "ann", PASSWORD)) for _ in range(2))
    # A link on another site only shows the button.
    page = app.ask("GET", "/logout", Cookie=first, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")
    assert page.status == 200 and "set-cookie" not in page.headers and "Sign out</button>" in page.text
    for headers in ({"Origin": "http://evil.example"}, {"Sec_Fetch_Site": "cross-site"}):
        assert app.ask("POST", "/logout", b"", Cookie=first, **headers).status == 403
    assert app.ask("GET", "/config", Cookie=first).status == 200
    own_page = {"Origin": f"http://127.0.0.1:{app.port}", "Sec_Fetch_Site": "same-origin"}
    assert app.ask("POST", "/logout", b"", Cookie=first, **own_page).status == 200
    assert app.ask("GET", "/config", Cookie=first).status == 401
    assert app.ask("GET", "/config", Cookie=second).status == 200


def test_a_made_up_address_does_not_lift_the_limit_on_sign_ins(locked_app: Served) -> None:
    attacker = replace(locked_app, source=ATTACKER)
    answers = [
        attacker.ask("POST", "/login", b"username=a&password=b", X_Forwarded_For=f"192.0.2.{number}").status
        for number in range(LOGINS_PER_MINUTE + 1)
    ]
    assert answers[-1] == 429 and 429 not in answers[:-1]


@pytest.mark.parametrize("arguments", [(), ("--proxies", "127.0.0.1", "--allowed-hosts", "demo.example.com")])
def test_a_visitor_cannot_name_another_address_for_the_page(arguments: tuple[str, ...]) -> None:
    with serving(*arguments) as app:

        def root(**headers: str) -> str:
            return str(app.ask("GET", "/config", **headers).json()["root"])

        own_address = f"http://127.0.0.1:{app.port}"
        for headers in (
            {"X_Forwarded_Host": "evil.example"},
            {"X_Forwarded_Host": "demo.example.com, evil.example"},
            {"X_Gradio_Server": "http://evil.example"},
        ):
            assert root(**headers) == own_address
        # A proxy on a Space, and one that --proxies names, gives the address that the visitor sees.
        address = root(X_Forwarded_Host="demo.example.com", X_Forwarded_Proto="https")
        assert address == ("https://demo.example.com" if arguments else own_address)
