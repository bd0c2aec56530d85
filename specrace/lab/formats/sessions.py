"""Sessions of coding agents: a conversation spread over many lines, with the results of tools.

- Claude Code, ~/.claude/projects/*/*.jsonl: {"type": "user" | "assistant" | ..., "sessionId", "uuid", "parentUuid",
  "message": {"role", "content", "id"?}}, where content is text or blocks of type text, thinking, tool_use and
  tool_result (claude-dev.tools/docs/jsonl-format). A message may span several lines that share a message.id
  (langfuse/claude-observability-plugin, pull request 8).
- Codex, ~/.codex/sessions/**/rollout-*.jsonl: {"timestamp", "type", "payload"} with the types session_meta,
  response_item, compacted, turn_context and event_msg (openai/codex, codex-rs/protocol/src/protocol.rs: RolloutLine,
  RolloutItem) and items message, function_call, function_call_output, ... (codex-rs/protocol/src/models.rs).

Neither file has the tools that the model was offered, and Claude Code's lacks the system prompt, so prompts are shorter
here than the model's were.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from specrace.lab.formats.base import (
    Exchange,
    Format,
    Message,
    Row,
    content_text,
    read_label,
    read_message,
    read_text,
    require_list,
    require_object,
)

# In characters of JSON. A longer history fits no model, and memory must not grow with the file.
MAX_HISTORY = 16_000_000
# The types of Codex's items in which the model calls a tool.
_CALLS = ("function_call", "custom_tool_call")


class AgentSession(Format):
    """A conversation that grows line by line; the assistant's parts become one message when another role speaks.

    A line that cannot be read leaves an empty message in the history. An answer that includes or follows it
    is kept as history but not scored, because its text or its prompt is incomplete.
    """

    def __init__(self) -> None:
        self._history: list[Message] = []
        self._answer: Message | None = None
        self._size = 0
        self._name = ""
        self._broken = False

    def read(self, row: Row) -> Iterable[Exchange]:
        # Read the whole row before the first yield: a caller may stop at an exchange that it cannot use.
        exchanges = list[Exchange]()
        reason = None
        try:
            exchanges.extend(self._read(row))
        except ValueError as error:
            reason = error
            # After a session that was too long there is no history to repair.
            if self._history or self._answer:
                exchanges.extend(self._leave_out(self._role(row)))
        yield from exchanges
        if reason is not None:
            raise reason

    @abstractmethod
    def _read(self, row: Row) -> Iterable[Exchange]:
        """The exchanges that this row completes. Raises ValueError for a row that cannot be used."""

    @staticmethod
    @abstractmethod
    def _role(row: Row) -> object:
        """The role that wrote this line, "assistant" or another."""

    def _leave_out(self, role: object) -> Iterable[Exchange]:
        """Put an empty message in place of a line by `role` that could not be read."""
        if role == "assistant":
            self._answer = self._answer or {"role": "assistant", "content": ""}
        else:
            yield from self.end()
            self._history.append({"role": "user", "content": ""})
        self._broken = True

    def _begin(self, name: str) -> None:
        """Start a new conversation."""
        self._history = []
        self._answer = None
        self._size = 0
        self._name = name
        self._broken = False

    def _add(self, message: Message) -> Iterable[Exchange]:
        """Append a message: join the assistant's to its last one, or complete that one if another role speaks."""
        self._size += len(json.dumps(message))
        if self._size > MAX_HISTORY:
            self._begin(self._name)
            raise ValueError(f"the session is longer than {MAX_HISTORY // 1_000_000} MB of text; it is left here")
        if message["role"] != "assistant":
            completed = list(self.end())
            self._history.append(message)
            return completed
        if self._answer is None:
            self._answer = {"role": "assistant", "content": ""}
        self._answer["content"] += message["content"]
        for key in ("reasoning_content", "tool_calls"):
            if key in message:
                self._answer[key] = self._answer[key] + message[key] if key in self._answer else message[key]
        return ()

    def end(self) -> Iterable[Exchange]:
        answer = self._answer
        if answer is None:
            return ()
        prompt = list(self._history)
        usable = prompt and not self._broken
        self._history.append(answer)
        self._answer = None
        self._broken = False
        return [Exchange(prompt, answer, self._name)] if usable else []


class ClaudeCode(AgentSession):
    """One or more sessions; a line without a parent starts a new conversation, and so does a compaction's summary."""

    name = "claude-code"
    title = "Claude Code sessions"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return "sessionId" in row and row.get("type") in ("user", "assistant") and "message" in row

    def __init__(self) -> None:
        super().__init__()
        self._message_id = ""

    def _read(self, row: Row) -> Iterable[Exchange]:
        speaks = row.get("type") in ("user", "assistant")
        # A summary is preceded by a line of the system, which is its parent.
        compacted = row.get("subtype") == "compact_boundary" or row.get("isCompactSummary") is True
        # A subagent's lines are a conversation of their own, interleaved with the main one.
        if not (speaks or compacted) or row.get("isSidechain") or row.get("isApiErrorMessage"):
            return
        name = read_label(row, "sessionId")
        if compacted or name != self._name or row.get("parentUuid") is None:
            yield from self.end()
            self._begin(name)
        if not speaks:
            return
        logged = require_object(row.get("message"), "message")
        message_id = read_label(logged, "id")
        if row["type"] == "assistant" and message_id != self._message_id:
            yield from self.end()
        self._message_id = message_id
        for message in _claude_messages(row["type"], logged.get("content")):
            yield from self._add(message)

    @staticmethod
    def _role(row: Row) -> object:
        return row.get("type")


def _claude_messages(role: str, content: object) -> list[Message]:
    """A line's content as chat messages; each tool's result becomes a message of its own. Raises ValueError."""
    if isinstance(content, str):
        return [read_message({"role": role, "content": content})]
    message: Message = {"role": role, "content": ""}
    calls, results = [], []
    for part in require_list(content, "the content of a message"):
        block = require_object(part, "a block")
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
    """`value` as text, which may be empty. Raises ValueError."""
    return "" if value == "" else read_text(value, "a block")


class Codex(AgentSession):
    """One or more rollouts."""

    name = "codex"
    title = "Codex rollouts"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return "payload" in row and row.get("type") in ("session_meta", "response_item", "turn_context", "event_msg")

    def _read(self, row: Row) -> Iterable[Exchange]:
        kind = row.get("type")
        if kind not in ("session_meta", "response_item", "compacted"):
            return
        payload = require_object(row.get("payload"), "payload")
        if kind == "response_item":
            message = _codex_message(payload)
            if message is not None:
                yield from self._add(message)
            return
        yield from self.end()
        if kind == "session_meta":
            self._begin(read_label(payload, "id"))
            instructions = payload.get("base_instructions") or payload.get("instructions")
            text = instructions.get("text") if isinstance(instructions, dict) else instructions
            if text:
                yield from self._add(read_message({"role": "system", "content": text}))
        else:
            # A compaction replaces the history by a summary, a message of the assistant (CompactedItem in protocol.rs).
            self._begin(self._name)
            self._history.append(read_message({"role": "assistant", "content": payload.get("message")}))

    @staticmethod
    def _role(row: Row) -> object:
        payload = row.get("payload")
        if not isinstance(payload, dict):
            return None
        return "assistant" if payload.get("type") in _CALLS else payload.get("role")


def _codex_message(item: Row) -> Message | None:
    """An item as a chat message; None for items that no chat template shows, such as encrypted reasoning.

    Raises ValueError.
    """
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
