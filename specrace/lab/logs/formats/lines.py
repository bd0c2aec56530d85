"""Lines with a request and its response in fields of many possible names, from gateways, tracers and engines.

- Helicone: request_body, response_body (docs.helicone.ai/features/reports/export); LangSmith: inputs, outputs of a run
  (docs.langchain.com/langsmith/export-traces); Gemini on Vertex AI: request, response.
- Ollama's and vLLM's own answers beside the request's fields: messages, message; prompt, outputs.
- guidellm's request_args, output, reasoning_output, tool_calls (vllm-project/guidellm,
  src/guidellm/schemas/response.py), and its older reports' prompt and output; with the request_type
  chat_completions the prompt is a user's message.
- Vertex AI's logged requests: full_request, full_response (docs.cloud.google.com/vertex-ai, request-response logging);
  Bedrock's batches: modelInput, modelOutput; OpenAI's preference data: input, preferred_output.
- genai-perf's requests: request_inputs.payload, response_outputs (triton-inference-server/perf_analyzer, genai-perf).
- llm's log of prompts: prompt_json, which holds the earlier turns, prompt, response (llm.datasette.io, logging).
- LiteLLM's spend log: messages, response, proxy_server_request (docs.litellm.ai/docs/proxy/ui_logs).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from specrace.core.errors import shorten
from specrace.lab.logs.formats.apis import looks_like_answers, looks_like_request, read_exchanges
from specrace.lab.logs.formats.apis.answers import is_error
from specrace.lab.logs.formats.apis.requests import is_answered
from specrace.lab.logs.formats.base import Exchange, Format, Row, parse_nested, read_label
from specrace.lab.logs.formats.incomplete import explain_row
from specrace.lab.logs.formats.media import require_text_only
from specrace.lab.logs.formats.outcomes import require_answered

# Names of fields that hold a request, and of those that hold a response, in lower case without underscores.
_REQUESTS = (
    "requestbody",
    "fullrequest",
    "modelinput",
    "requestinputs",
    "request",
    "req",
    "requestargs",
    "proxyserverrequest",
    "inputs",
    "input",
    "messages",
    "contents",
    "promptjson",
    "promptmessages",
    "inputmessages",
    "payload",
    "kwargs",
    "params",
    "body",
    "prompttokenids",
    "inputids",
    "prompt",
    "query",
    "question",
)
_RESPONSES = (
    "responsebody",
    "fullresponse",
    "modeloutput",
    "preferredoutput",
    "responseoutputs",
    "response",
    "resp",
    "outputs",
    "outputmessage",
    "output",
    "completion",
    "choices",
    "candidates",
    "message",
    "outputmessages",
    "result",
    "generations",
    "generatedtext",
    "answer",
    "reply",
    "text",
)
# If the field of the request, or of the response, has one of these names, the line itself may be the body.
_OWN_REQUEST = ("messages", "contents", "prompt", "prompttokenids", "inputids", "input", "inputs", "question", "query")
_OWN_RESPONSE = ("choices", "candidates", "message", "outputs", "generatedtext", "response", "output")
# Where a plain prompt and a `text` have other fields beside them, one of these shows that the text is an answer.
_BESIDE_TEXT = {
    *("finish_reason", "finishReason", "stop_reason", "finished", "usage", "meta_info", "logprobs", "token_ids"),
    *("model", "model_name", "model_id", "temperature", "max_tokens", "max_new_tokens", "sampling_params", "stop"),
    *("tokens", "num_tokens", "completion_tokens", "output_tokens", "latency", "duration", "elapsed", "created"),
}
# Names of fields that may hold the worked solution to a data set's label, and the fewest words of such a solution.
_SOLUTION = re.compile(r"(?:\w{1,40}_)?(?:solution|generation|model_?output)s?", re.IGNORECASE)
_MIN_WORDS = 6
_IDS = ("id", "request_id", "requestId", "uuid", "trace_id", "run_id")


class RequestResponse(Format):
    """One request with its response per line."""

    name = "request-response"
    title = "requests with their responses"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return find_pair(row) is not None

    def read(self, row: Row) -> Iterable[Exchange]:
        require_answered(row)
        require_text_only(row, "the prompt")
        _require_calls(row)
        pair = find_pair(row)
        if pair is None:
            raise ValueError(explain_row(row) or "this line has no request with its response")
        _require_single(row, pair)
        _require_no_label(row, pair[1])
        name = next((label for key in _IDS if (label := read_label(row, key))), "")
        return read_exchanges(*pair, name, read_label(row, "category"))


def _require_calls(row: Row) -> None:
    """Raise ValueError for a step of SWE-agent whose response lacks the model's tool call.

    A step keeps the action that the call stands for, and in `response` the text beside the call; only the queries of
    later steps have the call (SWE-agent/SWE-agent, sweagent/agent/agents.py; tools/parsing.py:
    FunctionCallingParser, which returns the whole text as `thought`; other parsers return the text around the action).
    """
    action, response = row.get("action"), row.get("response")
    if not isinstance(action, str) or not isinstance(response, str):
        return
    queries = [row[name] for name in ("query", "messages") if isinstance(row.get(name), list)]
    if not queries or "observation" not in row:
        return
    has_calls = any(isinstance(message, dict) and message.get("tool_calls") for query in queries for message in query)
    is_beside_call = bool(action.strip()) and row.get("thought") == response and action.strip() not in response
    if has_calls or is_beside_call:
        raise ValueError(
            "this is a step of SWE-agent, whose response lacks the tool call that the model wrote; write the messages "
            "of `history`, which have the calls, in a line"
        )


def _require_no_label(row: Row, response: Any) -> None:
    """Raise ValueError if the response is an `answer` of one word, and the text of a solution stands beside it."""
    if not isinstance(response, str) or response != row.get("answer") or len(response.split(None, 1)) != 1:
        return
    for name, text in row.items():
        if _SOLUTION.fullmatch(name) and isinstance(text, str) and len(text.split(None, _MIN_WORDS)) >= _MIN_WORDS:
            raise ValueError(
                f"the answer is one word, and {shorten(name, 40)} has more text; name by --columns what the model "
                "read and wrote"
            )


def _guidellm(row: Row) -> tuple[Any, Any] | None:
    """(request, response) of a request in guidellm's reports; None for any other line."""
    if "output" not in row:
        return None
    if "request_args" in row and (row.get("reasoning_output") or row.get("tool_calls")):
        answer = {
            "content": row["output"],
            "reasoning": row.get("reasoning_output"),
            "tool_calls": row.get("tool_calls"),
        }
        return row["request_args"], {"role": "assistant"} | answer
    if row.get("request_type") == "chat_completions" and isinstance(row.get("prompt"), str):
        return [{"role": "user", "content": row["prompt"]}], row["output"]
    return None


def find_pair(row: Row) -> tuple[Any, Any] | None:
    """(request, response) of a line, from its fields or from those of an object in it; None if it has no such pair."""
    if (pair := _guidellm(row)) is not None:
        return pair
    for fields in _levels(row):
        pair = _pair(fields)
        if pair is not None:
            return pair
    return None


def _is_written(request: Row) -> bool:
    """Whether a `text` beside these fields of a request is the model's answer, and not a text of a data set."""
    if any(isinstance(request.get(name), list) for name in ("messages", "contents", "prompt_token_ids", "input_ids")):
        return True
    others = {name for name in request if name not in _OWN_REQUEST and name not in _IDS}
    return not others or not _BESIDE_TEXT.isdisjoint(others)


def _require_single(row: Row, pair: tuple[Any, Any]) -> None:
    """Raise ValueError if objects in a line, with the same fields, hold different requests, of which `pair` is one.

    Tables as one object, two models' answers, and a record before and after a change are such lines.
    """
    if (_guidellm(row) or _pair(row)) is not None:
        return
    names = [name for name, value in row.items() if isinstance(value, dict)]
    pairs = {name: other for name in names if (other := _pair(row[name])) is not None}
    first, *others = pairs
    for name in others:
        if row[name].keys() == row[first].keys() and pairs[name] != pair:
            raise ValueError(
                f"the line holds several requests ({shorten(first, 40)}, {shorten(name, 40)}); write a line for each, "
                "or name the fields of one by --columns"
            )


def _has_failed(response: Any) -> bool:
    """Whether a response, or its body, has an error in place of an answer."""
    response = parse_nested(response, is_error)
    if not isinstance(response, dict):
        return False
    return isinstance(response.get("error"), dict | str) or _has_failed(response.get("body"))


def _levels(row: Row) -> Iterator[Row]:
    """The line, then the objects in its fields."""
    yield row
    for value in row.values():
        if isinstance(value, dict):
            yield value


def _pair(fields: Row) -> tuple[Any, Any] | None:
    """(request, response) of one object, each either the object itself or the value of a field."""
    # Name as in _REQUESTS and _RESPONSES -> the field's own name.
    names = {name.replace("_", "").replace("-", "").lower(): name for name in fields if isinstance(name, str)}
    request_name = next((name for name in _REQUESTS if name in names and looks_like_request(fields[names[name]])), None)
    if request_name is None:
        # Plain text is a request only if the name of its field and the fields beside it say so.
        request_name = next((name for name in _OWN_REQUEST if name in names and looks_like_request(fields)), None)
    if request_name is None:
        return None
    is_conversation = request_name == "messages" and is_answered(fields)
    request = fields if request_name in _OWN_REQUEST and looks_like_request(fields) else fields[names[request_name]]
    for name in _RESPONSES:
        # A CSV file may have a column without a name, such as the index that pandas writes.
        value = fields[names[name]] if name in names else None
        if name == request_name or not value:
            continue
        if name == "text" and request is fields:
            # The text must be neither the prompt nor a part of a data set's row, such as a passage beside a question.
            request = {key: value for key, value in fields.items() if key != names[name]}
            if not looks_like_request(request) or not _is_written(request):
                continue
        if is_conversation and isinstance(value, str) and not looks_like_answers(value):
            # This text is a verdict on the conversation, or repeats its end or all of it.
            continue
        if _has_failed(value):
            return request, value
        if name in _OWN_RESPONSE and looks_like_answers(fields) and not looks_like_answers(value):
            return request, fields
        if looks_like_answers(value) or (isinstance(value, str) and value):
            # What belongs to a list of choices, such as the usage, stands beside it.
            return request, fields if name in ("choices", "candidates", "message", "outputs") else value
    return None
