"""Formats with one conversation per line.

- OpenAI's chat format for fine-tuning, {"messages": [{"role", "content", "tool_calls"?}, ...], "tools"?}
  (platform.openai.com/docs/guides/fine-tuning; Together's docs.together.ai/docs/fine-tuning/data-preparation and
  Mistral's docs.mistral.ai/capabilities/finetuning/text_finetuning have the same).
- ShareGPT's {"conversations": [{"from": "human" | "gpt" | "system", "value"}, ...]}
  (axolotl, docs/dataset-formats/conversation.qmd).
"""

from __future__ import annotations

from collections.abc import Iterable

from specrace.core.errors import shorten
from specrace.lab.formats.base import (
    Exchange,
    Format,
    Row,
    assistant_turns,
    read_label,
    read_messages,
    require_list,
    require_object,
)

_SPEAKERS = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}


class OpenAIChat(Format):
    """Conversations in OpenAI's chat format; each turn of the assistant is the output of a request."""

    name = "openai-chat"
    title = "OpenAI chat messages"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return isinstance(row.get("messages"), list) and "response" not in row

    def read(self, row: Row) -> Iterable[Exchange]:
        tools = require_list(row["tools"], "tools") if row.get("tools") else None
        messages = read_messages(row.get("messages"))
        return assistant_turns(messages, id=read_label(row, "id"), category=read_label(row, "category"), tools=tools)


class ShareGPT(Format):
    """Conversations in ShareGPT's format, with `from` and `value`; each turn of the assistant is an output."""

    name = "sharegpt"
    title = "ShareGPT conversations"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return isinstance(row.get("conversations"), list)

    def read(self, row: Row) -> Iterable[Exchange]:
        turns = [require_object(turn, "a turn") for turn in require_list(row.get("conversations"), "conversations")]
        for turn in turns:
            if not isinstance(turn.get("from"), str) or turn["from"] not in _SPEAKERS:
                speakers = ", ".join(_SPEAKERS)
                raise ValueError(f"a turn is from {shorten(turn.get('from'), 40)}; known are {speakers}")
        messages = read_messages([{"role": _SPEAKERS[turn["from"]], "content": turn.get("value")} for turn in turns])
        return assistant_turns(messages, id=read_label(row, "id"), category=read_label(row, "category"))
