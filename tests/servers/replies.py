"""A server for tests, on loopback: it answers each path with the bytes that the test gives, or with a recorded answer.

`exchanges` holds what real servers answered: vLLM 0.32.0 on a CPU, llama.cpp's server in xllamacpp 2026.10, and
`transformers serve` 5.23.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from specrace.engine.generate import generate
from specrace.engine.setup import RaceTarget
from specrace.servers.address import ServerAddress
from specrace.servers.client import Decode

EXCHANGES = Path(__file__).parent / "exchanges"
STREAM = "text/event-stream; charset=utf-8"


@dataclass(frozen=True)
class Answer:
    """What a path answers: the blocks of its body, each sent as one chunk, and how the body ends.

    `end`: "whole"; "hang": nothing more comes until the test ends; "abort": the connection is reset.
    """

    blocks: Iterable[bytes] = ()
    status: int = 200
    kind: str = STREAM
    headers: Mapping[str, str] = field(default_factory=dict)
    end: str = "whole"


Route = Answer | Callable[[dict[str, Any]], Answer]


def as_json(value: Any, status: int = 200) -> Answer:
    """A JSON answer."""
    return Answer([json.dumps(value).encode()], status, "application/json")


def stream(*events: Any, end: str = "whole") -> Answer:
    """A stream of events, closed with [DONE] if it is whole."""
    blocks = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
    return Answer([*blocks, *([b"data: [DONE]\n\n"] if end == "whole" else [])], end=end)


class Server(ThreadingHTTPServer):
    """A server whose clients may leave in the middle of an answer."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Print nothing, because a client that has read enough may close its connection."""


@contextmanager
def serving(routes: Mapping[str, Route]) -> Iterator[ServerAddress]:
    """Serve these routes until the end of the block; the server's name is "tested"."""
    test_over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def _answer(self, body: dict[str, Any]) -> None:
            route = routes.get(self.path, as_json({"error": {"message": "File Not Found"}}, 404))
            answer = route(body) if callable(route) else route
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Transfer-Encoding", "chunked")
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            for block in answer.blocks:
                self._write(block)
            if answer.end == "whole":
                self.wfile.write(b"0\r\n\r\n")
                return
            self.wfile.flush()
            self.close_connection = True
            if answer.end == "hang":
                test_over.wait()
            # Closing a socket that lingers for 0 seconds resets the connection.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        def _write(self, block: bytes) -> None:
            self.wfile.write(f"{len(block):x}\r\n".encode() + block + b"\r\n")

        def log_message(self, *_: object) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield ServerAddress("tested", f"http://127.0.0.1:{server.server_port}")
    finally:
        test_over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def vllm_routes(completions: Route) -> dict[str, Route]:
    """The routes of vLLM 0.32.0 with this answer to completions."""
    models = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "vllm"}]}
    return {
        "/v1/models": as_json(models),
        "/version": as_json({"version": "0.32.0"}),
        "/v1/completions": completions,
    }


def vllm_chunk(tokens: list[int], text: str = "", end: str | None = None, prompt: list[int] | None = None) -> Any:
    """A chunk of vLLM's stream."""
    choice = {"index": 0, "text": text, "finish_reason": end, "prompt_token_ids": prompt, "token_ids": tokens}
    return {"object": "text_completion", "model": "m", "choices": [choice]}


def vllm_end(num_tokens: int, accepted: list[int] | None = None, drafted: list[int] | None = None) -> Any:
    """The last event of vLLM's stream, with the counts of its steps if there are any."""
    event: dict[str, Any] = {"object": "text_completion", "model": "m", "choices": []}
    event["usage"] = {"completion_tokens": num_tokens}
    if accepted is not None and drafted is not None:
        counts = {"num_accepted_draft_tokens": sum(accepted), "num_draft_tokens": sum(drafted)}
        event["metrics"] = {
            "speculative_decoding": {**counts, "per_step_accepted": accepted, "per_step_drafted": drafted}
        }
    return event


def vllm_answering(target: RaceTarget, decode: Decode, lane: str = "vllm-ngram", **options: Any) -> Route:
    """Completions as vLLM streams them; the target decodes with `lane`, by default a twin of vLLM's drafters."""

    def answer(body: dict[str, Any]) -> Answer:
        tokens, accepted, drafted, events = list[int](), list[int](), list[int](), list[Any]()
        for step in generate(target, lane, body["prompt"], max_new_tokens=body["max_tokens"], **options):
            if step.tree.num_draft:
                accepted.append(step.verdict.accepted)
                drafted.append(step.tree.num_draft)
            text_before, tokens = decode(tokens), [*tokens, *step.emitted]
            end = {"eos": "stop", "length": "length", "": None}[step.end]
            prompt = None if events else list(body["prompt"])
            events.append(vllm_chunk(list(step.emitted), decode(tokens)[len(text_before) :], end, prompt))
        return stream(*events, vllm_end(len(tokens), accepted, drafted))

    return answer


def chat_routes(answer: Route, owner: str = "someone", version: tuple[str, str] = ("", "")) -> dict[str, Route]:
    """The routes of a server that streams text without token ids; `version`: the path and value of its version."""
    models = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": owner}]}
    path, number = version
    version_route = {path: as_json({"version": number})} if path else {}
    return {"/v1/models": as_json(models), "/v1/chat/completions": answer, **version_route}


def chat_events(*texts: str, num_tokens: int | None = None, end: str = "stop") -> list[Any]:
    """The events of a chat: the role, a chunk for each text, the end, and the server's count of tokens."""
    deltas = [{"role": "assistant", "content": ""}, *({"content": text} for text in texts)]
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    ended = {"choices": [{"index": 0, "delta": {}, "finish_reason": end}]}
    usage = [] if num_tokens is None else [{"choices": [], "usage": {"completion_tokens": num_tokens}}]
    return [*chunks, ended, *usage]


def recorded(name: str) -> dict[str, Any]:
    """A recorded exchange: {"get": {path: JSON}, "post": {"path", "request", "events": [data, ...]}}."""
    exchange: dict[str, Any] = json.loads((EXCHANGES / f"{name}.json").read_text())
    return exchange


def recorded_routes(name: str) -> dict[str, Route]:
    """Routes that answer as the recorded server did."""
    exchange = recorded(name)
    blocks = [f"data: {data}\n\n".encode() for data in exchange["post"]["events"]]
    return {path: as_json(value) for path, value in exchange["get"].items()} | {
        exchange["post"]["path"]: Answer(blocks)
    }
