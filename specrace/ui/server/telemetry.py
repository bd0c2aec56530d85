"""What an operator sees of a server: /healthz, /metrics, and log lines about races and uploads.

None of these contains a visitor's text, address, file name or visit id.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from specrace.core.errors import InputError
from specrace.core.events import Finished, Started
from specrace.ui.server.http_server import EVENTS

OUTCOMES = ("finished", "stopped", "refused", "failed")

log = logging.getLogger(EVENTS)


class Telemetry:
    """The metrics of one server. They have their own registry, because a process may run several servers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        options: dict[str, Any] = {"namespace": "specrace", "registry": self.registry}
        self._races = Counter("races", "Races by outcome", ["outcome"], **options)
        self._tokens = Counter("output_tokens", "Output tokens of the races shown, by lane", ["lane"], **options)
        self._steps = Counter("steps", "Steps (target forwards) of the races shown, by lane", ["lane"], **options)
        self._uploads = Counter("uploaded_files", "Files that visitors uploaded", **options)
        self._queue = Gauge("queue_length", "Races that wait", **options)
        self._running = Gauge("races_running", "1 while a race runs", **options)
        for outcome in OUTCOMES:
            self._races.labels(outcome)

    def watch_queue(self, length: Callable[[], int], running: Callable[[], bool]) -> None:
        """Set the functions that return the gauges' values: the queue's length, and whether a race is running."""
        self._queue.set_function(length)
        self._running.set_function(running)

    def began(self, race: int, started: Started, waited_s: float) -> None:
        """Log that a race began, `waited_s` seconds after the request."""
        lanes = [info.lane for info in started.lanes]
        record("race began", race=race, lanes=lanes, prompt_tokens=started.prompt_tokens, waited_s=round(waited_s, 3))

    def ended(self, race: int, outcome: str, finished: Finished | None, seconds: float) -> None:
        """Count and log that a race ended, `seconds` after the request. `finished` is None if it never ran."""
        self._races.labels(outcome).inc()
        lanes = finished.lanes if finished is not None else ()
        for result in lanes:
            self._tokens.labels(result.lane).inc(result.tokens)
            self._steps.labels(result.lane).inc(result.steps)
        counts = {result.lane: {"tokens": result.tokens, "steps": result.steps} for result in lanes}
        record("race ended", race=race, outcome=outcome, seconds=round(seconds, 3), lanes=counts)

    def uploaded(self, num_files: int) -> None:
        """Count and log an upload."""
        self._uploads.inc(num_files)
        record("upload", files=num_files)

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Count an InputError from the `with` block as a race that was refused before it was queued."""
        try:
            yield
        except InputError:
            self._races.labels("refused").inc()
            record("race refused")
            raise


def record(event: str, **facts: Any) -> None:
    """Log an event with facts about it: numbers, and names from our code, never anything that a visitor sent."""
    log.info(event, extra={"facts": facts})


def operator_routes(telemetry: Telemetry, status: Callable[[], str], readers: Sequence[str]) -> list[Route]:
    """The routes GET /healthz, for everybody, and GET /metrics, for `readers` (addresses or networks)."""
    networks = [ipaddress.ip_network(reader) for reader in readers]

    async def health(_: Request) -> Response:
        return JSONResponse({"status": status()}, headers={"Cache-Control": "no-store"})

    async def metrics(request: Request) -> Response:
        if not _may_read(request, networks):
            return PlainTextResponse("Metrics are for the operator; --metrics names who may read them.", 403)
        return Response(generate_latest(telemetry.registry), media_type=CONTENT_TYPE_LATEST)

    return [Route("/healthz", health), Route("/metrics", metrics)]


def _may_read(request: Request, networks: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    """Whether a request comes from one of the networks, and not through a proxy, which would hide its sender."""
    if "x-forwarded-for" in request.headers or "forwarded" in request.headers:
        return False
    try:
        address = ipaddress.ip_address(request.client.host if request.client else "")
    except ValueError:
        return False
    # An IPv6 socket shows an IPv4 client as ::ffff:1.2.3.4.
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return any(address in network for network in networks)
