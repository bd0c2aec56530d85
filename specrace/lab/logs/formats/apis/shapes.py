"""Tells a response of an API from other JSON, such as what a model was asked to write, by the names of its fields."""

from __future__ import annotations

from typing import Any

from specrace.lab.logs.formats.apis.messages import is_assistant_message
from specrace.lab.logs.formats.apis.streams import is_stream, parse_events
from specrace.lab.logs.formats.base import Row, parse_nested

# Fields in which gateways and logs wrap a response.
WRAPPERS = ("body", "response", "response_body", "result", "json", "data", "raw", "out")
# How many of them may lie within one another; a guess.
MAX_WRAPPERS = 4
# Fields that hold the text of an answer, and those that hold a list of answers.
TEXTS = ("generated_text", "generation", "completion", "outputText", "output_text", "response", "text", "answer")
LISTS = ("choices", "candidates", "generations", "outputs", "results")
# Types of Anthropic's responses and of items of the Responses API.
ITEMS = ("message", "function_call", "custom_tool_call", "reasoning")
# Fields of a message without a role.
_MESSAGE = {
    *("content", "tool_calls", "toolCalls", "function_call"),
    *("reasoning", "reasoning_content", "refusal", "thinking"),
}
# Fields that an API puts beside an answer, and that are unlikely in JSON that a model wrote.
_BESIDE = {
    *("finish_reason", "finishReason", "stop_reason", "stopReason", "completionReason", "is_finished", "done_reason"),
    *("usageMetadata", "usage_metadata", "meta_info", "generation_info", "generation_token_count", "eval_count"),
    *("token_ids", "logprobs", "tokenCount", "system_fingerprint", "conversation_id"),
}
# The beginnings of the field `object` in OpenAI's responses.
_OBJECTS = ("chat.completion", "text_completion", "response")


def is_response(value: Any, depth: int = 0) -> bool:
    """Whether a value has the shape of an API's response or of a message. `depth`: how many objects are around it."""
    if isinstance(value, str):
        return parse_events(value) is not None or parse_nested(value, is_response) is not value
    if depth > MAX_WRAPPERS:
        return False
    if isinstance(value, list):
        return bool(value) and (is_stream(value) or all(is_response(part, depth + 1) for part in value))
    if not isinstance(value, dict):
        return False
    message = value.get("message")
    if any(is_bare_message(body) or is_assistant_message(body) for body in (value, message)):
        return True
    if is_llama_cpp(value) or written_messages(value) or "promptFeedback" in value:
        return True
    if isinstance(value.get("generated_text"), str | list) or _has_list(value, "output_ids"):
        return True
    if value.get("type") in ITEMS and ("call_id" in value or "summary" in value or _has_list(value, "content")):
        return True
    return _holds_answers(value, depth) or any(is_response(value.get(name), depth + 1) for name in WRAPPERS)


def _holds_answers(body: Row, depth: int) -> bool:
    """Whether a body has a text or a list of answers, with fields that APIs put beside it or into it."""
    is_marked = (
        not _BESIDE.isdisjoint(body)
        or isinstance(body.get("usage"), dict)
        or str(body.get("object")).startswith(_OBJECTS)
        or (isinstance(body.get("response"), str) and "done" in body)  # Ollama's /api/generate
    )
    lists = [name for name in LISTS if _has_list(body, name)]
    if is_marked and (lists or any(isinstance(body.get(name), str) for name in (*TEXTS, "output"))):
        return True
    if body.keys() == {"choices"} and lists and all(isinstance(choice, dict) for choice in body["choices"]):
        return True
    # No model gives a field such a name.
    if any(isinstance(body.get(name), str) for name in ("outputText", "output_text")):
        return True
    output = body.get("output")
    if isinstance(output, list | dict) and ({"id", "status"} <= body.keys() or is_response(output, depth + 1)):
        return True
    return any(body[name] and all(_is_choice(choice, depth + 1) for choice in body[name]) for name in lists)


def _is_choice(choice: Any, depth: int) -> bool:
    """Whether an element of a list has the shape of an answer in an API's response."""
    if isinstance(choice, list):  # LangChain's generations
        return all(isinstance(generation, dict) and "text" in generation for generation in choice)
    if not isinstance(choice, dict):
        return False
    content = choice.get("content")
    is_gemini = isinstance(content, dict) and "parts" in content
    return is_gemini or "delta" in choice or isinstance(choice.get("message"), dict) or is_response(choice, depth)


def _has_list(body: Row, name: str) -> bool:
    return isinstance(body.get(name), list)


def is_bare_message(value: object) -> bool:
    """Whether a value is a message without a role, by the names of its fields."""
    return isinstance(value, dict) and "content" in value and value.keys() <= _MESSAGE


def is_llama_cpp(body: Row) -> bool:
    """Whether a body is a response of llama.cpp's /completion."""
    return isinstance(body.get("content"), str) and ("tokens_predicted" in body or "stop" in body)


def written_messages(body: Row) -> list[Any]:
    """The messages under `messages` if all are the assistant's, as in some tracers' responses; none otherwise."""
    messages = body.get("messages")
    return messages if isinstance(messages, list) and all(map(is_assistant_message, messages)) else []
