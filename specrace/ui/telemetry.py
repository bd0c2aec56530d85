"""What an operator sees of a server: /healthz, /metrics, and a line for each race in the log.

None of them holds a visitor's text, address, file name or session.
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
from specrace.ui.http_server import EVENTS

OUTCOMES = ("finished", "stopped", "refused", "failed")

log = logging.getLogger(EVENTS)


class Telemetry:
    """Counts of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        own: dict[str, Any] = {"namespace": "specrace", "registry": self.registry}
        self._races = Counter("races", "Races by outcome", ["outcome"], **own)
        self._tokens = Counter("output_tokens", "Output tokens of the races shown, by lane", ["lane"], **own)
        self._steps = Counter("steps", "Steps (target forwards) of the races shown, by lane", ["lane"], **own)
        self._uploads = Counter("uploaded_files", "Files that visitors uploaded", **own)
        self._queue = Gauge("queue_length", "Races that wait", **own)
        self._running = Gauge("races_running", "1 while a race runs", **own)
        for outcome in OUTCOMES:
            self._races.labels(outcome)

    def watch_queue(self, length: Callable[[], int], running: Callable[[], bool]) -> None:
        """Read the queue's length, and whether a race runs, from here."""
        self._queue.set_function(length)
        self._running.set_function(running)

    def began(self, race: int, started: Started, waited_s: float) -> None:
        """The first event of a race has come."""
        lanes = [each.lane for each in started.lanes]
        record("race began", race=race, lanes=lanes, prompt_tokens=started.prompt_tokens, waited_s=round(waited_s, 3))

    def ended(self, race: int, outcome: str, finished: Finished | None, seconds: float) -> None:
        """A race is over, `seconds` after it was asked for. `finished` is None where nothing was raced."""
        self._races.labels(outcome).inc()
        lanes = finished.lanes if finished is not None else ()
        for each in lanes:
            self._tokens.labels(each.lane).inc(each.tokens)
            self._steps.labels(each.lane).inc(each.steps)
        counts = {each.lane: {"tokens": each.tokens, "steps": each.steps} for each in lanes}
        record("race ended", race=race, outcome=outcome, seconds=round(seconds, 3), lanes=counts)

    def uploaded(self, files: int) -> None:
        """A visitor has uploaded so many."""
        self._uploads.inc(files)
        record("upload", files=files)

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Count an InputError as a race that was refused before it had a place in the queue."""
        try:
            yield
        except InputError:
            self._races.labels("refused").inc()
            record("race refused")
            raise


def record(event: str, **facts: Any) -> None:
    """Log an event with its facts, which are numbers and names of ours."""
    log.info(event, extra={"facts": facts})


def operator_routes(telemetry: Telemetry, status: Callable[[], str], readers: Sequence[str]) -> list[Route]:
    """GET /healthz, for everybody, and GET /metrics, for `readers`: addresses or networks."""
    networks = [ipaddress.ip_network(each) for each in readers]

    async def health(_: Request) -> Response:
        return JSONResponse({"status": status()}, headers={"Cache-Control": "no-store"})

    async def metrics(request: Request) -> Response:
        if not _may_read(request, networks):
            return PlainTextResponse("Metrics are for the operator; --metrics names who may read them.", 403)
        return Response(generate_latest(telemetry.registry), media_type=CONTENT_TYPE_LATEST)

    return [Route("/healthz", health), Route("/metrics", metrics)]


def _may_read(request: Request, networks: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    """Whether a reader asks directly. Through a proxy, anybody could come from this machine."""
    if "x-forwarded-for" in request.headers or "forwarded" in request.headers:
        return False
    try:
        address = ipaddress.ip_address(request.client.host if request.client else "")
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return any(address in network for network in networks)
