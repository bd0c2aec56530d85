"""Messages in the shapes of many libraries: empty fields, content as JSON text, other names of calls."""

from __future__ import annotations

from typing import Any

import pytest

from specrace.lab.logs.formats.apis.messages import MessageReader

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
