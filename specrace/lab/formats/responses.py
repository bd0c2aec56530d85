"""Responses of an OpenAI-compatible server, with their requests or with token ids.

- The two files of OpenAI's Batch API and of vLLM's `run-batch`: requests {"custom_id", "method", "url", "body"} and
  responses {"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error"}
  (vllm-project/vllm, vllm/entrypoints/openai/run_batch.py: BatchRequestInput, BatchRequestOutput).
- vLLM's `return_token_ids`: a chat completion has prompt_token_ids and choices[].token_ids, a completion has both in
  choices[] (vllm-project/vllm, vllm/entrypoints/openai/chat_completion/protocol.py and completion/protocol.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from specrace.core.errors import shorten
from specrace.lab.formats.base import (
    Exchange,
    Format,
    Row,
    read_ids,
    read_label,
    read_message,
    read_messages,
    read_text,
    require_list,
    require_object,
)

FindRequest = Callable[[str], Row | None]


class Response(Format):
    """One response per line, without its request, so it must have token ids."""

    name = "openai-response"
    title = "OpenAI responses with token ids"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return isinstance(row.get("choices"), list)

    def read(self, row: Row) -> Iterable[Exchange]:
        return read_choices(row, None, read_label(row, "id"))


class Batch(Format):
    """Responses whose requests are in the other file, in another line, or in the same line.

    `find_request`: custom_id -> its request, None if there is none.
    """

    name = "openai-batch"
    title = "OpenAI Batch or vLLM run-batch requests and responses"
    find_request: FindRequest | None = None

    @staticmethod
    def looks_like(row: Row) -> bool:
        return "custom_id" in row and ("response" in row or "body" in row)

    def read(self, row: Row) -> Iterable[Exchange]:
        if "response" not in row:
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
        return read_choices(body, request, name)

    def _request(self, row: Row, name: str) -> Row:
        if "body" not in row:
            request = self.find_request(name) if self.find_request is not None else None
            if request is None:
                raise ValueError(f"no request has the custom_id {shorten(name, 60)}; give the file of requests, too")
            row = request
        return require_object(row.get("body"), "the body of the request")


def has_ids(body: Row) -> bool:
    """Whether a response has the token ids of its prompt."""
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return bool(body.get("prompt_token_ids") or (isinstance(first, dict) and first.get("prompt_token_ids")))


def read_choices(body: Row, request: Row | None, name: str, category: str = "") -> Iterable[Exchange]:
    """An exchange for each choice of a response: by its token ids, else with the `request`. Raises ValueError."""
    choices = [require_object(choice, "a choice") for choice in require_list(body.get("choices"), "choices")]
    if not choices:
        raise ValueError("the response has no choices")
    for choice in choices:
        ids = choice.get("prompt_token_ids") or body.get("prompt_token_ids")
        if ids:
            prompt_ids = read_ids(ids, "prompt_token_ids")
            yield Exchange(prompt_ids, read_ids(choice.get("token_ids"), "token_ids"), name, category)
        elif request is None:
            raise ValueError("this response has no token ids and no request; ask vLLM for return_token_ids")
        elif "messages" in request:
            tools = require_list(request["tools"], "tools") if request.get("tools") else None
            answer = read_message({"role": "assistant"} | require_object(choice.get("message"), "message"))
            yield Exchange(read_messages(request["messages"]), answer, name, category, tools)
        else:
            prompt = read_text(request.get("prompt"), "prompt")
            yield Exchange(prompt, read_text(choice.get("text"), "text"), name, category)
