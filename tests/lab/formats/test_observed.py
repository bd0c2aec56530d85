"""Gateways', tracers' and load generators' logs: the shapes beside the common one, and what cannot be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specrace.lab.formats.base import Exchange
from specrace.lab.formats.observed import AIPerf, Langfuse, LiteLLM

ASKED = [{"role": "user", "content": "a"}]
SAID = {"role": "assistant", "content": "b"}
BODY = {"choices": [{"message": SAID}]}


def observation(given: Any, output: Any) -> dict[str, Any]:
    return {"id": "o", "trace_id": "t", "type": "GENERATION", "input": given, "output": output}


@pytest.mark.parametrize("output", [SAID, [SAID], "b", {"content": "b"}, json.dumps(SAID), BODY])
@pytest.mark.parametrize("given", [ASKED, {"messages": ASKED}, json.dumps(ASKED)])
def test_langfuse_has_messages_in_many_forms(given: Any, output: Any) -> None:
    assert list(Langfuse().read(observation(given, output))) == [Exchange(ASKED, SAID, "o")]


def test_langfuse_may_have_text() -> None:
    assert list(Langfuse().read(observation("7", "b"))) == [Exchange("7", "b", "o")]
    assert list(Langfuse().read(observation("7", "b") | {"type": "SPAN"})) == []


@pytest.mark.parametrize("text", ['{"title": "A", "content": "B"}', '{"name": "Bob"}', "[1, 2]", "[]", '"b"', "7"])
@pytest.mark.parametrize("given", [ASKED, "7"])
def test_an_answer_that_is_json_is_text(given: Any, text: str) -> None:
    (found,) = Langfuse().read(observation(given, text))
    assert found.output == (text if given == "7" else {"role": "assistant", "content": text})


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_part_of_an_answer(name: str) -> None:
    said = SAID | {"reasoning_content": "hm, so"}
    (found,) = LiteLLM().read({"messages": ASKED, "response": {"choices": [{"message": SAID | {name: "hm, so"}}]}})
    assert found.output == said
    (found,) = AIPerf().read(record(event({name: "hm, "}), event({name: "so"}), event({"content": "b"})))
    assert found.output == said


def test_litellm_may_have_text() -> None:
    row = {"id": "l", "messages": "a", "response": {"choices": [{"text": "b"}]}}
    assert list(LiteLLM().read(row)) == [Exchange("a", "b", "l")]
    row = {"id": "l", "messages": ASKED, "response": "b"}
    assert list(LiteLLM().read(row)) == [Exchange(ASKED, SAID, "l")]


def record(*responses: Any, **more: Any) -> dict[str, Any]:
    return {"metadata": {"x_request_id": "q"}, "payload": {"messages": ASKED}, "responses": list(responses)} | more


def event(delta: Any, **more: Any) -> dict[str, Any]:
    return {"perf_ns": 1, "packets": [{"name": "data", "value": json.dumps({"choices": [{"delta": delta}], **more})}]}


def test_aiperf_may_stream_ids() -> None:
    first = event({"content": ""}, prompt_token_ids=[1, 2])
    chunk = {"choices": [{"delta": {"content": "b"}, "token_ids": [3]}]}
    second = {"perf_ns": 2, "packets": [{"name": "data", "value": json.dumps(chunk)}]}
    assert list(AIPerf().read(record(first, second))) == [Exchange((1, 2), (3,), "q")]


@pytest.mark.parametrize(
    ("reader", "row", "reason"),
    [
        (LiteLLM(), {"messages": ASKED, "response": BODY, "status": "failure"}, "the request failed"),
        (LiteLLM(), {"messages": None, "response": BODY}, "messages is not a list"),
        (Langfuse(), observation(None, "b"), "prompt is not text"),
        (AIPerf(), record(error={"code": 500}), "the request failed"),
        (AIPerf(), record(), "export with --export-level raw"),
        (AIPerf(), record(event({"tool_calls": [{}]})), "without --streaming"),
        (AIPerf(), record({"text": "oops"}), "a response is not an object"),
    ],
)
def test_what_cannot_be_read_is_named(reader: Any, row: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        list(reader.read(row))
