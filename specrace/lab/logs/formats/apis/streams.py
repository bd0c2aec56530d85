"""Joins the chunks of a streamed response into the response that would have come without streaming.

- OpenAI's chat completions and completions: chunks with choices[].delta or choices[].text; a choice's chunks share its
  `index`, and a call's fragments share theirs (openai/openai-python, src/openai/types/chat/chat_completion_chunk.py).
- Anthropic's events: message_start, content_block_start, content_block_delta, message_delta, ...
  (anthropics/anthropic-sdk-python, src/anthropic/types/raw_message_stream_event.py).
- Responses API: the event response.completed has the whole response.
- Gemini's and Ollama's chunks are responses whose texts follow one another. So are TGI's chunks (`token`), those of
  llama.cpp's /completion (`content`, `stop`), and those of Bedrock's InvokeModel for Llama (`generation`) and Titan
  (`outputText`).

A stream may also be logged as the text that was sent: server-sent events, or an object a line.
"""

from __future__ import annotations

import re
from typing import Any

from specrace.core.errors import shorten
from specrace.lab.logs.formats.base import Row, json_or_text, require_list, require_object

# A field with a piece of text -> a field that stands beside it in chunks.
_TEXT_CHUNKS = {"generation": "generation_token_count", "outputText": "totalOutputTextTokenCount", "content": "stop"}
_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
_TEXT_FIELDS = ("content", "refusal", *_REASONING_FIELDS)
# The beginning of server-sent events up to the first JSON, also as Python prints bytes, or with the sizes of HTTP's
# chunks left in.
_EVENTS = re.compile(
    r"\s*(?:[0-9a-f]{1,8}[\r\n]+|b['\"])?(?:(?:event|id|retry)?:[^\r\n]*[\r\n]\s*)*data:\s*(\{\s*\\?\")?",
    re.IGNORECASE,
)
# An object in the first line, and more lines after it.
_OBJECT_LINES = re.compile(r"\s*\{[^\r\n]*\}[ \t]*[\r\n]\s*\S")
# A text with fewer words, in a field of an unknown name, is not what a model wrote.
_MIN_WORDS = 4
_NOT_DATA = ("event:", "id:", "retry:", ":")
# Marks a line that is no event, so that the stream is recognised as one, and `join_stream` refuses it.
_UNREADABLE = "a line that is no event"


def is_stream(value: object) -> bool:
    """Whether a list has the chunks of a streamed response."""
    if not isinstance(value, list) or not value or not all(isinstance(chunk, dict) for chunk in value):
        return False
    return any(_is_chunk(chunk) or _UNREADABLE in chunk for chunk in value) or _are_of_completion(value)


def _are_of_completion(chunks: list[Row]) -> bool:
    """Whether these are the chunks of one completion, each of which looks like a whole completion."""
    if len(chunks) < 2 or not all(map(_is_completion, chunks)):
        return False
    ids = {str(chunk.get("id") or "") for chunk in chunks}
    return len(ids) == 1 and ("" not in ids or not any(part.get("finish_reason") for part in chunks[0]["choices"]))


def _is_completion(chunk: Row) -> bool:
    choices = chunk.get("choices")
    if chunk.get("object") != "text_completion" or not isinstance(choices, list):
        return False
    return all(isinstance(part, dict) for part in choices)


def _is_chunk(chunk: Row) -> bool:
    if chunk.get("object") in ("chat.completion.chunk", "response") and "choices" in chunk:
        return True
    choices = chunk.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict) and "delta" in choices[0]:
        return True
    if isinstance(chunk.get("type"), str) and chunk["type"].startswith(("message_start", "content_block", "response.")):
        return True
    # Gemini's, Ollama's, or a piece of plain text.
    return "candidates" in chunk or ("done" in chunk and ("message" in chunk or "response" in chunk)) or _is_text(chunk)


def _is_text(chunk: Row) -> bool:
    """Whether a chunk is a piece of plain text, as llama.cpp, TGI and Bedrock stream it."""
    if isinstance(chunk.get("token"), dict) and "generated_text" in chunk:
        return True
    return any(isinstance(chunk.get(text), str) and beside in chunk for text, beside in _TEXT_CHUNKS.items())


def parse_events(text: str) -> list[Row] | None:
    """The chunks in a stream that was logged as text; None for any other text, also for a single object.

    For a stream that is cut or of an unknown API, it returns chunks that `join_stream` refuses.
    """
    events = _EVENTS.match(text)
    if not events and _OBJECT_LINES.match(text) is None:
        return None
    lines = [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]
    if events:
        lines = [line.removeprefix("data:").strip() for line in lines if not line.startswith(_NOT_DATA)]
    parsed = [json_or_text(line) for line in lines if line not in ("", "[DONE]")]
    chunks: list[Row] = [chunk if isinstance(chunk, dict) else {_UNREADABLE: chunk} for chunk in parsed]
    if any(map(_is_chunk, chunks if events else chunks[:1])) or _are_of_completion(chunks):
        return chunks
    if events and len(chunks) == 1 and _is_completion(chunks[0]):
        return chunks
    # Group 1 of _EVENTS is the beginning of a JSON object.
    return [{_UNREADABLE: lines[0]}] if events and events[1] else None


def join_stream(chunks: list[Row]) -> Row:
    """One response made of all chunks. Raises ValueError."""
    for chunk in chunks:
        if _UNREADABLE in chunk:
            raise ValueError("the response is a stream that is cut or of an unknown API; log the whole response")
        if chunk.get("error"):
            raise ValueError("the request failed while its answer was sent; the output is not whole")
    ends = ("response.completed", "response.incomplete", "response.failed")
    ended = next((chunk["response"] for chunk in chunks if chunk.get("type") in ends), None)
    if ended is not None:
        return require_object(ended, "response")
    if any(str(chunk.get("type")).startswith("response.") for chunk in chunks):
        raise ValueError("the stream ends before response.completed, so the output is not whole")
    if any(str(chunk.get("type")).startswith(("message_start", "content_block")) for chunk in chunks):
        return _anthropic(chunks)
    if any("candidates" in chunk for chunk in chunks):
        return _gemini(chunks)
    if any("done" in chunk for chunk in chunks):
        return _ollama(chunks)
    if any(map(_is_text, chunks)):
        return _texts(chunks)
    return _openai(chunks)


def _texts(chunks: list[Row]) -> Row:
    """The response of chunks of plain text (see `_is_text`)."""
    other_fields: Row = {}
    text, ids = "", list[Any]()
    for chunk in chunks:
        other_fields |= {key: value for key, value in chunk.items() if value is not None}
        token = chunk.get("token")
        piece = token.get("text") if isinstance(token, dict) and not token.get("special") else None
        text += next((chunk[name] for name in _TEXT_CHUNKS if isinstance(chunk.get(name), str)), piece or "")
        ids += chunk["tokens"] if isinstance(chunk.get("tokens"), list) else []
    final_text = other_fields.get("generated_text")
    other_fields = {key: value for key, value in other_fields.items() if key not in (*_TEXT_CHUNKS, "token", "tokens")}
    return (
        other_fields
        | {"generated_text": final_text if isinstance(final_text, str) else text}
        | ({"tokens": ids} if ids else {})
    )


def _openai(chunks: list[Row]) -> Row:
    choices: dict[int, Row] = {}
    other_fields: Row = {}
    unread: dict[str, str] = {}
    for chunk in chunks:
        other_fields |= {
            key: chunk[key] for key in ("usage", "prompt_token_ids", "id", "model", "metrics") if chunk.get(key)
        }
        for part in require_list(chunk.get("choices") or [], "choices"):
            part = require_object(part, "a choice")
            index = part.get("index", 0)
            _add_part(choices.setdefault(index if isinstance(index, int) else 0, {"message": {}}), part, unread)
    for name, text in unread.items():
        # A text with fewer words is an id or the name of a channel, not what a model wrote.
        if len(text.split(None, _MIN_WORDS)) >= _MIN_WORDS:
            raise ValueError(f"the chunks of the stream have text in {shorten(name, 40)}, which is not read")
    for choice in choices.values():
        # The chunks of a completion have text and no message.
        choice["message"] = choice["message"] or (None if "text" in choice else {"content": ""})
    return other_fields | {"choices": [choices[index] for index in sorted(choices)]}


def _add_part(choice: Row, part: Row, unread: dict[str, str]) -> None:
    """Append a chunk's part to its choice, and texts in fields of unknown names to those in `unread`."""
    delta = require_object(part.get("delta") or part.get("message") or {}, "delta")
    message = choice["message"]
    for name, piece in _with_reasoning(delta).items():
        if name in _TEXT_FIELDS and piece:
            message[name] = _joined(message.get(name, ""), piece, name)
        elif isinstance(piece, str) and name != "role":
            unread[name] = unread.get(name, "") + piece
    if delta.get("function_call"):
        calls = message.setdefault("tool_calls", [])
        _add_call(calls, {"index": 0, "function": require_object(delta["function_call"], "function_call")})
    for call in require_list(delta.get("tool_calls") or [], "tool_calls"):
        _add_call(message.setdefault("tool_calls", []), require_object(call, "a tool call"))
    if isinstance(part.get("text"), str):
        choice["text"] = choice.get("text", "") + part["text"]
    if part.get("token_ids"):
        choice["token_ids"] = [*choice.get("token_ids", []), *require_list(part["token_ids"], "token_ids")]
    choice |= {key: part[key] for key in ("finish_reason", "prompt_token_ids") if part.get(key)}


def _joined(written: str | list[Any], piece: object, name: str) -> str | list[Any]:
    """A text, or a list of parts as Mistral streams them, with a piece appended. Raises ValueError."""
    if isinstance(written, str) and isinstance(piece, str):
        return written + piece
    parts = [{"type": "text", "text": written}] if isinstance(written, str) and written else written or []
    return [*parts, *([{"type": "text", "text": piece}] if isinstance(piece, str) else require_list(piece, name))]


def _with_reasoning(delta: Row) -> Row:
    """A delta whose reasoning OpenRouter sent in parts only, with the reasoning as text; any other delta unchanged."""
    if not delta.get("reasoning_details") or any(delta.get(name) for name in _REASONING_FIELDS):
        return delta
    details = require_list(delta["reasoning_details"], "reasoning_details")
    texts = [require_object(detail, "a part of reasoning").get("text") for detail in details]
    return delta | {"reasoning": "".join(text for text in texts if isinstance(text, str))}


def _add_call(calls: list[Row], fragment: Row) -> None:
    """Append a fragment of a tool call, whose name comes once and whose arguments come piece by piece."""
    index = fragment.get("index")
    call = next((call for call in calls if index is not None and call["index"] == index), None)
    if call is None:
        call = {"index": index, "id": fragment.get("id"), "function": {"name": "", "arguments": ""}}
        calls.append(call)
    function = fragment.get("function") or {}
    call["function"]["name"] += function.get("name") or ""
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        call["function"]["arguments"] = arguments
    elif arguments:
        call["function"]["arguments"] += arguments


def _anthropic(events: list[Row]) -> Row:
    message: Row = {"role": "assistant", "content": []}
    blocks: dict[int, Row] = {}
    for event in events:
        kind = event.get("type")
        if kind == "message_start":
            message |= require_object(event.get("message"), "message") | {"content": []}
        elif kind == "content_block_start":
            blocks[event.get("index", len(blocks))] = dict(require_object(event.get("content_block"), "a block"))
        elif kind == "content_block_delta":
            _add_delta(blocks.setdefault(event.get("index", 0), {}), require_object(event.get("delta"), "delta"))
        elif kind == "message_delta" and isinstance(event.get("usage"), dict):
            message["usage"] = (message.get("usage") or {}) | event["usage"]
    return message | {"type": "message", "content": [blocks[index] for index in sorted(blocks)]}


def _add_delta(block: Row, delta: Row) -> None:
    """Append a delta to its block; the input of a tool comes as pieces of JSON text."""
    for name in ("text", "thinking"):
        if isinstance(delta.get(name), str):
            block[name] = block.get(name, "") + delta[name]
    if isinstance(delta.get("partial_json"), str):
        written = block.get("input")
        block["input"] = (written if isinstance(written, str) else "") + delta["partial_json"]


def _gemini(chunks: list[Row]) -> Row:
    parts: dict[int, list[Any]] = {}
    other_fields: Row = {}
    for chunk in chunks:
        if "usageMetadata" in chunk:
            other_fields["usageMetadata"] = chunk["usageMetadata"]
        for candidate in require_list(chunk.get("candidates") or [], "candidates"):
            content = require_object(candidate, "a candidate").get("content") or {}
            parts.setdefault(candidate.get("index", 0), []).extend(content.get("parts") or ())
    return other_fields | {
        "candidates": [{"content": {"role": "model", "parts": content}} for content in parts.values()]
    }


def _ollama(chunks: list[Row]) -> Row:
    joined: Row = {"role": "assistant", "content": ""}
    text = thinking = ""
    for chunk in chunks:
        message = chunk.get("message") or {}
        for name in _TEXT_FIELDS:
            if isinstance(message.get(name), str):
                joined[name] = joined.get(name, "") + message[name]
        if message.get("tool_calls"):
            joined["tool_calls"] = [*joined.get("tool_calls", []), *message["tool_calls"]]
        text += chunk.get("response") or ""
        thinking += chunk.get("thinking") or ""
    other_fields = chunks[-1] | ({"thinking": thinking} if thinking else {})
    return other_fields | ({"response": text} if text else {"message": joined})
