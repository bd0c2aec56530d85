"""The page below a proxy's path: its routes, files, stream, uploads and polls, and the preview of a link to it."""

from __future__ import annotations

import http.client
import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest

from specrace.cli import app as app_command
from specrace.core.errors import InputError
from tests.ui.served import Answer, Served, read_until, serving
from tests.ui.waiting import LONG_S

ROOT = "/tools/specrace"


class ForwardingProxy(http.server.BaseHTTPRequestHandler):
    """A reverse proxy that serves the app below ROOT, and nothing else."""

    protocol_version = "HTTP/1.0"
    port = 0
    strips_path = True

    def do_GET(self) -> None:
        if not self.path.startswith(f"{ROOT}/"):
            self.send_error(404)
            return
        path = self.path[len(ROOT) :] if self.strips_path else self.path
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        upstream = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG_S)
        upstream.request(self.command, path, body, dict(self.headers))
        answer = upstream.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        self.end_headers()
        # The answer is passed on in pieces, because a stream must arrive while it is sent.
        while piece := answer.read1(65_536):
            self.wfile.write(piece)
            self.wfile.flush()
        upstream.close()

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def proxied(served: Served, *, strips_path: bool) -> Iterator[Served]:
    """The app as it is reached through the proxy."""
    handler = type("Handler", (ForwardingProxy,), {"port": served.port, "strips_path": strips_path})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Served(server.server_address[1], served.folder, served.workbench, served.worker, served.app)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(LONG_S)


@pytest.fixture(scope="module")
def app() -> Iterator[Served]:
    """The app below ROOT, without the proxy."""
    with serving("--root-path", f"{ROOT}/") as served:
        yield served


@pytest.fixture(scope="module", params=[True, False], ids=["the proxy takes the path off", "the proxy keeps the path"])
def proxy(app: Served, request: pytest.FixtureRequest) -> Iterator[Served]:
    with proxied(app, strips_path=request.param) as proxy:
        yield proxy


class Links(HTMLParser):
    """Collects the addresses that a page names."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.addresses = "", list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "base":
            self.base = values.get("href") or ""
        elif tag in ("script", "link", "img"):
            self.addresses += [value for name in ("src", "href") if (value := values.get(name))]


def test_every_file_that_the_page_names_is_served_below_the_path(proxy: Served) -> None:
    links = Links()
    links.feed(proxy.ask("GET", f"{ROOT}/").text)
    base = urljoin(f"http://127.0.0.1:{proxy.port}{ROOT}/", links.base)
    addresses = [urlsplit(urljoin(base, name)) for name in links.addresses]
    own_paths = [address.path for address in addresses if address.port == proxy.port]
    assert len(own_paths) > 20
    assert [path for path in own_paths if not path.startswith(f"{ROOT}/")] == []
    missing = [path for path in own_paths if proxy.ask("GET", path).status != 200]
    assert missing == []


def test_the_page_knows_its_own_address(proxy: Served) -> None:
    config = proxy.ask("GET", f"{ROOT}/config").json()
    assert config["root"] == f"http://127.0.0.1:{proxy.port}{ROOT}"
    assert proxy.ask("GET", "/config").status == 404, "nothing is served beside the path"


class ServedBelowRoot(Served):
    """The app to which requests are sent as its page sends them: below ROOT, because its addresses are relative."""

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        return super().ask(method, f"{ROOT}{path}", body, **headers)


def test_a_race_streams_and_an_upload_arrives(proxy: Served) -> None:
    page = ServedBelowRoot(proxy.port, proxy.folder, proxy.workbench, proxy.worker, proxy.app)
    name, former_names = f"owls-{proxy.port}.md", page.files()
    (path,) = page.upload({name: b"Owls hear well."}).json()
    assert path.endswith(name) and page.files() == sorted([*former_names, name])
    key = page.race()["key"]
    connection = page.connect()
    connection.request("GET", f"{ROOT}/gradio_api/race/{key}")
    stream = connection.getresponse()
    assert stream.status == 200
    read_until(stream, b"step")
    connection.close()


def test_the_audiences_link_and_cookie_are_below_the_path(proxy: Served) -> None:
    origin = f"http://127.0.0.1:{proxy.port}"
    poll = proxy.ask("POST", f"{ROOT}/audience", {"origin": origin}).json()
    assert poll["link"] == f"{origin}{ROOT}/audience/{poll['code']}"
    phone = proxy.ask("GET", urlsplit(poll["link"]).path)
    assert phone.status == 200 and f"Path={ROOT}/audience" in phone.headers["set-cookie"]
    (script,) = re.findall(r'<script type="module" src="([^"]+)"', phone.text)
    assert proxy.ask("GET", urlsplit(urljoin(poll["link"], script)).path).status == 200
    state = proxy.ask("GET", f"{urlsplit(poll['link']).path}/state")
    assert state.status == 200 and state.json()["round"] == 0


def test_links_to_the_page_show_our_title_and_picture(proxy: Served) -> None:
    page = proxy.ask("GET", f"{ROOT}/").text
    tags = dict(re.findall(r'<meta (?:property|name)="((?:og|twitter):[^"]+)" content="([^"]*)">', page))
    address = f"http://127.0.0.1:{proxy.port}{ROOT}"
    assert (tags["og:url"], tags["og:title"]) == (f"{address}/", "specrace")
    assert tags["og:image"] == tags["twitter:image"] == f"{address}/preview.png"
    assert tags["twitter:card"] == "summary_large_image" and "decoders" in tags["og:description"]
    assert "Gradio" not in "".join(re.findall(r"<meta[^>]*>", page))
    picture = proxy.ask("GET", urlsplit(tags["og:image"]).path)
    assert (picture.status, picture.headers["content-type"]) == (200, "image/png")


def test_a_bare_path_is_redirected_and_other_paths_are_served_unchanged(app: Served) -> None:
    bare = app.ask("GET", f"{ROOT}?lanes=trie")
    assert (bare.status, bare.headers["location"]) == (307, f"{ROOT}/?lanes=trie")
    assert app.ask("GET", "/").status == 200 == app.ask("GET", f"{ROOT}/").status
    assert app.ask("GET", f"{ROOT}er/").status == 404
    assert app.ask("GET", f"{ROOT}/monitoring").status == 404, "the guard closes this route at every path"


def frame_ancestors(served: Served) -> str:
    headers = served.ask("GET", "/").headers
    assert "x-frame-options" not in headers
    return headers["content-security-policy"].rpartition("frame-ancestors ")[2]


def test_only_the_named_sites_may_show_the_page_in_a_frame(app: Served) -> None:
    assert frame_ancestors(app) == "'none'"
    with serving("--frame-ancestors", "https://portal.example.com", "'self'") as served:
        assert frame_ancestors(served) == "https://portal.example.com 'self'"
        assert served.ask("GET", "/gradio_api/info").headers["content-security-policy"].endswith("sandbox")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--root-path", "tools"], "--root-path is 'tools'"),
        (["--root-path", "/a/../b"], "--root-path is '/a/../b'"),
        (["--root-path", "/a b"], "such as /tools/specrace"),
        (["--frame-ancestors", "https://a.example; script-src *"], "--frame-ancestors has"),
        (["--frame-ancestors", "portal"], "give origins"),
    ],
)
def test_malformed_paths_and_sites_are_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        app_command.read_config(app_command.parse(["--model", "tiny", *arguments]))


def test_gradios_variable_sets_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIO_ROOT_PATH", f"{ROOT}/")
    assert app_command.read_config(app_command.parse(["--model", "tiny"])).root_path == ROOT
