"""The HTTP server: its socket, how long it waits for a request, what it logs, and how it ends."""

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
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from specrace.core.errors import InputError

LOG_FORMAT, EVENTS = "SPECRACE_LOG", "specrace.events"
FIRST_PORT, PORTS = 7860, 100
HEAD_LIMIT_S = 20.0
CLOSE_LIMIT_S = 3
MAX_CONNECTIONS = 500
# Where a Space's proxy asks from: its X-Forwarded-For names the visitor.
SPACE_PROXIES = ["127.0.0.1", "10.0.0.0/8"]


def open_sockets(host: str, port: int | None) -> list[socket.socket]:
    """Sockets on `port`, or the first port that is free. Raises InputError for an address that cannot be served on."""
    if port is not None and not 1 <= port <= 65535:
        raise InputError(f"The port is {port}; give one from 1 to 65535.")
    refused: Exception
    for number in [port] if port is not None else range(FIRST_PORT, FIRST_PORT + PORTS):
        try:
            return _bind(host, number)
        except OSError as error:
            reason, refused = error.strerror, error
        except UnicodeError as error:
            # Of a name with an empty part, or one that is too long.
            reason, refused = "no name of a host", error
    where = f"{host}:{port}" if port is not None else host
    raise InputError(f"{where} cannot be served on ({reason}); give another --port or --host.") from refused


def _bind(host: str, port: int) -> list[socket.socket]:
    """Sockets on the host's addresses; those that this machine lacks are left out if it has another."""
    opened: list[socket.socket] = []
    missing: OSError | None = None
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                opened.append(_listen(socket.socket(family, kind, protocol), address))
            except OSError as error:
                # "localhost" may name ::1 where there is no IPv6.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error
    except OSError:
        for each in opened:
            each.close()
        raise
    if missing and not opened:
        raise missing
    return opened


def _listen(own: socket.socket, address: Any) -> socket.socket:
    try:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if own.family == socket.AF_INET6:
            own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        own.bind(address)
        # From now on a browser waits for the page instead of being refused.
        own.listen()
    except OSError:
        own.close()
        raise
    return own


def run(server: uvicorn.Server, sockets: list[socket.socket]) -> int:
    """Serve until SIGTERM or SIGINT; the exit code is 0 or 130."""
    try:
        # When it has ended, it raises the signals again that it has taken.
        server.run(sockets)
    except KeyboardInterrupt:
        return 130
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Here SIGTERM ends the process by an exception, so that what is to be cleaned up is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _end(*_: Any) -> None:
    raise SystemExit(0)


class Server(uvicorn.Server):
    """Unlike uvicorn's own, it calls `leave`, which ends the work behind open answers, before it waits for them."""

    def __init__(self, app: ASGIApp, leave: Callable[[], None], proxies: Sequence[str] = ()) -> None:
        known = SPACE_PROXIES if "SPACE_ID" in os.environ else []
        config = uvicorn.Config(
            app,
            http=Impatient,
            ws="none",
            log_config=None,
            access_log=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=CLOSE_LIMIT_S,
            # None: as FORWARDED_ALLOW_IPS says, else this machine.
            forwarded_allow_ips=[*known, "127.0.0.1", "::1", *proxies] if known or proxies else None,
            server_header=False,
        )
        super().__init__(config)
        self._leave = leave

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End all answers, and all connections."""
        self._leave()
        await super().shutdown(sockets)


class Impatient(H11Protocol):
    """Unlike uvicorn's own, it closes a connection whose request does not come to the end of its head."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Wait on, unless that was the rest of a request's head."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._rest()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._rest()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_LIMIT_S, self.transport.close)

    def _rest(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class Discreet(logging.Formatter):
    """A failure's type and place without its message, which may quote what a visitor sent."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's line, without what another handler has made of its exception."""
        record = copy.copy(record)
        record.exc_text = None
        return super().format(record)

    def formatException(
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        """The stack of the exception and of those that led to it, the first one first."""
        parts: list[str] = []
        error, seen = ei[1], set()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            parts[:0] = [*traceback.format_tb(error.__traceback__), f"{type(error).__qualname__}\n"]
            error = error.__cause__ or error.__context__
        return "".join(parts).rstrip()


class JsonLines(Discreet):
    """The same as JSON, one object a line, with the facts that a record may have."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def is_discreet(record: logging.LogRecord) -> bool:
    """Whether a record's message quotes no caller. The package mcp's do, and some come from no logger of its own."""
    return "mcp" not in Path(record.pathname).parts


def log_discreetly() -> None:
    """Log warnings and failures of every library through one handler, without what visitors sent.

    With LOG_FORMAT "json" in the environment, which a process beside the server inherits, as JSON, and events too.
    """
    as_json = os.environ.get(LOG_FORMAT) == "json"
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else Discreet("%(levelname)s %(name)s: %(message)s"))
    handler.addFilter(is_discreet)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger(EVENTS).setLevel(logging.INFO if as_json else logging.NOTSET)
