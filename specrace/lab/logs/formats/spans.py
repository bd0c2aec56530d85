"""Spans of OpenTelemetry, as OTLP's JSON or with flat attributes.

- The GenAI conventions: gen_ai.input.messages, gen_ai.output.messages, gen_ai.system_instructions, as objects or JSON
  text (open-telemetry/semantic-conventions, docs/gen-ai/gen-ai-spans.md), or in the attributes of an event.
- OpenLLMetry: gen_ai.prompt.0.role, gen_ai.prompt.0.content, gen_ai.completion.0.content, ...
  (traceloop/openllmetry, packages/opentelemetry-semantic-conventions-ai).
- OpenInference: llm.input_messages.0.message.role, ..., llm.output_messages.0.message.content
  (Arize-ai/openinference, spec/semantic_conventions.md).
- Older events of the GenAI conventions: gen_ai.content.prompt and gen_ai.content.completion, or one for each message:
  gen_ai.user.message, ..., gen_ai.choice.
- Phoenix's tables of spans, with columns such as attributes.llm.input_messages (Arize-ai/phoenix, get_spans_dataframe).
- Vercel's AI SDK: ai.prompt.messages, ai.response.text, ai.response.toolCalls (vercel/ai, content/docs/03-ai-sdk-core/
  60-telemetry.mdx).
- MLflow's traces: mlflow.spanInputs and mlflow.spanOutputs of spans of type CHAT_MODEL or LLM (mlflow/mlflow,
  mlflow/tracing/constant.py).
- OTLP's JSON nests spans and writes attributes as lists of keys and typed values
  (open-telemetry/opentelemetry-proto, docs/specification.md#json-protobuf-encoding).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from specrace.lab.logs.formats.apis import read_exchanges
from specrace.lab.logs.formats.apis.answers import read_usage
from specrace.lab.logs.formats.apis.messages import are_parts, is_message
from specrace.lab.logs.formats.apis.shapes import is_bare_message, is_response
from specrace.lab.logs.formats.base import Exchange, Format, Row, json_or_text, parse_nested, read_label, require_whole
from specrace.lab.logs.formats.traced import NestedCalls

# A span with one of these attributes has the messages that a model read.
_MARKS = (
    "gen_ai.input.messages",
    "gen_ai.prompt",
    "gen_ai.prompt.0.role",
    "gen_ai.prompt.0.content",
    "llm.input_messages.0.message.role",
    "llm.prompts.0.content",
    "llm.input_messages",
    "ai.prompt.messages",
    "mlflow.spanInputs",
)
# Attributes, or the beginnings of their names, with the messages that the model read, and with those that it wrote.
_READ = ("gen_ai.input.messages", "gen_ai.prompt", "llm.input_messages", "llm.prompts", "ai.prompt.messages")
_WRITTEN = ("gen_ai.output.messages", "gen_ai.completion", "llm.output_messages", "llm.completions")
# Fields of a message, and those of Bedrock's parts.
_FIELDS = {"role", "content", "parts", "tool_calls", "message"}
_CONVERSE = {"text", "toolUse", "toolResult", "reasoningContent"}
# The attributes that tell a span's kind, in the GenAI conventions, OpenInference and OpenLLMetry.
_KINDS = ("gen_ai.operation.name", "openinference.span.kind", "traceloop.span.kind")
# Only the spans of tools have this attribute.
_TOOL = "gen_ai.tool.name"
# The names of operations in which a model generates text.
_CALLS = re.compile("chat|complet|generat|respon|llm|infer|invoke_?model|convers|predict", re.IGNORECASE)
_NOT_A_CALL = "the span is of an agent, a tool or a workflow, and repeats what the spans of a model's calls have"
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

    def __init__(self) -> None:
        self._has_messages = False
        self._nested = NestedCalls()

    def read(self, row: Row) -> Iterable[Exchange]:
        try:
            for exchange in self._exchanges_of_row(row):
                self._has_messages = True
                yield exchange
        except ValueError:
            # The span has messages; the error says what is wrong with them.
            self._has_messages = True
            raise

    def end(self) -> Iterable[Exchange]:
        if not self._has_messages:
            yield Exchange("", "", left_out="no span has the messages that a model read and wrote; record the content")

    def _exchanges_of_row(self, row: Row) -> Iterator[Exchange]:
        for span in _spans(row):
            name = next((label for key in ("spanId", "span_id", "id") if (label := read_label(span, key))), "")
            for attributes in _attribute_sets(span):
                yield from self._nested.leave_out(span, _exchanges(attributes, name))


def _exchanges(attributes: Row, name: str) -> Iterator[Exchange]:
    """The exchanges in a set of attributes; none if it has no messages that a model read. Raises ValueError."""
    if "mlflow.spanInputs" in attributes:
        yield from _mlflow(attributes, name)
        return
    request = next((messages for key in _READ if (messages := _messages(attributes, key))), None)
    if request is None:
        return
    if not _is_call(attributes):
        yield Exchange("", "", name, left_out=_NOT_A_CALL)
        return
    written = next((messages for key in _WRITTEN if (messages := _messages(attributes, key))), None)
    written = written or _vercel(attributes)
    if written is None:
        raise ValueError("the span has what the model read and not what it wrote; record the messages of its output")
    body: Row = {
        key.removeprefix(_PARAMETERS): value for key, value in attributes.items() if key.startswith(_PARAMETERS)
    }
    # OpenInference writes the parameters as JSON text.
    invocation = _value(attributes.get("llm.invocation_parameters"))
    body |= invocation if isinstance(invocation, dict) else {}
    if attributes.get("gen_ai.output.type") == "json":
        body["response_format"] = {"type": "json_object"}
    system = _value(attributes.get("gen_ai.system_instructions"))
    body |= {"messages": request} if isinstance(request, list) else {"prompt": request}
    body |= {"system": system, "tools": _tools(attributes)}
    counts = {
        kind: next((attributes[key] for key in keys if key in attributes), None) for kind, keys in _COUNTS.items()
    }
    # OTLP writes whole numbers as text.
    usage = read_usage({"usage": {key: int(f"{value}") for key, value in counts.items() if f"{value}".isdigit()}})
    for answer in written if isinstance(written, list) else [written]:
        for exchange in read_exchanges(body, answer, name):
            yield replace(exchange, usage=usage)


def _is_call(attributes: Row) -> bool:
    """Whether a span is a model call; spans of agents, tools and workflows may also have messages."""
    operation, kind, task = (str(attributes.get(name) or "") for name in _KINDS)
    if _TOOL in attributes:
        return False
    if operation and not _CALLS.search(operation):
        return False
    return kind.upper() in ("", "LLM", "UNKNOWN") and task not in ("workflow", "task", "agent", "tool")


def _mlflow(attributes: Row, name: str) -> Iterable[Exchange]:
    """The exchanges of an MLflow span; none for chains and tools, which repeat what the models' spans have."""
    if _value(attributes.get("mlflow.spanType")) not in ("CHAT_MODEL", "LLM"):
        return ()
    return read_exchanges(_value(attributes["mlflow.spanInputs"]), _value(attributes.get("mlflow.spanOutputs")), name)


def _vercel(attributes: Row) -> Any:
    """The message that a span of Vercel's AI SDK has in several attributes; None if it has none."""
    message = {
        "content": attributes.get("ai.response.text"),
        "reasoning": attributes.get("ai.response.reasoning"),
        "tool_calls": _value(attributes.get("ai.response.toolCalls")),
    }
    return [{"role": "assistant"} | message] if any(message.values()) else None


def _tools(attributes: Row) -> list[Any]:
    """The tools that the model was offered, under the names of each convention."""
    listed = _value(attributes.get("gen_ai.tool.definitions")) or _value(attributes.get("ai.prompt.tools"))
    tools = [_value(tool) for tool in listed] if isinstance(listed, list) else []
    tools += [_value(tool.get("tool", {}).get("json_schema")) for tool in _numbered(attributes, "llm.tools")]
    for function in _numbered(attributes, "llm.request.functions"):
        fields = {key: _value(value) if key == "parameters" else value for key, value in function.items()}
        tools.append({"type": "function", "function": fields})
    return [tool for tool in tools if tool]


def _spans(row: Row) -> Iterator[Row]:
    """The spans and log records in an export, or the row itself."""
    nested = ("resourceSpans", "scopeSpans", "spans", "resourceLogs", "scopeLogs", "logRecords")
    inner = [span for name in nested if isinstance(row.get(name), list) for span in row[name] if isinstance(span, dict)]
    inner += [row["data"]] if isinstance(row.get("data"), dict) and "spans" in row["data"] else []
    if not inner:
        yield row
    for part in inner:
        yield from _spans(part)


def _attribute_sets(span: Row) -> Iterator[Row]:
    """The flat attributes of a span and of each event; one set in all for a request that is spread over events."""
    events = span.get("events")
    events = [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []
    own_attributes = _attributes(span) or {}
    if request_and_answer := _from_events(events):
        yield own_attributes | request_and_answer
        return
    kinds = {name: own_attributes[name] for name in (*_KINDS, _TOOL) if name in own_attributes}
    # Events are read only if the span itself lacks messages, because an event may repeat the span's.
    for holder in (span,) if _holds(own_attributes, _READ) and _holds(own_attributes, _WRITTEN) else (span, *events):
        attributes = _attributes(holder)
        if attributes is not None:
            yield kinds | attributes


def _holds(attributes: Row, names: tuple[str, ...]) -> bool:
    """Whether attributes have one of these names, alone or followed by .0. and the name of a field."""
    return any(attributes.get(name) or any(key.startswith(f"{name}.0.") for key in attributes) for name in names)


def _attributes(holder: Row) -> Row | None:
    """The flat attributes of a span or an event, None if it has none. A table may have them as columns."""
    attributes = holder.get("attributes")
    if isinstance(attributes, list):
        attributes = _keyed(attributes)
    if isinstance(attributes, dict):
        return _flat(attributes)
    columns = {key.removeprefix("attributes."): value for key, value in holder.items() if key.startswith("attributes.")}
    return columns or (holder if any(key in holder for key in _MARKS) else None)


def _from_events(events: list[Row]) -> Row:
    """The attributes of the prompt and the answer, if the span's events hold one message each; empty if not."""
    collected: Row = {}
    read, written = list[Row](), list[Row]()
    for event in events:
        kind, attributes = str(event.get("name")), _attributes(event) or {}
        role = kind.removeprefix("gen_ai.").removesuffix(".message")
        if kind in ("gen_ai.content.prompt", "gen_ai.content.completion"):
            collected |= attributes
        elif kind == "gen_ai.choice":
            message = parse_nested(attributes.get("message"), _is_written)
            message = message if isinstance(message, dict) else {"content": attributes.get("content", message)}
            written.append({"role": "assistant"} | message)
        elif kind == f"gen_ai.{role}.message":
            message = {key: _value(value) if key == "tool_calls" else value for key, value in attributes.items()}
            message["content"] = parse_nested(message.get("content"), _are_converse_parts)
            read.append({"role": role, "tool_call_id": message.get("id")} | message)
    collected |= {"gen_ai.input.messages": read} if read else {}
    return collected | ({"gen_ai.output.messages": written} if written else {})


def _flat(attributes: Row, prefix: str = "") -> Row:
    """The attributes with those of nested objects under their dotted names; lists and JSON text stay as they are."""
    flat: Row = {}
    for key, value in attributes.items():
        nested = isinstance(value, dict) and not {"role", "content", "parts"} & value.keys()
        flat |= _flat(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def _plain_value(value: Any) -> Any:
    """The plain value of an attribute, which OTLP writes as {"stringValue": ...}, {"arrayValue": ...} and so on."""
    if not isinstance(value, dict) or len(value) != 1:
        return value
    kind, inner = next(iter(value.items()))
    if kind == "arrayValue" and isinstance(inner, dict):
        return [_plain_value(item) for item in inner.get("values") or ()]
    if kind == "kvlistValue" and isinstance(inner, dict):
        return _keyed(inner.get("values"))
    return inner


def _keyed(attributes: Any) -> Row:
    """The plain values of attributes that OTLP writes as a list of keys and typed values."""
    return {
        attribute["key"]: _plain_value(attribute.get("value"))
        for attribute in (attributes if isinstance(attributes, list) else ())
        if isinstance(attribute, dict) and isinstance(attribute.get("key"), str)
    }


def _is_written(value: Any) -> bool:
    """Whether a value is a message, or the parts of one."""
    is_object = isinstance(value, dict) and (is_message(value) or is_bare_message(value) or "tool_calls" in value)
    return is_object or _are_converse_parts(value)


def _are_converse_parts(value: Any) -> bool:
    """Whether a value is a list of parts as Bedrock's Converse has them."""
    parts = value if isinstance(value, list) else []
    return bool(parts) and all(isinstance(part, dict) and len(part) == 1 and part.keys() <= _CONVERSE for part in parts)


def _are_messages(value: Any) -> bool:
    """Whether a value is messages or a response, by the names of its fields."""
    if is_message(value) or is_response(value):
        return True
    return isinstance(value, list) and all(
        isinstance(fields, dict) and any(key.split(".")[0] in _FIELDS for key in fields) for fields in value
    )


def _value(value: Any) -> Any:
    """JSON text parsed; any other value unchanged."""
    return json_or_text(value) if isinstance(value, str) else value


def _messages(attributes: Row, name: str) -> Any:
    """The messages of an attribute, which may be a list, JSON text, plain text, or spread over attributes with numbers
    in their names; None if there are none."""
    default_role = "assistant" if name in _WRITTEN else "user"
    if name in attributes:
        logged = attributes[name]
        value = _value(logged)
        if are_parts(value):
            value = [{"content": value}]
        if (wrapped := _unwrap(name, value)) is not None:
            return wrapped
        may_be_text = isinstance(logged, str) and not isinstance(value, str)
        if may_be_text and not _are_messages(value) and not (name in _READ and isinstance(value, list)):
            return logged  # A model may read or write JSON.
        if isinstance(value, list) and all(isinstance(table_row, dict) for table_row in value):
            return [{"role": default_role} | _from_table(table_row) for table_row in value]
        return value
    return [{"role": default_role} | _message(fields) for fields in _numbered(attributes, name)] or None


def _unwrap(name: str, value: Any) -> Any:
    """The messages in an attribute that holds a request's body, or an object with the text that a model wrote in its
    field `completion`, as OpenRouter's Broadcast has them; None for any other value.

    A model may write such JSON itself, but not beside fields of a response.
    """
    if not isinstance(value, dict):
        return None
    messages = value.get("messages")
    if name in _READ and isinstance(messages, list) and messages and all(map(is_message, messages)):
        return messages
    text, reasoning = value.get("completion"), value.get("reasoning")
    if name in _WRITTEN and isinstance(text, str) and {"reasoning", "rawRequest"} & value.keys():
        return [{"role": "assistant", "content": text, "reasoning": reasoning}]
    return None


def _from_table(fields: Row) -> Row:
    """A message that OpenInference has as an object or with dotted names; any other message as it is."""
    if not any(key == "message" or key.startswith("message.") for key in fields):
        return fields
    message: Row = {}
    inner = fields.get("message")
    for key, value in (inner if isinstance(inner, dict) else _flat(fields)).items():
        if value is not None:
            _put(message, key.removeprefix("message.").split("."), value)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        message["tool_calls"] = [_call_from_table(call) for call in calls]
    return _message(message)


def _call_from_table(call: Any) -> Any:
    """A tool call with dotted names as a nested object; any other value as it is."""
    nested: Row = {}
    for key, value in _flat(call).items() if isinstance(call, dict) else ():
        _put(nested, key.split("."), value)
    return nested or call


def _numbered(attributes: Row, name: str) -> list[Row]:
    """The objects whose fields are attributes with numbered names: name.0.field, name.0.other, name.1.field."""
    numbered: dict[int, Row] = {}
    for key, value in attributes.items():
        suffix = key.removeprefix(f"{name}.")
        index, _, path = suffix.partition(".")
        if suffix != key and index.isdigit() and path:
            _put(numbered.setdefault(int(index), {}), path.removeprefix("message.").split("."), value)
    return [numbered[index] for index in sorted(numbered)]


def _put(into: Row, path: list[str], value: Any) -> None:
    """Set the value at a path. Numbers in the path become keys of objects, which `_message` turns into lists."""
    for part in path[:-1]:
        inner = into.setdefault(part, {})
        if not isinstance(inner, dict):
            return
        into = inner
    into[path[-1]] = value


def _message(fields: Row) -> Row:
    """A message made of numbered attributes, with its tool calls and parts as lists."""
    message: Row = {}
    for key, value in fields.items():
        if isinstance(value, dict) and value and all(number.isdigit() for number in value):
            value = [value[number] for number in sorted(value, key=int)]
        message["content" if key == "contents" else key] = value
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        message["tool_calls"] = [call.get("tool_call", call) for call in calls]
    parts = message.get("content")
    if isinstance(parts, list):
        message["content"] = [part.get("message_content", part) for part in parts]
    elif isinstance(parts, str):
        require_whole("a message", parts)
    return message
