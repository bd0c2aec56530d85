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

from typing import Any

from specrace.lab.logs.formats.base import Row, json_or_text, require_list, require_object

# A field with a piece of text -> a field that is beside it in chunks only, not in a whole response.
_TEXT_CHUNKS = {"generation": "generation_token_count", "outputText": "totalOutputTextTokenCount", "content": "stop"}
_TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "refusal", "thinking")


def is_stream(value: object) -> bool:
    """Whether a list has the chunks of a streamed response."""
    if not isinstance(value, list) or not value or not all(isinstance(chunk, dict) for chunk in value):
        return False
    return any(map(_is_chunk, value))


def _is_chunk(chunk: Row) -> bool:
    if chunk.get("object") in ("chat.completion.chunk", "response") and "choices" in chunk:
        return True
    choices = chunk.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict) and "delta" in choices[0]:
        return True
    if isinstance(chunk.get("type"), str) and chunk["type"].startswith(("message_start", "content_block", "response.")):
        return True
    return "candidates" in chunk or ("done" in chunk and ("message" in chunk or "response" in chunk)) or _is_text(chunk)


def _is_text(chunk: Row) -> bool:
    """Whether a chunk is a piece of plain text, as llama.cpp, TGI and Bedrock stream it."""
    if isinstance(chunk.get("token"), dict) and "generated_text" in chunk:
        return True
    return any(isinstance(chunk.get(text), str) and beside in chunk for text, beside in _TEXT_CHUNKS.items())


def parse_events(text: str) -> list[Row] | None:
    """The chunks in a stream that was logged as text; None for any other text, also for a single object."""
    start = text.lstrip()[:6]
    if not start.startswith(("data:", "event:", ":", "{")):
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not start.startswith("{"):
        lines = [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]
    chunks = [json_or_text(line) for line in lines if line != "[DONE]"]
    if len(chunks) < (2 if start.startswith("{") else 1) or not is_stream(chunks):
        return None
    return chunks


def join_stream(chunks: list[Row]) -> Row:
    """One response made of all chunks. Raises ValueError."""
    completed = next((chunk["response"] for chunk in chunks if chunk.get("type") == "response.completed"), None)
    if completed is not None:
        return require_object(completed, "response")
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
    about: Row = {}
    text, ids = "", list[Any]()
    for chunk in chunks:
        about |= {key: value for key, value in chunk.items() if value is not None}
        token = chunk.get("token")
        piece = token.get("text") if isinstance(token, dict) and not token.get("special") else None
        text += next((chunk[name] for name in _TEXT_CHUNKS if isinstance(chunk.get(name), str)), piece or "")
        ids += chunk["tokens"] if isinstance(chunk.get("tokens"), list) else []
    whole = about.get("generated_text")
    about = {key: value for key, value in about.items() if key not in (*_TEXT_CHUNKS, "token", "tokens")}
    return about | {"generated_text": whole if isinstance(whole, str) else text} | ({"tokens": ids} if ids else {})


def _openai(chunks: list[Row]) -> Row:
    choices: dict[int, Row] = {}
    about: Row = {}
    for chunk in chunks:
        about |= {key: chunk[key] for key in ("usage", "prompt_token_ids", "id", "model", "metrics") if chunk.get(key)}
        for part in require_list(chunk.get("choices") or [], "choices"):
            part = require_object(part, "a choice")
            index = part.get("index", 0)
            _add_part(choices.setdefault(index if isinstance(index, int) else 0, {"message": {}}), part)
    for choice in choices.values():
        # The chunks of a completion have text and no message.
        choice["message"] = choice["message"] or (None if "text" in choice else {"content": ""})
    return about | {"choices": [choices[index] for index in sorted(choices)]}


def _add_part(choice: Row, part: Row) -> None:
    """Append a chunk's part to its choice."""
    delta = require_object(part.get("delta") or part.get("message") or {}, "delta")
    message = choice["message"]
    for name in _TEXT_FIELDS:
        if isinstance(delta.get(name), str):
            message[name] = message.get(name, "") + delta[name]
    for call in require_list(delta.get("tool_calls") or [], "tool_calls"):
        _add_call(message.setdefault("tool_calls", []), require_object(call, "a tool call"))
    if isinstance(part.get("text"), str):
        choice["text"] = choice.get("text", "") + part["text"]
    if part.get("token_ids"):
        choice["token_ids"] = [*choice.get("token_ids", []), *require_list(part["token_ids"], "token_ids")]
    choice |= {key: part[key] for key in ("finish_reason", "prompt_token_ids") if part.get(key)}


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
    about: Row = {}
    for chunk in chunks:
        about |= {key: chunk[key] for key in ("usageMetadata",) if key in chunk}
        for candidate in require_list(chunk.get("candidates") or [], "candidates"):
            content = require_object(candidate, "a candidate").get("content") or {}
            parts.setdefault(candidate.get("index", 0), []).extend(content.get("parts") or ())
    return about | {"candidates": [{"content": {"role": "model", "parts": content}} for content in parts.values()]}


def _ollama(chunks: list[Row]) -> Row:
    joined: Row = {"role": "assistant", "content": ""}
    text = ""
    for chunk in chunks:
        message = chunk.get("message") or {}
        for name in _TEXT_FIELDS:
            if isinstance(message.get(name), str):
                joined[name] = joined.get(name, "") + message[name]
        if message.get("tool_calls"):
            joined["tool_calls"] = [*joined.get("tool_calls", []), *message["tool_calls"]]
        text += chunk.get("response") or ""
    return chunks[-1] | ({"response": text} if text else {"message": joined})
