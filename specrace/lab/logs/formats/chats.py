"""Formats with one conversation per line, as data sets hold them.

- UltraChat's {"data": [question, answer, ...]} (huggingface.co/datasets/stingning/ultrachat).
- OpenAI's chat format for fine-tuning, {"messages": [{"role", "content", "tool_calls"?}, ...], "tools"?}
  (platform.openai.com/docs/guides/fine-tuning; Together's docs.together.ai/docs/fine-tuning/data-preparation and
  Mistral's docs.mistral.ai/capabilities/finetuning/text_finetuning have the same), and Anthropic's, with a `system`.
- ShareGPT's {"conversations": [{"from": "human" | "gpt" | "system", "value"}, ...]}
  (axolotl, docs/dataset-formats/conversation.qmd), with LLaMA-Factory's tool turns, `system` and `tools`
  (hiyouga/LLaMA-Factory, data/README.md), with `role` and `content` in SpecForge
  (sgl-project/SpecForge, docs/basic_usage/data_preparation.md), and in LMSYS-Chat-1M and WildChat as `conversation`.
- Alpaca's {"instruction", "input"?, "output", "system"?, "history"?} (tatsu-lab/stanford_alpaca, README.md;
  LLaMA-Factory, data/README.md).
- TRL's {"prompt", "completion"} and preferences {"prompt"?, "chosen", "rejected"}
  (huggingface/trl, docs/source/dataset_formats.md).
- lm-eval's samples: {"doc_id", "arguments", "resps"} (EleutherAI/lm-evaluation-harness, lm_eval/evaluator.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from specrace.core.errors import shorten
from specrace.lab.logs.formats.apis import read_exchanges
from specrace.lab.logs.formats.apis.messages import ROLES, role_of
from specrace.lab.logs.formats.apis.requests import parameters_of, tools_of
from specrace.lab.logs.formats.base import (
    Exchange,
    Format,
    Row,
    json_or_text,
    read_label,
    read_text,
    require_list,
    require_object,
)
from specrace.lab.logs.formats.incomplete import explain_row
from specrace.lab.logs.formats.media import require_text_only
from specrace.lab.logs.formats.outcomes import require_answered
from specrace.lab.logs.formats.turns import assistant_turns

# Fields that hold a conversation, and fields that hold one in some data sets and anything else in others.
_CONVERSATIONS = ("conversations", "conversation", "conversation_a", "conversation_b")
_MAYBE_CONVERSATIONS = ("items", "data")
# The fields with a message's time, and the form of a time as text that can be compared.
_TIMES = ("created_at", "createdAt", "create_time", "timestamp", "time", "date", "ts")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
# Seconds from 1970 to 1973. A smaller number in a field `time` is no date but how long something took.
_MIN_TIME = 100_000_000
_HUMAN, _ASSISTANT = "\n\nHuman:", "\n\nAssistant:"


class OpenAIChat(Format):
    """Conversations in OpenAI's chat format; each assistant turn is the output of a request."""

    name = "openai-chat"
    title = "OpenAI chat messages"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return isinstance(row.get("messages"), list) and "response" not in row

    def read(self, row: Row) -> Iterable[Exchange]:
        return _turns(row, require_list(row.get("messages"), "messages"))


class ShareGPT(Format):
    """Conversations in ShareGPT's format; each assistant turn is an output."""

    name = "sharegpt"
    title = "ShareGPT conversations"

    @staticmethod
    def looks_like(row: Row) -> bool:
        names = _CONVERSATIONS if explain_row(row) else (*_CONVERSATIONS, *_MAYBE_CONVERSATIONS)
        return any(_is_conversation(name, row.get(name)) for name in names)

    def read(self, row: Row) -> Iterable[Exchange]:
        names = [name for name in _CONVERSATIONS if row.get(name) is not None]
        names = names or [name for name in _MAYBE_CONVERSATIONS if _is_conversation(name, row.get(name))]
        # Without any of these fields, the first is read, and the error names it.
        for name in names or _CONVERSATIONS[:1]:
            turns = [require_object(turn, "a turn") for turn in _unpack_turns(require_list(row.get(name), name))]
            for turn in turns:
                if not isinstance(turn.get("from", turn.get("role")), str) or not _is_known(turn):
                    speaker = shorten(turn.get("from", turn.get("role")), 40)
                    raise ValueError(f"a turn is from {speaker}; the known speakers are human, gpt, {', '.join(ROLES)}")
            yield from _turns(row, turns)


def _is_conversation(name: str, value: Any) -> bool:
    """Whether a field holds a conversation, by its name, or by its value if the name alone does not say."""
    if not isinstance(value, list) or name in _CONVERSATIONS:
        return isinstance(value, list)
    if name == "data":
        return len(value) > 1 and all(isinstance(text, str) for text in value)
    return bool(value) and all(isinstance(turn, dict) and {"from", "value"} <= turn.keys() for turn in value)


def _unpack_turns(logged: list[Any]) -> list[Any]:
    """The turns of a conversation, also if it is a list of [question, answer], or of texts of alternating speakers."""
    turns = [
        turn
        for turns_or_turn in logged
        for turn in (turns_or_turn if isinstance(turns_or_turn, list) else [turns_or_turn])
    ]
    if turns and all(isinstance(turn, str) for turn in turns):
        return [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(turns)]
    return turns


def _is_known(turn: Row) -> bool:
    return role_of(turn) in (*ROLES, "function_call")


def _turns(row: Row, logged: list[Any]) -> Iterable[Exchange]:
    """The exchanges of a conversation, with the system prompt, tools and documents that may stand beside it."""
    require_text_only(row, "the conversation")
    if name := next((name for name in _TIMES if _runs_backwards(logged, name)), ""):
        raise ValueError(f"the messages are listed from the newest to the oldest, by their {name}; reverse them")
    system = row.get("system") or row.get("system_prompt")
    if system and not (logged and isinstance(logged[0], dict) and logged[0].get("role") == "system"):
        logged = [{"role": "system", "content": system}, *logged]
    documents = row.get("documents")
    return assistant_turns(
        logged,
        id=next((label for key in ("id", "conversation_id") if (label := read_label(row, key))), ""),
        category=read_label(row, "category"),
        tools=tools_of(row),
        documents=documents if isinstance(documents, list) else None,
        parameters=parameters_of(
            {key: value for key, value in row.items() if key not in (*_CONVERSATIONS, *_MAYBE_CONVERSATIONS)}
        ),
    )


def _runs_backwards(logged: list[Any], name: str) -> bool:
    """Whether the last message is older than the first, by the field `name`.

    The messages between them may be out of order: tools may have run in parallel.
    """
    times = [message[name] for message in logged if isinstance(message, dict) and message.get(name) is not None]
    min_time = _MIN_TIME if name == "time" else 0
    are_numbers = all(type(time) in (int, float) and time >= min_time for time in times)
    if are_numbers or all(_DATE.match(str(time)) for time in times):
        return bool(times) and times[-1] < times[0]
    return False


class Alpaca(Format):
    """One instruction with its answer per line; `history` has earlier turns as [question, answer] pairs."""

    name = "alpaca"
    title = "Alpaca instructions"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return "instruction" in row and "output" in row

    def read(self, row: Row) -> Iterable[Exchange]:
        question = read_text(row.get("instruction"), "instruction")
        if row.get("input"):
            question += "\n" + read_text(row["input"], "input")
        logged = []
        for turn in require_list(row.get("history") or [], "history"):
            if not isinstance(turn, list) or len(turn) != 2:
                raise ValueError("history is not a list of pairs [question, answer]")
            logged += [{"role": "user", "content": turn[0]}, {"role": "assistant", "content": turn[1]}]
        answer = {"role": "assistant", "content": read_text(row.get("output"), "output")}
        return _turns(row, [*logged, {"role": "user", "content": question}, answer])


class Completions(Format):
    """One prompt with a completion, or with a preferred and a rejected one, per line; the preferred one is scored."""

    name = "prompt-completion"
    title = "prompts and completions, or preferences"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return ("prompt" in row and "completion" in row) or {"chosen", "rejected"} <= row.keys()

    def read(self, row: Row) -> Iterable[Exchange]:
        require_answered(row)
        require_text_only(row, "the prompt")
        answer = row.get("completion", row.get("chosen"))
        labels = read_label(row, "id"), read_label(row, "category")
        if (
            isinstance(answer, list)
            and len(answer) > 1
            and role_of(require_object(answer[0], "a message")) != "assistant"
        ):
            # `chosen` and `rejected` are whole conversations, which differ in the last turn.
            return read_exchanges(_with_tools(row, answer[:-1]), answer[-1:], *labels)
        # Not conversation_a and conversation_b, each of which holds a model's answers, too.
        prompt = next(
            (row[key] for key in ("prompt", *_CONVERSATIONS[:2], "messages") if row.get(key) is not None), None
        )
        if isinstance(prompt, list):
            return read_exchanges(_with_tools(row, prompt), answer, *labels)
        if prompt is not None:
            return read_exchanges({"prompt": prompt, "system": row.get("system")}, answer, *labels)
        if not isinstance(answer, str):
            raise ValueError("chosen is neither a conversation nor text; write prompt, chosen and rejected")
        return [_split(answer, *labels)]


def _with_tools(row: Row, messages: list[Any]) -> Row:
    return {"messages": messages, "tools": row.get("tools")}


def _split(text: str, name: str, category: str) -> Exchange:
    """The exchange in one text with Human: and Assistant: before each turn, as in Anthropic's hh-rlhf
    (huggingface.co/datasets/Anthropic/hh-rlhf)."""
    start = text.rfind(_ASSISTANT) + len(_ASSISTANT)
    if _HUMAN not in text or start < len(_ASSISTANT) or _HUMAN in text[start:]:
        raise ValueError(
            "chosen and rejected have no prompt beside them, and do not end with an answer after Assistant:"
        )
    return Exchange(prompt=text[:start], output=read_text(text[start:], "the answer"), id=name, category=category)


class LMEval(Format):
    """One sample of a task per line, with the model's responses."""

    name = "lm-eval"
    title = "lm-eval samples"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return {"doc_id", "arguments", "resps"} <= row.keys()

    def read(self, row: Row) -> Iterable[Exchange]:
        arguments: Any = row["arguments"]
        if isinstance(arguments, dict):
            # Newer versions write {"gen_args_0": {"arg_0", "arg_1"}, ...} in place of a list of lists.
            arguments = [list(require_object(argument, "arguments").values()) for argument in arguments.values()]
        responses = require_list(row["resps"], "resps")
        for number, (argument, response) in enumerate(
            zip(require_list(arguments, "arguments"), responses, strict=False)
        ):
            prompt = argument[0] if isinstance(argument, list) and argument else None
            written = response if isinstance(response, list) and response else [None]
            if not all(isinstance(text, str) for text in written):
                raise ValueError("this sample has likelihoods, no generated text")
            logged = json_or_text(prompt) if isinstance(prompt, str) else prompt
            request = logged if isinstance(logged, list) else read_text(prompt, "the prompt")
            name = f"{read_label(row, 'doc_id')}" + (f"-{number}" if number else "")
            for text in written:  # several if the task repeats its requests
                yield from read_exchanges(request, text, name, read_label(row, "task_name"))
