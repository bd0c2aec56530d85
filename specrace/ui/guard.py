"""What stands between the network and the page: whom it answers, how much it reads, and the headers of its answers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ipaddress
import math
import os
import re
import secrets
import socket
import time
from collections.abc import Sequence
from contextlib import nullcontext
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specrace.ui import log_scores, uploads
from specrace.ui.visitors import Visitors
from specrace.views import recording_check

LOOPBACK = ("localhost", "127.0.0.1", "::1")
API = "/gradio_api"
UPLOAD = f"{API}/upload"
RECORDING = f"{API}/recording"
LOGS = f"{API}/logs"
ADVICE = f"{API}/advice"
MCP = f"{API}/mcp"
# In a request's scope: who reads the answer of a tool.
READER = "specrace.reader"
# The bodies of other requests, in bytes.
MAX_BODY = 256_000
MAX_BODIES = {
    UPLOAD: uploads.MAX_FILES * uploads.MAX_BYTES,
    RECORDING: recording_check.PAGE.size,
    LOGS: log_scores.MAX_BYTES,
    ADVICE: log_scores.MAX_BYTES,
}
# No file's name may be longer.
MAX_PATH = 255
BODY_LIMIT_S = 120.0
NO_FILES = "This server takes no files."
FOREIGN = (
    "Another site's page asked for this; open this server's own page, or name a proxy before it by --allowed-hosts."
)
# Of Gradio's own: nothing on the page needs them.
CLOSED = (
    "/monitoring",
    *(f"{API}/{name}" for name in ("process_recording", "proxy=", "vibe", "dev/", "deep_link", "file", "run-history")),
)
# Of MCP's ways the older ones, which leave a connection open.
CLOSED_MCP = (f"{MCP}/sse", f"{MCP}/messages")
EMBEDDER = "https://huggingface.co"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
# Gradio makes functions of the page's templates and scripts ('unsafe-eval'), and sets styles as it draws.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-eval' {hashes}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; manifest-src 'self'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors {ancestors}"
)
INLINE_SCRIPT = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL)


class Hosts:
    """The names that the page may be asked for under.

    Any other name is that of a foreign page which has pointed its name at this address (DNS rebinding). That cannot be
    done with an address itself, so a server on all interfaces answers to any address. `given` are the --allowed-hosts.
    """

    def __init__(self, bound: Sequence[str] = (), given: Sequence[str] = ()) -> None:
        own = [*LOOPBACK, *bound]
        self._addresses = any(_is_address(each) and ipaddress.ip_address(each).is_unspecified for each in bound)
        if self._addresses:
            own += [socket.gethostname(), f"{socket.gethostname()}.local"]
        if space := os.environ.get("SPACE_HOST"):
            own += space.split(",")
        self.given = {name.lower() for name in given}
        self._names = {name.lower() for name in own} | self.given

    def __contains__(self, host: str) -> bool:
        """Whether a Host header is one of ours."""
        name = _name(host)
        return bool(name) and (name in self._names or (self._addresses and _is_address(name)))


class Guard:
    """ASGI middleware before all others: foreign hosts and pages, bodies without end, and the headers of safety."""

    def __init__(self, app: ASGIApp, hosts: Hosts, visitors: Visitors, *, mcp: bool = False) -> None:
        self._app, self._hosts, self._visitors = app, hosts, visitors
        self._closed = (*CLOSED, *(CLOSED_MCP if mcp else (MCP,)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, send = Headers(scope=scope), _with_headers(send)
        try:
            self._check(scope, headers)
            limit = MAX_BODIES.get(scope["path"].rstrip("/"), MAX_BODY)
            if int(headers.get("content-length", 0)) > limit:
                raise _too_large(limit)
            receive = _counted(receive, limit)
            if scope["path"] != UPLOAD:
                receive = await _read_whole(receive)
        except HTTPException as refusal:
            answer = PlainTextResponse(refusal.detail, refusal.status_code, {"Connection": "close"})
            await answer(scope, receive, send)
            return
        session = scope[READER] = read_session(scope)
        with self._visitors.reading(session) if session else nullcontext():
            await self._app(scope, receive, send)

    def _check(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "")
        if host not in self._hosts:
            raise HTTPException(400, "This server has another name; --allowed-hosts names those that it answers to.")
        if len(scope["path"].encode()) > MAX_PATH:
            raise HTTPException(414, "The address is too long.")
        if scope["path"].startswith(self._closed):
            raise HTTPException(404, "There is nothing here.")
        # What a log may be scored with can be read where none is taken.
        reads = scope["method"] in ("GET", "HEAD")
        if scope["path"].rstrip("/") in MAX_BODIES and not reads and not self._visitors.limits.uploads:
            raise HTTPException(403, NO_FILES)
        if self._is_foreign(scope["method"], headers):
            raise HTTPException(403, FOREIGN)

    def _is_foreign(self, method: str, headers: Headers) -> bool:
        """Whether another site's page asks for more than to come here. Programs send neither header."""
        if origin := headers.get("origin"):
            theirs = urlsplit(origin).netloc.lower()
            return theirs != headers["host"].lower() and _name(theirs) not in self._hosts.given
        if headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
            return False
        return method not in ("GET", "HEAD") or headers.get("sec-fetch-mode") != "navigate"


class PagePolicy:
    """ASGI middleware that gives the page the policy that it can live with: only its own scripts run."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._ancestors = EMBEDDER if os.environ.get("SPACE_HOST") else "'none'"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        is_page = scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and scope["path"] == "/"
        await self._app(scope, receive, self._marking(send) if is_page else send)

    def _marking(self, send: Send) -> Send:
        begin: Message = {}

        async def mark(message: Message) -> None:
            if message["type"] == "http.response.start":
                begin.update(message)
                return
            if begin:
                # The page comes in one piece.
                policy = page_policy(message.get("body", b""), self._ancestors)
                MutableHeaders(scope=begin)["Content-Security-Policy"] = policy
                await send({**begin})
                begin.clear()
            await send(message)

        return mark


def page_policy(page: bytes, ancestors: str = "'none'") -> str:
    """The Content-Security-Policy of a page: of inline scripts only those run that it holds as it is served."""
    digests = {hashlib.sha256(script).digest() for script in INLINE_SCRIPT.findall(page)}
    hashes = " ".join(sorted(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests))
    return PAGE_POLICY.format(hashes=hashes, ancestors=ancestors)


def read_session(scope: Scope) -> str:
    """Whose answers from Gradio's queue a request reads, or its own for a tool's; "" for any other request."""
    path = scope["path"]
    if path.startswith(MCP):
        return f"tool {secrets.token_hex()}"
    if scope["method"] != "GET":
        return ""
    if path == f"{API}/queue/data":
        return QueryParams(scope["query_string"]).get("session_hash", "")
    return path.rpartition("/")[2] if path.startswith(f"{API}/call/") else ""


def _with_headers(send: Send) -> Send:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return add


def _counted(receive: Receive, limit: int) -> Receive:
    """`receive` for a body of at most `limit` bytes, which must be there in time."""
    length, until = 0, time.monotonic() + BODY_LIMIT_S

    async def count() -> Message:
        nonlocal length, until
        try:
            message = await asyncio.wait_for(receive(), until - time.monotonic())
        except TimeoutError:
            raise HTTPException(408, "The rest of the request did not come.") from None
        length += len(message.get("body", b""))
        if length > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            until = math.inf
        return message

    return count


async def _read_whole(receive: Receive) -> Receive:
    """`receive` that has the body already. What it tells after that is that the visitor has left."""
    parts, more = list[bytes](), True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    pieces: list[Message] = [{"type": "http.request", "body": b"".join(parts)}]

    async def replay() -> Message:
        return pieces.pop() if pieces else await receive()

    return replay


def _too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"The request is larger than {limit // 1000} kB.")


def _name(host: str) -> str:
    """The name or address in "name:port", "[address]:port"; "" for what is neither."""
    try:
        return str(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
