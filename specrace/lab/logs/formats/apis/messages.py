"""Turns one message of a conversation, in the shape of any API, into the shape that chat templates expect.

- OpenAI's chat completions: {"role", "content": text or parts, "tool_calls"?, "function_call"?, "refusal"?}
  (openai/openai-python, src/openai/types/chat); vLLM, SGLang and DeepSeek add `reasoning_content` or `reasoning`, and
  Ollama `thinking` (ollama/ollama, docs/api.md).
- OpenAI's Responses API: items {"type": "message" | "function_call" | "function_call_output" | "reasoning", ...}
  (openai/openai-python, src/openai/types/responses).
- Anthropic's Messages API: blocks of type text, thinking, redacted_thinking, tool_use, tool_result
  (anthropics/anthropic-sdk-python, src/anthropic/types).
- Gemini: {"role", "parts": [{"text"} | {"functionCall"} | {"functionResponse"} | {"text", "thought": true}]}
  (ai.google.dev/api/caching#Content).
- Bedrock's Converse: content [{"text"} | {"toolUse"} | {"toolResult"} | {"reasoningContent"}]
  (docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ContentBlock.html).
- OpenTelemetry's GenAI conventions: parts of type text, reasoning, tool_call, tool_call_response
  (open-telemetry/semantic-conventions, docs/gen-ai/gen-ai-input-messages.json).
- LangChain's messages, as objects or serialised (langchain-ai/langchain, libs/core/langchain_core/messages).
- ShareGPT's turns, {"from", "value"}, with LLaMA-Factory's function_call and observation
  (hiyouga/LLaMA-Factory, data/README.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from specrace.core.errors import shorten
from specrace.lab.logs.formats.base import (
    Message,
    Row,
    json_or_text,
    parse_nested,
    read_label,
    read_text,
    require_list,
    require_object,
    require_unicode,
)

HIDDEN_REASONING = "its reasoning is encrypted or left out of the log"
SUMMARISED_REASONING = "the log has a summary of its reasoning only"

ROLES = ("system", "developer", "user", "assistant", "tool")
# Other names of these roles.
_ROLES = {
    "human": "user",
    "prompter": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "bot": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "aimessagechunk": "assistant",
    "function": "tool",
    "observation": "tool",
    "tool_response": "tool",
}
# Types of LangChain's messages.
_LANGCHAIN = ("human", "ai", "AIMessageChunk", "system", "tool", "function")
# Every message has at least one of these fields.
_CONTENTS = {"content", "value", "parts", "text", "tool_calls", "toolCalls", "function_call"}
_CALL_PARTS = {"tool_use", "toolUse", "functionCall", "function_call", "tool_call"}
_RESULT_PARTS = {"tool_result", "toolResult", "functionResponse", "function_response", "tool_call_response"}
_REASONING_PARTS = {"thinking", "reasoning", "reasoningContent", "reasoning_text"}
# Types of parts; a list of them may also be logged as JSON text, as OpenLLMetry does.
_PART_TYPES = {
    *("text", "input_text", "output_text", "refusal", "thinking", "redacted_thinking", "tool_use", "tool_result"),
    *("image", "image_url", "input_image", "audio", "audio_url", "input_audio", "video", "video_url"),
    *("file", "input_file", "document"),
}
# Fields that do not tell what a part is.
_BESIDE_PARTS = {"thought", "thoughtSignature", "thought_signature", "cache_control"}
# Parts that give the model no text.
_EMPTY_PARTS = {"cachePoint", "guardContent"}


def role_of(logged: Row) -> str:
    """The role of a message: one of ROLES, "function_call", or the log's own word. Raises ValueError if it has none."""
    logged = _plain(logged)
    role = logged.get("role") or logged.get("from")
    if role is None and logged.get("type") in _LANGCHAIN:
        role = logged["type"]
    role = read_text(role, "the role of a message")
    usual = _ROLES.get(role.lower(), role.lower())
    return usual if usual in ROLES or usual == "function_call" else role


def is_message(value: object) -> bool:
    """Whether a value is a message of a conversation, by the names of its fields."""
    if not isinstance(value, dict):
        return False
    if is_langchain(value):
        return True
    speaks = isinstance(value.get("role"), str) or isinstance(value.get("from"), str)
    return speaks and not _CONTENTS.isdisjoint(value)


def is_assistant_message(value: object) -> bool:
    """Whether a value is a message of the assistant."""
    try:
        return isinstance(value, dict) and is_message(value) and role_of(value) == "assistant"
    except ValueError:
        return False


def is_langchain(value: Row) -> bool:
    """Whether a value is one of LangChain's messages, as an object or serialised."""
    if value.get("lc") and isinstance(value.get("kwargs"), dict):
        return True
    return (value.get("type") in _LANGCHAIN and "content" in value) or _has_data(value)


class MessageReader:
    """Reads the messages of one conversation; `warnings`: why parts of them are missing."""

    def __init__(self) -> None:
        self.warnings: dict[str, None] = {}

    def read(self, value: object) -> list[Message]:
        """The chat messages of one logged message: a tool's results become messages of their own. Raises ValueError."""
        logged = _plain(require_object(value, "a message"))
        if isinstance(logged.get("type"), str) and not {"role", "from"} & logged.keys():
            item = self._item(logged)
            if item is not None:
                return item
        role = role_of(logged)
        if role == "function_call":
            return [_written_call(logged)]
        message: Message = {"role": role, "content": ""}
        results: list[Message] = []
        self._add_content(_content(logged), message, results)
        message |= {key: logged[key] for key in ("name", "tool_call_id") if logged.get(key)}
        if logged.get("toolCallId"):
            message.setdefault("tool_call_id", logged["toolCallId"])
        self._add_fields(logged, message)
        if results and not (message["content"] or message.get("tool_calls")):
            return results
        return [*results, message]

    def _add_fields(self, logged: Row, message: Message) -> None:
        """Add what the message has beside its content: reasoning, a refusal, tool calls."""
        if reasoning := reasoning_text(logged):
            message["reasoning_content"] = reasoning
        if not message["content"] and isinstance(logged.get("refusal"), str):
            message["content"] = require_unicode("a refusal", logged["refusal"])
        if logged.get("toolInvocations"):
            raise ValueError(
                "a message has toolInvocations, in which a web page keeps several requests at once (Vercel's useChat); "
                "log the messages of each request at the server"
            )
        calls = require_list(logged.get("tool_calls") or logged.get("toolCalls") or [], "tool_calls")
        if logged.get("function_call"):
            calls = [*calls, {"function": logged["function_call"]}]
        if logged.get("images"):
            raise ValueError("a message has an image; only text can be scored")
        if calls and "tool_calls" not in message:
            message["tool_calls"] = [tool_call(call) for call in calls]

    def _add_content(self, content: object, message: Message, results: list[Message]) -> None:
        if content is None:
            return
        # In a tool's result, such JSON may be the very text that the model read.
        if message["role"] != "tool":
            content = parse_nested(content, are_parts)
        if isinstance(content, str):
            message["content"] = require_unicode("a message", content)
            return
        if isinstance(content, dict):
            content = content["parts"] if isinstance(content.get("parts"), list) else [content]
        for part in require_list(content, "the content of a message"):
            self._add_part(part, message, results)

    def _add_part(self, part: object, message: Message, results: list[Message]) -> None:
        if isinstance(part, str):
            message["content"] += require_unicode("a message", part)
            return
        # Some libraries give every part the fields of all kinds of parts, most of them None.
        part = {name: field for name, field in require_object(part, "a part of a message").items() if field is not None}
        kind = part.get("type") or next((name for name in part if name not in _BESIDE_PARTS), None)
        known = _CALL_PARTS | _RESULT_PARTS | _REASONING_PARTS
        kind = next((name for name in part if name in known and not isinstance(part[name], str)), kind)
        if kind == "function" and "function" in part:  # PostHog's
            message.setdefault("tool_calls", []).append(tool_call(part))
        elif kind in _CALL_PARTS:
            message.setdefault("tool_calls", []).append(_part_call(_inner(part, kind)))
        elif kind in _RESULT_PARTS:
            results.append(self._result(_inner(part, kind)))
        elif kind in _REASONING_PARTS or part.get("thought") is True:
            self._add_reasoning(part, message)
        elif kind == "redacted_thinking":
            self.warnings[HIDDEN_REASONING] = None
        elif (text := _part_text(part)) is not None:
            message["content"] += text
        elif kind not in _EMPTY_PARTS and part.keys() - {"thoughtSignature", "thought_signature"}:
            raise ValueError(f"a message has a part of type {shorten(kind, 40)}; only text can be scored")

    def _add_reasoning(self, part: Row, message: Message) -> None:
        # Bedrock nests the text: {"reasoningContent": {"reasoningText": {"text": ...}}}.
        content = part.get("reasoningContent", part)
        content = content.get("reasoningText", content) if isinstance(content, dict) else content
        content = content if isinstance(content, dict) else {"text": content}
        names = ("thinking", "reasoning", "text", "content")
        if isinstance(content.get("thinking"), list):  # Mistral's thoughts are a list of parts
            content = {"text": result_text(content["thinking"])}
        text = next((content[name] for name in names if isinstance(content.get(name), str)), "")
        if text:
            message["reasoning_content"] = message.get("reasoning_content", "") + require_unicode("reasoning", text)
        else:
            self.warnings[HIDDEN_REASONING] = None

    def _result(self, part: Row) -> Message:
        """The message of a tool's result. Raises ValueError if its text is in a field that is not known."""
        contents = (part.get(name) for name in ("content", "response", "result", "output"))
        content = next((value for value in contents if value is not None), None)
        filled = [name for name, value in part.items() if isinstance(value, dict | list) and value]
        others = [name for name in filled if name != "cache_control"]
        if content is None and others:
            raise ValueError(f"a tool's result has no content, but {shorten(', '.join(others), 40)}")
        message: Message = {"role": "tool", "content": result_text(content)}
        for field, names in (("tool_call_id", ("tool_use_id", "toolUseId", "id", "call_id")), ("name", ("name",))):
            value = next((part[name] for name in names if part.get(name)), None)
            if isinstance(value, str):
                message[field] = value
        return message

    def _item(self, item: Row) -> list[Message] | None:
        """The messages of an item of the Responses API that has no role; None if the item is something else."""
        kind = item["type"]
        if kind in ("function_call", "custom_tool_call"):
            call = {
                "id": item.get("call_id"),
                "function": item | {"arguments": item.get("arguments", item.get("input"))},
            }
            return [{"role": "assistant", "content": "", "tool_calls": [tool_call(call)]}]
        if kind in ("function_call_output", "custom_tool_call_output"):
            return [self._result(item)]
        if kind == "reasoning":
            return self._reasoning_item(item)
        if kind in ("item_reference",) or kind.endswith("_call"):
            raise ValueError(f"an item of type {shorten(kind, 40)} has text that the log does not hold")
        return None

    def _reasoning_item(self, item: Row) -> list[Message]:
        message: Message = {"role": "assistant", "content": ""}
        for part in item.get("content") or ():
            self._add_reasoning(require_object(part, "a part of reasoning"), message)
        if "reasoning_content" not in message:
            self.warnings[SUMMARISED_REASONING if item.get("summary") else HIDDEN_REASONING] = None
        return [message]


def reasoning_text(message: Row) -> str:
    """The reasoning beside a message's content, or in a chunk of a stream; "" for none. Raises ValueError.

    vLLM's server calls it `reasoning` (vllm/entrypoints/openai/chat_completion/protocol.py), Ollama `thinking`, Cohere
    `tool_plan` (docs.cohere.com/v2/reference/chat), other servers and chat templates `reasoning_content`.
    """
    names = ("reasoning_content", "reasoning", "thinking", "tool_plan")
    reasoning = next((message[name] for name in names if message.get(name)), "")
    if not reasoning or isinstance(reasoning, list | dict):
        return ""
    return read_text(reasoning, "the reasoning of a message")


def merge_answer(messages: Iterable[Message]) -> Message:
    """One assistant message with the content, reasoning and tool calls of all `messages`. Raises ValueError."""
    answer: Message = {"role": "assistant", "content": ""}
    for message in messages:
        if message["role"] != "assistant":
            raise ValueError(f"the answer has a message of the role {shorten(message['role'], 40)}")
        answer["content"] += message["content"]
        for key in ("reasoning_content", "tool_calls"):
            if key in message:
                answer[key] = answer[key] + message[key] if key in answer else message[key]
    return answer


def tool_call(value: object) -> Row:
    """A tool call, with its arguments as an object if they are JSON. Raises ValueError.

    OpenAI's API writes arguments as JSON text, and chat templates expect objects; vLLM's server also parses them
    (vllm-project/vllm, vllm/entrypoints/chat_utils.py).
    """
    logged = require_object(value, "a tool call")
    function = logged.get("function")
    # OpenAI's custom tools take text; LangChain and OpenTelemetry have no inner object, and Vercel's AI SDK has other
    # names.
    inner = logged["custom"] if isinstance(logged.get("custom"), dict) else logged
    name = inner.get("name", inner.get("toolName"))
    if isinstance(function, str):  # inspect_ai has the name here
        function, name = None, function
    if function is None and name is not None:
        arguments = next((inner[key] for key in ("args", "arguments", "input") if key in inner), None)
        function = {"name": name, "arguments": arguments}
    function = require_object(function, "the function of a tool call")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = json_or_text(arguments)
    name = read_text(function.get("name"), "the name of a tool call")
    call: Row = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return {"id": identifier} | call if (identifier := read_label(logged, "id")) else call


def result_text(content: object) -> str:
    """A tool's result as text: text parts are joined, and other JSON is written as JSON. Raises ValueError."""
    if content is None:
        return ""
    if isinstance(content, str):
        return require_unicode("a tool's result", content)
    if isinstance(content, list):
        texts = [part if isinstance(part, str) else _part_text(part) for part in content]
        if all(text is not None for text in texts):
            return require_unicode("a tool's result", "".join(text for text in texts if text is not None))
        kinds = {part.get("type") for part in content if isinstance(part, dict)}
        if {"image", "image_url", "input_image", "document"} & kinds or any("image" in part for part in content):
            raise ValueError("a tool's result has an image; only text can be scored")
    return require_unicode("a tool's result", json.dumps(content, ensure_ascii=False))


def _content(logged: Row) -> Any:
    return next((logged[key] for key in ("content", "value", "parts", "text") if logged.get(key) is not None), None)


def are_parts(value: object) -> bool:
    """Whether a value is a list of parts, each with its type and something else."""
    parts = value if isinstance(value, list) else []
    return bool(parts) and all(
        isinstance(part, dict) and len(part) > 1 and str(part.get("type")) in _PART_TYPES for part in parts
    )


def _inner(part: Row, kind: str) -> Row:
    """The object into which Gemini and Bedrock put a part's fields; the part itself for other APIs."""
    inner = part.get(kind)
    return inner if isinstance(inner, dict) else part


def _part_text(part: object) -> str | None:
    """The text of a part; None if it is not a part of text."""
    if not isinstance(part, dict):
        return None
    if "type" in part and part["type"] not in ("text", "input_text", "output_text", "refusal", "summary_text"):
        return None
    text = next((part[name] for name in ("text", "content", "refusal") if part.get(name) is not None), None)
    if isinstance(text, dict) and isinstance(text.get("value"), str):
        text = text["value"]
    if isinstance(text, str):
        return require_unicode("a message", text)
    return json.dumps(part["json"], ensure_ascii=False) if "json" in part else None


def _part_call(part: Row) -> Row:
    arguments: Any = next((part[key] for key in ("input", "args", "arguments") if part.get(key) is not None), {})
    identifier = next((part[key] for key in ("id", "toolUseId", "call_id") if part.get(key)), None)
    return tool_call({"id": identifier, "function": {"name": part.get("name"), "arguments": arguments}})


def _written_call(logged: Row) -> Message:
    """The message of a tool call that LLaMA-Factory writes as JSON text in a separate turn."""
    written = _content(logged)
    call = json_or_text(written) if isinstance(written, str) else written
    calls = call if isinstance(call, list) else [call]
    return {"role": "assistant", "content": "", "tool_calls": [tool_call(called) for called in calls]}


def _plain(value: Row) -> Row:
    """One of LangChain's messages as a plain message; any other message unchanged."""
    logged = value
    if value.get("lc") and isinstance(value.get("kwargs"), dict):
        logged = value["kwargs"]
        path = value.get("id")
        name = str(path[-1]) if isinstance(path, list) and path else ""
        kind = logged.get("type") or name.removesuffix("Chunk").removesuffix("Message").lower()
        logged = logged | {"role": kind, "type": None}
    elif _has_data(value):
        logged = value["data"] | {"role": value["type"], "type": None}
    additional = logged.get("additional_kwargs")
    if not isinstance(additional, dict):
        return logged
    # An empty `tool_calls` does not hide the calls in `additional_kwargs`.
    names = ("tool_calls", "function_call", "reasoning_content")
    return {name: additional[name] for name in names if additional.get(name)} | {
        key: field for key, field in logged.items() if field or key != "tool_calls"
    }


def _has_data(value: Row) -> bool:
    """Whether a value is a message of LangChain's `messages_to_dict`, {"type", "data": {"content", ...}}."""
    data = value.get("data")
    return value.get("type") in _LANGCHAIN and isinstance(data, dict) and "content" in data
