"""Middleware between the network and the page: it checks requests, limits their bodies, and adds security headers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ipaddress
import json
import math
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specrace.ui.server.visitors import TooManyError, Visitors
from specrace.ui.visitor_limits import MAX_LOG_BYTES, MAX_UPLOAD_BYTES, MAX_UPLOAD_FILES
from specrace.views import recording_check

LOOPBACK = ("localhost", "127.0.0.1", "::1")
# The prefix of Gradio's own routes. Ours have it too, because proxies pass it on.
API = "/gradio_api"
UPLOAD = f"{API}/upload"
# Our own routes: to play a recording, to keep one for a short link, to watch a race, to save a race as a page, to score
# a log, and to recommend settings from one.
RECORDING = f"{API}/recording"
SHARED = f"{API}/shared"
RACE = f"{API}/race"
EXPORT = f"{API}/export"
LOGS = f"{API}/logs"
ADVICE = f"{API}/advice"
# Opens a poll, in which the audience votes by phone. A poll's own route is AUDIENCE/CODE.
AUDIENCE = "/audience"
# Added to the route of a poll.
POLL_STATE, POLL_VOTE = "/state", "/vote"
MCP = f"{API}/mcp"
# The entry of an ASGI scope that identifies the client that waits for an answer with this request (`reader_of`).
READER = "specrace.reader"
# Maximum number of bytes in a request's body, unless BODY_LIMITS has another number for its path. It leaves room for a
# log that comes as text.
MAX_BODY = 256_000
BODY_LIMITS = {
    UPLOAD: MAX_UPLOAD_FILES * MAX_UPLOAD_BYTES,
    RECORDING: recording_check.PAGE_LIMITS.size,
    SHARED: recording_check.PAGE_LIMITS.size,
    LOGS: MAX_LOG_BYTES,
    ADVICE: MAX_LOG_BYTES,
}
# Maximum number of bytes in a request's path: Gradio looks for a file of this name, and systems refuse longer names.
MAX_PATH = 255
# Up to this number of bytes a body is small. The number of small bodies on their way to the server is not limited: even
# one for each connection fits in memory.
SMALL_BODY = 64_000
# The times within which a small and a large body must arrive, even over a slow connection; guesses.
SMALL_BODY_LIMIT_S, BODY_LIMIT_S = 20.0, 120.0
NO_FILES = "This server takes no files."
FOREIGN = (
    "Another site's page sent this request; open this server's own page, "
    "or name the proxy in front of it with --allowed-hosts."
)
# The starts of Gradio's routes that nothing on the page needs; the guard answers them with 404.
CLOSED = (
    "/monitoring",
    *(f"{API}/{name}" for name in ("process_recording", "proxy=", "vibe", "dev/", "deep_link", "file", "run-history")),
)
# The routes of MCP's older transports, which keep a connection open.
CLOSED_MCP = (f"{MCP}/sse", f"{MCP}/messages")
# The site on which Hugging Face shows a Space's page in a frame.
SPACES_SITE = "https://huggingface.co"
# Added to each response that does not set them itself. The page sets its own Content-Security-Policy (PAGE_POLICY).
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
# Gradio compiles the page's templates and scripts in the browser ('unsafe-eval'), and sets inline styles as it draws.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-eval' {hashes}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; manifest-src 'self'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors {ancestors}"
)
# The content of a script element without the attribute `src`.
INLINE_SCRIPT = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL)


class Hosts:
    """The host names that the server answers to.

    A request under another name may come from a hostile site that has pointed its own name at this server (DNS
    rebinding). That attack needs a name, so a server on all interfaces answers to any IP address. `bound` are the hosts
    that the server listens on, `allowed` the names given with --allowed-hosts.
    """

    def __init__(self, bound: Sequence[str] = (), allowed: Sequence[str] = ()) -> None:
        names = [*LOOPBACK, *bound]
        self._on_all_interfaces = any(_is_address(host) and ipaddress.ip_address(host).is_unspecified for host in bound)
        if self._on_all_interfaces:
            names += [socket.gethostname(), f"{socket.gethostname()}.local"]
        if space := os.environ.get("SPACE_HOST"):
            names += space.split(",")
        self.allowed = {name.lower() for name in allowed}
        self._names = {name.lower() for name in names} | self.allowed

    def __contains__(self, host: str) -> bool:
        """Whether a Host header names this server."""
        name = _name(host)
        return bool(name) and (name in self._names or (self._on_all_interfaces and _is_address(name)))


class Guard:
    """ASGI middleware that refuses unknown hosts, other sites' pages and large bodies, and adds security headers.

    It comes before the middleware of the page.
    """

    def __init__(self, app: ASGIApp, hosts: Hosts, visitors: Visitors, *, mcp: bool = False) -> None:
        self._app, self._hosts, self._visitors = app, hosts, visitors
        closed_mcp = CLOSED_MCP if mcp else (MCP,)
        self._closed = (*CLOSED, *closed_mcp)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = {**scope, "headers": self._trusted(scope["headers"])}
        headers, send = Headers(scope=scope), _with_headers(send)
        try:
            self._check(scope, headers)
            limit = BODY_LIMITS.get(scope["path"].rstrip("/"), MAX_BODY)
            # A chunked body does not tell its length, so it counts as one of the largest size.
            default_length = limit if "transfer-encoding" in headers else 0
            length = int(headers.get("content-length", default_length))
            if length > limit:
                raise _too_large(limit)
        except HTTPException as refusal:
            await _refuse(refusal)(scope, receive, send)
            return
        with ExitStack() as stack:
            body = Body(receive, limit, SMALL_BODY_LIMIT_S if length <= SMALL_BODY else BODY_LIMIT_S)
            if length > SMALL_BODY:
                client = scope.get("client")
                try:
                    # The body counts as on its way until it has arrived, or until the request ends without it.
                    body.on_end = stack.enter_context(self._visitors.sending(client[0] if client else None))
                except TooManyError as error:
                    await PlainTextResponse(str(error), 429)(scope, receive, send)
                    return
            reader = scope[READER] = reader_of(scope)
            if reader:
                stack.enter_context(self._visitors.reading(reader))
            await self._app(scope, body.receive, send)

    def _trusted(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """The headers without those that could make Gradio use another server's address for the page.

        Proxies often pass on an X-Forwarded-Host from the visitor. X-Gradio-Server is a header that Gradio's own
        servers send each other.
        """

        def is_trusted(name: bytes, value: bytes) -> bool:
            if name == b"x-forwarded-host":
                return all(host.strip() in self._hosts for host in value.decode("latin-1").split(","))
            return name != b"x-gradio-server"

        return [(name, value) for name, value in headers if is_trusted(name, value)]

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Raise HTTPException for a request that is refused."""
        host = headers.get("host", "")
        if host not in self._hosts:
            raise HTTPException(400, "This server does not answer to this host name; --allowed-hosts adds names.")
        if len(scope["path"].encode()) > MAX_PATH:
            raise HTTPException(414, "The address is too long.")
        if scope["path"].startswith(self._closed):
            raise HTTPException(404, "There is nothing here.")
        # A GET of LOGS is allowed without uploads too: it lists the choices for scoring a log.
        is_read = scope["method"] in ("GET", "HEAD")
        if scope["path"].rstrip("/") in BODY_LIMITS and not is_read and not self._visitors.limits.uploads:
            raise HTTPException(403, NO_FILES)
        if self._is_foreign(scope["method"], headers):
            raise HTTPException(403, FOREIGN)

    def _is_foreign(self, method: str, headers: Headers) -> bool:
        """Whether another site's page sent the request; following a link from another site does not count.

        Programs send neither Origin nor Sec-Fetch-Site, and are never refused.
        """
        if origin := headers.get("origin"):
            site = urlsplit(origin).netloc.lower()
            return site != headers["host"].lower() and _name(site) not in self._hosts.allowed
        if headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
            return False
        return method not in ("GET", "HEAD") or headers.get("sec-fetch-mode") != "navigate"


class Body:
    """A request's body as it arrives: at most `limit` bytes within `limit_s`. `on_end` is called at its end."""

    def __init__(self, receive: Receive, limit: int, limit_s: float) -> None:
        self._receive, self._limit = receive, limit
        self._length, self._deadline = 0, time.monotonic() + limit_s
        self.on_end: Callable[[], None] = lambda: None

    async def receive(self) -> Message:
        """The next message. Raises HTTPException if the body is too large or too slow."""
        try:
            message = await asyncio.wait_for(self._receive(), self._deadline - time.monotonic())
        except TimeoutError:
            raise HTTPException(408, "The rest of the request did not arrive.") from None
        self._length += len(message.get("body", b""))
        if self._length > self._limit:
            raise _too_large(self._limit)
        if not message.get("more_body", False):
            # Whoever calls `receive` again waits for the client to disconnect.
            self._deadline = math.inf
            self.on_end()
        return message


class WholeBody:
    """ASGI middleware that reads the whole body into memory, unless its route stores it on disk (BODY_LIMITS).

    It comes after the check of the sign-in, so that only visitors who have signed in can fill the memory.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http" and scope["path"].rstrip("/") not in BODY_LIMITS:
            try:
                receive = await self._read(receive, is_json=scope["path"].startswith(MCP))
            except HTTPException as refusal:
                await _refuse(refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _read(self, receive: Receive, *, is_json: bool) -> Receive:
        """Read the body. Returns a `receive` that delivers it in one message, and then waits for a disconnect.

        Raises HTTPException for JSON that cannot be decoded: MCP's own route would fail on it.
        """
        chunks: list[bytes] = []
        more = True
        while more:
            message = await receive()
            chunks.append(message.get("body", b""))
            more = message.get("more_body", False)
        body = b"".join(chunks)
        if is_json:
            _check_text(body)
        unread: list[Message] = [{"type": "http.request", "body": body}]

        async def replay() -> Message:
            return unread.pop() if unread else await receive()

        return replay


class PagePolicy:
    """ASGI middleware that adds a Content-Security-Policy to the page, so that only the page's own scripts run.

    The sites `ancestors` may show the page in a frame; on a Space, Hugging Face may too.
    """

    def __init__(self, app: ASGIApp, ancestors: Sequence[str] = ()) -> None:
        self._app = app
        space = [SPACES_SITE] if os.environ.get("SPACE_HOST") else []
        self._ancestors = " ".join([*space, *ancestors]) or "'none'"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        is_page = scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and scope["path"] == "/"
        await self._app(scope, receive, hold_page(send, self._add_policy) if is_page else send)

    def _add_policy(self, headers: MutableHeaders, html: bytes) -> bytes:
        headers["Content-Security-Policy"] = page_policy(html, self._ancestors)
        return html


def hold_page(send: Send, change: Callable[[MutableHeaders, bytes], bytes]) -> Send:
    """Wrap `send` to hold back the page's headers until its HTML arrives, which Gradio sends in one piece.

    `change` gets both: it may set headers, and returns the HTML to send.
    """
    start: Message = {}

    async def send_changed(message: Message) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
            return
        if start:
            message = {**message, "body": change(MutableHeaders(scope=start), message.get("body", b""))}
            await send({**start})
            start.clear()
        await send(message)

    return send_changed


def page_policy(page: bytes, ancestors: str = "'none'") -> str:
    """The Content-Security-Policy of a page. Of inline scripts it allows only those in this HTML, by their hashes."""
    digests = {hashlib.sha256(script).digest() for script in INLINE_SCRIPT.findall(page)}
    hashes = " ".join(sorted(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests))
    return PAGE_POLICY.format(hashes=hashes, ancestors=ancestors)


def reader_of(scope: Scope) -> str:
    """The key of the client that waits for an answer with this request; "" if the request is of another kind.

    The key is Gradio's session hash or, for a plain API call, the event's id. An MCP tool's call gets its answer in the
    same request, so a random key is made for it.
    """
    path = scope["path"]
    if path.startswith(MCP):
        return f"tool {secrets.token_hex()}"
    if scope["method"] != "GET":
        return ""
    if path == f"{API}/queue/data":
        return QueryParams(scope["query_string"]).get("session_hash", "")
    return path.rpartition("/")[2] if path.startswith(f"{API}/call/") else ""


def _with_headers(send: Send) -> Send:
    """Wrap `send` to add those of HEADERS that the response lacks."""

    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return add


def _refuse(refusal: HTTPException) -> PlainTextResponse:
    """The response to a refused request. The connection is closed, because the body may not have been read."""
    return PlainTextResponse(refusal.detail, refusal.status_code, {"Connection": "close"})


def _check_text(body: bytes) -> None:
    """Raise HTTPException for a JSON body that cannot be decoded."""
    try:
        body.decode(json.detect_encoding(body))
    except UnicodeDecodeError:
        raise HTTPException(400, "The body is not UTF-8 text; send JSON in UTF-8.") from None


def _too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"The request is larger than {limit // 1000} kB.")


def _name(host: str) -> str:
    """The name or address in "name:port" or "[address]:port"; "" if it cannot be parsed."""
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
