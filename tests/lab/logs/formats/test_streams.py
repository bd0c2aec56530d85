"""Streams: what is joined, and what is refused because the answer would not be whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specrace.lab.logs.formats.apis import read_exchanges

ASK = {"role": "user", "content": "a"}
WHOLE = "The lock opens at noon and closes at dusk."
BEGIN, END = WHOLE[:9], WHOLE[9:]


def chunk(**delta: Any) -> dict[str, Any]:
    """A chunk of a chat completion."""
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}


def answer(response: Any) -> Any:
    """The message that a response has."""
    (exchange,) = read_exchanges([ASK], response, "r")
    return exchange.output


EVENTS = [f"data: {json.dumps(chunk(content=piece))}" for piece in (BEGIN, END)]
DELTAS = [{"type": "content_block_delta", "index": 0, "delta": {"text": piece}} for piece in (BEGIN, END)]


@pytest.mark.parametrize(
    "text",
    [
        "id: 1\n" + "\n\n".join(EVENTS),
        "retry: 3000\r\n\r\n" + "\r\n\r\n".join(EVENTS) + "\r\n\r\ndata: [DONE]\r\n",
        ": ready\n\n" + "\n\nevent: message\n".join(EVENTS),
        "\n".join(EVENTS).replace("lock", "lo\u2028ck"),
    ],
)
def test_events_may_have_any_field(text: str) -> None:
    assert answer(text)["content"].replace("\u2028", "") == WHOLE


@pytest.mark.parametrize(
    "text",
    [
        "\n\n".join(EVENTS)[:-9],
        EVENTS[0][:30],
        "event: content_block_delta\n" + "\n".join(f"data: {json.dumps(delta)}" for delta in DELTAS)[:-3],
        f"5f\r\n{EVENTS[0]}\r\n0\r\n",
        f"b'{EVENTS[0]}\\n\\n'",
        'data: {"piece": "The lock"}\n\ndata: {"piece": " opens"}',
        '{"message": {"content": "The lock"}, "done": false}\n{"message": {"content": " op',
    ],
)
def test_a_stream_that_cannot_be_read_whole_is_no_text(text: str) -> None:
    with pytest.raises(ValueError, match="a stream that is cut or of an unknown API"):
        answer(text)


@pytest.mark.parametrize(
    ("chunks", "reason"),
    [
        ([chunk(content=BEGIN), {"error": {"message": "overloaded"}}], "failed while its answer was sent"),
        ([{"type": "response.output_text.delta", "delta": WHOLE}], "ends before response.completed"),
        ([{"type": "response.failed", "response": {"error": {"message": "x"}, "output": []}}], "the request failed"),
        ([chunk(musings=piece, content=piece) for piece in (BEGIN, END)], "text in musings, which is not read"),
    ],
)
def test_a_stream_without_the_whole_answer_is_refused(chunks: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        answer(chunks)


@pytest.mark.parametrize(
    "piece",
    [
        lambda text: {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]},
        lambda text: {"content": "", "reasoning_details": [{"type": "reasoning.text", "text": text}]},
        lambda text: {"reasoning": text, "reasoning_details": [{"type": "reasoning.text", "text": text}]},
    ],
)
def test_streamed_reasoning_may_come_in_parts(piece: Any) -> None:
    chunks = [chunk(**piece(BEGIN)), chunk(**piece(END)), chunk(content="At "), chunk(content="noon.", channel="final")]
    assert answer(chunks) == {"role": "assistant", "content": "At noon.", "reasoning_content": WHOLE}


def test_ollama_streams_reasoning_beside_a_response() -> None:
    chunks = [{"thinking": BEGIN, "response": ""}, {"thinking": END, "response": ""}, {"response": "Noon."}]
    assert answer([piece | {"done": False} for piece in chunks]) == {
        "role": "assistant",
        "content": "Noon.",
        "reasoning_content": WHOLE,
    }


def test_a_function_call_is_streamed_in_pieces() -> None:
    chunks = [chunk(function_call={"name": "f", "arguments": '{"x"'}), chunk(function_call={"arguments": ": 1}"})]
    (call,) = answer(chunks)["tool_calls"]
    assert call["function"] == {"name": "f", "arguments": {"x": 1}}


def test_an_answer_that_reached_its_limit_is_read() -> None:
    ended = {"object": "response", "output": [{"type": "message", "role": "assistant", "content": WHOLE}]}
    assert answer([{"type": "response.incomplete", "response": ended}])["content"] == WHOLE


def piece(text: str, **fields: Any) -> dict[str, Any]:
    """A chunk of a completion, which has the form of a whole completion."""
    return {"object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": None}]} | fields


@pytest.mark.parametrize("fields", [{}, {"id": "cmpl-1"}])
def test_chunks_of_a_completion_are_one_answer(fields: dict[str, Any]) -> None:
    chunks = [piece(BEGIN, **fields), piece(END, **fields), piece("", choices=[], usage={"completion_tokens": 9})]
    chunks[2] |= fields
    events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    assert answer(chunks)["content"] == answer(events)["content"] == WHOLE
    assert answer(f"data: {json.dumps(chunks[0])}\n\ndata: [DONE]")["content"] == BEGIN


def test_completions_in_a_list_are_answers_of_their_own() -> None:
    end = {"index": 0, "text": END, "finish_reason": "stop"}
    for responses in ([piece(BEGIN, id="1"), piece(END, id="2")], [piece("", choices=[end])] * 2):
        assert len(list(read_exchanges([ASK], responses, "r"))) == 2
