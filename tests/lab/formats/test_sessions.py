"""Sessions of coding agents: tools, subagents, and where a new conversation starts."""

from __future__ import annotations

from typing import Any

import pytest

from specrace.lab.formats import sessions
from specrace.lab.formats.base import Exchange, Format
from specrace.lab.formats.sessions import ClaudeCode, Codex


def read(reader: Format, rows: list[dict[str, Any]]) -> list[Exchange]:
    return [exchange for row in rows for exchange in reader.read(row)] + list(reader.end())


def claude(role: str, content: Any, parent: str | None = "p", **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": content} | ({"id": more.pop("id", "m")} if role == "assistant" else {})
    return {"type": role, "sessionId": "s", "parentUuid": parent, "uuid": "u", "message": message} | more


USE = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "a.txt"}]}


def test_a_tools_result_ends_a_turn_and_begins_the_next() -> None:
    rows = [
        claude("user", "list", None),
        claude("assistant", [{"type": "thinking", "thinking": "hm", "signature": "x"}]),
        claude("assistant", [{"type": "text", "text": "I look."}]),
        claude("assistant", [USE]),
        claude("user", [RESULT]),
        claude("assistant", [{"type": "text", "text": "One file."}], id="n"),
    ]
    first, second = read(ClaudeCode(), rows)
    call = {"type": "function", "function": {"name": "Bash", "arguments": {"command": "ls"}}}
    turn = {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": [call]}
    assert (first.prompt, first.output) == ([{"role": "user", "content": "list"}], turn)
    assert second.prompt == [*first.prompt, turn, {"role": "tool", "content": "a.txt"}]
    assert (second.output, second.id) == ({"role": "assistant", "content": "One file."}, "s")


def test_subagents_and_api_errors_are_left_out_of_a_session() -> None:
    rows = [
        claude("user", "a", None),
        claude("user", "b", None, isSidechain=True),
        claude("assistant", "c", isSidechain=True),
        claude("assistant", "API Error", isApiErrorMessage=True),
        claude("assistant", "d"),
    ]
    (only,) = read(ClaudeCode(), rows)
    assert only.prompt == [{"role": "user", "content": "a"}]


def test_a_line_without_a_parent_starts_a_new_conversation() -> None:
    rows = [
        claude("user", "a", None),
        claude("assistant", "b"),
        claude("user", "c", None),
        claude("assistant", "d", id="n"),
    ]
    assert [exchange.prompt for exchange in read(ClaudeCode(), rows)] == [
        [{"role": "user", "content": text}] for text in "ac"
    ]


def test_a_compaction_starts_a_new_conversation_with_its_summary() -> None:
    rows = [
        claude("user", "a", None),
        claude("assistant", "b"),
        {"type": "system", "subtype": "compact_boundary", "sessionId": "s", "uuid": "c", "parentUuid": None},
        claude("user", "They said a and b.", "c", isCompactSummary=True),
        claude("assistant", "d", id="n"),
    ]
    first, second = read(ClaudeCode(), rows)
    assert (first.prompt, first.output) == ([{"role": "user", "content": "a"}], {"role": "assistant", "content": "b"})
    assert second.prompt == [{"role": "user", "content": "They said a and b."}]
    # Also without the line before the summary.
    assert read(ClaudeCode(), rows[:2] + rows[3:]) == [first, second]


def test_an_answer_after_an_unreadable_line_is_not_scored() -> None:
    picture = {"type": "input_image", "image_url": "data:"}
    rows = [
        codex_message("user", "a"),
        codex_message("assistant", "b"),
        codex("response_item", type="message", role="user", content=[picture]),
        codex_message("assistant", "c"),
        codex_message("user", "d"),
        codex_message("assistant", "e"),
        codex("response_item", type="function_call", name=7, arguments="{}"),
        codex_message("user", "f"),
        codex_message("assistant", "g"),
    ]
    reader, exchanges, bad = Codex(), [], []
    for number, row in enumerate(rows):
        try:
            for exchange in reader.read(row):
                exchanges.append(exchange)
        except ValueError:
            bad.append(number)
    exchanges += reader.end()
    assert bad == [2, 6] and [exchange.output["content"] for exchange in exchanges] == ["b", "g"]  # type: ignore[index]
    assert [message["content"] for message in exchanges[1].prompt] == ["a", "b", "", "c", "d", "e", "f"]  # type: ignore[index]


def codex(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "t", "type": kind, "payload": payload}


def codex_message(role: str, text: str) -> dict[str, Any]:
    return codex("response_item", type="message", role=role, content=[{"type": "output_text", "text": text}])


def test_a_codex_turn_joins_text_and_tool_calls() -> None:
    rows = [
        codex("session_meta", id="s", base_instructions={"text": "Be brief."}),
        codex_message("user", "list"),
        codex("response_item", type="reasoning", summary=[], encrypted_content="x"),
        codex_message("assistant", "I look."),
        codex("response_item", type="function_call", name="shell", arguments='{"command": ["ls"]}', call_id="c"),
        codex("response_item", type="function_call_output", call_id="c", output="a.txt"),
        codex_message("assistant", "One file."),
        codex("compacted", message="They listed files."),
        codex_message("user", "and now"),
        codex_message("assistant", "Done."),
    ]
    first, second, third = read(Codex(), rows)
    assert first.prompt == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "list"}]
    assert isinstance(first.output, dict) and first.output["tool_calls"][0]["function"]["name"] == "shell"
    assert second.prompt[-1] == {"role": "tool", "content": "a.txt"}
    assert third.prompt[0] == {"role": "assistant", "content": "They listed files."}
    assert {exchange.id for exchange in (first, second, third)} == {"s"}


def test_a_session_that_is_too_long_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_HISTORY", 300)
    reader = Codex()
    with pytest.raises(ValueError, match="the session is longer than"):
        read(reader, [codex_message("user", "a" * 50) for _ in range(9)])
    assert [
        exchange.prompt for exchange in read(reader, [codex_message("user", "b"), codex_message("assistant", "c")])
    ] == [[{"role": "user", "content": "b"}]]
