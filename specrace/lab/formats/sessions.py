"""Sessions of coding agents: lines of one conversation, in which tools answer.

- Claude Code, ~/.claude/projects/*/*.jsonl: {"type": "user" | "assistant" | ..., "sessionId", "uuid", "parentUuid",
  "message": {"role", "content", "id"?}}, where content is text or blocks of type text, thinking, tool_use and
  tool_result (claude-dev.tools/docs/jsonl-format). A message may lie in several lines with one message.id
  (langfuse/claude-observability-plugin, pull request 8).
- Codex, ~/.codex/sessions/**/rollout-*.jsonl: {"timestamp", "type", "payload"} with the types session_meta,
  response_item, compacted, turn_context and event_msg (openai/codex, codex-rs/protocol/src/protocol.rs: RolloutLine,
  RolloutItem) and items message, function_call, function_call_output, ... (codex-rs/protocol/src/models.rs).

Neither file has the tools that the model was offered, nor Claude Code's system prompt, so prompts are shorter than they
were.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from specrace.lab.formats.base import (
    Exchange,
    Format,
    Message,
    Row,
    content_text,
    label,
    mapping,
    read_message,
    read_text,
    sequence,
)

# A longer history fits no model, and the memory must not grow with the file.
MAX_HISTORY = 16_000_000
# Codex's items with which the model calls a tool.
_CALLS = ("function_call", "custom_tool_call")


class AgentSession(Format):
    """A conversation that grows by messages; the assistant's parts become one message once another role speaks.

    A line that cannot be read leaves an empty message in the history. The answer to it, or of which it is a part, is
    history only: its prompt or its text is not known whole.
    """

    def __init__(self) -> None:
        self._history: list[Message] = []
        self._answer: Message | None = None
        self._size = 0
        self._name = ""
        self._broken = False

    def read(self, row: Row) -> Iterable[Exchange]:
        # All of the row first: whoever reads may stop at an exchange that cannot be used.
        found, reason = list[Exchange](), None
        try:
            found.extend(self._read(row))
        except ValueError as error:
            reason = error
            # A session that was too long has begun anew.
            if self._history or self._answer:
                found.extend(self._leave_out(self._role(row)))
        yield from found
        if reason is not None:
            raise reason

    def _read(self, row: Row) -> Iterable[Exchange]:
        raise NotImplementedError

    @staticmethod
    def _role(row: Row) -> object:
        """Whose line it is: "assistant" or another."""
        raise NotImplementedError

    def _leave_out(self, role: object) -> Iterable[Exchange]:
        if role == "assistant":
            self._answer = self._answer or {"role": "assistant", "content": ""}
        else:
            yield from self.end()
            self._history.append({"role": "user", "content": ""})
        self._broken = True

    def _begin(self, name: str) -> None:
        self._history, self._answer, self._size, self._name, self._broken = [], None, 0, name, False

    def _add(self, message: Message) -> Iterable[Exchange]:
        """Join a part of the assistant's to its message, or end that message with one of another role."""
        self._size += len(json.dumps(message))
        if self._size > MAX_HISTORY:
            self._begin(self._name)
            raise ValueError(f"the session is longer than {MAX_HISTORY // 1_000_000} MB of text; it is left here")
        if message["role"] != "assistant":
            ended = list(self.end())
            self._history.append(message)
            return ended
        if self._answer is None:
            self._answer = {"role": "assistant", "content": ""}
        self._answer["content"] += message["content"]
        for key in ("reasoning_content", "tool_calls"):
            if key in message:
                self._answer[key] = self._answer[key] + message[key] if key in self._answer else message[key]
        return ()

    def end(self) -> Iterable[Exchange]:
        answer, self._answer = self._answer, None
        if answer is None:
            return ()
        before, whole = list(self._history), not self._broken
        self._history.append(answer)
        self._broken = False
        return [Exchange(before, answer, self._name)] if before and whole else []


class ClaudeCode(AgentSession):
    """Lines of one or more sessions; one without a parent begins anew, and so does a compaction's summary."""

    name = "claude-code"
    title = "Claude Code sessions"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return "sessionId" in row and row.get("type") in ("user", "assistant") and "message" in row

    def __init__(self) -> None:
        super().__init__()
        self._part_of = ""

    def _read(self, row: Row) -> Iterable[Exchange]:
        speaks = row.get("type") in ("user", "assistant")
        # Before the summary stands a line of the system's, which then is its parent.
        compacted = row.get("subtype") == "compact_boundary" or row.get("isCompactSummary") is True
        # A subagent's lines are a conversation of their own, between those of the main one.
        if not (speaks or compacted) or row.get("isSidechain") or row.get("isApiErrorMessage"):
            return
        name = label(row, "sessionId")
        if compacted or name != self._name or row.get("parentUuid") is None:
            yield from self.end()
            self._begin(name)
        if not speaks:
            return
        given = mapping(row.get("message"), "message")
        part_of = label(given, "id")
        if row["type"] == "assistant" and part_of != self._part_of:
            yield from self.end()
        self._part_of = part_of
        for message in _claude_messages(row["type"], given.get("content")):
            yield from self._add(message)

    @staticmethod
    def _role(row: Row) -> object:
        return row.get("type")


def _claude_messages(role: str, content: object) -> list[Message]:
    """A line's content as chat messages: results of tools are messages of their own. Raises ValueError."""
    if isinstance(content, str):
        return [read_message({"role": role, "content": content})]
    message: Message = {"role": role, "content": ""}
    calls, results = [], []
    for each in sequence(content, "the content of a message"):
        block = mapping(each, "a block")
        kind = block.get("type")
        if kind == "tool_use":
            calls.append({"function": {"name": block.get("name"), "arguments": block.get("input")}})
        elif kind == "tool_result":
            results.append(read_message({"role": "tool", "content": block.get("content")}))
        elif kind == "thinking":
            message["reasoning_content"] = read_or_empty(block.get("thinking"))
        elif kind != "redacted_thinking":
            message["content"] += content_text([block])
    if calls or message["content"] or message.get("reasoning_content"):
        results.append(read_message(message | {"tool_calls": calls}))
    return results


def read_or_empty(value: Any) -> str:
    """A text that may be empty. Raises ValueError."""
    return "" if value == "" else read_text(value, "a block")


class Codex(AgentSession):
    """Lines of one or more rollouts."""

    name = "codex"
    title = "Codex rollouts"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return "payload" in row and row.get("type") in ("session_meta", "response_item", "turn_context", "event_msg")

    def _read(self, row: Row) -> Iterable[Exchange]:
        kind = row.get("type")
        if kind not in ("session_meta", "response_item", "compacted"):
            return
        payload = mapping(row.get("payload"), "payload")
        if kind == "response_item":
            message = _codex_message(payload)
            if message is not None:
                yield from self._add(message)
            return
        yield from self.end()
        if kind == "session_meta":
            self._begin(label(payload, "id"))
            instructions = payload.get("base_instructions") or payload.get("instructions")
            text = instructions.get("text") if isinstance(instructions, dict) else instructions
            if text:
                yield from self._add(read_message({"role": "system", "content": text}))
        else:
            # The rollout goes on from the summary, as an assistant's message (CompactedItem in protocol.rs).
            self._begin(self._name)
            self._history.append(read_message({"role": "assistant", "content": payload.get("message")}))

    @staticmethod
    def _role(row: Row) -> object:
        payload = row.get("payload")
        if not isinstance(payload, dict):
            return None
        return "assistant" if payload.get("type") in _CALLS else payload.get("role")


def _codex_message(item: Row) -> Message | None:
    """An item as a chat message; None for what no template shows, such as encrypted reasoning. Raises ValueError."""
    kind = item.get("type")
    if kind == "message":
        role = "system" if item.get("role") == "developer" else item.get("role")
        return read_message({"role": role, "content": item.get("content")})
    if kind in _CALLS:
        arguments = item.get("arguments" if kind == "function_call" else "input")
        call = {"function": {"name": item.get("name"), "arguments": arguments}}
        return read_message({"role": "assistant", "content": "", "tool_calls": [call]})
    if kind in ("function_call_output", "custom_tool_call_output"):
        output = item.get("output")
        output = output.get("content") if isinstance(output, dict) else output
        return read_message({"role": "tool", "content": output})
    return None
