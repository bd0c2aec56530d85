"""Rows that hold a request and its response under many names, and rows that no model answered."""

from __future__ import annotations

from typing import Any

import pytest

from specrace.lab.logs.formats import recognise
from specrace.lab.logs.formats.chats import OpenAIChat
from specrace.lab.logs.formats.lines import RequestResponse
from specrace.lab.logs.formats.specrace import SpecraceFormat

# Fields that say that all went well.
GOOD = {"status": "ok", "status_code": "200", "error": None, "cached": False, "cache_status": "MISS"}
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
        {"messages": [ASK], "output": "a part of it", "output_message": ANSWER},
        {"inputs": [ASK], "generated_text": [ASK, ANSWER]},
        {"prompt": "a", "system": None, "prompt_json": CHAT, "response": "b", "response_json": {"content": "b"}},
    ],
)
def test_requests_and_responses_have_many_names(row: Any) -> None:
    assert RequestResponse.looks_like(row) and not SpecraceFormat.looks_like(row)
    (exchange,) = RequestResponse().read(row)
    assert (exchange.prompt, exchange.output) == ([ASK], ANSWER)


@pytest.mark.parametrize(
    "row",
    [
        {"question": "a", "answer": "b"},
        {"inputs": "a", "generated_text": "b"},
        # The index that pandas writes has no name.
        {"": "7", "prompt": "a", "response": "b"},
    ],
)
def test_plain_text_is_read_from_fields_that_are_named_for_it(row: Any) -> None:
    (exchange,) = RequestResponse().read(row)
    assert (exchange.prompt, exchange.output) == ("a", "b")


def test_a_system_prompt_beside_a_question_is_read() -> None:
    (exchange,) = RequestResponse().read({"system_prompt": "s", "question": "a", "response": "b"})
    assert exchange.prompt == [{"role": "system", "content": "s"}, ASK]


CALLED = {"role": "assistant", "content": "b", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}


@pytest.mark.parametrize(
    "fields",
    [
        {"response": "I look.", "thought": "I look.", "query": [ASK]},
        {"response": "Done", "thought": "", "query": [ASK, CALLED, {"role": "tool", "content": "c"}]},
    ],
)
def test_a_step_without_the_call_that_the_model_wrote_is_refused(fields: Any) -> None:
    with pytest.raises(ValueError, match="a step of SWE-agent, whose response lacks the tool call"):
        RequestResponse().read({"action": "ls\n", "observation": "c"} | fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"response": "I look.\n```\nls\n```", "thought": "I look."},
        {"response": "I call <parameter=command>ls</parameter>", "thought": "I call"},
        {"response": "ls", "thought": "ls"},
    ],
)
def test_a_step_whose_response_is_all_that_the_model_wrote_is_read(fields: Any) -> None:
    (exchange,) = RequestResponse().read({"action": "ls\n", "observation": "c", "query": [ASK]} | fields)
    assert exchange.output == {"role": "assistant", "content": fields["response"]}


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
        ({"cached": True}, "from its cache"),
        ({"cache_status": "SEMANTIC HIT"}, "from its cache"),
        ({"status_code": "503"}, "failed with the status 503"),
        ({"status": "error"}, "failed with the status error"),
        ({"error": "timeout"}, "the request failed"),
        ({"error": True}, "the request failed"),
        ({"response": "<html><head><title>502 Bad Gateway</title></head></html>"}, "error page"),
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


def test_a_row_that_went_well_is_read() -> None:
    page = "<!DOCTYPE html><html><title>404</title></html>"
    assert [exchange.output for exchange in RequestResponse().read({"prompt": "a", "response": page} | GOOD)] == [page]


@pytest.mark.parametrize("more", [{"error": "timeout"}, {"status_code": "500"}, {"cached": "true"}])
def test_a_plain_transcript_that_no_model_wrote_is_reported(more: Any) -> None:
    row = {"prompt": "a", "output": "b"}
    assert len(list(SpecraceFormat().read(row | GOOD | {"error": "None"}))) == 1
    with pytest.raises(ValueError, match=r"the request failed|from its cache"):
        list(SpecraceFormat().read(row | more))


def test_a_short_system_prompt_beside_a_plain_prompt_is_read() -> None:
    row = {"system": "Be brief.", "prompt": "a", "output": "b"}
    (exchange,) = SpecraceFormat().read(row)
    assert (exchange.prompt, exchange.output) == ([{"role": "system", "content": "Be brief."}, ASK], ANSWER)
    (exchange,) = SpecraceFormat().read(row | {"prompt": "[Be brief.] a"})
    assert exchange.prompt == "[Be brief.] a"


@pytest.mark.parametrize("more", [{"text": "<user>a<assistant>b"}, {"result": "success"}, {"answer": "42"}])
def test_text_beside_a_whole_conversation_is_not_its_answer(more: Any) -> None:
    assert recognise({"messages": [ASK, ANSWER]} | more) is OpenAIChat


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [ASK], "answer": "b"},
        {"messages": [ASK, ANSWER], "output": RESPONSE},
        {"messages": [ASK, {"role": "assistant", "content": "{"}], "model": "claude-x", "text": "b"},
    ],
)
def test_a_response_beside_messages_is_their_answer(row: Any) -> None:
    assert recognise(row) is RequestResponse
    (exchange,) = RequestResponse().read(row)
    assert (exchange.prompt, exchange.output) == ([ASK], ANSWER)


def test_several_requests_in_one_line_are_reported() -> None:
    first, second = {"prompt": "a", "response": "b"}, {"prompt": "a", "response": "c"}
    assert recognise({"m": first, "n": second}) is RequestResponse
    with pytest.raises(ValueError, match=r"the line holds several requests \(m, n\)"):
        RequestResponse().read({"id": 1, "m": first, "n": second})


@pytest.mark.parametrize(
    "row",
    [
        {"m": {"prompt": "a", "response": "b"}, "n": {"prompt": "a", "response": "b"}},
        {"m": {"prompt": "a", "response": "b"}, "n": {"question": "c", "answer": "d", "score": 1}},
        {"prompt": "a", "response": "b", "m": {"prompt": "c", "response": "d"}, "n": {"prompt": "e", "response": "f"}},
        {"m": None, "n": {"prompt": "a", "response": "b"}},
    ],
)
def test_the_same_request_twice_or_other_objects_are_no_second_request(row: Any) -> None:
    (exchange,) = RequestResponse().read(row)
    assert (exchange.prompt, exchange.output) == ("a", "b")


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "a", "text": "b", "label": 1},
        {"prompt": "a", "text": "a", "code": "c"},
        {"question": "a", "text": "b", "title": "c"},
        {"query": "a", "text": "b", "title": "c"},
    ],
)
def test_a_text_of_a_data_set_is_no_answer(row: Any) -> None:
    assert recognise(row) is None


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "a", "text": "b", "request_id": "1"},
        {"prompt": "a", "text": "b", "label": 1, "finish_reason": "stop"},
        {"question": "a", "text": "b"},
        {"request": {"prompt": "a"}, "text": "b", "label": 1},
    ],
)
def test_a_text_beside_fields_of_an_answer_is_the_answer(row: Any) -> None:
    (exchange,) = RequestResponse().read(row)
    assert (exchange.prompt, exchange.output) == ("a", "b")


LABEL = {"question": "a", "answer": "7", "solution": "First we add the two, and then we see."}


def test_a_label_beside_its_solution_is_no_response() -> None:
    with pytest.raises(ValueError, match="the answer is one word, and solution has more text; name by --columns"):
        list(RequestResponse().read(LABEL))


@pytest.mark.parametrize("more", [{"answer": "It is 7."}, {"solution": "7"}, {"answer": None, "response": "7"}])
def test_an_answer_beside_a_solution_may_be_the_response(more: Any) -> None:
    (exchange,) = RequestResponse().read(LABEL | more)
    assert isinstance(exchange.output, dict | str)
