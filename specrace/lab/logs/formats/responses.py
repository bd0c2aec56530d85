"""Responses of a server, with their requests or with token ids.

- The two files of OpenAI's Batch API and of vLLM's `run-batch`: requests {"custom_id", "method", "url", "body"} and
  responses {"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error"}
  (vllm-project/vllm, vllm/entrypoints/openai/run_batch.py: BatchRequestInput, BatchRequestOutput).
- The two files of Anthropic's Message Batches: {"custom_id", "params"} and {"custom_id", "result": {"type", "message"}}
  (docs.anthropic.com/en/api/creating-message-batches).
- The two files of Gemini's batches: {"key", "request"} and {"key", "response" | "error"}
  (ai.google.dev/gemini-api/docs/batch-api).
- vLLM's `return_token_ids`: a chat completion has prompt_token_ids and choices[].token_ids, a completion has both in
  choices[] (vllm-project/vllm, vllm/entrypoints/openai/chat_completion/protocol.py and completion/protocol.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from specrace.core.errors import shorten
from specrace.lab.logs.formats.apis import looks_like_request, read_exchanges
from specrace.lab.logs.formats.base import Exchange, Format, Row, read_label, read_text, require_object
from specrace.lab.logs.formats.outcomes import require_answered

FindRequest = Callable[[str], Row | None]


class Response(Format):
    """One response per line, without its request, so it must have token ids."""

    name = "openai-response"
    title = "OpenAI responses with token ids"

    @staticmethod
    def looks_like(row: Row) -> bool:
        requests = {"messages", "prompt", "input", "request"}
        if row.get("object") == "response":
            return not row.keys() & requests
        return isinstance(row.get("choices"), list) and (has_ids(row) or not row.keys() & requests)

    def read(self, row: Row) -> Iterable[Exchange]:
        return read_exchanges(None, row, read_label(row, "id"))


class Batch(Format):
    """Responses whose requests are in the other file, in another line, or in the same line.

    `find_request`: gets the line of a request by the id that it shares with its response, None if there is none.
    """

    name = "openai-batch"
    title = "OpenAI Batch or vLLM run-batch requests and responses"
    # The field that holds the shared id.
    key = "custom_id"
    find_request: FindRequest | None = None

    def __init__(self) -> None:
        self._has_requests = self._has_responses = False

    @staticmethod
    def looks_like(row: Row) -> bool:
        return "custom_id" in row and ("response" in row or "body" in row)

    def end(self) -> Iterable[Exchange]:
        if self._has_requests and not self._has_responses:
            yield Exchange("", "", left_out="the file has a batch's requests only; give the file of responses, too")

    def _is_response(self, row: Row, *names: str) -> bool:
        """Whether a row has a response, or an error in its place, under one of these names; noted for `end`."""
        is_response = any(name in row for name in names)
        self._has_requests |= not is_response
        self._has_responses |= is_response
        return is_response

    def read(self, row: Row) -> Iterable[Exchange]:
        if not self._is_response(row, "response"):
            return ()
        name = read_text(row.get("custom_id"), "custom_id")
        response = row.get("response")
        if response is None or row.get("error"):
            raise ValueError("the request failed; there is no output")
        status = require_object(response, "response").get("status_code", 200)
        if status != 200:
            raise ValueError(f"the request failed with the status {shorten(status, 20)}")
        body = require_object(response.get("body"), "the body of the response")
        request = None if has_ids(body) else self._request(row, name)
        return read_exchanges(request, body, name)

    def _request(self, row: Row, name: str) -> Any:
        if "body" not in row:
            row = self._other_line(name)
        return require_object(row.get("body"), "the body of the request")

    def _other_line(self, name: str) -> Row:
        """The line of the request with this id. Raises ValueError if there is none."""
        request = self.find_request(name) if self.find_request is not None else None
        if request is None:
            raise ValueError(f"no request has the {self.key} {shorten(name, 60)}; give the file of requests, too")
        return request


class AnthropicBatch(Batch):
    """Results of Anthropic's Message Batches, whose requests are in the other file, another line or the same line."""

    name = "anthropic-batch"
    title = "Anthropic Message Batches requests and results"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return "custom_id" in row and (isinstance(row.get("result"), dict) or isinstance(row.get("params"), dict))

    def read(self, row: Row) -> Iterable[Exchange]:
        if not self._is_response(row, "result"):
            return ()
        name = read_text(row.get("custom_id"), "custom_id")
        result = require_object(row["result"], "result")
        if result.get("type", "succeeded") != "succeeded":
            raise ValueError(f"the request {shorten(result.get('type'), 20)}; there is no output")
        request = row if "params" in row else self._other_line(name)
        params = require_object(request.get("params"), "the params of the request")
        # `anthropic_version` marks a request of Claude's, which continues an assistant message at the request's end.
        return read_exchanges({"anthropic_version": ""} | params, result.get("message"), name)


class GeminiBatch(Batch):
    """Responses of Gemini's batches, whose requests are in the other file, another line or the same line."""

    name = "gemini-batch"
    title = "Gemini batch requests and responses"
    key = "key"

    @staticmethod
    def looks_like(row: Row) -> bool:
        if "key" not in row and not isinstance(row.get("status"), str):
            return False
        request, response = row.get("request"), row.get("response")
        return (isinstance(request, dict) and looks_like_request(request)) or (
            isinstance(response, dict) and "candidates" in response
        )

    def read(self, row: Row) -> Iterable[Exchange]:
        if not self._is_response(row, "response", "error"):
            return ()
        require_answered(row)
        name = read_label(row, "key")
        if not row.get("response"):
            raise ValueError("the request failed; there is no output")
        request = row if "request" in row else self._other_line(name)
        return read_exchanges(request.get("request"), row["response"], name)


def has_ids(body: Row) -> bool:
    """Whether a response has the token ids of its prompt."""
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return bool(body.get("prompt_token_ids") or (isinstance(first, dict) and first.get("prompt_token_ids")))
