"""Serves the whole app over loopback, on a workbench without a model, whose races run until they are stopped."""

from __future__ import annotations

import functools
import http.client
import json
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from starlette.applications import Starlette

from specrace.cli import app as app_command
from specrace.core.bundled import RECORDINGS
from specrace.core.events import Event
from specrace.ui import serve
from specrace.ui.helper import gallery
from specrace.ui.helper import process as helper_process
from specrace.ui.races.worker import Worker
from specrace.ui.server.guard import Hosts
from specrace.ui.server.http_server import Server, open_sockets, run
from tests.ui.races.test_stream import endless_race
from tests.ui.waiting import LONG_S

LANES = ["vanilla", "trie"]
# Helper processes are forked from one that has imported what they need; `tests/ui/helper/test_process.py` spawns them.
FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(["specrace.ui.helper.process"])


@functools.cache
def small_gallery(folder: Path) -> gallery.Gallery:
    """The gallery with one bundled recording, read once: reading all of them takes a second."""
    assert folder == RECORDINGS
    return gallery.Gallery([RECORDINGS / "tides.jsonl"])


class FakeWorkbench:
    """A workbench without a model. A race sets `begun` and `ended`; nothing is retrieved, no cost curve is measured."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()
        self.documents: list[Any] = []
        self.embedder = SimpleNamespace(embed=lambda texts: np.eye(len(texts), 8, dtype=np.float32))
        self.curve = None
        self.token_limits: list[Any] = []

    def with_documents(self, documents: list[Any], _index: Any) -> FakeWorkbench:
        """Return this workbench, and remember the visitor's documents."""
        self.documents = documents
        return self

    def retrieve(self, _question: str, _top: int | None) -> list[Any]:
        """Return no passages."""
        return []

    def ask(
        self, _request: Any, *, stop: Callable[[], bool], again: Callable[[Any], bool], beside: Any
    ) -> Iterator[Event]:
        """Run a race that ends only when it is stopped."""
        self.begun.set()
        try:
            yield from endless_race(None, stop)  # type: ignore[arg-type]
        finally:
            self.ended.set()


@dataclass
class Answer:
    """A response of the server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    def json(self) -> Any:
        """The body parsed as JSON."""
        return json.loads(self.body)


@dataclass
class Served:
    """A running app."""

    port: int
    folder: Path
    workbench: FakeWorkbench = field(default_factory=FakeWorkbench)
    worker: Worker | None = None
    app: Starlette | None = None
    # The address of the visitor: any of 127.0.0.0/8, on Linux.
    source: str = "127.0.0.1"

    def connect(self) -> http.client.HTTPConnection:
        """Open a connection, from `source`."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG_S, source_address=(self.source, 0))

    def connect_raw(self) -> socket.socket:
        """Open a bare socket, for requests that no HTTP client would send."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=LONG_S, source_address=(self.source, 0))

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send one request; a body that is neither bytes nor an iterator of bytes is sent as JSON.

        Header names have underscores instead of hyphens.
        """
        sent_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, bytes) and not hasattr(body, "__next__"):
            body = json.dumps(body).encode()
            sent_headers.setdefault("Content-Type", "application/json")
        connection = self.connect()
        try:
            connection.request(method, path, body, sent_headers)
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def upload(self, files: Mapping[str, bytes], **headers: str) -> Answer:
        """Upload files as the page does."""
        boundary, chunks = "a-boundary", []
        for name, content in files.items():
            chunks.append(
                f'--{boundary}\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'.encode()
            )
            chunks.append(content + b"\r\n")
        body = b"".join([*chunks, f"--{boundary}--\r\n".encode()])
        content_type = f"multipart/form-data; boundary={boundary}"
        return self.ask("POST", "/gradio_api/upload", body, Content_Type=content_type, **headers)

    def race(self, session: str = "a-session", files: list[str] | None = None, token: str = "", **changes: Any) -> Any:
        """Start a race as the page does; returns the key to watch it with, or the error message.

        `token`: what a Space on ZeroGPU sends along, to tell whose quota is used. `changes`: label of a field -> value.
        """
        config = self.ask("GET", "/config").json()
        # The function that starts a race has more inputs than any other one.
        function = max(config["dependencies"], key=lambda dependency: len(dependency["inputs"]))
        values = [component_value(config, number, files, changes) for number in function["inputs"]]
        join = {"data": values, "fn_index": function["id"], "session_hash": session}
        headers = {"X_IP_Token": token} if token else {}
        assert self.ask("POST", "/gradio_api/queue/join", join, **headers).status == 200
        for line in self.ask("GET", f"/gradio_api/queue/data?session_hash={session}").text.splitlines():
            message = json.loads(line.removeprefix("data: ")) if line else {}
            if message.get("msg") == "process_completed":
                output = message["output"]
                return json.loads(output["data"][0]) if message["success"] else output["error"]
        raise AssertionError("the event was never completed")

    @contextmanager
    def watching(self, key: str) -> Iterator[http.client.HTTPResponse]:
        """Open the stream from which a page reads its race."""
        connection = self.connect()
        connection.request("GET", f"/gradio_api/race/{key}")
        try:
            yield connection.getresponse()
        finally:
            connection.close()

    def files(self) -> list[str]:
        """List the names of all uploaded files on the server."""
        # A folder may be removed while it is listed; `os.walk` then treats it as empty.
        return sorted(name for _, _, names in os.walk(self.folder) for name in names)


def read_until(frames: http.client.HTTPResponse, kind: bytes) -> None:
    """Read a race's stream up to the first event whose kind begins with `kind`; raises AssertionError without one."""
    lines = []
    while b'"kind":"' + kind not in (line := frames.readline()):
        assert line, f"the stream ended after {lines[-3:]}"
        lines.append(line)


def component_value(config: Any, number: int, files: list[str] | None, changes: Mapping[str, Any]) -> Any:
    """Return the value that the page sends for a component; `changes` overrides values by component label."""
    props = next(component["props"] for component in config["components"] if component["id"] == number)
    if props.get("elem_id") == "files":
        return [{"path": path, "meta": {"_type": "gradio.FileData"}} for path in files] if files else None
    if props.get("elem_id") == "question":
        return changes.get("Question", "Why?")
    return changes.get(props.get("label"), props.get("value"))


@contextmanager
def serving(*arguments: str, workbench: FakeWorkbench | None = None) -> Iterator[Served]:
    """Serve the app from a thread of this process."""
    workbench = workbench or FakeWorkbench()
    config = app_command.read_config(app_command.parse(["--model", "tiny", *arguments]))
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setenv("GRADIO_TEMP_DIR", folder)
        patch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
        patch.setattr(serve, "loader", lambda _: lambda _report: workbench)
        patch.setattr(gallery.Gallery, "in_folder", small_gallery)
        patch.setattr(helper_process, "multiprocessing", SimpleNamespace(get_context=lambda _spawn: FORKING))
        sockets = open_sockets("127.0.0.1", None)
        app, worker, end_work = serve.build_app(config, Hosts(allowed=config.allowed_hosts))
        assert worker is not None
        worker.start()
        server = Server(app, end_work, config.proxies)
        thread = threading.Thread(target=run, args=[server, sockets])
        thread.start()
        try:
            yield Served(sockets[0].getsockname()[1], Path(folder), workbench, worker, app)
        finally:
            server.should_exit = True
            thread.join(LONG_S)
            assert worker.join(LONG_S)


def main() -> int:
    """Run `python app.py` on this workbench, without fetching models."""
    # SIGINT stays ignored if the tests were started in a shell's background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    serve.loader = lambda _: lambda _report: FakeWorkbench()  # type: ignore[assignment, return-value]
    gallery.Gallery.in_folder = small_gallery  # type: ignore[assignment, method-assign]
    return app_command.main(["--model", "tiny", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
