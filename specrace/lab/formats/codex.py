"""Codex's rollouts, ~/.codex/sessions/**/rollout-*.jsonl.

A line is {"timestamp", "type", "payload"}; the types that tell what the model read and wrote are session_meta,
response_item, compacted, inter_agent_communication, event_msg and token_usage_record (openai/codex,
codex-rs/protocol/src/protocol.rs: RolloutLine, RolloutItem; models.rs: ResponseItem). Rollouts of 2025 have the items
without an envelope, after a first line {"id", "timestamp", "instructions"}.

The history is built as Codex builds it to resume a session (codex-rs/core/src/session/rollout_reconstruction.rs and
context_manager/history.rs): thread_rolled_back takes back the last turns of the user; a compaction replaces the history
by its replacement_history, or else by the user's messages and the summary. A fork begins with a copy of its parent's
lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from specrace.core.errors import shorten
from specrace.lab.formats import sessions
from specrace.lab.formats.apis.messages import HIDDEN_REASONING, tool_call
from specrace.lab.formats.base import Exchange, Message, Row, Usage, read_label, read_text, require_list, require_object
from specrace.lab.formats.sessions import (
    ENCRYPTED,
    HIDDEN_RESULTS,
    INTERRUPTED,
    LOST,
    OWN_MEDIA,
    TOO_LONG,
    UNREADABLE,
    AgentSession,
    TooLong,
    digest_of,
    extend,
    left_out,
    read_content,
    read_count,
    size_of,
    tool_result,
)

_LINES = (
    "session_meta",
    "response_item",
    "compacted",
    "turn_context",
    "event_msg",
    "inter_agent_communication",
    "token_usage_record",
)
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_COMPACTIONS = ("compaction", "compaction_summary", "context_compaction")
# The types of items that the model writes, besides messages of the assistant.
_WRITTEN = (
    "reasoning",
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "tool_search_call",
    "web_search_call",
    "image_generation_call",
)
# How the texts begin that Codex itself puts before a turn of the user (codex-rs/core/src: event_mapping.rs, context/).
_CONTEXT = {
    "user": (
        "# agents.md instructions",
        "<user_instructions>",
        "<environment_context>",
        "<additional_context>",
        "<extension_context>",
        "<skill>",
        "<user_shell_command>",
        "<turn_aborted>",
        "<subagent_notification>",
        "<goal_context>",
        "<codex_internal_context",
        "<recommended_plugins>",
        "<hook_prompt",
    ),
    "developer": (
        "<permissions instructions>",
        "<model_switch>",
        "<collaboration_mode>",
        "<multi_agent_mode>",
        "<realtime_conversation>",
        "<skills_instructions>",
        "<plugins_instructions>",
        "<personality_spec>",
        "<token_budget>",
    ),
}
# The fields of an item without an envelope; other objects of type "message" are responses of an API.
_BARE = {"type", "id", "role", "content", "status", "phase", "timestamp"}
# How many characters of the user's messages a compaction without replacement_history keeps: 20,000 tokens of 4
# (codex-rs/core/src/compact.rs, COMPACT_USER_MESSAGE_MAX_TOKENS; utils/string, APPROX_BYTES_PER_TOKEN).
_KEPT_CHARACTERS = 80_000


@dataclass
class _Item:
    """A message of the history, or an item that is only a fault: why no answer after it can be scored.

    `line`: its line in the rollout. `starts_turn`: whether a rollback may go back to it. `is_context`: whether it goes
    with the turn after it. `is_summary`: whether it is a compaction's. Of the history up to it: `digest`, `has_ids`,
    whether calls have ids, and `first_fault`.
    """

    message: Message | None
    line: int
    fault: str = ""
    starts_turn: bool = False
    is_context: bool = False
    is_summary: bool = False
    digest: bytes = b""
    has_ids: bool = False
    first_fault: str = ""

    def follow(self, before: _Item | None) -> None:
        """Note what the history up to this item is, which `before` ends."""
        before = before or _START
        self.digest = digest_of([before.digest.hex(), self.message])
        self.has_ids = before.has_ids or _has_ids(self.message or {})
        self.first_fault = before.first_fault or self.fault


_START = _Item(None, 0)


@dataclass
class _Answer:
    """What the model has written since the last item that it did not write; `line` is the first."""

    line: int
    message: Message = field(default_factory=lambda: {"role": "assistant", "content": ""})
    warnings: dict[str, None] = field(default_factory=dict)
    fault: str = ""
    usage: Usage | None = None

    def add(self, other: _Answer) -> None:
        extend(self.message, other.message)
        self.warnings |= other.warnings
        self.fault = self.fault or other.fault


class Codex(AgentSession):
    """One or more rollouts, one after the other."""

    name = "codex"
    title = "Codex rollouts"

    @staticmethod
    def looks_like(row: Row) -> bool:
        if "payload" in row:
            return row.get("type") in _LINES
        # Without an envelope.
        if {"id", "timestamp", "instructions"} <= row.keys() or row.get("record_type") == "state":
            return True
        return row.get("type") == "message" and isinstance(row.get("content"), list) and row.keys() <= _BARE

    def __init__(self) -> None:
        super().__init__()
        self._begin("")

    def _begin(self, name: str) -> None:
        """Start a new session."""
        self._name = name
        # The session and those that it was forked from.
        self._lineage = {name}
        self._root = name
        self._system: Message | None = None
        self._user_instructions = ""
        self._history: list[_Item] = []
        # The lines of its compactions, and the history before the last one.
        self._compactions: list[int] = []
        self._before_compaction: list[_Item] | None = None
        self._answer: _Answer | None = None
        self._size = 0
        self._line = 0
        # The usage that was told before the answer of which it is, and the last total, by which repetitions are known.
        self._usage: Usage | None = None
        self._total: Any = None

    def _read(self, row: Row) -> None:
        kind, payload = _unwrapped(row)
        if kind == "session_meta":
            self._read_meta(payload)
        self._line += 1
        if kind == "response_item":
            self._read_item(payload)
        elif kind == "compacted":
            self._compact(payload)
        elif kind == "inter_agent_communication":
            self._append(_told(payload, self._line))
        elif kind == "token_usage_record":
            self._count(payload.get("usage"))
        elif kind == "event_msg":
            self._read_event(payload)

    def _lose(self, row: Row) -> None:
        payload = row.get("payload", row)
        written = isinstance(payload, dict) and (payload.get("type") in _WRITTEN or payload.get("role") == "assistant")
        if written:
            self._answer = self._answer or _Answer(self._line)
            self._answer.fault = UNREADABLE
        else:
            self._append(_Item(None, self._line, UNREADABLE))

    def missed(self) -> None:
        if self._answer is not None:
            self._answer.fault = UNREADABLE
        self._append(_Item(None, self._line, UNREADABLE))

    def _end(self) -> None:
        self._complete()

    def _read_meta(self, meta: Row) -> None:
        """Begin a session, unless this line is of a session that the current one was forked from. Raises ValueError."""
        name, parent = read_label(meta, "id"), read_label(meta, "forked_from_id")
        begun = self._history or self._answer
        if begun and name not in self._lineage:
            self._complete()
            self._begin(name)
        elif not self._name:
            self._begin(name)
        self._lineage |= {name, parent}
        if not (self._history or self._answer):
            self._root = parent or name
        if meta.get("history_base"):
            self._push(_Item(None, self._line, LOST))
        instructions = meta.get("base_instructions") or meta.get("instructions")
        text = instructions.get("text") if isinstance(instructions, dict) else instructions
        if text and self._system is None:
            self._system = {"role": "system", "content": read_text(text, "the instructions")}
            # Those of the user, which rollouts of 2025 also have as a message, as the model read them.
            self._user_instructions = "" if meta.get("base_instructions") else text

    def _read_item(self, item: Row) -> None:
        """Add an item to the answer or to the history. Raises ValueError."""
        if _is_written(item):
            if self._answer is None:
                self._answer, self._usage = _Answer(self._line, usage=self._usage), None
            part = _read_written(item, self._line)
            self._grow([part.message])
            self._answer.add(part)
        elif (read := _read_given(item, self._line)) is not None:
            self._append(read)

    def _append(self, item: _Item) -> None:
        """Add an item that the model did not write. Raises ValueError for a session that is too long."""
        self._complete()
        if item.message is not None:
            self._grow([item.message])
        if item.starts_turn:
            self._usage = None
        instructions = self._user_instructions
        if item.is_context and item.message and instructions and instructions in item.message["content"]:
            self._system = None
        self._push(item)

    def _push(self, item: _Item) -> None:
        item.follow(self._history[-1] if self._history else None)
        self._history.append(item)

    def _grow(self, messages: list[Message]) -> None:
        self._size += size_of(messages)
        if self._size > sessions.MAX_HISTORY:
            self._set_history([_Item(None, self._line, TOO_LONG)])
            self._before_compaction = self._answer = None
            self._size = 0
            raise TooLong

    def _complete(self) -> None:
        """Append the exchange of the answer, if there is one, and put it into the history."""
        answer, self._answer = self._answer, None
        if answer is None:
            return
        message = answer.message
        written = any(message.get(name) for name in ("content", "reasoning_content", "tool_calls"))
        prompt = [item.message for item in self._history if item.message is not None]
        last = self._history[-1] if self._history else _START
        reason = last.first_fault or answer.fault or ("" if prompt else LOST)
        # A copy has the same conversation before it. The ids of its calls tell it from other sessions', or else the
        # session that was forked first: when Codex resumed a session in 2025, it copied it without saying from where.
        has_ids = last.has_ids or _has_ids(message)
        key = digest_of([last.digest.hex(), message, "" if has_ids else self._root]).hex()
        if reason and (written or answer.fault):
            self._completed.append(left_out(self._name, reason, key))
        elif written:
            prompt = [*([self._system] if self._system else []), *prompt]
            usage, warnings = answer.usage or Usage(), tuple(answer.warnings)
            self._completed.append(Exchange(prompt, message, self._name, usage=usage, warnings=warnings, key=key))
        if written or answer.fault:
            # What the model answers with may be what makes the later prompts unusable.
            self._push(_Item(message if written else None, answer.line, answer.fault))

    def _set_history(self, items: list[_Item]) -> None:
        self._history = []
        for item in items:
            self._push(item)

    def _compact(self, payload: Row) -> None:
        """Replace the history by that of a compaction. Raises ValueError."""
        self._complete()
        replacement = payload.get("replacement_history")
        if replacement is None:
            kept = _summarised(self._history, payload, self._line)
        else:
            kept = _read_history(require_list(replacement, "replacement_history"), self._line)
        self._before_compaction = self._history
        self._set_history(kept)
        self._compactions.append(self._line)
        self._size = 0
        self._grow([item.message for item in kept if item.message is not None])

    def _read_event(self, event: Row) -> None:
        kind = event.get("type")
        if kind == "token_count":
            info = event.get("info")
            total = info.get("total_token_usage") if isinstance(info, dict) else self._total
            # The event is repeated when only the limits of the account change.
            if total is None or total != self._total:
                self._total = total
                self._count(info.get("last_token_usage") if isinstance(info, dict) else None)
        elif kind == "thread_rolled_back":
            self._roll_back(event)
        elif kind == "turn_aborted" and self._answer is not None:
            self._answer.warnings[INTERRUPTED] = None
            self._complete()

    def _count(self, usage: object) -> None:
        """Note a usage: of the answer that was just written, or else, in rollouts of 2025, of the next one."""
        if not isinstance(usage, dict):
            return
        counted = Usage(
            prompt=read_count(usage, "input_tokens"),
            output=read_count(usage, "output_tokens"),
            reasoning=read_count(usage, "reasoning_output_tokens"),
        )
        if self._answer is not None:
            self._answer.usage = counted
        else:
            self._usage = counted

    def _roll_back(self, event: Row) -> None:
        """Take back the last turns of the user. Raises ValueError."""
        self._complete()
        start, count = event.get("rollback_start_index"), event.get("num_turns")
        if type(start) is int:
            while self._compactions and start < self._compactions[-1]:
                self._undo_compaction()
            self._history = [item for item in self._history if item.line <= start]
        elif type(count) is int:
            while self._compactions and count > (later := self._turns_since(self._compactions[-1])):
                self._undo_compaction()
                count -= later
            self._history = _without_turns(self._history, count)
        else:
            raise ValueError(f"thread_rolled_back does not say how many turns ({shorten(count, 20)})")
        self._size = size_of(item.message for item in self._history if item.message is not None)

    def _turns_since(self, line: int) -> int:
        return sum(item.starts_turn and item.line > line for item in self._history)

    def _undo_compaction(self) -> None:
        """Go back to the history before the last compaction, if it is still in memory."""
        self._compactions.pop()
        lost = [_Item(None, self._compactions[-1] if self._compactions else 0, LOST)]
        before, self._before_compaction = self._before_compaction, None
        self._set_history(lost if before is None else before)


def _unwrapped(row: Row) -> tuple[object, Row]:
    """The type of a line and what it holds. Raises ValueError."""
    kind = row.get("type")
    if "payload" in row:
        return kind, require_object(row["payload"], "payload")
    if kind in _LINES or row.get("record_type") is not None:
        return kind, row
    return ("session_meta" if kind is None and "id" in row else "response_item"), row


def _has_ids(message: Message) -> bool:
    return any("id" in call for call in message.get("tool_calls", ()))


def _is_written(item: Row) -> bool:
    """Whether the model wrote an item."""
    return item.get("type") in _WRITTEN or (item.get("type") == "message" and item.get("role") == "assistant")


def _read_written(item: Row, line: int) -> _Answer:
    """An item that the model wrote, as a part of an answer. Raises ValueError."""
    part = _Answer(line)
    kind, call = item["type"], item.get("call_id") or item.get("id")
    if kind == "message":
        part.message["content"], fault = read_content(item.get("content"))
        if fault:
            raise ValueError("an answer has an image; only text can be scored")
    elif kind == "reasoning":
        # The summary of the reasoning is not what the model wrote.
        text, _ = read_content(item.get("content"))
        if text:
            part.message["reasoning_content"] = text
        elif item.get("encrypted_content") or item.get("summary"):
            part.warnings[HIDDEN_REASONING] = None
    elif kind == "image_generation_call":
        part.fault = OWN_MEDIA
    elif kind == "web_search_call":
        # The server searches and gives the results to the model, which writes on.
        part.message["tool_calls"] = [_call(call, "web_search", item.get("action"))]
        part.warnings[HIDDEN_RESULTS] = None
    else:
        names = {"local_shell_call": "local_shell", "tool_search_call": "tool_search"}
        arguments = next((item[key] for key in ("arguments", "input", "action") if key in item), None)
        part.message["tool_calls"] = [_call(call, item.get("name") or names.get(kind), arguments)]
        if kind == "custom_tool_call" and isinstance(arguments, str):
            # The model wrote text, which may happen to be JSON.
            part.message["tool_calls"][0]["function"]["arguments"] = arguments
    return part


def _call(identifier: object, name: object, arguments: Any) -> Row:
    return tool_call({"id": identifier, "function": {"name": name, "arguments": arguments}})


def _read_given(item: Row, line: int) -> _Item | None:
    """An item that the model did not write; None for one that it does not see. Raises ValueError."""
    kind = item.get("type")
    if kind == "message":
        role = read_text(item.get("role"), "the role of a message")
        text, fault = read_content(item.get("content"))
        context = _is_context(role, item.get("content"))
        starts = role == "user" and not context
        return _Item({"role": role, "content": text}, line, fault, starts, context)
    if kind == "agent_message":
        return _told(item, line)
    if kind in _OUTPUTS:
        output = item.get("output")
        text, fault = read_content(output.get("content") if isinstance(output, dict) else output)
        return _Item(tool_result(item.get("call_id"), text), line, fault)
    if kind in _COMPACTIONS:
        return _Item(None, line, ENCRYPTED)
    return None


def _told(item: Row, line: int) -> _Item:
    """What another agent told this one. Raises ValueError."""
    text, fault = read_content(item.get("content"))
    return _Item({"role": "user", "content": text}, line, fault, starts_turn=True)


def _is_context(role: str, content: object) -> bool:
    parts: list[Any] = content if isinstance(content, list) else [{"text": content}]
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return any(text.lstrip().lower().startswith(_CONTEXT.get(role, ())) for text in texts)


def _read_history(items: Iterable[Any], line: int) -> list[_Item]:
    """The items that a compaction leaves, the assistant's joined. Raises ValueError."""
    history: list[_Item] = []
    answer: _Answer | None = None
    for value in items:
        item = require_object(value, "an item of replacement_history")
        if _is_written(item):
            answer = answer or _Answer(line)
            answer.add(_read_written(item, line))
            continue
        given = _read_given(item, line)
        if given is not None:
            history += [*_answered(answer), given]
            answer = None
    return history + _answered(answer)


def _answered(answer: _Answer | None) -> list[_Item]:
    return [] if answer is None else [_Item(answer.message, answer.line, answer.fault)]


def _summarised(history: list[_Item], payload: Row, line: int) -> list[_Item]:
    """The user's last messages and the summary. Raises ValueError."""
    kept: list[_Item] = []
    left = _KEPT_CHARACTERS
    for item in reversed(history):
        if item.message is None or item.is_summary or not item.starts_turn:
            continue
        left -= len(item.message["content"])
        if left < 0:
            break
        kept.insert(0, _Item(item.message, line, item.fault, starts_turn=True))
    summary = read_text(payload.get("message"), "the summary")
    kept.append(_Item({"role": "user", "content": summary}, line, starts_turn=True, is_summary=True))
    # A line that was lost may have been one of the user's messages.
    lost = [item for item in history if item.message is None and item.fault]
    return lost[:1] + kept


def _without_turns(history: list[_Item], count: int) -> list[_Item]:
    """The history without the last turns of the user, and without what Codex put before them."""
    starts = [position for position, item in enumerate(history) if item.starts_turn]
    if not starts or count <= 0:
        return history
    end = starts[max(len(starts) - count, 0)]
    while end > starts[0] and history[end - 1].is_context:
        end -= 1
    return history[:end]
