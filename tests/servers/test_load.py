"""Requests to a server, a fixed number at a time."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from specrace.servers.connection import Connection, Waits
from specrace.servers.dialects import recognise
from specrace.servers.load import send
from specrace.servers.reply import Request
from tests.servers.replies import Answer, as_json, serving, stream, vllm_chunk, vllm_end, vllm_routes

WAITS = Waits(connect_s=2.0, read_s=5.0, pause_s=0.0)


def decode(tokens: Any) -> str:
    return "".join(chr(97 + token) for token in tokens)


class Meeting:
    """Holds completions back until `size` requests are under way; records the highest number at once and all bodies."""

    def __init__(self, size: int) -> None:
        self.together = threading.Barrier(size, timeout=300)
        self.lock = threading.Lock()
        self.now = self.highest = 0
        self.bodies: list[dict[str, Any]] = []

    def __call__(self, body: dict[str, Any]) -> Answer:
        with self.lock:
            self.now += 1
            self.highest = max(self.highest, self.now)
            self.bodies.append(body)
        self.together.wait()
        with self.lock:
            self.now -= 1
        return stream(vllm_chunk([2], "c", None, body["prompt"]), vllm_chunk([3], "d", "length"), vllm_end(2))


@pytest.mark.parametrize("concurrency", [1, 3])
def test_as_many_requests_are_under_way_as_were_asked_for(concurrency: int) -> None:
    meeting = Meeting(concurrency)
    requests = [
        (number, Request((number + 1,), max_new_tokens=2, cache_salt="salt")) for number in range(3 * concurrency)
    ]
    with serving(vllm_routes(meeting)) as address, Connection(address, WAITS) as connection:
        answers = list(send(connection, recognise(connection), requests, concurrency, decode, vocab_size=100))
    assert meeting.highest == concurrency
    assert sorted(answered.number for answered in answers) == list(range(3 * concurrency))
    for answered in answers:
        assert answered.reply is not None and answered.reply.prompt == (answered.number + 1,)
        assert 0 <= answered.start_ms < answered.end_ms
    assert {body["cache_salt"] for body in meeting.bodies} == {"salt"}


def test_a_request_that_fails_has_its_sentence_and_the_others_go_on() -> None:
    def answer(body: dict[str, Any]) -> Answer:
        if body["prompt"] == [2]:
            return as_json({"error": {"message": "too long"}}, 400)
        return stream(vllm_chunk([2], "c", "stop", body["prompt"]), vllm_end(1))

    requests = [(number, Request((number,), 2)) for number in range(1, 5)]
    with serving(vllm_routes(answer)) as address, Connection(address, WAITS) as connection:
        answers = {a.number: a for a in send(connection, recognise(connection), requests, 2, decode, 100)}
    assert answers[2].reply is None and answers[2].fault == "The server tested answers with status 400: too long."
    assert all(answers[number].reply is not None for number in (1, 3, 4))


def test_a_bug_while_an_answer_is_read_reaches_the_caller() -> None:
    def broken(_: Any) -> str:
        raise ZeroDivisionError

    route = stream(vllm_chunk([2], "c", "stop", [1]), vllm_end(1))
    with (
        serving(vllm_routes(route)) as address,
        Connection(address, WAITS) as connection,
        pytest.raises(ZeroDivisionError),
    ):
        list(send(connection, recognise(connection), [(0, Request((1,), 2))], 1, broken, 100))
