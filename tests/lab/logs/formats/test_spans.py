"""Tracers' spans: the rarer shapes in which they hold a request and its answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specrace.lab.logs.formats.base import Exchange
from specrace.lab.logs.formats.spans import Spans

ASK = {"role": "user", "content": "a"}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}


def only(row: Any) -> Exchange:
    """The only exchange of a span."""
    assert Spans.looks_like(row)
    (exchange,) = Spans().read(row)
    return exchange


def event(name: str, **attributes: Any) -> dict[str, Any]:
    return {"name": name, "attributes": attributes}


@pytest.mark.parametrize(
    "events",
    [
        [
            event("gen_ai.content.prompt", **{"gen_ai.prompt": json.dumps([ASK])}),
            event("gen_ai.content.completion", **{"gen_ai.completion": '[{"role": "assistant", "content": "b"}]'}),
        ],
        [
            event("gen_ai.user.message", content="a"),
            event("gen_ai.choice", index=0, message='{"role": "assistant", "content": "b"}'),
        ],
    ],
)
def test_a_conversation_may_be_spread_over_several_events(events: list[Any]) -> None:
    row = {"name": "chat", "attributes": {"gen_ai.usage.output_tokens": 3}, "events": events}
    exchange = only(row)
    assert (exchange.prompt, exchange.output) == ([ASK], {"role": "assistant", "content": "b"})
    assert exchange.usage.output == 3


@pytest.mark.parametrize(
    "offered",
    [
        {"gen_ai.tool.definitions": json.dumps([TOOL])},
        {"ai.prompt.tools": [json.dumps(TOOL)]},
        {"llm.tools.0.tool.json_schema": json.dumps(TOOL)},
        {
            "llm.request.functions.0.name": "f",
            "llm.request.functions.0.description": "d",
            "llm.request.functions.0.parameters": '{"type": "object"}',
        },
    ],
)
def test_tools_are_offered_under_many_names(offered: Any) -> None:
    messages = {"gen_ai.input.messages": json.dumps([ASK]), "gen_ai.output.messages": "b"}
    assert only({"attributes": messages | offered}).tools == [TOOL]


def test_vercels_answer_has_attributes_of_its_own() -> None:
    calls = [{"toolCallId": "c", "toolName": "f", "args": '{"x": 1}'}]
    written = {"ai.response.text": "b", "ai.response.toolCalls": json.dumps(calls)}
    output = only({"attributes": {"ai.prompt.messages": json.dumps([ASK])} | written}).output
    assert isinstance(output, dict)
    assert (output["content"], output["tool_calls"][0]["function"]) == ("b", {"name": "f", "arguments": {"x": 1}})


def test_phoenix_nests_messages_and_their_calls() -> None:
    call = {"tool_call": {"function": {"name": "f", "arguments": '{"x": 1}'}}}
    written = {"message": {"role": "assistant", "tool_calls": [call]}}
    exchange = only({"attributes": {"llm": {"input_messages": [{"message": ASK}], "output_messages": [written]}}})
    assert exchange.prompt == [ASK]
    assert isinstance(exchange.output, dict)
    assert exchange.output["tool_calls"][0]["function"] == {"name": "f", "arguments": {"x": 1}}


def test_invocation_parameters_are_read_as_the_requests_parameters() -> None:
    attributes = {
        "llm.invocation_parameters": '{"presence_penalty": 1}',
        "gen_ai.prompt": "a",
        "gen_ai.completion": "b",
    }
    assert only({"attributes": attributes}).parameters["presence_penalty"] == 1
