"""What the server refuses: unknown host names, other sites' pages, bodies without an end."""

from __future__ import annotations

import base64
import hashlib
import re
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from specrace.ui.server import http_server
from specrace.ui.server.guard import MAX_BODY, Hosts, page_policy
from specrace.ui.visitor_limits import MAX_UPLOAD_FILES
from tests.ui.served import Served, serving
from tests.ui.waiting import LONG_S

# The body of a request for an event of the page.
PREDICT = {"data": [], "fn_index": 0, "session_hash": "a"}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """The app behind a proxy that serves it as demo.example.com."""
    with serving("--allowed-hosts", "demo.example.com") as app:
        yield app


@pytest.mark.parametrize(
    "host", ["rebound.example", "rebound.example:7860", "demo.example.com.evil", "[::2]", "", "a b"]
)
def test_a_foreign_host_is_refused_even_with_a_matching_origin(served: Served, host: str) -> None:
    for path in ("/", "/config", "/gradio_api/info"):
        assert served.ask("GET", path, Host=host).status == 400
    answer = served.ask("POST", "/gradio_api/queue/join", PREDICT, Host=host, Origin=f"http://{host}")
    assert answer.status == 400 and "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1234", "[::1]:80", "DEMO.example.com"])
def test_our_own_host_names_are_accepted(served: Served, host: str) -> None:
    assert served.ask("GET", "/config", Host=host).status == 200


def test_a_server_on_all_interfaces_accepts_its_addresses_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPACE_HOST", "someone-race.hf.space")
    everywhere, local = Hosts(["0.0.0.0"]), Hosts(["127.0.0.1"])
    for host in ("192.168.1.7:7860", "[fe80::1]:7860", socket.gethostname()):
        # This machine's own name may be localhost.
        assert host in everywhere and (host not in local or host == "localhost")
    assert "someone-race.hf.space" in everywhere and "someone-else.hf.space" not in everywhere
    assert "192.168.1.7" in Hosts(["192.168.1.7"]) and "192.168.1.8" not in Hosts(["192.168.1.7"])


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "http://127.0.0.1"])
def test_requests_from_another_sites_page_are_refused(served: Served, origin: str) -> None:
    for path in ("/gradio_api/queue/join", "/gradio_api/call/race", "/gradio_api/upload", "/gradio_api/cancel"):
        answer = served.ask("POST", path, PREDICT, Origin=origin)
        assert answer.status == 403 and "access-control-allow-origin" not in answer.headers
    for host in (f"[::1]:{served.port}", f"127.0.0.1:{served.port}"):
        assert served.ask("GET", "/config", Host=host, Origin=origin).status == 403
    assert served.ask("OPTIONS", "/config", Origin=origin, Access_Control_Request_Method="POST").status == 403


def test_another_site_may_link_here_but_not_fetch(served: Served) -> None:
    assert served.ask("GET", "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 200
    assert served.ask("GET", "/config", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status == 403
    assert served.ask("POST", "/config", Sec_Fetch_Site="same-site", Sec_Fetch_Mode="navigate").status == 403


def test_our_own_page_and_programs_may_send_requests(served: Served) -> None:
    """A program sends no Origin. Behind a proxy that rewrites Host, the page's Origin is an allowed host."""
    # No event has this number, so the answer of a request that the guard lets through says so.
    join = {"data": [], "fn_index": 10**6, "session_hash": "a"}
    for headers in (
        {},
        {"Origin": f"http://127.0.0.1:{served.port}", "Sec_Fetch_Site": "same-origin"},
        {"Origin": "https://demo.example.com", "Sec_Fetch_Site": "same-origin"},
    ):
        assert "no endpoint of this name" in served.ask("POST", "/gradio_api/queue/join", join, **headers).text


@pytest.mark.parametrize("path", ["/", "/config", "/nothing", "/gradio_api/info", "/theme.css", "/monitoring"])
def test_every_response_has_the_security_headers(served: Served, path: str) -> None:
    for headers in (served.ask("GET", path).headers, served.ask("GET", path, Host="evil.example").headers):
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "default-src 'none'" in headers["content-security-policy"]


def test_the_policy_allows_only_the_pages_own_inline_scripts(served: Served) -> None:
    answer = served.ask("GET", "/")
    scripts = re.findall(r"<script(?![^>]* src=)[^>]*>(.*?)</script>", answer.text, re.DOTALL)
    policy = answer.headers["content-security-policy"]
    assert len(scripts) > 2 and "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
    for script in scripts:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy


def test_hugging_face_may_frame_the_page_only_on_a_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPACE_HOST", "someone-race.hf.space")
    assert page_policy(b"<script>1</script>", "https://huggingface.co").endswith(
        "frame-ancestors https://huggingface.co"
    )
    with serving() as app:
        policy = app.ask("GET", "/", Host="someone-race.hf.space").headers["content-security-policy"]
        assert policy.endswith("frame-ancestors https://huggingface.co")


def test_a_large_body_is_refused_by_its_header_or_while_it_is_read(served: Served) -> None:
    for path in ("/gradio_api/queue/join", "/gradio_api/run/x", "/gradio_api/component_server", "/gradio_api/upload"):
        with served.connect_raw() as connection:
            connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000000\r\n\r\n".encode())
            assert b" 413 " in connection.recv(100)
    with served.connect_raw() as connection:
        connection.sendall(
            b"POST /gradio_api/queue/join HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        connection.sendall(f"{MAX_BODY + 1:x}\r\n".encode() + b"x" * (MAX_BODY + 1))
        assert b" 413 " in connection.recv(100)
    assert served.ask("POST", "/gradio_api/queue/join", b"x" * MAX_BODY).status == 422


def test_uploads_are_limited_and_stored_under_safe_names(served: Served) -> None:
    """The server only stores uploads. Another process decides which of them are usable."""
    before = served.files()
    answer = served.upload({f"{number}.md": b"Owls." for number in range(MAX_UPLOAD_FILES + 1)})
    assert answer.status == 400 and "Too many files" in answer.text and answer.text.count("\n") == 0
    assert served.files() == before
    assert served.upload({"../../owls.MD": b"Owls hear."}).status == 200
    assert served.files() == [*before, "owls.MD"]


def test_an_interrupted_upload_leaves_no_file(served: Served) -> None:
    before = served.files()
    head = "POST /gradio_api/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999"
    head += "\r\nContent-Type: multipart/form-data; boundary=x"
    half = '--x\r\nContent-Disposition: form-data; name="files"; filename="half.md"\r\n\r\nOwls'
    with served.connect_raw() as connection:
        connection.sendall(f"{head}\r\n\r\n{half}".encode())
        connection.shutdown(socket.SHUT_WR)
        connection.recv(100)
    assert served.files() == before


def test_routes_that_the_page_does_not_need_are_closed(served: Served) -> None:
    for path in (
        "/monitoring",
        "/monitoring/summary",
        "/gradio_api/proxy=https://x.hf.space/",
        "/gradio_api/vibe-code",
        "/gradio_api/mcp/",
        "/gradio_api/mcp/schema",
    ):
        assert served.ask("GET", path).status == 404
    assert served.ask("POST", "/gradio_api/process_recording").status == 404
    assert served.ask("GET", f"/assets/{'b' * 3000}").status == 414
    # Races go through the queue.
    assert served.ask("POST", "/gradio_api/run/race", {"data": ["Why?"]}).status == 404


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", b"GET /config HTTP/1.1\r\nHost: a\r\n\r\nGET /"],
)
def test_an_incomplete_request_is_dropped(served: Served, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_LIMIT_S", 0.01)
    # A connection that is closed while we send was dropped too. If it stays open, TimeoutError fails the test.
    with served.connect_raw() as connection, suppress(ConnectionError):
        connection.sendall(sent)
        while connection.recv(10_000):
            pass


def test_an_incomplete_body_times_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specrace.ui.server.guard.BODY_LIMIT_S", 0.01)
    with served.connect_raw() as connection:
        connection.settimeout(LONG_S)
        connection.sendall(b"POST /gradio_api/queue/join HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
        assert b" 408 " in connection.recv(100)
