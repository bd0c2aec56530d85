"""Responses of an OpenAI-compatible server, with their requests or with exact ids.

- The pair of OpenAI's Batch API and of vLLM's `run-batch`: requests {"custom_id", "method", "url", "body"} and
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
    label,
    mapping,
    read_ids,
    read_message,
    read_messages,
    read_text,
    sequence,
)

FindRequest = Callable[[str], Row | None]


class Response(Format):
    """A response a line; without its request it needs exact ids."""

    name = "openai-response"
    title = "OpenAI responses with token ids"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return isinstance(row.get("choices"), list)

    def read(self, row: Row) -> Iterable[Exchange]:
        return read_choices(row, None, label(row, "id"))


class Batch(Format):
    """Responses, each with its request from the other file, from another line, or in the same line.

    `find_request` gives the request of a custom_id, None where there is none.
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
        status = mapping(response, "response").get("status_code", 200)
        if status != 200:
            raise ValueError(f"the request failed with the status {shorten(status, 20)}")
        body = mapping(response.get("body"), "the body of the response")
        request = None if has_ids(body) else self._request(row, name)
        return read_choices(body, request, name)

    def _request(self, row: Row, name: str) -> Row:
        if "body" not in row:
            found = self.find_request(name) if self.find_request is not None else None
            if found is None:
                raise ValueError(f"no request has the custom_id {shorten(name, 60)}; give the file of requests, too")
            row = found
        return mapping(row.get("body"), "the body of the request")


def has_ids(body: Row) -> bool:
    """Whether a response has the ids of its prompt."""
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return bool(body.get("prompt_token_ids") or (isinstance(first, dict) and first.get("prompt_token_ids")))


def read_choices(body: Row, request: Row | None, name: str, category: str = "") -> Iterable[Exchange]:
    """The choices of a response, each after the `request`'s messages or prompt. Raises ValueError."""
    choices = [mapping(each, "a choice") for each in sequence(body.get("choices"), "choices")]
    if not choices:
        raise ValueError("the response has no choices")
    for choice in choices:
        ids = choice.get("prompt_token_ids") or body.get("prompt_token_ids")
        if ids:
            prompt, output = read_ids(ids, "prompt_token_ids"), read_ids(choice.get("token_ids"), "token_ids")
            yield Exchange(prompt, output, name, category)
        elif request is None:
            raise ValueError("this response has no token ids and no request; ask vLLM for return_token_ids")
        elif "messages" in request:
            tools = sequence(request["tools"], "tools") if request.get("tools") else None
            answer = read_message({"role": "assistant"} | mapping(choice.get("message"), "message"))
            yield Exchange(read_messages(request["messages"]), answer, name, category, tools)
        else:
            texts = read_text(request.get("prompt"), "prompt"), read_text(choice.get("text"), "text")
            yield Exchange(*texts, name, category)
