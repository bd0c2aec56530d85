"""Spans of OpenTelemetry, as OTLP's JSON or with flat attributes.

- The GenAI conventions: gen_ai.input.messages, gen_ai.output.messages, gen_ai.system_instructions, as objects or JSON
  text (open-telemetry/semantic-conventions, docs/gen-ai/gen-ai-spans.md), or in the attributes of an event.
- OpenLLMetry: gen_ai.prompt.0.role, gen_ai.prompt.0.content, gen_ai.completion.0.content, ...
  (traceloop/openllmetry, packages/opentelemetry-semantic-conventions-ai).
- OpenInference: llm.input_messages.0.message.role, ..., llm.output_messages.0.message.content
  (Arize-ai/openinference, spec/semantic_conventions.md).
- OTLP's JSON nests spans and writes attributes as lists of keys and typed values
  (open-telemetry/opentelemetry-proto, docs/specification.md#json-protobuf-encoding).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from specrace.lab.formats.apis import read_exchanges
from specrace.lab.formats.apis.answers import read_usage
from specrace.lab.formats.base import Exchange, Format, Row, json_or_text, read_label

# The attributes of the messages that the model read, and of those that it wrote.
_MARKS = (
    "gen_ai.input.messages",
    "gen_ai.prompt",
    "gen_ai.prompt.0.role",
    "gen_ai.prompt.0.content",
    "llm.input_messages.0.message.role",
    "llm.prompts.0.content",
)
_READ = ("gen_ai.input.messages", "gen_ai.prompt", "llm.input_messages", "llm.prompts")
_WRITTEN = ("gen_ai.output.messages", "gen_ai.completion", "llm.output_messages", "llm.completions")
_COUNTS = {
    "prompt_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    "completion_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
}
_PARAMETERS = "gen_ai.request."


class Spans(Format):
    """One span, or one export of many spans, per line; spans that are not a model's are left out."""

    name = "opentelemetry"
    title = "OpenTelemetry spans"

    @staticmethod
    def looks_like(row: Row) -> bool:
        if "resourceSpans" in row or "scopeSpans" in row or "resourceLogs" in row:
            return True
        return any(mark in attributes for attributes in _attribute_sets(row) for mark in _MARKS)

    def read(self, row: Row) -> Iterable[Exchange]:
        for span in _spans(row):
            name = next((label for key in ("spanId", "span_id", "id") if (label := read_label(span, key))), "")
            for attributes in _attribute_sets(span):
                yield from _exchanges(attributes, name)


def _exchanges(attributes: Row, name: str) -> Iterator[Exchange]:
    request = next((found for key in _READ if (found := _messages(attributes, key))), None)
    if request is None:
        return
    written = next((found for key in _WRITTEN if (found := _messages(attributes, key))), None)
    if written is None:
        raise ValueError("the span has what the model read and not what it wrote; record the messages of its output")
    body: Row = {
        key.removeprefix(_PARAMETERS): value for key, value in attributes.items() if key.startswith(_PARAMETERS)
    }
    # OpenInference writes them as JSON text.
    invocation = _value(attributes.get("llm.invocation_parameters"))
    body |= invocation if isinstance(invocation, dict) else {}
    if attributes.get("gen_ai.output.type") == "json":
        body["response_format"] = {"type": "json_object"}
    system = _value(attributes.get("gen_ai.system_instructions"))
    body |= {"messages": request} if isinstance(request, list) else {"prompt": request}
    body |= {"system": system, "tools": _value(attributes.get("gen_ai.tool.definitions"))}
    counts = {
        ours: next((attributes[key] for key in keys if key in attributes), None) for ours, keys in _COUNTS.items()
    }
    # OTLP writes whole numbers as text.
    usage = read_usage({"usage": {key: int(f"{value}") for key, value in counts.items() if f"{value}".isdigit()}})
    for answer in written if isinstance(written, list) else [written]:
        for exchange in read_exchanges(body, answer, name):
            yield replace(exchange, usage=usage)


def _spans(row: Row) -> Iterator[Row]:
    """The spans and log records in an export, or the row itself."""
    nested = ("resourceSpans", "scopeSpans", "spans", "resourceLogs", "scopeLogs", "logRecords")
    inner = [each for name in nested if isinstance(row.get(name), list) for each in row[name] if isinstance(each, dict)]
    if not inner:
        yield row
    for each in inner:
        yield from _spans(each)


def _attribute_sets(span: Row) -> Iterator[Row]:
    """The attributes of a span and of its events, each as a flat object; those of the span may be its own fields."""
    for holder in (span, *(event for event in span.get("events") or () if isinstance(event, dict))):
        attributes = holder.get("attributes")
        if isinstance(attributes, list):
            attributes = {each.get("key"): _typed(each.get("value")) for each in attributes if isinstance(each, dict)}
        if isinstance(attributes, dict):
            yield _flat(attributes)
        elif any(key in holder for key in _MARKS):
            yield holder


def _flat(attributes: Row, prefix: str = "") -> Row:
    """Attributes of nested objects under their dotted names; lists and JSON text stay as they are."""
    flat: Row = {}
    for key, value in attributes.items():
        nested = isinstance(value, dict) and not {"role", "content", "parts"} & value.keys()
        flat |= _flat(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def _typed(value: Any) -> Any:
    """The value of an attribute in OTLP, {"stringValue": ...} and so on."""
    if not isinstance(value, dict) or len(value) != 1:
        return value
    kind, inner = next(iter(value.items()))
    if kind == "arrayValue" and isinstance(inner, dict):
        return [_typed(each) for each in inner.get("values") or ()]
    if kind == "kvlistValue" and isinstance(inner, dict):
        return {each.get("key"): _typed(each.get("value")) for each in inner.get("values") or ()}
    return inner


def _value(value: Any) -> Any:
    return json_or_text(value) if isinstance(value, str) else value


def _messages(attributes: Row, name: str) -> Any:
    """The messages under a name: a list, JSON text, plain text, or attributes with numbered names; None for none."""
    if name in attributes:
        return _value(attributes[name])
    numbered: dict[int, Row] = {}
    for key, value in attributes.items():
        rest = key.removeprefix(f"{name}.")
        index, _, path = rest.partition(".")
        if rest != key and index.isdigit() and path:
            _put(numbered.setdefault(int(index), {}), path.removeprefix("message.").split("."), value)
    messages = [_message(numbered[index]) for index in sorted(numbered)]
    default = "assistant" if name in _WRITTEN else "user"
    return [{"role": default} | message for message in messages] or None


def _put(into: Row, path: list[str], value: Any) -> None:
    """Set a value at a path, whose numbers index objects that `_message` turns into lists."""
    for step in path[:-1]:
        inner = into.setdefault(step, {})
        if not isinstance(inner, dict):
            return
        into = inner
    into[path[-1]] = value


def _message(fields: Row) -> Row:
    """A message made of numbered attributes, with its calls and parts as lists."""
    message: Row = {}
    for key, value in fields.items():
        if isinstance(value, dict) and value and all(step.isdigit() for step in value):
            value = [value[step] for step in sorted(value, key=int)]
        message["content" if key == "contents" else key] = value
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        message["tool_calls"] = [call.get("tool_call", call) for call in calls]
    parts = message.get("content")
    if isinstance(parts, list):
        message["content"] = [part.get("message_content", part) for part in parts]
    return message
