"""The HTTP server: its sockets, its time limits, what it logs, and how it ends."""

from __future__ import annotations

import asyncio
import copy
import errno
import json
import logging
import os
import signal
import socket
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from specrace.core.errors import InputError

# The environment variable with the log's format, and the logger for the server's events.
LOG_FORMAT, EVENTS = "SPECRACE_LOG", "specrace.events"
FIRST_PORT, NUM_PORTS = 7860, 100
# The time in which a request's first line and headers must arrive.
HEAD_LIMIT_S = 20.0
# When the server shuts down, open responses are cut off after this time.
CLOSE_LIMIT_S = 3
# A page keeps a few connections open; a guess.
MAX_CONNECTIONS = 500
# The addresses of a Space's proxy, whose X-Forwarded-For header names the visitor.
SPACE_PROXIES = ["127.0.0.1", "10.0.0.0/8"]
# A proxy's headers about the address of the page in the visitor's browser.
PROXY_HEADERS = (b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-prefix")

log = logging.getLogger(__name__)


def open_sockets(host: str, port: int | None) -> list[socket.socket]:
    """Open sockets on `port`, or else on the first free port. Raises InputError if the address cannot be used."""
    if port is not None and not 1 <= port <= 65535:
        raise InputError(f"The port is {port}; give one from 1 to 65535.")
    cause: Exception
    for number in [port] if port is not None else range(FIRST_PORT, FIRST_PORT + NUM_PORTS):
        try:
            return _bind(host, number)
        except OSError as error:
            reason, cause = error.strerror, error
        except UnicodeError as error:
            # The host name has an empty label or is too long.
            reason, cause = "not the name of a host", error
    address = f"{host}:{port}" if port is not None else host
    raise InputError(f"{address} cannot be served on ({reason}); give another --port or --host.") from cause


def _bind(host: str, port: int) -> list[socket.socket]:
    """Open sockets on the host's addresses. Skips those that this machine does not have, unless it has none."""
    opened: list[socket.socket] = []
    missing: OSError | None = None
    try:
        candidates = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # `fromkeys` drops duplicates but keeps the order.
        for family, socket_type, protocol, _, address in dict.fromkeys(candidates):
            try:
                opened.append(_listen(socket.socket(family, socket_type, protocol), address))
            except OSError as error:
                # "localhost" may include ::1 on a machine without IPv6.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error
    except OSError:
        for bound in opened:
            bound.close()
        raise
    if missing and not opened:
        raise missing
    return opened


def _listen(unbound: socket.socket, address: Any) -> socket.socket:
    """Bind a socket to an address, and listen. Raises OSError, after closing the socket."""
    try:
        unbound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if unbound.family == socket.AF_INET6:
            unbound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        unbound.bind(address)
        # From now on a browser that connects waits until the page is served, instead of being refused.
        unbound.listen()
    except OSError:
        unbound.close()
        raise
    return unbound


def run(server: uvicorn.Server, sockets: list[socket.socket]) -> int:
    """Serve until a signal arrives. Returns the exit code: 0 after SIGTERM, 130 after SIGINT."""
    try:
        # After its shutdown uvicorn re-raises the signals that it caught.
        server.run(sockets)
    except KeyboardInterrupt:
        return 130
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Make SIGTERM raise SystemExit inside the `with` block, so that clean-up code runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGTERM, _raise_system_exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _raise_system_exit(*_: Any) -> None:
    raise SystemExit(0)


class Server(uvicorn.Server):
    """A uvicorn server that calls `on_shutdown`, which ends the app's work, before it shuts down."""

    def __init__(self, app: ASGIApp, on_shutdown: Callable[[], None], proxies: Sequence[str] = ()) -> None:
        trusted = known_proxies(proxies)
        config = uvicorn.Config(
            ForwardedHeaders(app, trusted),
            http=TimedHttp,
            ws="none",
            log_config=None,
            access_log=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=CLOSE_LIMIT_S,
            # `ForwardedHeaders` handles proxies' headers; uvicorn would trust those of any client on this machine.
            proxy_headers=False,
            server_header=False,
        )
        super().__init__(config)
        self._on_shutdown = on_shutdown

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Call `on_shutdown`, then end all responses and close all connections."""
        self._on_shutdown()
        await super().shutdown(sockets)


def known_proxies(proxies: Sequence[str] = ()) -> list[str]:
    """The addresses and networks of trusted proxies: a Space's, `proxies`, and uvicorn's FORWARDED_ALLOW_IPS."""
    space_proxies = SPACE_PROXIES if "SPACE_ID" in os.environ else []
    named = [name.strip() for name in os.environ.get("FORWARDED_ALLOW_IPS", "").split(",") if name.strip()]
    return [*space_proxies, *proxies, *named]


class ForwardedHeaders:
    """ASGI middleware that takes the visitor's address from X-Forwarded-For, but only from known proxies.

    It removes the PROXY_HEADERS of all other clients. X-Forwarded-For always stays in the request, where it shows
    `telemetry.py` that there is a proxy.
    """

    def __init__(self, app: ASGIApp, proxies: Sequence[str]) -> None:
        trusted = ["*"] if "*" in proxies else list(proxies)
        self._app, self._has_warned = app, False
        self._with_address = ProxyHeadersMiddleware(app, trusted)  # type: ignore[arg-type]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        address = scope["client"][0] if scope.get("client") else ""
        if address in self._with_address.trusted_hosts:
            await self._with_address(scope, receive, send)  # type: ignore[arg-type]
            return
        if not self._has_warned and any(name == b"x-forwarded-for" for name, _ in scope["headers"]):
            self._has_warned = True
            log.warning("X-Forwarded-For is ignored from %s; if that is your proxy, name it with --proxies", address)
        headers = [(name, value) for name, value in scope["headers"] if name not in PROXY_HEADERS]
        await self._app({**scope, "headers": headers}, receive, send)


class TimedHttp(H11Protocol):
    """The uvicorn protocol, but it closes a connection if a request's head is not complete after HEAD_LIMIT_S."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer."""
        super().connection_made(transport)
        self._update_timer()

    def data_received(self, data: bytes) -> None:
        """Stop the timer if the request's head is complete; start it for the connection's next request."""
        super().data_received(data)
        self._update_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def _update_timer(self) -> None:
        # `cycle` is the latest request whose head is complete, until its response is sent.
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD_LIMIT_S, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class PrivateFormatter(logging.Formatter):
    """Writes an exception's type and stack without its message, which may quote what a visitor sent."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text. Ignores the exception's text, which another handler may have cached in the record."""
        record = copy.copy(record)
        record.exc_text = None
        return super().format(record)

    def formatException(
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        """The stacks of the exception and of those that caused it, the earliest first."""
        parts: list[str] = []
        seen: set[int] = set()
        # `ei` is the exception's type, the exception and its traceback.
        error = ei[1]
        # Exceptions may cause each other in a circle.
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            parts[:0] = [*traceback.format_tb(error.__traceback__), f"{type(error).__qualname__}\n"]
            error = error.__cause__ or error.__context__
        return "".join(parts).rstrip()


class JsonFormatter(PrivateFormatter):
    """Writes each record as a line of JSON, with the record's `facts` if it has any."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a JSON object."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def quotes_no_visitor(record: logging.LogRecord) -> bool:
    """Whether a record is safe to log. Records of the package mcp are not, because they quote visitors.

    Such a record is recognised by its source file, because the package also uses the root logger.
    """
    return "mcp" not in Path(record.pathname).parts


def configure_logging() -> None:
    """Send warnings and errors of all libraries through one handler, which leaves out what visitors sent.

    If the environment's LOG_FORMAT is "json", lines are JSON, and the server's events are logged too. Processes started
    by the server inherit the variable.
    """
    as_json = os.environ.get(LOG_FORMAT) == "json"
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if as_json else PrivateFormatter("%(levelname)s %(name)s: %(message)s"))
    handler.addFilter(quotes_no_visitor)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger(EVENTS).setLevel(logging.INFO if as_json else logging.NOTSET)
