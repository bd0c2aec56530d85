"""Formats in which gateways, tracers and load generators log requests.

- LiteLLM's StandardLoggingPayload: messages, response (docs.litellm.ai/docs/proxy/logging_spec; an example is
  BerriAI/litellm, tests/logging_callback_tests/gcs_pub_sub_body/standard_logging_payload.json).
- Langfuse's exported observations: type, input, output; input and output are JSON or text
  (langfuse.com/docs/api-and-data-platform/features/blob-storage-export-fields); only the type GENERATION counts.
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
    read_label,
    read_text,
    reasoning_text,
    require_list,
    require_object,
)
from specrace.lab.formats.responses import has_ids, read_choices

# Fields that show a request, a response or a message; and all fields that a message without a role may have.
_NAMES = {"role", "choices", "messages", "prompt"}
_MESSAGE = {"content", "tool_calls", "reasoning", "reasoning_content", "refusal"}


class LiteLLM(Format):
    """One call per line."""

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
        # The `prompt` of a completion is logged as messages, too.
        request = {"prompt": prompt} if isinstance(prompt, str) else {"messages": prompt}
        parameters = row.get("model_parameters")
        if isinstance(parameters, dict) and parameters.get("tools"):
            request["tools"] = parameters["tools"]
        return read_choices(require_object(response, "response"), request, read_label(row, "id"))


class Langfuse(Format):
    """One observation per line."""

    name = "langfuse"
    title = "Langfuse observations"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return {"type", "input", "output"} <= row.keys() and bool({"trace_id", "traceId"} & row.keys())

    def read(self, row: Row) -> Iterable[Exchange]:
        if row.get("type") != "GENERATION":
            return ()
        logged = _parse(row.get("input"))
        kind = "messages" if isinstance(logged, list) else "prompt"
        request = logged if isinstance(logged, dict) else {kind: logged}
        return _exchanges(request, _parse(row.get("output")), read_label(row, "id"))


def _parse(value: Any) -> Any:
    """Parse a field that Langfuse exports either as it was or as JSON text.

    A model's own text may be JSON, too, so text is parsed only if its fields show a request, a response or messages.
    """
    parsed = json_or_text(value) if isinstance(value, str) else value
    parts = parsed if isinstance(parsed, list) and parsed else [parsed]
    return parsed if parsed is value or all(map(_is_chat_object, parts)) else value


def _is_chat_object(value: Any) -> bool:
    """Whether this is a request, a response or a message, by the names of its fields."""
    if not isinstance(value, dict):
        return False
    return bool(value.keys() & _NAMES) or ("content" in value and value.keys() <= _MESSAGE)


def _exchanges(request: Row, output: Any, name: str) -> Iterable[Exchange]:
    """The exchanges of a request and its logged output: a response, a message, a list of one message, or text."""
    if isinstance(output, dict) and "choices" in output:
        return read_choices(output, request, name)
    if isinstance(output, list) and len(output) == 1:
        output = output[0]
    if "messages" in request:
        message = output if isinstance(output, dict) else {"content": output}
        choice: Row = {"message": message}
    else:
        is_message = isinstance(output, dict) and "content" in output
        choice = {"text": content_text(output["content"]) if is_message else output}
    return read_choices({"choices": [choice]}, request, name)


class AIPerf(Format):
    """One request per line."""

    name = "aiperf"
    title = "aiperf raw records"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return {"metadata", "payload", "responses"} <= row.keys()

    def read(self, row: Row) -> Iterable[Exchange]:
        if row.get("error"):
            raise ValueError("the request failed; there is no output")
        responses = require_list(row.get("responses"), "responses")
        bodies = [body for response in responses if (body := _body(response)) is not None]
        if not bodies:
            raise ValueError("there is no response; export with --export-level raw")
        body = _join_stream(bodies) if len(bodies) > 1 or "delta" in _first_choice(bodies[0]) else bodies[0]
        name = read_label(require_object(row.get("metadata"), "metadata"), "x_request_id")
        return read_choices(body, require_object(row.get("payload"), "payload"), name)


def _body(response: object) -> Row | None:
    """The JSON of a response, or of one event of a stream; None for an event without JSON."""
    logged = require_object(response, "a response")
    if "packets" in logged:
        packets = [require_object(packet, "a packet") for packet in require_list(logged["packets"], "packets")]
        values = [packet.get("value") for packet in packets if packet.get("name") == "data"]
        text = "\n".join(read_text(value, "the value of a packet") for value in values)
    else:
        text = read_text(logged.get("text"), "text")
    body = None if text in ("", "[DONE]") else json_or_text(text)
    return body if body is None else require_object(body, "a response")


def _first_choice(body: Row) -> Row:
    choices = body.get("choices")
    return require_object(choices[0], "a choice") if isinstance(choices, list) and choices else {}


def _join_stream(bodies: list[Row]) -> Row:
    """The chunks of a stream as one response. Raises ValueError for streamed tool calls, which come in fragments."""
    text = ""
    message = ""
    reasoning = ""
    ids = []
    for choice in map(_first_choice, bodies):
        delta = require_object(choice.get("delta") or {}, "delta")
        if delta.get("tool_calls"):
            raise ValueError("the streamed response calls a tool; run aiperf without --streaming")
        message += content_text(delta.get("content"))
        reasoning += reasoning_text(delta)
        text += content_text(choice.get("text"))
        ids += require_list(choice.get("token_ids") or [], "token_ids")
    answer = {"role": "assistant", "content": message, "reasoning_content": reasoning}
    choice = {"message": answer, "text": text, "token_ids": ids}
    with_ids = next((body for body in bodies if has_ids(body)), {})
    prompt = with_ids.get("prompt_token_ids") or _first_choice(with_ids).get("prompt_token_ids")
    return {"choices": [choice], "prompt_token_ids": prompt}
