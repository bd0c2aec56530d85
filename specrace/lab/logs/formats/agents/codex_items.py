"""The items of a Codex session, and the history that they add up to (openai/codex, codex-rs/protocol/src/models.rs).

A session's file is called a rollout. A compaction replaces the history by a shorter one, a rollback undoes turns.
How a rollback and a compaction change the history is in codex-rs/core/src: context_manager/history.rs and compact.rs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from specrace.lab.logs.formats.agents.sessions import (
    ENCRYPTED,
    HIDDEN_RESULTS,
    OWN_MEDIA,
    digest_of,
    extend,
    read_content,
    tool_result,
)
from specrace.lab.logs.formats.apis.messages import HIDDEN_REASONING, tool_call
from specrace.lab.logs.formats.base import Message, Row, Usage, read_text, require_object

_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_COMPACTIONS = ("compaction", "compaction_summary", "context_compaction")
# The types of items that the model writes, besides assistant messages.
WRITTEN = (
    "reasoning",
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "tool_search_call",
    "web_search_call",
    "image_generation_call",
)
# The beginnings of texts that Codex adds before a user turn (codex-rs/core/src: event_mapping.rs, context/).
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
# How many characters of the user's messages a compaction without replacement_history keeps: 20,000 tokens of 4 each
# (codex-rs/core/src/compact.rs, COMPACT_USER_MESSAGE_MAX_TOKENS; utils/string, APPROX_BYTES_PER_TOKEN).
_KEPT_CHARACTERS = 80_000


@dataclass
class Item:
    """A message of the history, or None with a `fault`: why no answer after this item can be scored.

    `line`: the item's line in the rollout. `starts_turn`: whether a rollback may go back to it. `is_context`: whether a
    rollback removes it with the turn after it. `is_summary`: whether it is a compaction's summary. Three fields
    describe the history up to this item: its `digest`, whether its calls have ids (`has_ids`), and its `first_fault`.
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

    def follow(self, before: Item | None) -> None:
        """Fill in the fields about the history; `before`: the item before this one."""
        before = before or START
        self.digest = digest_of([before.digest.hex(), self.message])
        self.has_ids = before.has_ids or has_call_ids(self.message or {})
        self.first_fault = before.first_fault or self.fault


START = Item(None, 0)


@dataclass
class Answer:
    """What the model has written since the last item that it did not write; `line`: the answer's first line."""

    line: int
    message: Message = field(default_factory=lambda: {"role": "assistant", "content": ""})
    warnings: dict[str, None] = field(default_factory=dict)
    fault: str = ""
    usage: Usage | None = None

    def add(self, other: Answer) -> None:
        """Append what the model wrote next."""
        extend(self.message, other.message)
        self.warnings |= other.warnings
        self.fault = self.fault or other.fault


def has_call_ids(message: Message) -> bool:
    """Whether a call in a message has an id."""
    return any("id" in call for call in message.get("tool_calls", ()))


def is_written(item: Row) -> bool:
    """Whether the model wrote an item."""
    return item.get("type") in WRITTEN or (item.get("type") == "message" and item.get("role") == "assistant")


def is_review(item: Row, before: Item) -> bool:
    """Whether an assistant message is a review that Codex itself put into the history (codex-rs/core/src/tasks/
    review.rs): it comes directly after the item in which Codex tells the result, and older versions omit its id."""
    if item.get("type") != "message" or item.get("role") != "assistant" or before.message is None:
        return False
    text = before.message["content"]
    tells_result = (
        before.message["role"] == "user" and text.lstrip().startswith("<user_action>") and "review task" in text
    )
    return tells_result or item.get("id") == "review_rollout_assistant"


def read_written(item: Row, line: int) -> Answer:
    """An item that the model wrote, as a part of an answer. Raises ValueError."""
    part = Answer(line)
    kind, call = item["type"], item.get("call_id") or item.get("id")
    if kind == "message":
        part.message["content"], fault = read_content(item.get("content"))
        if fault:
            raise ValueError("an answer has an image; only text can be scored")
    elif kind == "reasoning":
        # A summary of the reasoning is not the text that the model wrote.
        text, _ = read_content(item.get("content"))
        if text:
            part.message["reasoning_content"] = text
        elif item.get("encrypted_content") or item.get("summary"):
            part.warnings[HIDDEN_REASONING] = None
    elif kind == "image_generation_call":
        part.fault = OWN_MEDIA
    elif kind == "web_search_call":
        # The server searches, and the model continues with the results, which the log lacks.
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


def read_input(item: Row, line: int) -> Item | None:
    """An item that the model did not write; None for one that it does not see. Raises ValueError."""
    kind = item.get("type")
    if kind == "message":
        role = read_text(item.get("role"), "the role of a message")
        text, fault = read_content(item.get("content"))
        context = _is_context(role, item.get("content"))
        starts = role == "user" and not context
        return Item(
            message={"role": role, "content": text}, line=line, fault=fault, starts_turn=starts, is_context=context
        )
    if kind == "agent_message":
        return read_agent_message(item, line)
    if kind in _OUTPUTS:
        output = item.get("output")
        text, fault = read_content(output.get("content") if isinstance(output, dict) else output)
        return Item(tool_result(item.get("call_id"), text), line, fault)
    if kind in _COMPACTIONS:
        return Item(None, line, ENCRYPTED)
    return None


def read_agent_message(item: Row, line: int) -> Item:
    """A message from another agent. Raises ValueError."""
    text, fault = read_content(item.get("content"))
    return Item({"role": "user", "content": text}, line, fault, starts_turn=True)


def _is_context(role: str, content: object) -> bool:
    """Whether Codex added a message before a user turn, by the beginnings of its parts."""
    parts: list[Any] = content if isinstance(content, list) else [{"text": content}]
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return any(text.lstrip().lower().startswith(_CONTEXT.get(role, ())) for text in texts)


def read_history(items: Iterable[Any], line: int) -> list[Item]:
    """The history that a compaction leaves, with the assistant's consecutive items joined. Raises ValueError."""
    history: list[Item] = []
    answer: Answer | None = None
    for value in items:
        item = require_object(value, "an item of replacement_history")
        if is_written(item):
            answer = answer or Answer(line)
            answer.add(read_written(item, line))
            continue
        history_item = read_input(item, line)
        if history_item is not None:
            history += [*_answer_items(answer), history_item]
            answer = None
    return history + _answer_items(answer)


def _answer_items(answer: Answer | None) -> list[Item]:
    """The item of an answer; none without an answer."""
    return [] if answer is None else [Item(answer.message, answer.line, answer.fault)]


def summarised(history: list[Item], payload: Row, line: int) -> list[Item]:
    """The history that a compaction without replacement_history leaves: the user's last messages and its summary.

    Raises ValueError.
    """
    new_history: list[Item] = []
    characters_left = _KEPT_CHARACTERS
    for item in reversed(history):
        if item.message is None or item.is_summary or not item.starts_turn:
            continue
        characters_left -= len(item.message["content"])
        if characters_left < 0:
            break
        new_history.insert(0, Item(item.message, line, item.fault, starts_turn=True))
    summary = read_text(payload.get("message"), "the summary")
    new_history.append(Item({"role": "user", "content": summary}, line, starts_turn=True, is_summary=True))
    # A line that could not be read may have been one of the user's messages.
    lost = [item for item in history if item.message is None and item.fault]
    return lost[:1] + new_history


def without_turns(history: list[Item], count: int) -> list[Item]:
    """The history without the last `count` user turns, and without what Codex put before them."""
    starts = [position for position, item in enumerate(history) if item.starts_turn]
    if not starts or count <= 0:
        return history
    end = starts[max(len(starts) - count, 0)]
    while end > starts[0] and history[end - 1].is_context:
        end -= 1
    return history[:end]
