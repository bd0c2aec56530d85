"""Servers that a command's arguments name, and their answers to a command's questions."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specrace.core.errors import InputError, shorten
from specrace.drafters import METHODS
from specrace.engine.spec import RaceSpec
from specrace.servers.address import KEY_VARIABLE, ServerAddress, check_spec, parse_server

if TYPE_CHECKING:
    from specrace.answers import Answer, PreparedQuestion
    from specrace.core.events import Event
    from specrace.model.target import Target
    from specrace.servers.connection import Waits
    from specrace.ui.races.named_servers import NamedServers
    from specrace.workbench import Beside, PreparedRace, Workbench

AnswerQuestion = Callable[["PreparedQuestion"], "Answer"]


def add_server_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--server`, which may be repeated, and `--together`."""
    parser.add_argument(
        "--server",
        action="append",
        default=[],
        metavar="NAME=URL",
        help=f"a running engine's server as one more lane; may be repeated; its key in {KEY_VARIABLE}",
    )
    parser.add_argument("--together", action="store_true", help="let all servers answer at once, not one by one")


def read_servers(texts: Sequence[str], spec: RaceSpec, reference: str = "") -> list[ServerAddress]:
    """The servers that --server named, for a race. Raises InputError.

    `reference`: the value of --reference, which must be one of several servers; "" for none.
    """
    addresses = [parse_server(text) for text in texts]
    if reference and (len(addresses) < 2 or reference not in [address.name for address in addresses]):
        raise InputError(
            f"--reference {shorten(reference)} is not one of several servers; name one of those given with --server."
        )
    if addresses:
        check_spec(spec, addresses, METHODS.__contains__)
    return addresses


def check_together(options: argparse.Namespace) -> None:
    """Raise InputError if --together was given without two servers."""
    if options.together and len(options.server) < 2:
        raise InputError("--together lets several servers answer at once; give two with --server, or leave it out.")


def add_reference_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--reference`."""
    parser.add_argument(
        "--reference",
        default="",
        metavar="NAME",
        help="compare the other servers' texts with this one's, not vanilla's",
    )


@dataclass(frozen=True)
class ServedLanes:
    """Adds a lane for each server to a race: a function of the type `specrace.workbench.Beside`.

    `waits`: the time limits; None for the defaults of `Waits`. `together`: all servers answer at once. `reference`: the
    server that the others are compared with; "" for vanilla.
    """

    addresses: Sequence[ServerAddress]
    waits: Waits | None = None
    together: bool = False
    reference: str = ""

    def __call__(
        self, target: Target, prepared: PreparedRace, stop: Callable[[], bool], events: Iterator[Event]
    ) -> Iterator[Event]:
        """The events of the race, with those of the servers."""
        # Imported here: most races need no HTTP, and this module is imported for every command.
        from specrace.servers.connection import Waits
        from specrace.servers.race import ServedRace

        served = ServedRace(
            target,
            prepared.prompt,
            prepared.spec,
            self.addresses,
            decoder(target),
            self.waits or Waits(),
            stop,
            message=prepared.message,
            together=self.together,
            reference=self.reference,
        )
        return served.run(events)


def named_servers(texts: Sequence[str], *, together: bool = False) -> NamedServers:
    """The servers of a page, which --server named; `together`: they answer at once. Raises InputError."""
    from specrace.ui.races.named_servers import NamedServers

    if not texts:
        return NamedServers()
    from specrace.servers.connection import Connection, Waits
    from specrace.servers.dialects import recognise

    addresses = {address.name: address for address in read_servers(texts, RaceSpec())}
    # Shorter than on the command line: visitors wait for a server, and so do the races behind theirs in the queue.
    race_waits, describe_waits = Waits(connect_s=5.0, read_s=30.0, total_s=120.0), Waits(connect_s=2.0, read_s=3.0)

    def describe(name: str) -> str:
        address = addresses[name]
        with Connection(address, describe_waits) as connection:
            dialect = recognise(connection, address.model, needs_ids=False)
        return f"The server {name} answers: {dialect.engine}, model {dialect.model}."

    def race_beside(names: Sequence[str], reference: str) -> Beside:
        return ServedLanes([addresses[name] for name in names], race_waits, together, reference)

    return NamedServers(tuple(addresses), race_beside, describe)


def decoder(target: Target) -> Callable[[Sequence[int]], str]:
    """A function that turns token ids into text as servers do, without control tokens."""

    def decode(tokens: Sequence[int]) -> str:
        return str(target.tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    return decode


@contextmanager
def answering(address: ServerAddress, workbench: Workbench, spec: RaceSpec) -> Iterator[AnswerQuestion]:
    """A function that has the server answer a question. Raises InputError, also for a server that cannot answer."""
    # Imported here: most commands need no HTTP, or no torch.
    from specrace.answers import make_answer
    from specrace.servers.client import ask
    from specrace.servers.connection import Connection
    from specrace.servers.dialects import recognise
    from specrace.servers.lane import measured_counts
    from specrace.servers.reply import Request

    # There are no lanes, so the server may have any name.
    check_spec(spec, [address], lambda _: False)
    target = workbench.target
    with Connection(address) as connection:
        dialect = recognise(connection, address.model)

        def answer(question: PreparedQuestion) -> Answer:
            request = Request(tuple(question.prompt.tokens), spec.max_new_tokens)
            try:
                reply = ask(connection, dialect, request, decoder(target), target.vocab_size)
            except InputError as error:
                raise InputError(f"Question {question.id}: {error}") from error
            output = tuple(token for chunk in reply.chunks for token in chunk.tokens or ())
            return make_answer(workbench, question, output, reply.end, measured_counts(dialect, reply))

        yield answer


def server_of(answer: Answer) -> dict[str, Any]:
    """{"server": its software} if a server gave the answer; empty if the model itself answered."""
    return {} if answer.measured is None else {"server": answer.measured["engine"]}
