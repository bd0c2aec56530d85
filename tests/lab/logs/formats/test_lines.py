"""Rows that hold a request and its response under many names, and rows that no model answered."""

from __future__ import annotations

from typing import Any

import pytest

from specrace.lab.logs.formats.lines import RequestResponse
from specrace.lab.logs.formats.specrace import SpecraceFormat

ASK, ANSWER = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
CHAT = {"messages": [ASK]}
RESPONSE = {"choices": [{"message": ANSWER}]}


@pytest.mark.parametrize(
    "row",
    [
        {"full_request": CHAT, "full_response": RESPONSE},
        {"modelInput": CHAT, "modelOutput": RESPONSE, "recordId": "1"},
        {"input": CHAT, "preferred_output": [ANSWER], "non_preferred_output": [{"role": "assistant", "content": "c"}]},
        {"request_inputs": {"payload": CHAT}, "response_outputs": [{"response": '{"choices": [{"text": "b"}]}'}]},
        {"request_type": "chat_completions", "prompt": "a", "output": "b"},
        {"sample": {"input": [ASK], "output": [ANSWER], "outputs": [ANSWER]}},
        {"inputs": [ASK], "generated_text": [ASK, ANSWER]},
    ],
)
def test_requests_and_responses_have_many_names(row: Any) -> None:
    assert RequestResponse.looks_like(row) and not SpecraceFormat.looks_like(row)
    (exchange,) = RequestResponse().read(row)
    assert (exchange.prompt, exchange.output) == ([ASK], ANSWER)


@pytest.mark.parametrize("row", [{"question": "a", "answer": "b"}, {"inputs": "a", "generated_text": "b"}])
def test_plain_text_is_read_from_fields_that_are_named_for_it(row: Any) -> None:
    (exchange,) = RequestResponse().read(row)
    assert (exchange.prompt, exchange.output) == ("a", "b")


def test_a_system_prompt_beside_a_question_is_read() -> None:
    (exchange,) = RequestResponse().read({"system_prompt": "s", "question": "a", "response": "b"})
    assert exchange.prompt == [{"role": "system", "content": "s"}, ASK]


def test_guidellm_logs_reasoning_and_calls_beside_the_output() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": '{"x": 1}'}}
    row = {"request_args": {"body": CHAT}, "output": None, "reasoning_output": "hm", "tool_calls": [call]}
    (exchange,) = RequestResponse().read(row)
    assert isinstance(exchange.output, dict)
    assert exchange.output["reasoning_content"] == "hm"
    assert exchange.output["tool_calls"][0]["function"] == {"name": "f", "arguments": {"x": 1}}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"cache_reference_id": "7c0f-1"}, "from its cache"),
        ({"cache_hit": True}, "from its cache"),
        ({"response_status": 500}, "failed with the status 500"),
        ({"response": {"status_code": 429, "body": {"error": {"message": "x"}}}}, "the request failed"),
        ({"response": '{"error": {"message": "x"}}'}, "the request failed"),
    ],
)
def test_a_row_that_no_model_answered_is_reported(more: Any, reason: str) -> None:
    row = {"request": CHAT, "response": RESPONSE, "cache_reference_id": "0000-0", "cache_hit": None} | more
    assert RequestResponse.looks_like(row)
    with pytest.raises(ValueError, match=reason):
        list(RequestResponse().read(row))
