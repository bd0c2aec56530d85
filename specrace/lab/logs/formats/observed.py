"""Formats in which gateways, tracers and load generators log requests.

- LiteLLM's StandardLoggingPayload: messages, response (docs.litellm.ai/docs/proxy/logging_spec; an example is
  BerriAI/litellm, tests/logging_callback_tests/gcs_pub_sub_body/standard_logging_payload.json), and the rows of its
  spend log, where the request may stand in proxy_server_request (litellm/proxy/schema.prisma: LiteLLM_SpendLogs).
- Langfuse's exported observations: type, input, output; input and output are JSON or text
  (langfuse.com/docs/api-and-data-platform/features/blob-storage-export-fields); only the type GENERATION counts. Opik's
  spans have the same fields and the type llm (comet.com/docs/opik/tracing/export_data).
- LangSmith's runs: run_type, inputs, outputs (docs.langchain.com/langsmith/run-data-format); only the type llm counts.
- Braintrust's, Datadog's and Weave's spans; only those of a model count, because the others repeat their texts
  (braintrust.dev/docs/annotate/export: span_attributes.type; docs.datadoghq.com/llm_observability/instrumentation/api:
  meta.kind; docs.wandb.ai/weave: op_name).
- PostHog's events: event, properties (posthog.com/docs/llm-analytics/generations); only $ai_generation counts.
- aiperf's `--export-level raw`: metadata, payload, responses, each response with the server's JSON in `text` or with
  server-sent events in `packets` (ai-dynamo/aiperf, src/aiperf/common/models/record_models.py: RawRecordInfo,
  TextResponse, SSEMessage).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from specrace.lab.logs.formats.apis import looks_like_request, read_exchanges
from specrace.lab.logs.formats.apis.answers import read_usage
from specrace.lab.logs.formats.apis.requests import beside_prompt, parameters_of
from specrace.lab.logs.formats.apis.shapes import is_response
from specrace.lab.logs.formats.base import (
    NO_USAGE,
    Exchange,
    Format,
    Row,
    json_or_text,
    parse_nested,
    read_label,
    read_text,
    require_list,
    require_object,
)
from specrace.lab.logs.formats.outcomes import require_answered
from specrace.lab.logs.formats.traced import Traced


class LiteLLM(Traced):
    """One call per line."""

    name = "litellm"
    title = "LiteLLM standard logging payloads or spend logs"
    wanted = "a call that generates text"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return "messages" in row and "response" in row and "custom_id" not in row

    @staticmethod
    def is_generation(row: Row) -> bool:
        call = row.get("call_type")
        return not (isinstance(call, str) and any(word in call for word in _OTHER_CALLS))

    def read_generation(self, row: Row) -> Iterable[Exchange]:
        require_answered(row)
        response = row.get("response")
        if response in ({}, "{}", "", None):
            raise ValueError("the response is empty; let LiteLLM store prompts in its spend logs")
        name = next((label for key in ("id", "request_id") if (label := read_label(row, key))), "")
        usage = read_usage(row)
        for exchange in read_exchanges(_litellm_request(row), response, name):
            yield exchange if exchange.usage != NO_USAGE else replace(exchange, usage=usage)


# Parts of the call types that generate no text (BerriAI/litellm, litellm/types/utils.py: CallTypes).
_OTHER_CALLS = ("embedding", "image", "moderation", "transcription", "speech", "rerank", "search", "file", "batch")


def _litellm_request(row: Row) -> Any:
    """The request of a call: its messages with the tools and parameters beside them, or what the proxy received."""
    messages = row.get("messages")
    # Documents beside the messages are usually repeated in their text.
    beside = {key: value for key, value in row.items() if key not in ("response", "documents", "proxy_server_request")}
    body = _proxied(row) | beside_prompt(beside)
    if (
        "responses" in str(row.get("call_type"))
        and isinstance(messages, list | str)
        and messages not in ("", "{}", "[]", [])
    ):
        return body | {"input": json_or_text(messages) if isinstance(messages, str) else messages}
    if looks_like_request(messages):
        messages = json_or_text(messages) if isinstance(messages, str) else messages
        return body | ({"messages": messages} if isinstance(messages, list) else require_object(messages, "messages"))
    if messages not in ({}, "{}", "", "[]", [], None):
        # The `prompt` of a completion is also logged under `messages`.
        return body | {"prompt": messages}
    if not isinstance(messages, dict | list | str) and "proxy_server_request" not in row:
        raise ValueError("messages is not a list")
    if not row.get("proxy_server_request") or row["proxy_server_request"] == "{}":
        raise ValueError("messages and proxy_server_request are empty; let LiteLLM store prompts in its spend logs")
    return row["proxy_server_request"]


def _proxied(row: Row) -> Row:
    """The tools and parameters in the request that the proxy received; {} for none."""
    request = _parse_if_text(row.get("proxy_server_request"))
    body = request.get("body", request) if isinstance(request, dict) else None
    return beside_prompt(body) if isinstance(body, dict) else {}


class Langfuse(Traced):
    """One observation per line."""

    name = "langfuse"
    title = "Langfuse observations or Opik spans"
    wanted = "an observation of the type GENERATION, or a span of the type llm"

    @staticmethod
    def looks_like(row: Row) -> bool:
        if _is_langfuse_trace(row):
            return True
        return {"type", "input", "output"} <= row.keys() and bool({"trace_id", "traceId"} & row.keys())

    @staticmethod
    def is_generation(row: Row) -> bool:
        return str(row.get("type")).upper() in ("GENERATION", "LLM") and not _is_langfuse_trace(row)

    def read(self, row: Row) -> Iterable[Exchange]:
        yield from super().read(row)
        # A whole trace may hold its observations, or only their ids.
        inner = row.get("observations") if _is_langfuse_trace(row) else None
        for observation in inner if isinstance(inner, list) else ():
            if isinstance(observation, dict):
                yield from super().read(observation)

    def read_generation(self, row: Row) -> Iterable[Exchange]:
        request, output = row.get("input"), row.get("output")
        if request is None:
            raise ValueError("the prompt is not in the observation")
        if _is_quoted(request):
            # Some exports write every text as a JSON string.
            request = json_or_text(request)
            output = json_or_text(str(output)) if _is_quoted(output) else output
        elif isinstance(output, str) and _is_quoted(output) and "\\" in output:
            # A model may write text in quotes, but not with line ends as JSON escapes.
            output = json_or_text(output)
        parameters = _parse_if_text(row.get("model_parameters") or row.get("modelParameters"))
        usage = read_usage({"usage": _langfuse_usage(row)})
        for exchange in read_exchanges(request, output, read_label(row, "id")):
            all_parameters = {
                **exchange.parameters,
                **(parameters_of(parameters) if isinstance(parameters, dict) else {}),
            }
            best_usage = exchange.usage if exchange.usage != NO_USAGE else usage
            yield replace(exchange, parameters=all_parameters, usage=best_usage)


def _is_langfuse_trace(row: Row) -> bool:
    """Whether a row is a whole trace, whose input and output are those of a program, and not of a model."""
    has_user = bool({"session_id", "sessionId", "user_id", "userId"} & row.keys())
    return {"bookmarked", "input", "output"} <= row.keys() and has_user


def _is_quoted(value: Any) -> bool:
    """Whether a value is text that is a JSON string, quotation marks included."""
    return (
        isinstance(value, str) and value.startswith('"') and isinstance(json_or_text(value), str) and value[-1] == '"'
    )


def _langfuse_usage(row: Row) -> Row:
    """The tokens of an observation: `usage` or `usage_details`, with `input` and `output`."""
    names = ("usage_details", "usageDetails", "usage")
    logged: Any = next((row[name] for name in names if row.get(name)), {})
    logged = json_or_text(logged) if isinstance(logged, str) else logged
    if not isinstance(logged, dict):
        return {}
    return logged | {"prompt_tokens": logged.get("input"), "completion_tokens": logged.get("output")}


class LangSmith(Traced):
    """One run per line."""

    name = "langsmith"
    title = "LangSmith runs"
    wanted = "a run of the type llm"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return {"run_type", "inputs", "outputs"} <= row.keys()

    @staticmethod
    def is_generation(row: Row) -> bool:
        return row.get("run_type") == "llm"

    def read_generation(self, row: Row) -> Iterable[Exchange]:
        if row.get("error") or not row.get("outputs"):
            raise ValueError("the run failed or hides its outputs; there is no output")
        inputs = _parse_if_text(row["inputs"])
        extra = _parse_if_text(row.get("extra"))
        parameters = extra.get("invocation_params") if isinstance(extra, dict) else None
        if isinstance(inputs, dict) and isinstance(parameters, dict):
            inputs = {key: value for key, value in parameters.items() if key not in ("messages", "prompt")} | inputs
        if isinstance(inputs, dict) and isinstance(inputs.get("prompts"), list):
            inputs = inputs | {"prompt": inputs["prompts"]}
        return read_exchanges(inputs, _langsmith_outputs(_parse_if_text(row["outputs"])), read_label(row, "id"))


def _langsmith_outputs(outputs: Any) -> Any:
    """The response in a run's outputs, which LangSmith's wrappers put into `messages` or `message`."""
    if isinstance(outputs, dict) and isinstance(outputs.get("messages"), list):
        return outputs["messages"]
    return outputs


def _parse_if_text(value: Any) -> Any:
    return json_or_text(value) if isinstance(value, str) else value


class PostHog(Traced):
    """One event per line."""

    name = "posthog"
    title = "PostHog AI events"
    wanted = "an event $ai_generation"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return str(row.get("event")).startswith("$ai_") and "properties" in row

    @staticmethod
    def is_generation(row: Row) -> bool:
        return row.get("event") == "$ai_generation"

    def read_generation(self, row: Row) -> Iterable[Exchange]:
        fields = require_object(_parse_if_text(row["properties"]), "properties")
        if fields.get("$ai_is_error"):
            raise ValueError("the request failed; there is no output")
        if fields.get("$ai_input") is None or fields.get("$ai_output_choices", fields.get("$ai_output")) is None:
            raise ValueError(
                "$ai_input or $ai_output_choices is not in the event; PostHog's privacy mode leaves them out"
            )
        request: Any = _parse_if_text(fields["$ai_input"])
        parameters = fields.get("$ai_model_parameters") or {}
        if isinstance(request, list):
            request = parameters | {"messages": request, "tools": fields.get("$ai_tools")}
        choices = parse_nested(fields.get("$ai_output_choices", fields.get("$ai_output")), is_response)
        counted = {
            "input_tokens": fields.get("$ai_input_tokens"),
            "output_tokens": fields.get("$ai_output_tokens"),
        }
        name = next((label for key in ("uuid", "id") if (label := read_label(row, key))), "")
        for choice in choices if isinstance(choices, list) else [choices]:
            for exchange in read_exchanges(request, choice, name):
                yield replace(exchange, usage=read_usage({"usage": counted}))


class Braintrust(Traced):
    """One span per line."""

    name = "braintrust"
    title = "Braintrust spans"
    wanted = "a span of the type llm"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return {"span_attributes", "input", "output"} <= row.keys()

    @staticmethod
    def is_generation(row: Row) -> bool:
        attributes = _parse_if_text(row["span_attributes"])
        return isinstance(attributes, dict) and attributes.get("type") == "llm"

    def read_generation(self, row: Row) -> Iterable[Exchange]:
        yield from _read_span(row, row["input"], row["output"], row.get("metadata"), row.get("metrics"))


class Datadog(Traced):
    """One span per line, in the form in which Datadog's API takes spans, or in which it lists them."""

    name = "datadog"
    title = "Datadog LLM Observability spans"
    wanted = "a span of the kind llm"

    @staticmethod
    def looks_like(row: Row) -> bool:
        fields = _datadog(row)
        return bool({"kind", "span_kind", "span.kind"} & fields.keys()) and bool({"input", "output"} & fields.keys())

    @staticmethod
    def is_generation(row: Row) -> bool:
        fields = _datadog(row)
        return "llm" in (fields.get("kind"), fields.get("span_kind"), fields.get("span.kind"))

    def read_generation(self, row: Row) -> Iterable[Exchange]:
        fields = _datadog(row)
        request, response = (_datadog_value(fields.get(name)) for name in ("input", "output"))
        parameters = _parse_if_text(fields.get("metadata"))
        if fields.get("tool_definitions"):
            parameters = {"tools": fields["tool_definitions"]} | (parameters if isinstance(parameters, dict) else {})
        yield from _read_span(row, request, response, parameters, fields.get("metrics", row.get("metrics")))


def _datadog(row: Row) -> Row:
    """The object that holds a span's kind, input and output; {} if there is none."""
    return next((row[name] for name in ("meta", "attributes") if isinstance(row.get(name), dict)), {})


def _datadog_value(value: Any) -> Any:
    """The messages or the text of a span's input or output."""
    return value.get("messages") or value.get("value") if isinstance(value, dict) else value


# The libraries whose calls Weave traces (wandb/weave, weave/integrations).
_WEAVE_CALLS = re.compile(
    r"(?:^|/op/|\b)(?:openai|anthropic|litellm|mistral\w*|google|cohere|groq|cerebras|together|huggingface_hub|vertexai)\."
)


class Weave(Traced):
    """One call per line."""

    name = "weave"
    title = "Weave calls"
    wanted = "a call of a model's library, such as openai.chat.completions.create"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return {"op_name", "inputs", "output"} <= row.keys()

    @staticmethod
    def is_generation(row: Row) -> bool:
        return _WEAVE_CALLS.search(str(row["op_name"])) is not None

    def read_generation(self, row: Row) -> Iterable[Exchange]:
        if row.get("exception"):
            raise ValueError("the request failed; there is no output")
        yield from _read_span(row, row["inputs"], row["output"], None, None)


def _read_span(row: Row, request: Any, response: Any, parameters: Any, counted: Any) -> Iterable[Exchange]:
    """The exchanges of a span. `parameters` and `counted`: the request's other fields and the numbers of tokens, which
    some tracers keep beside the request and the response."""
    if row.get("error"):
        raise ValueError("the request failed; there is no output")
    request = _parse_if_text(request)
    parameters = _parse_if_text(parameters)
    usage = read_usage({"usage": _parse_if_text(counted)})
    other_fields = parameters if isinstance(parameters, dict) else {}
    if isinstance(request, list):
        request = {"messages": request}
    if isinstance(request, dict):
        request = {key: other_fields[key] for key in ("tools", "model") if key in other_fields} | request
    name = next((label for key in ("id", "span_id") if (label := read_label(row, key))), "")
    for exchange in read_exchanges(request, response, name):
        best_usage = exchange.usage if exchange.usage != NO_USAGE else usage
        yield replace(exchange, parameters={**exchange.parameters, **parameters_of(other_fields)}, usage=best_usage)


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
        name = read_label(require_object(row.get("metadata"), "metadata"), "x_request_id")
        return read_exchanges(require_object(row.get("payload"), "payload"), bodies, name)


def _body(response: object) -> Row | None:
    """The JSON of a response, or of one event of a stream; None for an event without JSON."""
    logged = require_object(response, "a response")
    if "packets" in logged:
        packets = [require_object(packet, "a packet") for packet in require_list(logged["packets"], "packets")]
        values = [packet.get("value") for packet in packets if packet.get("name") == "data"]
        text = "\n".join(read_text(value, "the value of a packet") for value in values)
    else:
        text = read_text(logged.get("text"), "text")
    if text in ("", "[DONE]"):
        return None
    return require_object(json_or_text(text), "a response")
