"""Conversations: which turns count, and which messages cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from specrace.lab.formats.chats import OpenAIChat, ShareGPT

USER, ANSWER = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}


def test_each_turn_has_its_own_history() -> None:
    first, second = OpenAIChat().read({"messages": [USER, ANSWER, USER, ANSWER], "id": 7, "category": "qa"})
    assert first.prompt == [USER] and second.prompt == [USER, ANSWER, USER]
    assert (first.output, first.id, first.category) == (ANSWER, "7", "qa")


def test_an_opening_assistant_turn_is_only_history() -> None:
    turns = [{"from": "gpt", "value": "x"}, {"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
    (only,) = ShareGPT().read({"conversations": turns})
    assert only.prompt == [{"role": "assistant", "content": "x"}, USER]


def test_content_parts_and_tool_calls_are_read() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    question = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    result = {"role": "tool", "tool_call_id": "c", "content": "3"}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    tools = [{"type": "function", "function": {"name": "f"}}]
    first, second = OpenAIChat().read({"messages": [question, calling, result, ANSWER], "tools": tools})
    assert first.prompt == [{"role": "user", "content": "ab"}]
    assert isinstance(first.output, dict) and first.output["tool_calls"][0]["function"]["arguments"] == {"x": 1}
    assert second.prompt[-1] == result and second.tools == tools


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "messages is empty"),
        ([USER], "never answers"),
        ("a", "messages is not a list"),
        ([1], "a message is not an object"),
        ([{"content": "a"}, ANSWER], "role of a message is not text"),
        ([{"role": "user", "content": 3}, ANSWER], "content of a message is not a list"),
        ([{"role": "user", "content": [{"type": "image_url"}]}, ANSWER], "part of type image_url; only text"),
        ([{"role": "user", "content": "\ud800"}, ANSWER], "half a character"),
        ([USER, ANSWER | {"tool_calls": [{}]}], "function of a tool call is not an object"),
    ],
)
def test_an_unreadable_conversation_is_reported(messages: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        list(OpenAIChat().read({"messages": messages}))


def test_an_unknown_speaker_is_reported() -> None:
    with pytest.raises(ValueError, match="a turn is from narrator; known are human"):
        list(ShareGPT().read({"conversations": [{"from": "narrator", "value": "a"}]}))
