"""Gateways', tracers' and load generators' logs: their rarer shapes, and rows that cannot be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specrace.lab.logs.formats.base import Exchange
from specrace.lab.logs.formats.observed import AIPerf, Braintrust, Datadog, Langfuse, LiteLLM

MESSAGES = [{"role": "user", "content": "a"}]
ANSWER = {"role": "assistant", "content": "b"}
BODY = {"choices": [{"message": ANSWER}]}


def observation(prompt: Any, output: Any) -> dict[str, Any]:
    """An observation as Langfuse logs it."""
    return {"id": "o", "trace_id": "t", "type": "GENERATION", "input": prompt, "output": output}


@pytest.mark.parametrize("output", [ANSWER, [ANSWER], "b", {"content": "b"}, json.dumps(ANSWER), BODY])
@pytest.mark.parametrize("prompt", [MESSAGES, {"messages": MESSAGES}, json.dumps(MESSAGES)])
def test_langfuse_logs_messages_in_many_forms(prompt: Any, output: Any) -> None:
    assert list(Langfuse().read(observation(prompt, output))) == [Exchange(MESSAGES, ANSWER, "o")]


def test_langfuse_may_log_plain_text() -> None:
    assert list(Langfuse().read(observation("7", "b"))) == [Exchange("7", "b", "o")]
    assert list(Langfuse().read(observation("7", "b") | {"type": "SPAN"})) == []


@pytest.mark.parametrize("text", ['{"title": "A", "content": "B"}', '{"name": "Bob"}', "[1, 2]", "[]", '"b"', "7"])
@pytest.mark.parametrize("prompt", [MESSAGES, "7"])
def test_an_answer_that_looks_like_json_stays_text(prompt: Any, text: str) -> None:
    (exchange,) = Langfuse().read(observation(prompt, text))
    assert exchange.output == (text if prompt == "7" else {"role": "assistant", "content": text})


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_part_of_an_answer(name: str) -> None:
    answer = ANSWER | {"reasoning_content": "hm, so"}
    (exchange,) = LiteLLM().read(
        {"messages": MESSAGES, "response": {"choices": [{"message": ANSWER | {name: "hm, so"}}]}}
    )
    assert exchange.output == answer
    (exchange,) = AIPerf().read(record(event({name: "hm, "}), event({name: "so"}), event({"content": "b"})))
    assert exchange.output == answer


@pytest.mark.parametrize(("kind", "count"), [("generation", 1), ("llm", 1), ("general", 0), ("AGENT", 0)])
def test_types_of_observations_and_of_opiks_spans(kind: str, count: int) -> None:
    assert len(list(Langfuse().read(observation({"messages": MESSAGES}, BODY) | {"type": kind}))) == count


@pytest.mark.parametrize("is_parent_first", [True, False])
def test_a_call_within_a_call_with_the_same_answer_is_left_out(is_parent_first: bool) -> None:
    outer = observation(MESSAGES, ANSWER)
    inner = observation({"messages": MESSAGES}, BODY) | {"id": "p", "parentObservationId": "o"}
    reader = Langfuse()
    first, second = (list(reader.read(row)) for row in ((outer, inner) if is_parent_first else (inner, outer)))
    assert [exchange.output for exchange in first] == [ANSWER]
    assert ["same answer" in exchange.left_out for exchange in second] == [True]


@pytest.mark.parametrize(
    "changes",
    [
        {"output": "c", "parentObservationId": "o"},
        {"parentObservationId": "x"},
        {"parentObservationId": None},
        {"trace_id": "u", "parentObservationId": "o"},
    ],
)
def test_other_answers_and_other_parents_are_other_calls(changes: dict[str, Any]) -> None:
    reader = Langfuse()
    rows = [observation("a", "b"), observation("a", "b") | {"id": "p"} | changes]
    assert not any(exchange.left_out for row in rows for exchange in reader.read(row))


def test_litellm_may_log_plain_text() -> None:
    row = {"id": "l", "messages": "a", "response": {"choices": [{"text": "b"}]}}
    (exchange,) = LiteLLM().read(row)
    assert (exchange.prompt, exchange.output, exchange.id) == ("a", "b", "l")
    row = {"id": "l", "messages": MESSAGES, "response": "b"}
    (exchange,) = LiteLLM().read(row)
    assert (exchange.prompt, exchange.output) == (MESSAGES, ANSWER)


def record(*responses: Any, **more: Any) -> dict[str, Any]:
    """A record as AIPerf logs it."""
    return {"metadata": {"x_request_id": "q"}, "payload": {"messages": MESSAGES}, "responses": list(responses)} | more


def event(delta: Any, **more: Any) -> dict[str, Any]:
    """One streamed event in AIPerf's record."""
    return {"perf_ns": 1, "packets": [{"name": "data", "value": json.dumps({"choices": [{"delta": delta}], **more})}]}


def test_aiperf_may_log_streamed_token_ids() -> None:
    first = event({"content": ""}, prompt_token_ids=[1, 2])
    chunk = {"choices": [{"delta": {"content": "b"}, "token_ids": [3]}]}
    second = {"perf_ns": 2, "packets": [{"name": "data", "value": json.dumps(chunk)}]}
    assert list(AIPerf().read(record(first, second))) == [Exchange((1, 2), (3,), "q")]


@pytest.mark.parametrize(
    ("reader", "row", "reason"),
    [
        (LiteLLM(), {"messages": MESSAGES, "response": BODY, "status": "failure"}, "the request failed"),
        (LiteLLM(), {"messages": None, "response": BODY}, "messages is not a list"),
        (Langfuse(), observation(None, "b"), "the prompt is not in the observation"),
        (AIPerf(), record(error={"code": 500}), "the request failed"),
        (AIPerf(), record(), "export with --export-level raw"),
        (AIPerf(), record(event({"tool_calls": [{}]})), "name of a tool call is empty"),
        (AIPerf(), record({"text": "oops"}), "a response is not an object"),
    ],
)
def test_an_unreadable_row_is_reported(reader: Any, row: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        list(reader.read(row))


def test_langfuse_may_quote_an_answer_with_escapes() -> None:
    (exchange,) = Langfuse().read(observation(json.dumps(MESSAGES), json.dumps("b\nc")))
    assert exchange.output == {"role": "assistant", "content": "b\nc"}


def test_the_instructions_of_a_litellm_response_are_its_system_prompt() -> None:
    output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]}]
    row = {"call_type": "aresponses", "messages": "a", "response": {"object": "response", "output": output}}
    (exchange,) = LiteLLM().read(row | {"model_parameters": {"instructions": "s"}})
    assert exchange.prompt == [{"role": "system", "content": "s"}, *MESSAGES]


TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [TOOL]},
        {"tools": json.dumps([TOOL])},
        {"optional_params": {"tools": [TOOL]}},
        {"kwargs": {"tools": [TOOL]}},
        {"model_parameters": json.dumps({"tools": [TOOL]})},
        {"proxy_server_request": {"body": {"messages": [], "tools": [TOOL]}}},
    ],
)
@pytest.mark.parametrize("messages", [MESSAGES, {"messages": MESSAGES}])
def test_litellm_may_log_tools_in_many_places(messages: Any, more: Any) -> None:
    (exchange,) = LiteLLM().read({"messages": messages, "response": BODY} | more)
    assert (exchange.prompt, exchange.tools) == (MESSAGES, [TOOL])


def test_a_system_prompt_and_parameters_beside_the_messages_are_read() -> None:
    row = {"messages": MESSAGES, "response": BODY, "system": "s", "temperature": 0.5, "documents": ["a"]}
    (exchange,) = LiteLLM().read(row)
    assert exchange.prompt == [{"role": "system", "content": "s"}, *MESSAGES]
    assert exchange.parameters["temperature"] == 0.5


def test_a_span_may_keep_tools_beside_its_messages() -> None:
    listed = [{"name": "f", "schema": {}}]
    span = {"kind": "llm", "tool_definitions": listed, "input": {"messages": MESSAGES}, "output": {"value": "b"}}
    (exchange,) = Datadog().read({"meta": span})
    assert exchange.tools == [TOOL]
    about = {"span_attributes": {"type": "llm"}, "metadata": {"tools": [TOOL]}}
    (exchange,) = Braintrust().read(about | {"input": {"messages": MESSAGES}, "output": "b"})
    assert exchange.tools == [TOOL]
