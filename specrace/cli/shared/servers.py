"""Servers that a command's arguments name, and their answers to a command's questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from specrace.core.errors import InputError
from specrace.servers.address import ServerAddress, check_spec

if TYPE_CHECKING:
    from specrace.answers import Answer, PreparedQuestion
    from specrace.engine.spec import RaceSpec
    from specrace.model.target import Target
    from specrace.workbench import Workbench

AnswerQuestion = Callable[["PreparedQuestion"], "Answer"]


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
    """The software of the server that gave an answer, for a result; empty if the model answered itself."""
    return {} if answer.measured is None else {"server": answer.measured["engine"]}
