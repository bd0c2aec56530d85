"""Messages in the shapes of many libraries: empty fields, content as JSON text, other names of calls."""

from __future__ import annotations

from typing import Any

import pytest

from specrace.lab.logs.formats.apis.messages import MessageReader, is_message

ASK = {"role": "user", "content": "a"}


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "a", "thinking": None},
        {"text": "a", "toolResult": None},
        {"function_response": None, "thought": None, "inline_data": None, "text": "a"},
        {"image": None, "toolUse": None, "text": "a"},
    ],
)
def test_empty_fields_do_not_change_what_a_part_is(part: dict[str, Any]) -> None:
    reader = MessageReader()
    assert reader.read({"role": "user", "content": [part]}) == [ASK]
    assert not reader.warnings


def test_a_call_or_a_result_may_have_empty_fields_before_the_filled_ones() -> None:
    call = {"function_call": {"input": None, "args": {"x": 1}, "name": "f"}, "text": None}
    result = {"function_response": {"content": None, "response": "r", "name": "f"}, "text": None}
    called, *_ = MessageReader().read({"role": "model", "parts": [call]})
    answered, *_ = MessageReader().read({"role": "user", "parts": [result]})
    assert called["tool_calls"][0]["function"] == {"name": "f", "arguments": {"x": 1}}
    assert answered == {"role": "tool", "content": "r", "name": "f"}


PARTS = '[{"type": "text", "text": "a"}]'


@pytest.mark.parametrize(
    ("role", "content", "text"),
    [
        ("user", PARTS, "a"),
        ("tool", PARTS, PARTS),
        ("user", '[{"type": "invoice", "text": "a"}]', '[{"type": "invoice", "text": "a"}]'),
        ("user", '[{"text": "a"}]', '[{"text": "a"}]'),
        ("user", "[]", "[]"),
    ],
)
def test_parts_may_be_written_as_json_text(role: str, content: str, text: str) -> None:
    assert MessageReader().read({"role": role, "content": content}) == [{"role": role, "content": text}]


def test_an_image_in_json_text_is_refused() -> None:
    content = '[{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]'
    with pytest.raises(ValueError, match="a part of type image_url; only text"):
        MessageReader().read({"role": "user", "content": content})


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "b", "toolCalls": [CALL]},
        {"role": "assistant", "content": "b", "tool_calls": [{"id": "c", "function": "f", "arguments": {"x": 1}}]},
        {"type": "ai", "content": "b", "tool_calls": [], "additional_kwargs": {"tool_calls": [CALL]}},
        {"type": "ai", "data": {"content": "b", "additional_kwargs": {"tool_calls": [CALL]}}},
    ],
)
def test_calls_are_read_under_other_names(message: dict[str, Any]) -> None:
    (called,) = MessageReader().read(message)
    (call,) = called["tool_calls"]
    assert (called["role"], called["content"], call["id"]) == ("assistant", "b", "c")
    assert call["function"] == {"name": "f", "arguments": {"x": 1}}


def test_the_id_of_a_call_has_another_name_in_its_result() -> None:
    result = {"role": "tool", "content": "r", "toolCallId": "c"}
    assert MessageReader().read(result) == [{"role": "tool", "content": "r", "tool_call_id": "c"}]


@pytest.mark.parametrize("more", [{}, {"content": None}, {"cache_control": {"type": "ephemeral"}}, {"content": []}])
def test_a_tools_result_may_be_empty(more: dict[str, Any]) -> None:
    result = {"type": "tool_result", "tool_use_id": "c"} | more
    assert MessageReader().read({"role": "user", "content": [result]}) == [
        {"role": "tool", "content": "", "tool_call_id": "c"}
    ]


def test_a_tools_result_in_a_field_that_is_not_known_is_reported() -> None:
    result = {"type": "tool_result", "toolUseID": "c", "run": {"result": {"output": "r"}}}
    with pytest.raises(ValueError, match="a tool's result has no content, but run"):
        MessageReader().read({"role": "user", "content": [result]})


def test_a_message_that_a_web_page_keeps_is_refused() -> None:
    message = {"role": "assistant", "content": "b", "toolInvocations": [{"state": "result", "toolName": "f"}]}
    with pytest.raises(ValueError, match="toolInvocations, in which a web page"):
        MessageReader().read(message)


def test_a_message_may_have_its_fields_under_data() -> None:
    assert is_message({"type": "human", "data": {"content": "a"}})
    assert MessageReader().read({"type": "human", "data": {"content": "a"}}) == [ASK]
