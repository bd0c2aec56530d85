"""A race with servers: they answer before our lanes' first step, and their steps are shown in race time.

They answer one after another, unless they are to answer together. A server that fails is left out, with a sentence in
the race's description; the other lanes race on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median

from specrace.core.errors import InputError
from specrace.core.events import LEFT_OUT, Event, Finished, LaneResult, LaneSpread, Repeated, Started, Step
from specrace.core.metrics import compare, loop_tokens, start_metrics
from specrace.engine.badge import explain_difference
from specrace.engine.race import never
from specrace.engine.setup import RaceTarget
from specrace.engine.spec import RaceSpec
from specrace.servers.address import ServerAddress
from specrace.servers.client import Decode, ask
from specrace.servers.connection import Connection, Waits
from specrace.servers.dialects import Dialect, recognise
from specrace.servers.lane import ServedLane, served_lane
from specrace.servers.reply import Request


@dataclass
class Server:
    """A server that answers; `lane` is its answer in the first run, `rates` its tokens per second in each run."""

    connection: Connection
    dialect: Dialect
    lane: ServedLane
    rates: list[float] = field(default_factory=list)
    # How many later runs gave another text than the first, and how many failed.
    num_other_texts: int = 0
    num_failed: int = 0


class ServedRace:
    """Adds lanes of servers to the events of a race. `decode`: the text of token ids, without control tokens.

    `message`: the user's message in the prompt, for servers that take no token ids. `together`: all servers answer at
    once. `reference`: the server that the others are compared with, instead of vanilla. These comparisons, and those of
    texts, are made in `specrace.views.detokenize`, because vanilla has no text here, only tokens. Once `stop` returns
    True, no more servers are asked, and answers are not read to their end.
    """

    def __init__(
        self,
        target: RaceTarget,
        prompt: Sequence[int],
        spec: RaceSpec,
        addresses: Sequence[ServerAddress],
        decode: Decode,
        waits: Waits = Waits(),  # noqa: B008  Waits is frozen
        stop: Callable[[], bool] = never,
        message: str = "",
        together: bool = False,
        reference: str = "",
    ) -> None:
        self.target = target
        self.prompt = tuple(prompt)
        self.spec = spec
        self.addresses = addresses
        self.decode = decode
        self.waits = waits
        self.stop = stop
        self.message = message
        self.together = together
        self.reference = reference
        self.servers: list[Server] = []
        self.left_out: list[str] = []
        self._vanilla: list[int] = []
        self._vanilla_end = ""
        # The servers' steps that have not been shown yet, the latest first.
        self._waiting: list[Step] = []
        self._shown: list[Step] = []

    def run(self, events: Iterator[Event]) -> Iterator[Event]:
        """The events of the race with those of the servers, which are asked when the race has started."""
        with ExitStack() as connections:
            for event in events:
                if isinstance(event, Started):
                    yield self._start(event, connections)
                elif isinstance(event, Step):
                    yield from self._show_until(event.at_ms)
                    if event.lane == "vanilla":
                        self._vanilla += event.emitted
                        self._vanilla_end = event.end
                    yield event
                elif isinstance(event, Finished):
                    if not event.stopped:
                        yield from self._show_until(float("inf"))
                    yield replace(event, lanes=(*event.lanes, *map(self._result, self.servers)))
                else:
                    yield self._repeat(event)

    def _start(self, started: Started, connections: ExitStack) -> Started:
        """Ask each server once, and add its lane."""
        reached: list[tuple[Connection, Dialect]] = []
        for address in self.addresses:
            if self.stop():
                break
            try:
                connection = connections.enter_context(Connection(address, self.waits, self.stop))
                reached.append((connection, recognise(connection, address.model, needs_ids=False)))
            except InputError as error:
                self.left_out.append(str(error))
        # There are fewer answers than servers if the race was stopped.
        for (connection, dialect), lane in zip(reached, self._answers(reached), strict=False):
            if isinstance(lane, InputError):
                self.left_out.append(str(lane))
            else:
                self.servers.append(Server(connection, dialect, lane, [rate(lane)]))
        self._set_reference()
        steps = [step for server in self.servers for step in server.lane.steps]
        # Reversed after sorting, because tokens of one chunk have the same time and must keep their order.
        self._waiting = sorted(steps, key=lambda step: step.at_ms)[::-1]
        about = started.about if not self.left_out else {**started.about, LEFT_OUT: tuple(self.left_out)}
        return replace(started, lanes=(*started.lanes, *(server.lane.info for server in self.servers)), about=about)

    def _set_reference(self) -> None:
        """Note the reference in the lanes. Raises InputError if it did not answer, or others cannot be compared."""
        dialects = {server.lane.info.lane: server.dialect for server in self.servers}
        if self.reference not in dialects and self.stop():
            # The race was stopped before the reference had answered.
            self.reference = ""
        if not self.reference:
            return
        if self.reference not in dialects:
            raise InputError(f"There is no reference to compare with. {' '.join(self.left_out)}")
        if not dialects[self.reference].sends_ids and any(dialect.sends_ids for dialect in dialects.values()):
            raise InputError(
                f"The server {self.reference} streams text without token ids, and others send ids; give one of those "
                "with --reference."
            )
        for server in self.servers:
            info = replace(server.lane.info, reference=self.reference)
            server.lane = replace(server.lane, info=info)

    def _answers(self, servers: Sequence[tuple[Connection, Dialect]]) -> Iterator[ServedLane | InputError]:
        """Each server's answer or fault. Asks all at once with `together`, else one by one until the race stops."""
        if self.together and len(servers) > 1:
            with ThreadPoolExecutor(len(servers)) as threads:
                yield from threads.map(partial(self._answer, together=True), servers)
            return
        for server in servers:
            if self.stop():
                return
            yield self._answer(server)

    def _answer(self, server: tuple[Connection, Dialect], *, together: bool = False) -> ServedLane | InputError:
        connection, dialect = server
        request = Request(self.prompt, self.spec.max_new_tokens, message=self.message)
        try:
            reply = ask(connection, dialect, request, self.decode, self.target.vocab_size)
        except InputError as error:
            return error
        return served_lane(connection.name, dialect, reply, self.prompt[-1], together=together)

    def _show_until(self, at_ms: float) -> Iterator[Step]:
        """Yield the servers' waiting steps up to this race time, the earliest first."""
        while self._waiting and self._waiting[-1].at_ms <= at_ms:
            self._shown.append(self._waiting.pop())
            yield self._shown[-1]

    def _result(self, server: Server) -> LaneResult:
        """The result from the steps that were shown; their tokens are compared with vanilla's."""
        info = server.lane.info
        steps = [step for step in self._shown if step.lane == info.lane]
        metrics = start_metrics(info)
        for step in steps:
            metrics.add(step)
        tokens = [token for step in steps for token in step.emitted]
        end = steps[-1].end if steps else ""
        identical, position, difference = None, None, None
        if server.dialect.sends_ids and not self.reference:
            identical, position = compare(tokens, self._vanilla, ended=bool(end and self._vanilla_end))
        if position is not None:
            before = [*self.prompt, *self._vanilla[:position]]
            difference = explain_difference(self.target, before, position, self.spec.sampling_params())
        return LaneResult(
            lane=info.lane,
            **metrics.summary(),
            speedup=0.0,
            identical=identical,
            first_difference=difference,
            end=end or "stopped",
            loop_tokens=loop_tokens(tokens),
        )

    def _repeat(self, repeated: Repeated) -> Repeated:
        """Ask each server again, and add the median and the range of its rates."""
        asked = [(server.connection, server.dialect) for server in self.servers]
        for server, lane in zip(self.servers, self._answers(asked), strict=False):
            if isinstance(lane, InputError):
                # If we stopped reading the answer, the server did not fail.
                server.num_failed += not self.stop()
                continue
            server.rates.append(rate(lane))
            server.num_other_texts += lane.output != server.lane.output
        # Servers have no speedup, so it and its range are 0.
        spreads = [
            LaneSpread(server.lane.info.lane, 0.0, 0.0, 0.0, median(server.rates), min(server.rates), max(server.rates))
            for server in self.servers
        ]
        notes = [repeated.note, *filter(None, map(_note, self.servers))]
        return replace(repeated, lanes=(*repeated.lanes, *spreads), note=" ".join(notes))


def _note(server: Server) -> str:
    """What is said about a server's later runs; "" if nothing is."""
    name, remarks = server.lane.info.lane, []
    if server.num_other_texts:
        remarks.append(f"{name} printed another text in {server.num_other_texts} of its runs")
    if server.num_failed:
        remarks.append(f"{name} failed in {server.num_failed} of its runs, which do not count")
    return f"{'; '.join(remarks)}." if remarks else ""


def rate(lane: ServedLane) -> float:
    """The tokens per second of a server's answer, as the client saw them."""
    metrics = start_metrics(lane.info)
    for step in lane.steps:
        metrics.add(step)
    return metrics.tokens_per_s
