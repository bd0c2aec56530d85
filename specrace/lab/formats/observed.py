"""Requests as gateways, tracers and load generators log them.

- LiteLLM's StandardLoggingPayload: messages, response (docs.litellm.ai/docs/proxy/logging_spec; an example is
  BerriAI/litellm, tests/logging_callback_tests/gcs_pub_sub_body/standard_logging_payload.json).
- Langfuse's exported observations: type, input, output, where the latter two are JSON or text
  (langfuse.com/docs/api-and-data-platform/features/blob-storage-export-fields); those of type GENERATION count.
- aiperf's `--export-level raw`: metadata, payload, responses, each response with the server's JSON in `text` or with
  server-sent events in `packets` (ai-dynamo/aiperf, src/aiperf/common/models/record_models.py: RawRecordInfo,
  TextResponse, SSEMessage).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from specrace.lab.formats.base import (
    Exchange,
    Format,
    Row,
    content_text,
    json_or_text,
    label,
    mapping,
    read_text,
    reasoning_text,
    sequence,
)
from specrace.lab.formats.responses import has_ids, read_choices

# Of a request, a response or a message; and all that a message without a role may have.
_NAMES = {"role", "choices", "messages", "prompt"}
_MESSAGE = {"content", "tool_calls", "reasoning", "reasoning_content", "refusal"}


class LiteLLM(Format):
    """A call a line."""

    name = "litellm"
    title = "LiteLLM standard logging payloads"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return "messages" in row and "response" in row

    def read(self, row: Row) -> Iterable[Exchange]:
        if row.get("status", "success") != "success":
            raise ValueError("the request failed; there is no output")
        response = row.get("response")
        if isinstance(response, str):
            response = {"choices": [{"message": {"content": response}}]}
        prompt = row.get("messages")
        # What a completion got as `prompt` is logged as messages, too.
        request = {"prompt": prompt} if isinstance(prompt, str) else {"messages": prompt}
        parameters = row.get("model_parameters")
        if isinstance(parameters, dict) and parameters.get("tools"):
            request["tools"] = parameters["tools"]
        return read_choices(mapping(response, "response"), request, label(row, "id"))


class Langfuse(Format):
    """An observation a line."""

    name = "langfuse"
    title = "Langfuse observations"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return {"type", "input", "output"} <= row.keys() and bool({"trace_id", "traceId"} & row.keys())

    def read(self, row: Row) -> Iterable[Exchange]:
        if row.get("type") != "GENERATION":
            return ()
        given, output = (_json(row.get(name)) for name in ("input", "output"))
        request = (
            given if isinstance(given, dict) else {"messages": given} if isinstance(given, list) else {"prompt": given}
        )
        return _pair(request, output, label(row, "id"))


def _json(value: Any) -> Any:
    """A field that Langfuse exports as text of JSON or as it was.

    A model's own text may be JSON, too: only requests, responses and messages count as such, whose names tell.
    """
    found = json_or_text(value) if isinstance(value, str) else value
    each = found if isinstance(found, list) and found else [found]
    return found if found is value or all(map(_is_of_chat, each)) else value


def _is_of_chat(value: Any) -> bool:
    """Whether this is a request, a response or a message."""
    if not isinstance(value, dict):
        return False
    return bool(value.keys() & _NAMES) or ("content" in value and value.keys() <= _MESSAGE)


def _pair(request: Row, output: Any, name: str) -> Iterable[Exchange]:
    """A request and what was logged as its output: a response, a message, a list of one, or text."""
    if isinstance(output, dict) and "choices" in output:
        return read_choices(output, request, name)
    if isinstance(output, list) and len(output) == 1:
        output = output[0]
    if "messages" in request:
        message = output if isinstance(output, dict) else {"content": output}
        choice: Row = {"message": message}
    else:
        choice = {
            "text": content_text(output["content"]) if isinstance(output, dict) and "content" in output else output
        }
    return read_choices({"choices": [choice]}, request, name)


class AIPerf(Format):
    """A request a line."""

    name = "aiperf"
    title = "aiperf raw records"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return {"metadata", "payload", "responses"} <= row.keys()

    def read(self, row: Row) -> Iterable[Exchange]:
        if row.get("error"):
            raise ValueError("the request failed; there is no output")
        bodies = [body for each in sequence(row.get("responses"), "responses") if (body := _body(each)) is not None]
        if not bodies:
            raise ValueError("there is no response; export with --export-level raw")
        body = _streamed(bodies) if len(bodies) > 1 or "delta" in _first_choice(bodies[0]) else bodies[0]
        name = label(mapping(row.get("metadata"), "metadata"), "x_request_id")
        return read_choices(body, mapping(row.get("payload"), "payload"), name)


def _body(response: object) -> Row | None:
    """The JSON of a response or of one event of a stream; None for an event without any."""
    given = mapping(response, "a response")
    if "packets" in given:
        packets = [mapping(each, "a packet") for each in sequence(given["packets"], "packets")]
        data = [each.get("value") for each in packets if each.get("name") == "data"]
        text = "\n".join(read_text(each, "the value of a packet") for each in data)
    else:
        text = read_text(given.get("text"), "text")
    found = None if text in ("", "[DONE]") else json_or_text(text)
    return found if found is None else mapping(found, "a response")


def _first_choice(body: Row) -> Row:
    choices = body.get("choices")
    return mapping(choices[0], "a choice") if isinstance(choices, list) and choices else {}


def _streamed(bodies: list[Row]) -> Row:
    """One response of the chunks of a stream. Raises ValueError for streamed tool calls, which come in fragments."""
    text, message, reasoning, ids = "", "", "", []
    for choice in map(_first_choice, bodies):
        delta = mapping(choice.get("delta") or {}, "delta")
        if delta.get("tool_calls"):
            raise ValueError("the streamed response calls a tool; run aiperf without --streaming")
        message += content_text(delta.get("content"))
        reasoning += reasoning_text(delta)
        text += content_text(choice.get("text"))
        ids += sequence(choice.get("token_ids") or [], "token_ids")
    spoken = {"role": "assistant", "content": message, "reasoning_content": reasoning}
    choice = {"message": spoken, "text": text, "token_ids": ids}
    exact = next((body for body in bodies if has_ids(body)), {})
    prompt = exact.get("prompt_token_ids") or _first_choice(exact).get("prompt_token_ids")
    return {"choices": [choice], "prompt_token_ids": prompt}
