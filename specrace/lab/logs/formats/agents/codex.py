"""Codex's rollouts, ~/.codex/sessions/**/rollout-*.jsonl.

A line is {"timestamp", "type", "payload"}; the types that tell what the model read and wrote are session_meta,
response_item, compacted, inter_agent_communication, event_msg and token_usage_record (openai/codex,
codex-rs/protocol/src/protocol.rs: RolloutLine, RolloutItem; models.rs: ResponseItem). Rollouts of 2025 have the items
without an envelope, after a first line {"id", "timestamp", "instructions"}.

The history is built as Codex builds it to resume a session (codex-rs/core/src/session/rollout_reconstruction.rs and
context_manager/history.rs): thread_rolled_back removes the last user turns; a compaction replaces the history with its
replacement_history, or, if it has none, with the user's messages and a summary. A fork begins with a copy of its
parent's lines.
"""

from __future__ import annotations

from typing import Any

from specrace.core.errors import shorten
from specrace.lab.logs.formats.agents import sessions
from specrace.lab.logs.formats.agents.codex_items import (
    START,
    WRITTEN,
    Answer,
    Item,
    has_call_ids,
    is_review,
    is_written,
    read_agent_message,
    read_history,
    read_input,
    read_written,
    summarised,
    without_turns,
)
from specrace.lab.logs.formats.agents.sessions import (
    INTERRUPTED,
    LOST,
    TOO_LONG,
    UNREADABLE,
    AgentSession,
    TooLong,
    digest_of,
    left_out,
    read_count,
    size_of,
)
from specrace.lab.logs.formats.base import (
    Exchange,
    Message,
    Row,
    Usage,
    read_label,
    read_text,
    require_list,
    require_object,
)

_LINE_TYPES = (
    "session_meta",
    "response_item",
    "compacted",
    "turn_context",
    "event_msg",
    "inter_agent_communication",
    "token_usage_record",
)
CODEX_WROTE = "Codex wrote it, not the model"
# The fields of an item without an envelope; other objects of type "message" are responses of an API.
_BARE = {"type", "id", "role", "content", "status", "phase", "timestamp"}


class Codex(AgentSession):
    """One or more rollouts, one after the other."""

    name = "codex"
    title = "Codex rollouts"

    @staticmethod
    def looks_like(row: Row) -> bool:
        if "payload" in row:
            return row.get("type") in _LINE_TYPES
        # The row may be an item without an envelope.
        if {"id", "timestamp", "instructions"} <= row.keys() or row.get("record_type") == "state":
            return True
        return row.get("type") == "message" and isinstance(row.get("content"), list) and row.keys() <= _BARE

    def __init__(self) -> None:
        super().__init__()
        self._begin("")

    def _begin(self, name: str) -> None:
        """Start a new session."""
        self._name = name
        # The names of the session and of those that it was forked from.
        self._lineage = {name}
        # The session that was forked first, as far as the lines so far tell.
        self._root = name
        self._system: Message | None = None
        self._user_instructions = ""
        self._history: list[Item] = []
        # The lines of the session's compactions, and the history before the last compaction.
        self._compactions: list[int] = []
        self._before_compaction: list[Item] | None = None
        self._answer: Answer | None = None
        self._size = 0
        self._line = 0
        # A usage that came before its answer; and the last event's total: an event with the same total is a repetition.
        self._usage: Usage | None = None
        self._total: Any = None

    def _read(self, row: Row) -> None:
        kind, payload = _unwrap(row)
        if kind == "session_meta":
            self._read_meta(payload)
        self._line += 1
        if kind == "response_item":
            self._read_item(payload)
        elif kind == "compacted":
            self._compact(payload)
        elif kind == "inter_agent_communication":
            self._append(read_agent_message(payload, self._line))
        elif kind == "token_usage_record":
            self._count(payload.get("usage"))
        elif kind == "event_msg":
            self._read_event(payload)

    def _lose(self, row: Row) -> None:
        payload = row.get("payload", row)
        by_model = isinstance(payload, dict) and (payload.get("type") in WRITTEN or payload.get("role") == "assistant")
        if by_model:
            self._answer = self._answer or Answer(self._line)
            self._answer.fault = UNREADABLE
        else:
            self._append(Item(None, self._line, UNREADABLE))

    def missed(self) -> None:
        if self._answer is not None:
            self._answer.fault = UNREADABLE
        self._append(Item(None, self._line, UNREADABLE))

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
            self._push(Item(None, self._line, LOST))
        instructions = meta.get("base_instructions") or meta.get("instructions")
        text = instructions.get("text") if isinstance(instructions, dict) else instructions
        if text and self._system is None:
            self._system = {"role": "system", "content": read_text(text, "the instructions")}
            # In rollouts of 2025 `instructions` are the user's. A later message has them as the model read them, and
            # `_append` then drops this copy.
            self._user_instructions = "" if meta.get("base_instructions") else text

    def _read_item(self, item: Row) -> None:
        """Add an item to the answer or to the history. Raises ValueError."""
        if self._answer is None and self._history and is_review(item, self._history[-1]):
            message = read_written(item, self._line).message
            self._grow([message])
            self._completed.append(left_out(self._name, CODEX_WROTE, self._key_of(message)))
            self._push(Item(message, self._line))
        elif is_written(item):
            if self._answer is None:
                self._answer, self._usage = Answer(self._line, usage=self._usage), None
            part = read_written(item, self._line)
            self._grow([part.message])
            self._answer.add(part)
        elif (history_item := read_input(item, self._line)) is not None:
            self._append(history_item)

    def _append(self, item: Item) -> None:
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

    def _push(self, item: Item) -> None:
        item.follow(self._history[-1] if self._history else None)
        self._history.append(item)

    def _grow(self, messages: list[Message]) -> None:
        """Count the size of new messages. For a session that is too long, drop the history and raise TooLong."""
        self._size += size_of(messages)
        if self._size > sessions.MAX_HISTORY:
            self._set_history([Item(None, self._line, TOO_LONG)])
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
        last = self._history[-1] if self._history else START
        reason = last.first_fault or answer.fault or ("" if prompt else LOST)
        key = self._key_of(message)
        if reason and (written or answer.fault):
            self._completed.append(left_out(self._name, reason, key))
        elif written:
            prompt = [*([self._system] if self._system else []), *prompt]
            usage, warnings = answer.usage or Usage(), tuple(answer.warnings)
            self._completed.append(Exchange(prompt, message, self._name, usage=usage, warnings=warnings, key=key))
        if written or answer.fault:
            # The answer's fault, such as an image, is in all later prompts.
            self._push(Item(message if written else None, answer.line, answer.fault))

    def _key_of(self, message: Message) -> str:
        """The key of an answer after the history; an answer and its copy in a fork get the same one.

        The key is a hash of the answer and the conversation before it. Unrelated sessions with the same texts differ in
        the ids of their calls; without ids, the name of the session that was forked first tells them apart. That name
        is not used otherwise, because in 2025 Codex copied a resumed session without its name.
        """
        last = self._history[-1] if self._history else START
        has_ids = last.has_ids or has_call_ids(message)
        return digest_of([last.digest.hex(), message, "" if has_ids else self._root]).hex()

    def _set_history(self, items: list[Item]) -> None:
        self._history = []
        for item in items:
            self._push(item)

    def _compact(self, payload: Row) -> None:
        """Replace the history by that of a compaction. Raises ValueError."""
        self._complete()
        replacement = payload.get("replacement_history")
        if replacement is None:
            new_history = summarised(self._history, payload, self._line)
        else:
            new_history = read_history(require_list(replacement, "replacement_history"), self._line)
        self._before_compaction = self._history
        self._set_history(new_history)
        self._compactions.append(self._line)
        self._size = 0
        self._grow([item.message for item in new_history if item.message is not None])

    def _read_event(self, event: Row) -> None:
        kind = event.get("type")
        if kind == "token_count":
            info = event.get("info")
            total = info.get("total_token_usage") if isinstance(info, dict) else self._total
            # The event is repeated when only the account's limits change.
            if total is None or total != self._total:
                self._total = total
                self._count(info.get("last_token_usage") if isinstance(info, dict) else None)
        elif kind == "thread_rolled_back":
            self._roll_back(event)
        elif kind == "turn_aborted" and self._answer is not None:
            self._answer.warnings[INTERRUPTED] = None
            self._complete()

    def _count(self, usage: object) -> None:
        """Note the usage of the answer that was just written, or, in rollouts of 2025, of the next one."""
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
        """Remove the last user turns. Raises ValueError."""
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
            self._history = without_turns(self._history, count)
        else:
            raise ValueError(f"thread_rolled_back does not say how many turns ({shorten(count, 20)})")
        self._size = size_of(item.message for item in self._history if item.message is not None)

    def _turns_since(self, line: int) -> int:
        """The number of user turns after a line."""
        return sum(item.starts_turn and item.line > line for item in self._history)

    def _undo_compaction(self) -> None:
        """Go back to the history before the last compaction, if it is still in memory."""
        self._compactions.pop()
        lost = [Item(None, self._compactions[-1] if self._compactions else 0, LOST)]
        before, self._before_compaction = self._before_compaction, None
        self._set_history(lost if before is None else before)


def _unwrap(row: Row) -> tuple[object, Row]:
    """The type of a line and what it holds. Raises ValueError."""
    kind = row.get("type")
    if "payload" in row:
        return kind, require_object(row["payload"], "payload")
    if kind in _LINE_TYPES or row.get("record_type") is not None:
        return kind, row
    return ("session_meta" if kind is None and "id" in row else "response_item"), row
