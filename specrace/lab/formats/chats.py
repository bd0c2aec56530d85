"""Whole conversations a line.

- OpenAI's chat format for fine-tuning, {"messages": [{"role", "content", "tool_calls"?}, ...], "tools"?}
  (platform.openai.com/docs/guides/fine-tuning; Together's docs.together.ai/docs/fine-tuning/data-preparation and
  Mistral's docs.mistral.ai/capabilities/finetuning/text_finetuning have the same).
- ShareGPT's {"conversations": [{"from": "human" | "gpt" | "system", "value"}, ...]}
  (axolotl, docs/dataset-formats/conversation.qmd).
"""

from __future__ import annotations

from collections.abc import Iterable

from specrace.core.errors import shorten
from specrace.lab.formats.base import Exchange, Format, Row, label, mapping, read_messages, sequence, turns

_SPEAKERS = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}


class OpenAIChat(Format):
    """Every turn of the assistant is a request, after the messages before it."""

    name = "openai-chat"
    title = "OpenAI chat messages"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return isinstance(row.get("messages"), list) and "response" not in row

    def read(self, row: Row) -> Iterable[Exchange]:
        tools = sequence(row["tools"], "tools") if row.get("tools") else None
        messages = read_messages(row.get("messages"))
        return turns(messages, id=label(row, "id"), category=label(row, "category"), tools=tools)


class ShareGPT(Format):
    """As OpenAIChat, with `from` and `value`."""

    name = "sharegpt"
    title = "ShareGPT conversations"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return isinstance(row.get("conversations"), list)

    def read(self, row: Row) -> Iterable[Exchange]:
        said = [mapping(each, "a turn") for each in sequence(row.get("conversations"), "conversations")]
        for each in said:
            if not isinstance(each.get("from"), str) or each["from"] not in _SPEAKERS:
                known = ", ".join(_SPEAKERS)
                raise ValueError(f"a turn is from {shorten(each.get('from'), 40)}; known are {known}")
        messages = read_messages([{"role": _SPEAKERS[each["from"]], "content": each.get("value")} for each in said])
        return turns(messages, id=label(row, "id"), category=label(row, "category"))
