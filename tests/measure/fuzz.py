"""Hostile requests to every route of the app, and a race after them:
python -m tests.measure.fuzz --requests N --seed N

Sends wrong types, huge numbers, NaN, 10 MB strings, deep JSON, and another visitor's files, sessions and keys. Exits
with 1 if an error is not one sentence, if an answer reveals a secret, or if the server cannot race afterwards.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.routing import Mount, Route

from specrace.core.bundled import RECORDINGS
from specrace.ui.helper.process import OUR_FAULT
from specrace.ui.races.race_request import OFFERED
from tests.ui.served import LANES, Served, read_until, serving
from tests.ui.waiting import LONG_S

ROOT = Path(__file__).resolve().parents[2]
SECRET = "the-other-visitor-s-words"
OTHER_SESSION = "another-session"
# The attacker's address, which is not the visitor's.
ATTACKER = "127.0.0.2"
# Event streams have no end, so only the part that arrives within this time is checked.
STREAM_S = 0.05
MAX_READ = 200_000
WORDS = ("", "a", "0", "-1", "null", "race", "../../etc/passwd", "/etc/passwd", "..%2f..%2fetc%2fpasswd",
         "<img src=x onerror=alert(1)>", "\0", "\r\nX: y", "{{7*7}}", "é" * 50, "b" * 3000, "file:///etc/passwd",
         "http://192.0.2.1/x", "C:\\x")  # fmt: skip
APP_ARGUMENTS = ["--mcp", "--races-per-minute", "10000", "--uploads-per-hour", "10000"]
ACCEPTED = "application/json, text/event-stream"
ENDPOINTS = ("race", "retrieve", "score", "recommend")
LOG = '{"prompt_ids": [1, 2, 3, 1], "output_ids": [2, 3]}'


@dataclass(frozen=True)
class Exchange:
    """A request and its answer; status 0 means the connection was closed while the body was sent."""

    method: str
    path: str
    body: bytes
    status: int = 0
    answer: bytes = b""


class Fuzzer:
    """Makes random requests, which depend only on the seed and the server's version."""

    def __init__(self, app: Served, seed: int) -> None:
        self.app, self.rng = app, random.Random(seed)
        self.complaints: list[str] = []
        self.statuses: Counter[int] = Counter()
        assert app.app is not None
        self.routes = sorted(set(list_routes(app.app)))
        self.config = app.ask("GET", "/config").json()
        self.recording = next(RECORDINGS.glob("*.jsonl")).read_bytes()
        (self.file,) = app.upload({"diary.md": f"{SECRET} are about owls.".encode()}).json()
        race = app.race(OTHER_SESSION, files=[self.file], Question=f"{SECRET}?")
        self.watched = app.watching(race["key"])
        # A poll in which the visitor's audience votes for a lane.
        poll = app.ask("POST", "/audience", {"origin": f"http://localhost:{app.port}"}).json()
        self.poll = poll["code"]
        # No answer may hold these. Keys that every visitor may request are not among them.
        self.secrets = [SECRET, race["key"], poll["key"], str(ROOT), sysconfig.get_paths()["purelib"], "Traceback"]

    def run(self, requests: int) -> None:
        """Send this many requests during a race, then run another race."""
        with self.watched as frames:
            read_until(frames, b"head")
            for _ in range(requests):
                exchange = self.send(*self.make())
                self.judge(exchange)
                # An accepted call names an event, whose result is read in half of all cases.
                if exchange.answer.startswith(b'{"event_id":"') and self.rng.random() < 0.5:
                    event = json.loads(exchange.answer)["event_id"]
                    self.judge(self.send("GET", f"/gradio_api/call/race/{event}", b"", ""))
        assert self.app.worker is not None
        self.app.worker.queue.stop(OTHER_SESSION)
        last = self.app.race("a-last-session")
        with self.app.watching(last["key"]) as frames:
            while b'"kind":"step' not in (line := frames.readline()):
                if not line:
                    self.complaints.append("no race afterwards")
                    break
        if self.app.ask("GET", "/healthz").json() != {"status": "ready"}:
            self.complaints.append("the server is not ready afterwards")

    def judge(self, exchange: Exchange) -> None:
        """Add a complaint for everything that is wrong with an answer."""
        self.statuses[exchange.status] += 1
        where = f"{exchange.method} {exchange.path[:80]} {exchange.body[:80]!r}: {exchange.status}"
        # OUR_FAULT is what visitors are told of an error that nobody expected.
        if (exchange.status >= 500 and not is_sentence(exchange.answer)) or OUR_FAULT.encode() in exchange.answer:
            self.complaints.append(f"{where} {exchange.answer[:200]!r}")
        for secret in self.secrets:
            if (
                secret.encode() in exchange.answer
                and secret.encode() not in exchange.body
                and secret not in exchange.path
            ):
                self.complaints.append(f"{where} has {secret}")

    def send(self, method: str, path: str, body: bytes, content_type: str) -> Exchange:
        """Send a request on a new connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.app.port, LONG_S, source_address=(ATTACKER, 0))
        try:
            connection.request(method, path, body or None, {"Content-Type": content_type, "Accept": ACCEPTED})
            answer = connection.getresponse()
            streamed = answer.headers.get_content_type() == "text/event-stream"
            if streamed and connection.sock is not None:
                connection.sock.settimeout(STREAM_S)
            return Exchange(method, path, body, answer.status, b"".join(pieces(answer)))
        except (ConnectionError, http.client.HTTPException):
            return Exchange(method, path, body)
        finally:
            connection.close()

    def make(self) -> tuple[str, str, bytes, str]:
        """Method, path, body and content type of a random request."""
        makers = (
            self.any_route, self.any_route, self.any_route, self.event, self.call, self.call, self.tool, self.vote,
            self.changed_file,
        )  # fmt: skip
        method, path, body = self.rng.choice(makers)()
        content_types = ("application/json",) * 8 + (
            "text/plain",
            "multipart/form-data; boundary=x",
            "multipart/form-data",
            "",
        )
        return method, path, body, self.rng.choice(content_types)

    def any_route(self) -> tuple[str, str, bytes]:
        """Any route, with random parameters and a random query."""
        method, path = self.rng.choice(self.routes)
        while "{" in path:
            head, _, parameter_and_tail = path.partition("{")
            path = head + quote(self.word()) + parameter_and_tail.partition("}")[2]
        if self.rng.random() < 0.3:
            path += f"?{self.rng.choice(('session_hash', 'name', 'upload_id'))}={quote(self.word())}"
        return method, path[:8000], self.json_of(self.value()) if method == "POST" else b""

    def event(self) -> tuple[str, str, bytes]:
        """An event of the page, mostly with the right number of values."""
        function = self.rng.choice(self.config["dependencies"])
        values = [self.value() for _ in function["inputs"]] if self.rng.random() < 0.8 else self.value()
        body = {"data": values, "fn_index": function["id"], "session_hash": self.word()}
        if self.rng.random() < 0.3:
            body[self.rng.choice([*body, "trigger_id", "event_data"])] = self.value()
        path = self.rng.choice(("/gradio_api/queue/join", "/gradio_api/run/predict", "/gradio_api/component_server"))
        return "POST", path, self.json_of(body)

    def call(self) -> tuple[str, str, bytes]:
        """A call of an endpoint for programs, with one to three random values."""
        name, body = self.arguments()
        if self.rng.random() < 0.5:
            return "POST", f"/gradio_api/call/v2/{name}", self.json_of(body)
        return "POST", f"/gradio_api/call/{name}", self.json_of({"data": list(body.values())})

    def tool(self) -> tuple[str, str, bytes]:
        """A message to the MCP server, mostly a call of a tool."""
        name, arguments = self.arguments()
        methods = ("tools/call",) * 5 + ("tools/list", "resources/read", "prompts/get", "initialize", self.word())
        params = {"name": name, "arguments": arguments, "uri": f"file://{self.file}"}
        body = {"jsonrpc": "2.0", "id": 1, "method": self.rng.choice(methods), "params": params}
        if self.rng.random() < 0.3:
            body[self.rng.choice([*body])] = self.value()
        return (
            "POST",
            f"/gradio_api/mcp/{self.rng.choice(('', '', '', '?tools=' + quote(self.word())))}",
            self.json_of(body),
        )

    def arguments(self) -> tuple[str, dict[str, Any]]:
        """An endpoint and its arguments."""
        name = self.rng.choice(ENDPOINTS)
        body: dict[str, Any] = {"text": LOG}
        names = [*body, "log", "lanes", "columns", "tokenizer", "engine", "cost_curve", "batch", "options"]
        if name in ("race", "retrieve"):
            body = {"question": "Why?", "lanes": LANES, "max_new_tokens": 4} if name == "race" else {"question": "Why?"}
            names = [*body, *OFFERED, "options", "model", "dtype", "files"]
        for argument in self.rng.sample(names, self.rng.randint(1, 3)):
            body[argument] = self.value()
        return name, body

    def vote(self) -> tuple[str, str, bytes]:
        """A request to the audience's routes, mostly for an existing poll."""
        code = self.poll if self.rng.random() < 0.8 else quote(self.word(), safe="")
        action = self.rng.choice(("", "/vote", "/state", "/nothing"))
        body = {"key": self.value(), "lanes": self.value(), "open": True, "round": self.value(), "choice": self.value()}
        return self.rng.choice(("POST", "GET")), f"/audience/{code}{action}", self.json_of(body)

    def changed_file(self) -> tuple[str, str, bytes]:
        """An upload or a recording, in which random bytes were changed."""
        content = bytearray(self.recording[: self.rng.choice((0, 100, 20_000))])
        for _ in range(self.rng.randint(0, 9) if content else 0):
            content[self.rng.randrange(len(content))] = self.rng.randrange(256)
        if self.rng.random() < 0.5:
            return "POST", f"/gradio_api/recording?name={quote(self.word())}", bytes(content)
        head = f'--x\r\nContent-Disposition: form-data; name="files"; filename="{quote(self.word())}.md"\r\n\r\n'
        return "POST", "/gradio_api/upload", head.encode() + content + b"\r\n--x--\r\n"

    def word(self) -> str:
        """A text: empty, long, hostile, or a secret of another visitor."""
        return self.rng.choice((*WORDS, OTHER_SESSION, self.file, str(Path(self.file).parent), self.poll))

    def value(self, depth: int = 0) -> Any:
        """Any JSON value, or a value such as NaN that only Python's JSON can write."""
        chance = self.rng.random()
        if chance < 0.3:
            return self.word()
        if chance < 0.6 or depth > 3:
            return self.rng.choice((None, True, False, 0, -1, 1, 2**31, 2**63, -(2**70), 10**400, 0.5, -0.0, 1e308,
                                       1e-320, float("nan"), float("inf"), "nan", "1e999", "\ud800"))  # fmt: skip
        if chance < 0.8:
            return [self.value(depth + 1) for _ in range(self.rng.randint(0, 4))]
        names = ("path", "url", "meta", "_type", "n", "trie", "__proto__", "question", self.word())
        mapping = {self.rng.choice(names): self.value(depth + 1) for _ in range(self.rng.randint(0, 4))}
        return {"path": self.file, "meta": {"_type": "gradio.FileData"}} if self.rng.random() < 0.2 else mapping

    def json_of(self, value: Any) -> bytes:
        """The value as JSON, which is broken, deep or much too long in 7 % of all cases."""
        chance, text = self.rng.random(), json.dumps(value).encode()
        if chance < 0.03:
            return text[: len(text) // 2]
        if chance < 0.05:
            return b'{"data": ' + b"[" * 900 + b"]" * 900 + b"}"
        if chance < 0.06:
            return b'{"data": [' + b"9" * 5000 + b"]}"
        if chance < 0.07:
            return json.dumps({"data": ["x" * 10_000_000]}).encode()
        return text


def pieces(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """The pieces of an answer's body, up to MAX_READ bytes or a timeout."""
    remaining = MAX_READ
    try:
        while remaining > 0 and (piece := answer.read1(remaining)):
            remaining -= len(piece)
            yield piece
    except TimeoutError:
        return


def is_sentence(answer: bytes) -> bool:
    """Whether an answer is a sentence, as JSON with an "error" or as text."""
    try:
        text = json.loads(answer)["error"]
        if isinstance(text, dict):
            # The MCP server answers with an object that holds the sentence.
            return " " in text["message"] and "\n" not in text["message"]
    except (ValueError, TypeError, KeyError):
        text = answer.decode(errors="replace")
    return text is None or (" " in text and text[-1] in ".]" and "\n" not in text)


def list_routes(app: Starlette, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Method and path of every route, including the routes of mounted apps."""
    for route in app.routes:
        if isinstance(route, Route):
            for method in route.methods or ():
                if method in ("GET", "POST"):
                    yield method, prefix + route.path.replace(":path", "")
        elif isinstance(route, Mount):
            if hasattr(route.app, "routes"):
                yield from list_routes(route.app, prefix + route.path)
            else:
                yield from ((method, f"{prefix}{route.path}/") for method in ("GET", "POST"))
        # FastAPI keeps a router that was included into an app as one route.
        elif (included := getattr(route, "original_router", None)) is not None:
            yield from list_routes(included, prefix)


def main() -> int:
    """Send the requests; return 0 if there is no complaint, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with serving(*APP_ARGUMENTS) as app:
        fuzzer = Fuzzer(app, options.seed)
        fuzzer.run(options.requests)
    print(f"{options.requests} requests to {len(fuzzer.routes)} routes:", dict(sorted(fuzzer.statuses.items())))
    print("\n".join(dict.fromkeys(fuzzer.complaints)) or "No complaint.")
    return int(bool(fuzzer.complaints))


if __name__ == "__main__":
    sys.exit(main())
