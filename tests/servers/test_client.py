"""One request to a server: what a good answer gives, and one sentence for each way in which a server misbehaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.servers.address import ServerAddress
from specrace.servers.client import ask
from specrace.servers.connection import MAX_LINE, Connection, Waits
from specrace.servers.dialects import recognise
from specrace.servers.reply import Reply, Request
from tests.servers.replies import Answer, Route, as_json, serving, stream, vllm_chunk, vllm_end, vllm_routes

PROMPT = (5, 6, 7)
# The limit for reading is short, because a server that falls silent in these tests stays silent.
WAITS = Waits(connect_s=2.0, read_s=0.3, total_s=60.0, pause_s=0.0)
VOCAB = 32


def decode(tokens: Sequence[int]) -> str:
    """The text of the test's tokens: a letter for each token, and nothing for token 1, which ends the text."""
    return "".join(chr(97 + token) for token in tokens if token != 1)


def ask_server(address: ServerAddress) -> Reply:
    """Ask the server for up to 8 tokens."""
    with Connection(address, WAITS) as connection:
        return ask(connection, recognise(connection, address.model), Request(PROMPT, 8), decode, VOCAB)


def good_events(*tokens: int) -> list[Any]:
    """The events of a good answer, with one token in each step."""
    chunks = [vllm_chunk([token], decode([token])) for token in tokens]
    return [*chunks, vllm_chunk([1], "", "stop"), vllm_end(len(tokens) + 1)]


def test_an_answer_has_its_tokens_texts_counts_and_times() -> None:
    events = [vllm_chunk([2], "c", prompt=list(PROMPT)), vllm_chunk([3, 4, 1], "de", "stop"), vllm_end(4, [2], [3])]
    with serving(vllm_routes(stream(*events))) as address:
        reply = ask_server(address)
    assert [chunk.tokens for chunk in reply.chunks] == [(2,), (3, 4, 1)]
    assert reply.text == "cde" and reply.end == "eos" and reply.prompt == PROMPT
    assert (reply.accepted, reply.drafted, reply.num_accepted, reply.num_drafted) == ((2,), (3,), 2, 3)
    assert 0 < reply.chunks[0].at_ms <= reply.chunks[1].at_ms


def test_the_request_asks_for_greedy_decoding_and_for_token_ids() -> None:
    seen: list[dict[str, Any]] = []

    def answer(body: dict[str, Any]) -> Answer:
        seen.append(body)
        return stream(*good_events(2))

    with serving(vllm_routes(answer)) as address:
        ask_server(address)
    (body,) = seen
    assert body["prompt"] == list(PROMPT) and body["max_tokens"] == 8 and body["model"] == "m"
    assert body["temperature"] == 0 and body["repetition_penalty"] == 1 and body["return_token_ids"] is True


def test_a_busy_server_is_asked_again_before_its_first_token() -> None:
    answers = iter([as_json({"error": "full"}, 429), as_json({}, 503), stream(*good_events(2, 3))])
    with serving(vllm_routes(lambda _: next(answers))) as address:
        assert ask_server(address).text == "cd"


def test_the_key_is_sent_and_not_shown() -> None:
    with serving(vllm_routes(stream(*good_events(2)))) as address:
        keyed = ServerAddress(address.name, address.url, key="secret-key")
        assert ask_server(keyed).text == "c"
    assert "secret-key" not in repr(keyed)


HUGE = b"data: " + b"x" * (MAX_LINE + 1) + b"\n\n"
FIRST = vllm_chunk([2], "c")
# How the server misbehaves -> (its answer to completions, what the sentence says). `vllm_end` gets the number of tokens
# that the server counts, and the accepted and drafted tokens of each step with a draft.
FAULTS: dict[str, tuple[Route, str]] = {
    "hangs before the first byte": (Answer(end="hang"), "sent nothing for 0.3 s"),
    "hangs in mid-stream": (stream(FIRST, end="hang"), r"sent nothing for 0.3 s \(after 1 chunk\)"),
    "closes in mid-stream": (stream(FIRST, end="abort"), r"\(after 1 chunk\)"),
    "html": (Answer([b"<html><b>Hi"], kind="text/html"), "did not stream its answer, but sent text/html: <html><b>Hi"),
    "no stream": (as_json({"choices": []}), "did not stream its answer"),
    "401": (as_json({"error": "Unauthorized"}, 401), "wants another key .status 401.; set SPECRACE_SERVER_KEY"),
    "404, another model": (as_json({"error": {"message": "no m"}}, 404), "answers with status 404: no m"),
    "422": (as_json({"detail": [{"msg": "x"}]}, 422), "answers with status 422"),
    "429 for ever": (as_json({"error": {"message": "full"}}, 429), "answers with status 429: full"),
    "500": (Answer([b"Internal Server Error"], 500, "text/plain"), "status 500: Internal Server Error"),
    "redirect": (
        Answer((), 307, headers={"Location": "http://169.254.169.254/latest"}),
        "sends requests on to http://169.254.169.254/latest; give that address if you trust it",
    ),
    "no json": (Answer([b"data: {'a'\n\n"]), "streamed an event that is not JSON: {'a'"),
    "json of another kind": (stream([1, 2]), "streamed an event that is no object"),
    "broken utf-8": (Answer([b'data: {"choices": "\xff\xfe"}\n\n']), "streamed an event that is not JSON"),
    "an error in the stream": (
        stream(FIRST, {"error": {"message": "out of\nmemory"}}),
        r"broke off its answer: out of memory \(after 1 chunk\)",
    ),
    "no choices": (stream({"object": "x"}, vllm_end(0)), "ended its answer without a single token"),
    "stops at once": (stream(), "ended its answer without a single token"),
    "no end": (stream(FIRST), "ended its stream without saying why the text ends"),
    "a huge chunk": (Answer([HUGE]), "streamed more than an answer can need"),
    "more tokens than asked for": (stream(*good_events(*range(2, 14))), "streamed more than the 8 tokens"),
    "no ids": (
        stream({"choices": [{"text": "c", "finish_reason": "stop"}]}),
        "streams text without token ids, which vLLM 0.32.0 should send",
    ),
    "ids that are not valid": (
        stream({"choices": [{"text": "c", "token_ids": [True, -2], "finish_reason": "stop"}]}),
        "streams text without token ids",
    ),
    "ids of another text": (stream(vllm_chunk([3], "c", "stop")), "token ids that are not those of its text"),
    "another vocabulary": (stream(vllm_chunk([99], "c", "stop")), "the token 99, which the target's vocabulary of 32"),
    "another prompt": (stream(vllm_chunk([2], "c", "stop", [9, 9])), "read another prompt than the one that was sent"),
    "another count": (stream(vllm_chunk([2], "c", "stop"), vllm_end(3)), "streamed 1 tokens, but counts 3"),
    "a cut character": (stream(vllm_chunk([2], "c", "length"), vllm_end(4)), "1 of its 4 tokens, as .* more or fewer"),
    "many tokens held back": (stream(vllm_chunk([2], "c", "length"), vllm_end(5)), "1 tokens, but counts 5"),
    "more accepted than drafted": (
        stream(FIRST, vllm_chunk([3, 4], "de", "stop"), vllm_end(3, [1], [0])),
        "counts more accepted than drafted tokens in a step",
    ),
    "lists of different lengths": (
        stream(FIRST, vllm_chunk([3, 4], "de", "stop"), vllm_end(3, [1], [1, 1])),
        "lists the accepted tokens of 1 steps, and the draft tokens of 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_misbehaving_server_gets_one_sentence(name: str) -> None:
    answer, words = FAULTS[name]
    with serving(vllm_routes(answer)) as address, pytest.raises(InputError, match=words) as caught:
        ask_server(address)
    sentence = str(caught.value)
    assert sentence.startswith("The server tested ") and sentence.endswith(".") and "\n" not in sentence


def test_a_server_that_does_not_listen_is_reported() -> None:
    with serving({}) as address:
        pass
    with pytest.raises(InputError, match=r"The server tested cannot be reached .*; is it running at this address\?$"):
        ask_server(address)


@pytest.mark.parametrize(
    ("routes", "words"),
    [
        ({}, "lists no models at /v1/models"),
        ({"/v1/models": Answer([b"<html>"], kind="text/html")}, "lists no models"),
        ({"/v1/models": Answer([b"[" * 100_000], kind="application/json")}, "lists no models"),
        ({"/v1/models": as_json({"error": {"message": "Loading model"}}, 503)}, "status 503: Loading model"),
        ({"/v1/models": as_json({"error": {"message": "no"}}, 401)}, "wants another key"),
        (
            {"/v1/models": as_json({"data": [{"id": "a", "owned_by": "library"}]})},
            "is Ollama, whose stream has no token",
        ),
        ({"/v1/models": as_json({"data": [{"id": "a"}, {"id": "b"}]})}, "has 2 models; add one .*#a"),
        ({"/v1/models": Answer([b"x" * 1_000_000] * 5, kind="text/plain")}, "sends more than 4 MB"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_server_that_cannot_be_raced_is_refused_with_the_reason(routes: dict[str, Route], words: str) -> None:
    with serving(routes) as address, pytest.raises(InputError, match=words):
        ask_server(address)


def test_a_model_that_the_server_lacks_is_named() -> None:
    with serving(vllm_routes(stream(*good_events(2)))) as address:
        other = ServerAddress("tested", address.url, model="llama")
        with pytest.raises(InputError, match="has no model 'llama'; it has m"):
            ask_server(other)


def test_a_slow_stream_ends_after_the_longest_time() -> None:
    waits = Waits(total_s=0.0)
    with serving(vllm_routes(stream(*good_events(2)))) as address, Connection(address, waits) as connection:
        dialect = recognise(connection)
        with pytest.raises(InputError, match="did not finish its answer within 0 s"):
            ask(connection, dialect, Request(PROMPT, 8), decode, VOCAB)
