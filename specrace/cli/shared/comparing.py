"""Measures servers block by block, and writes each answer into the journal before it counts.

A block is what one server is asked in one repetition, at one concurrency. The journal is a file, from which a
comparison that was killed is resumed; each start of the command on it is a session.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specrace.cli.shared.comparisons import live_table
from specrace.cli.shared.served_questions import ServedQuestions
from specrace.core.errors import InputError
from specrace.lab.compare.journal import Journal
from specrace.lab.compare.samples import WARM_UP, Block, Sample
from specrace.lab.compare.summary import Comparison
from specrace.lab.scoring.score import ScoredLane
from specrace.servers.address import Launch, ServerAddress

if TYPE_CHECKING:
    from specrace.servers.dialects import Dialect
    from specrace.servers.load import Answered

# The measurement ends after this many failures without an answer in between; a guess.
MAX_FAILURES = 3
# The length of the answer to a warm-up request: a few steps. Its question has the number WARM_UP.
WARM_UP_TOKENS = 8

# A server to compare: one that runs, or one to start.
Server = ServerAddress | Launch


@dataclass(frozen=True)
class Plan:
    """What is compared: servers, the baseline first, and how they are asked.

    `lane`: our lane with the settings of the second server's drafter, for forecasts; None without --settings. A server
    that runs already has an address; a server to launch is started anew for every block.
    """

    servers: tuple[Server, ...]
    questions: ServedQuestions
    concurrencies: tuple[int, ...]
    repetitions: int
    max_new_tokens: int
    ask_once: bool
    lane: ScoredLane | None

    @property
    def names(self) -> list[str]:
        """The servers' names."""
        return [server.name for server in self.servers]

    @property
    def launched(self) -> frozenset[str]:
        """The names of the servers that are launched."""
        return frozenset(server.name for server in self.servers if isinstance(server, Launch))

    def comparison(self, journal: Journal) -> Comparison:
        """What has been measured so far."""
        return Comparison(
            self.names,
            self.concurrencies,
            self.repetitions,
            self.questions.rows,
            journal.samples,
            journal.failed,
            journal.about,
            self.launched,
        )

    def question_numbers(self, block: Block) -> range:
        """The numbers of a block's questions: all, or with --ask-once those that no other block of the server has."""
        if not self.ask_once:
            return range(len(self.questions.rows))
        # Of B blocks, block i asks the questions i, i + B, i + 2 B, ...
        num_blocks = len(self.concurrencies) * self.repetitions
        index = block.repetition * len(self.concurrencies) + self.concurrencies.index(block.concurrency)
        return range(index, len(self.questions.rows), num_blocks)

    def as_json(self) -> dict[str, Any]:
        """Everything that decides what is measured; a comparison is resumed only with the same."""
        digest = hashlib.sha256(json.dumps([row.prompt for row in self.questions.rows]).encode())
        return {
            "servers": self.names,
            "launched": {server.name: list(server.command) for server in self.servers if isinstance(server, Launch)},
            "questions": digest.hexdigest(),
            "concurrency": list(self.concurrencies),
            "repetitions": self.repetitions,
            "max_new_tokens": self.max_new_tokens,
            "ask_once": self.ask_once,
        }


def measure(plan: Plan, journal: Journal, *, quiet: bool) -> None:
    """Send every unanswered question, block by block, and write each answer into the journal. Raises InputError."""
    blocks = plan.comparison(journal).blocks
    total = sum(len(plan.question_numbers(block)) for block in blocks)
    counted = [sample for sample in journal.samples if sample.number != WARM_UP]
    with live_table(total, counted, quiet=quiet) as show:
        for block in blocks:
            finished = journal.finished(block)
            numbers = [number for number in plan.question_numbers(block) if number not in finished]
            if numbers:
                server = next(server for server in plan.servers if server.name == block.server)
                with opened(server, journal.folder) as address:
                    for sample in measure_block(plan, journal, block, numbers, address):
                        show(sample)


@contextmanager
def opened(server: Server, folder: Path) -> Iterator[ServerAddress]:
    """The address of a server, which is started first and stopped afterwards if it is one to launch."""
    if isinstance(server, ServerAddress):
        yield server
        return
    # Imported here, because other commands need no HTTP.
    from specrace.servers.launch import launched

    with launched(server, folder / f"{server.name}.log") as address:
        yield address


def measure_block(
    plan: Plan, journal: Journal, block: Block, numbers: Sequence[int], address: ServerAddress
) -> Iterator[Sample]:
    """Ask a server the questions with these numbers, and yield each answer when it is in the journal."""
    from specrace.servers.connection import Connection
    from specrace.servers.dialects import recognise
    from specrace.servers.load import send
    from specrace.servers.reply import Request

    # A salt that no other block has: a server must not find a prompt in its cache that it read in an earlier block.
    salt = secrets.token_hex(8)
    prompts = [(number, plan.questions.rows[number].prompt) for number in numbers]
    requests = [(number, Request(prompt, plan.max_new_tokens, cache_salt=salt)) for number, prompt in prompts]
    # A server's first request may take long. Its prompt is a question reversed, which teaches drafters no answer.
    warm_up = [(WARM_UP, Request(plan.questions.rows[0].prompt[::-1], WARM_UP_TOKENS, cache_salt=salt))]
    with Connection(address) as connection:
        dialect = recognise(connection, address.model)
        journal.check_server(block.server, {"software": dialect.engine, "model": dialect.model})
        failures = 0
        for requests_to_send, concurrency in ((warm_up, 1), (requests, block.concurrency)):
            for answered in send(
                connection, dialect, requests_to_send, concurrency, plan.questions.decode, plan.questions.vocab_size
            ):
                if answered.reply is None and answered.number == WARM_UP:
                    # A reversed prompt may break characters, so the answer may be refused although the server works.
                    continue
                if answered.reply is None:
                    failures += 1
                    journal.add_failure(block, answered.number, answered.fault)
                    if failures == MAX_FAILURES:
                        raise InputError(f"{answered.fault} {_how_to_resume(journal)}")
                    continue
                failures = 0
                written = journal.add(as_sample(block, journal.session, answered, dialect))
                if written.number != WARM_UP:
                    yield written


def as_sample(block: Block, session: int, answered: Answered, dialect: Dialect) -> Sample:
    """An answer as a sample; the caller checks that it has a reply."""
    from specrace.servers.lane import measured_counts

    reply = answered.reply
    assert reply is not None, "a request that failed is not a sample"
    chunks = [chunk.tokens or () for chunk in reply.chunks]
    return Sample(
        block,
        answered.number,
        session,
        answered.start_ms,
        answered.end_ms,
        tuple(chunk.at_ms for chunk in reply.chunks),
        tuple(map(len, chunks)),
        tuple(token for chunk in chunks for token in chunk),
        reply.end,
        measured_counts(dialect, reply),
    )


def _how_to_resume(journal: Journal) -> str:
    return f"{len(journal.samples)} answers are kept: mend the fault, and run the same command with --resume."
