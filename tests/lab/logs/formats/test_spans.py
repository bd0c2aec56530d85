"""Tracers' spans: the rarer shapes in which they hold a request and its answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specrace.lab.logs.formats.base import Exchange
from specrace.lab.logs.formats.spans import Spans
from specrace.lab.logs.transcripts import TranscriptFile
from tests.lab.parts import write

ASK = {"role": "user", "content": "a"}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}


def only(row: Any) -> Exchange:
    """The only exchange of a span."""
    assert Spans.looks_like(row)
    (exchange,) = Spans().read(row)
    return exchange


def event(name: str, **attributes: Any) -> dict[str, Any]:
    """An event of a span."""
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


READ_AND_WRITTEN = {"gen_ai.prompt": "a", "gen_ai.completion": "b"}


@pytest.mark.parametrize(
    ("kind", "is_call"),
    [
        ({}, True),
        ({"gen_ai.operation.name": "text_completion"}, True),
        ({"openinference.span.kind": "LLM"}, True),
        ({"gen_ai.operation.name": "invoke_model"}, True),
        ({"gen_ai.operation.name": "Converse"}, True),
        ({"gen_ai.operation.name": "invoke_agent"}, False),
        ({"gen_ai.operation.name": "execute_tool"}, False),
        ({"gen_ai.tool.name": "search"}, False),
        ({"openinference.span.kind": "CHAIN"}, False),
        ({"traceloop.span.kind": "workflow"}, False),
    ],
)
def test_only_calls_of_a_model_are_scored(kind: dict[str, str], is_call: bool) -> None:
    in_event = {"attributes": kind, "events": [event("gen_ai.client.inference", **READ_AND_WRITTEN)]}
    for row in ({"attributes": READ_AND_WRITTEN | kind}, in_event):
        assert (not only(row).left_out, only(row).output) == (is_call, "b" if is_call else "")


def test_a_span_that_is_not_a_call_leaves_no_field_unread(tmp_path: Path) -> None:
    words = "why does the bell ring twice"
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.prompt": words, "gen_ai.completion": words}
    log = TranscriptFile(write(tmp_path / "spans.jsonl", {"attributes": agent}))
    assert not list(log)
    assert [sentence.split(":")[0] for sentence in log.remarks.sentences()] == ["Left out (1 answers)"]


@pytest.mark.parametrize("written", ['{"answer": "b"}', '[{"city": "b"}]', "42", "[1, 2]"])
def test_json_that_a_model_wrote_stays_text(written: str) -> None:
    assert only({"attributes": {"gen_ai.prompt": "a", "gen_ai.completion": written}}).output == written
    events = [event("gen_ai.user.message", content="a"), event("gen_ai.choice", message=written)]
    assert only({"events": events}).output == {"role": "assistant", "content": written}


@pytest.mark.parametrize("name", ["gen_ai.prompt", "gen_ai.input.messages"])
def test_a_body_in_place_of_messages_is_unwrapped(name: str) -> None:
    body = json.dumps({"model": "m", "messages": [ASK]})
    written = json.dumps({"completion": "b", "reasoning": "c", "rawRequest": None})
    exchange = only({"attributes": {name: body, "gen_ai.completion": written}})
    assert exchange.prompt == [ASK]
    assert exchange.output == {"role": "assistant", "content": "b", "reasoning_content": "c"}
    own_json = json.dumps({"messages": ["a"], "completion": "b"})
    exchange = only({"attributes": {name: own_json, "gen_ai.completion": own_json}})
    assert (exchange.prompt, exchange.output) == (own_json, own_json)


def test_an_event_may_have_parts_as_json_text() -> None:
    call = {"toolUse": {"toolUseId": "c", "name": "f", "input": {"x": 1}}}
    events = [
        event("gen_ai.user.message", content='[{"text": "a"}]'),
        event("gen_ai.choice", message=json.dumps([{"text": "b"}, call])),
    ]
    exchange = only({"events": events})
    assert exchange.prompt[0]["content"] == "a"  # type: ignore[index]
    assert isinstance(exchange.output, dict)
    assert (exchange.output["content"], len(exchange.output["tool_calls"])) == ("b", 1)


@pytest.mark.parametrize(
    "row",
    [
        {"attributes": [{"key": ["a"], "value": 1}]},
        {"events": [event("gen_ai.content.prompt", **{"gen_ai.input.messages": "x"}), event("gen_ai.user.message")]},
        {"attributes": [{"key": "a", "value": {"kvlistValue": {"values": [{"key": ["b"]}, 1]}}}]},
    ],
)
def test_a_hostile_span_does_not_end_the_reading(row: Any, tmp_path: Path) -> None:
    log = TranscriptFile(write(tmp_path / "spans.jsonl", row), skip_bad=True)
    assert not list(log)
    assert log.skipped == 1


def test_parts_that_were_cut_off_are_refused() -> None:
    attributes = {"gen_ai.prompt.0.content": '[{"type": "text", "text": "Wh', "gen_ai.completion.0.content": "b"}
    with pytest.raises(ValueError, match="a message begins like messages"):
        only({"attributes": attributes})


def test_what_is_wrong_with_the_only_span_is_said_once() -> None:
    reader = Spans()
    with pytest.raises(ValueError, match="not what it wrote"):
        list(reader.read({"attributes": {"gen_ai.prompt": "a"}}))
    assert not list(reader.end())


def test_a_model_span_within_a_model_span_with_the_same_answer_is_left_out() -> None:
    def span(**ids: Any) -> dict[str, Any]:
        return {"attributes": {"gen_ai.input.messages": [ASK], "gen_ai.output.messages": [{"parts": ["b"]}]}} | ids

    outer = span(context={"trace_id": "t", "span_id": "1"}, parent_id="0")
    inner = span(context={"trace_id": "t", "span_id": "2"}, parent_id="1")
    other = span(context={"trace_id": "t", "span_id": "3"}, parent_id="0")
    reader = Spans()
    left_out = [bool(exchange.left_out) for row in (inner, outer, other) for exchange in reader.read(row)]
    assert left_out == [False, True, False]


def test_messages_that_an_event_repeats_count_once() -> None:
    messages = {"gen_ai.input.messages": [ASK], "gen_ai.output.messages": [{"parts": ["b"]}]}
    details = event("gen_ai.client.inference.operation.details", **messages)
    assert only({"attributes": messages, "events": [details]}) == only({"attributes": messages})
    numbered = {"gen_ai.prompt.0.content": "a", "gen_ai.completion.0.content": "b"}
    assert only({"attributes": numbered, "events": [details]}).prompt == [ASK]
    assert only({"attributes": {"gen_ai.request.model": "m"}, "events": [details]}).prompt == [ASK]
