"""Options of requests: one name for all APIs, neutral values left out, counts with their share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specrace.lab.logs.formats import recognise
from specrace.lab.logs.formats.apis.requests import read_request
from specrace.lab.logs.formats.base import Exchange
from specrace.lab.logs.remarks import Remarks
from specrace.lab.logs.request_options import request_options
from tests.lab.parts import COPYING, FRESH, run, write

SCHEMA = {"type": "object", "properties": {}}
CHAT = {"messages": [{"role": "user", "content": "a"}]}


@pytest.mark.parametrize(
    ("body", "options"),
    [
        # OpenAI's chats and completions.
        (CHAT | {"presence_penalty": 1.5, "n": 2, "temperature": 1.0}, "n presence_penalty temperature"),
        (CHAT | {"frequency_penalty": -0.5, "logit_bias": {"50256": -100}}, "frequency_penalty logit_bias"),
        (CHAT | {"tool_choice": "required"}, "tool_choice"),
        (CHAT | {"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        (CHAT | {"function_call": {"name": "f"}}, "tool_choice"),
        (CHAT | {"response_format": {"type": "json_object"}}, "structured_output"),
        (CHAT | {"logprobs": True, "top_logprobs": 5, "seed": 0, "stop": ["\n"]}, "logprobs seed stop"),
        ({"prompt": "a", "logprobs": 0, "best_of": 4}, "best_of logprobs"),
        # OpenAI's Responses API.
        ({"input": "a", "text": {"format": {"type": "json_schema", "schema": SCHEMA}}}, "structured_output"),
        # Anthropic's messages.
        (CHAT | {"tool_choice": {"type": "any"}, "stop_sequences": ["x"]}, "stop tool_choice"),
        (CHAT | {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, "structured_output"),
        # Gemini.
        (
            {
                "contents": [{"role": "user", "parts": [{"text": "a"}]}],
                "generationConfig": {
                    "presencePenalty": 0.5, "candidateCount": 2, "responseMimeType": "application/json",
                    "responseLogprobs": True, "stopSequences": ["x"],
                },
                "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
            },
            "logprobs n presence_penalty stop structured_output tool_choice",
        ),
        # Bedrock.
        (CHAT | {"toolConfig": {"toolChoice": {"any": {}}}, "inferenceConfig": {"temperature": 0.2}},
         "temperature tool_choice"),
        # Ollama.
        ({"prompt": "a", "format": "json", "options": {"repeat_penalty": 1.2, "min_p": 0.05, "seed": 7}},
         "min_p repetition_penalty seed structured_output"),
        ({"prompt": "a", "format": SCHEMA}, "structured_output"),
        # SGLang.
        ({"text": "a", "sampling_params": {"regex": "[a-z]+", "min_new_tokens": 4, "ignore_eos": True}},
         "min_tokens structured_output"),
        ({"text": "a", "return_logprob": True, "custom_logit_processor": "{}"}, "logits_processors logprobs"),
        # Text Generation Inference, transformers.
        ({"inputs": "a", "parameters": {"do_sample": True, "grammar": {"type": "json", "value": SCHEMA}}},
         "structured_output temperature"),
        ({"inputs": "a", "parameters": {"num_beams": 4}}, "use_beam_search"),
        # llama.cpp's server.
        ({"prompt": "a", "grammar": "root ::= \"a\"", "n_probs": 3}, "logprobs structured_output"),
        # vLLM.
        (CHAT | {"extra_body": {"guided_choice": ["a", "b"], "allowed_token_ids": [1], "bad_words": ["x"]}},
         "allowed_token_ids bad_words structured_output"),
        (CHAT | {"use_beam_search": True, "structured_outputs": {"json": SCHEMA}}, "structured_output use_beam_search"),
        # Tables hold numbers as text.
        (CHAT | {"temperature": "0.7", "presence_penalty": "0"}, "temperature"),
    ],
)  # fmt: skip
def test_options_have_one_name_in_all_apis(body: dict[str, Any], options: str) -> None:
    assert " ".join(request_options(read_request(body).parameters)) == options


@pytest.mark.parametrize(
    "parameters",
    [
        {"temperature": 0, "presence_penalty": 0.0, "repetition_penalty": 1, "n": 1, "best_of": 1, "min_p": 0},
        {"logit_bias": {}, "stop": None, "seed": None, "tool_choice": "auto", "response_format": {"type": "text"}},
        {"logprobs": False, "top_logprobs": 0, "seed": -1, "do_sample": False, "text": {"format": {"type": "text"}}},
        {"temperature": "warm", "n": True, "min_p": float("nan"), "logprobs": None, "presence_penalty": 10**400},
        {"tool_choice": {"type": "auto"}, "toolConfig": "x", "format": "", "text": "json", "grammar": ""},
    ],
)
def test_neutral_values_are_not_options(parameters: dict[str, Any]) -> None:
    assert request_options(parameters) == ()


MESSAGES = CHAT["messages"]
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "a b"}}]}
SPAN = {
    "gen_ai.input.messages": json.dumps(MESSAGES),
    "gen_ai.output.messages": json.dumps([{"role": "assistant", "content": "b"}]),
}


@pytest.mark.parametrize(
    ("row", "options"),
    [
        ({"prompt_ids": [1], "output_ids": [2], "n": 2}, "n"),
        ({"prompt_ids": [1], "output_ids": [2], "sampling_params": {"min_p": 0.1}}, "min_p"),
        ({"prompt": "a", "output": "b", "temperature": 0.5}, "temperature"),
        ({"messages": [*MESSAGES, {"role": "assistant", "content": "b"}], "seed": 1}, "seed"),
        ({"messages": MESSAGES, "response": ANSWER, "model_parameters": {"n": 3}}, "n"),
        ({"messages": MESSAGES, "response": ANSWER, "proxy_server_request": json.dumps({"body": {"seed": 3}})}, "seed"),
        (
            {"attributes": SPAN | {"gen_ai.request.choice.count": 2, "gen_ai.output.type": "json"}},
            "n structured_output",
        ),
        ({"attributes": SPAN | {"llm.invocation_parameters": '{"presence_penalty": 1}'}}, "presence_penalty"),
    ],
)
def test_formats_keep_the_options(row: dict[str, Any], options: str) -> None:
    format = recognise(row)
    assert format is not None
    (exchange,) = format().read(row)
    assert " ".join(request_options(exchange.parameters)) == options


def test_requests_that_ignore_the_end_of_the_answer_are_reported() -> None:
    remarks = Remarks()
    remarks.add(Exchange("a", "b", parameters={"ignore_eos": True}), (), 1, 1)
    remarks.add(Exchange("a", "b", parameters={"ignore_eos": False}), (), 1, 1)
    (sentence,) = remarks.sentences()
    assert sentence.startswith("1 of 2 requests (50 %): the request ignores the end of the answer")


def test_options_are_counted_with_their_share() -> None:
    remarks = Remarks()
    for parameters in ({"n": 2, "seed": 1}, {"n": 3}, {}):
        remarks.add(Exchange("a", "b", parameters=parameters), (), 1, 1)
    assert remarks.options == {"n": 2, "seed": 1}
    (sentence,) = remarks.sentences()
    assert "n in 2 of 3 requests (67 %), seed in 1 of 3 requests (33 %)" in sentence


def test_score_counts_the_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write(tmp_path / "log.jsonl", COPYING | {"n": 2, "seed": 1}, FRESH | {"seed": 1})
    assert run(log, "--lanes", "prompt-lookup", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["options"] == {"seed": 2, "n": 1}
    assert any("seed in 2 of 2 requests (100 %)" in remark for remark in result["remarks"])
