"""JSON text is a response of an API, or what a model wrote: the names of its fields tell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specrace.lab.logs.formats.apis.answers import looks_like_answers, read_answers
from specrace.lab.logs.formats.apis.requests import read_request
from specrace.lab.logs.formats.observed import PostHog

CHAT = {"choices": [{"message": {"role": "assistant", "content": "b"}}]}


@pytest.mark.parametrize(
    "written",
    [
        # Starred tuples: several values on a line.
        *({"answer": "Oslo", "sure": True}, {"text": "b", "done": False}, {"response": "b", "result": {"x": 1}}),
        *({"question": "q", "choices": [{"text": "b"}]}, {"results": ["b"]}, {"candidates": [{"name": "b"}]}),
        {"choices": ["b", "c"]},
        *({"type": "message", "text": "b"}, {"output": {"x": 1}}, [{"text": "b"}, {"text": "c"}]),
    ],
)
def test_json_that_a_model_wrote_stays_text(written: Any) -> None:
    text = json.dumps(written)
    assert not looks_like_answers(text)
    for response in (text, {"body": {"response": text}}, {"output": text}, {"completion": text}):
        (answer,) = read_answers(response)
        assert answer.output == text


@pytest.mark.parametrize(
    "response",
    [
        # Starred tuples: several responses on a line.
        *(CHAT, {"body": CHAT}, {"choices": [{"text": "b"}]}, {"choices": [{"text": "b", "finish_reason": "stop"}]}),
        *({"response": "b", "done": True}, {"completion": "b", "stop_reason": "stop"}, {"generated_text": "b"}),
        *({"text": "b", "meta_info": {}}, {"results": [{"outputText": "b"}]}, {"generations": [[{"text": "b"}]]}),
        *({"output": "b", "usage": {"output_tokens": 1}}, {"id": "1", "status": "COMPLETED", "output": ["b"]}),
        {"object": "response", "output": [{"type": "message", "content": [{"type": "output_text", "text": "b"}]}]},
        {"output": {"message": {"role": "assistant", "content": [{"text": "b"}]}}},
        {"candidates": [{"content": {"parts": [{"text": "b"}]}}]},
        {"outputs": [{"text": "b", "stop_reason": "stop"}]},
    ],
)
def test_a_response_may_be_logged_as_json_text(response: Any) -> None:
    (answer,) = read_answers(json.dumps(response))
    assert answer.output in ("b", {"role": "assistant", "content": "b"})


def test_a_prompt_that_is_json_stays_text() -> None:
    text = json.dumps({"question": "Is it tidal?", "context": "A harbour.", "text": "c"})
    for name in ("prompt", "inputs"):
        assert read_request({name: text}).prompt == text
    written = json.dumps({"prompt": "a", "max_tokens": 5})
    assert read_request(written).prompt == "a"


def test_an_event_may_hold_json_that_a_model_wrote() -> None:
    text = json.dumps({"answer": "Oslo", "sure": True})
    about = {"$ai_input": "a", "$ai_output": text}
    (exchange,) = PostHog().read({"event": "$ai_generation", "properties": about})
    assert exchange.output == text
