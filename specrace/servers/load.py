"""Sends requests to a server, a fixed number at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from queue import Queue

from specrace.core.errors import InputError
from specrace.servers.client import Decode, ask
from specrace.servers.connection import Connection
from specrace.servers.dialects import Dialect
from specrace.servers.reply import Reply, Request

# One process reads all streams: with more requests at a time, its own work would distort the measured times.
MAX_CONCURRENCY = 64


@dataclass(frozen=True)
class Answered:
    """A request that has ended: its number, when it was sent and ended (ms since the load began), reply or fault."""

    number: int
    start_ms: float
    end_ms: float
    reply: Reply | None
    fault: str = ""


@dataclass
class _Load:
    """The waiting and the finished requests, shared by the threads that send them."""

    connection: Connection
    dialect: Dialect
    decode: Decode
    vocab_size: int
    waiting: Iterator[tuple[int, Request]]
    ended: Queue[Answered | Exception] = field(default_factory=Queue)
    began_s: float = field(default_factory=time.perf_counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def work(self) -> None:
        """Send one request after another until none waits."""
        while True:
            with self.lock:
                numbered_request = next(self.waiting, None)
            if numbered_request is None:
                return
            try:
                self.ended.put(self._answer(*numbered_request))
            except Exception as error:  # a bug of ours, which the caller must see
                self.ended.put(error)
                return

    def _answer(self, number: int, request: Request) -> Answered:
        start_ms, reply, fault = self._now_ms(), None, ""
        try:
            reply = ask(self.connection, self.dialect, request, self.decode, self.vocab_size)
        except InputError as error:
            fault = str(error)
        return Answered(number, start_ms, self._now_ms(), reply, fault)

    def _now_ms(self) -> float:
        return 1000.0 * (time.perf_counter() - self.began_s)


def send(
    connection: Connection,
    dialect: Dialect,
    requests: Sequence[tuple[int, Request]],
    concurrency: int,
    decode: Decode,
    vocab_size: int,
) -> Iterator[Answered]:
    """Send the numbered requests in their order, and yield each when it has ended.

    As soon as one has ended, the next is sent, so `concurrency` requests are under way until none is left to send.
    A request that fails is yielded with its fault, and does not stop the others.
    """
    load = _Load(connection, dialect, decode, vocab_size, iter(requests))
    # Daemon threads: an interrupted command must not wait for a slow server.
    for _ in range(min(concurrency, len(requests))):
        threading.Thread(target=load.work, daemon=True).start()
    for _ in requests:
        answered = load.ended.get()
        if isinstance(answered, Exception):
            raise answered
        yield answered
