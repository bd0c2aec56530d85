"""Formats with one conversation per line, as data sets hold them.

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

from collections.abc import Iterable
from typing import Any

from specrace.core.errors import shorten
from specrace.lab.formats.apis import read_exchanges
from specrace.lab.formats.apis.messages import ROLES, role_of
from specrace.lab.formats.apis.requests import parameters_of, tools_of
from specrace.lab.formats.base import (
    Exchange,
    Format,
    Row,
    json_or_text,
    read_label,
    read_text,
    require_list,
    require_object,
)
from specrace.lab.formats.turns import assistant_turns

_CONVERSATIONS = ("conversations", "conversation", "conversation_a", "conversation_b")


class OpenAIChat(Format):
    """Conversations in OpenAI's chat format; each turn of the assistant is the output of a request."""

    name = "openai-chat"
    title = "OpenAI chat messages"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return isinstance(row.get("messages"), list) and "response" not in row

    def read(self, row: Row) -> Iterable[Exchange]:
        return _turns(row, require_list(row.get("messages"), "messages"))


class ShareGPT(Format):
    """Conversations in ShareGPT's format; each turn of the assistant is an output."""

    name = "sharegpt"
    title = "ShareGPT conversations"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return any(isinstance(row.get(name), list) for name in _CONVERSATIONS)

    def read(self, row: Row) -> Iterable[Exchange]:
        for name in [name for name in _CONVERSATIONS if row.get(name) is not None] or _CONVERSATIONS[:1]:
            turns = [require_object(turn, "a turn") for turn in require_list(row.get(name), name)]
            for turn in turns:
                if not isinstance(turn.get("from", turn.get("role")), str) or not _is_known(turn):
                    speaker = shorten(turn.get("from", turn.get("role")), 40)
                    raise ValueError(f"a turn is from {speaker}; known are human, gpt, {', '.join(ROLES)}")
            yield from _turns(row, turns)


def _is_known(turn: Row) -> bool:
    return role_of(turn) in (*ROLES, "function_call")


def _turns(row: Row, logged: list[Any]) -> Iterable[Exchange]:
    """The exchanges of a conversation, with the `system` and the `tools` that may stand beside it."""
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
        parameters=parameters_of({key: value for key, value in row.items() if key not in _CONVERSATIONS}),
    )


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
        answer = row.get("completion", row.get("chosen"))
        name, category = read_label(row, "id"), read_label(row, "category")
        if row.get("prompt") is not None:
            return read_exchanges({key: row[key] for key in ("prompt", "tools") if key in row}, answer, name, category)
        # Without a prompt both answers are whole conversations, of which the last turn differs.
        conversation = require_list(answer, "chosen")
        return read_exchanges(conversation[:-1], conversation[-1:], name, category)


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
            arguments = [list(require_object(each, "arguments").values()) for each in arguments.values()]
        responses = require_list(row["resps"], "resps")
        for number, (argument, response) in enumerate(
            zip(require_list(arguments, "arguments"), responses, strict=False)
        ):
            prompt = argument[0] if isinstance(argument, list) and argument else None
            written = response[0] if isinstance(response, list) and response else None
            if not isinstance(written, str):
                raise ValueError("this sample has likelihoods, no generated text")
            logged = json_or_text(prompt) if isinstance(prompt, str) else prompt
            request = logged if isinstance(logged, list) else read_text(prompt, "the prompt")
            name = f"{read_label(row, 'doc_id')}" + (f"-{number}" if number else "")
            yield from read_exchanges(request, written, name, read_label(row, "task_name"))
