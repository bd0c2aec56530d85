"""Responses that have token ids, or come with their requests."""

from __future__ import annotations

from typing import Any

import pytest

from specrace.lab.logs.formats.responses import Batch, GeminiBatch, Response

REQUEST = {"messages": [{"role": "user", "content": "a"}]}
CHOICE = {"index": 0, "message": {"role": "assistant", "content": "b"}}


def row(**response: Any) -> dict[str, Any]:
    """A line of a batch's responses, with changes to its response."""
    return {"id": "1", "custom_id": "r", "response": {"status_code": 200, "body": {"choices": [CHOICE]}} | response}


def test_each_choice_becomes_an_exchange() -> None:
    with_ids = [CHOICE | {"token_ids": [3, 4]}, CHOICE | {"token_ids": [5]}]
    exchanges = list(Response().read({"id": "x", "choices": with_ids, "prompt_token_ids": [1, 2]}))
    assert [(exchange.prompt, exchange.output, exchange.id) for exchange in exchanges] == [
        ((1, 2), (3, 4), "x"),
        ((1, 2), (5,), "x"),
    ]


def test_a_completion_has_its_ids_in_the_choice() -> None:
    (exchange,) = Response().read({"choices": [{"text": "b", "prompt_token_ids": [1], "token_ids": [2]}]})
    assert (exchange.prompt, exchange.output) == ((1,), (2,))


def test_a_request_in_the_same_line_is_used() -> None:
    (exchange,) = Batch().read(row() | {"body": REQUEST})
    assert (exchange.prompt, exchange.id) == (REQUEST["messages"], "r")


def test_a_batch_response_with_token_ids_needs_no_request() -> None:
    body = {"choices": [CHOICE | {"token_ids": [2]}], "prompt_token_ids": [1]}
    (exchange,) = Batch().read(row(body=body))
    assert (exchange.prompt, exchange.output) == ((1,), (2,))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (row(), "no request has the custom_id r"),
        (row(status_code=500), "failed with the status 500"),
        (row() | {"error": {"code": "x"}}, "the request failed"),
        (row() | {"response": None}, "the request failed"),
        (row(body=None), "body of the response is not an object"),
        (row(body={"choices": []}) | {"body": REQUEST}, "no choices"),
        (row() | {"body": {}}, "the request has no prompt"),
        (row() | {"custom_id": 3}, "custom_id is not text"),
    ],
)
def test_an_unreadable_response_is_reported(line: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        list(Batch().read(line))


def test_a_response_without_its_request_needs_token_ids() -> None:
    with pytest.raises(ValueError, match="ask vLLM for return_token_ids"):
        list(Response().read({"choices": [CHOICE]}))


def test_a_number_in_status_does_not_make_a_batch_of_gemini() -> None:
    request, response = {"contents": [{"parts": [{"text": "a"}]}]}, {"candidates": []}
    assert GeminiBatch.looks_like({"request": request, "response": response, "status": ""})
    assert not GeminiBatch.looks_like({"request": request, "response": response, "status": 503})
