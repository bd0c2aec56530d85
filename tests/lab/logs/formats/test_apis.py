"""Requests and responses in the shapes of the APIs that serve models."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specrace.lab.logs.formats.apis import read_exchanges
from specrace.lab.logs.formats.apis.answers import looks_like_answers, read_usage
from specrace.lab.logs.formats.apis.messages import HIDDEN_REASONING, SUMMARISED_REASONING
from specrace.lab.logs.formats.base import Exchange, Usage

ASK = {"role": "user", "content": "a"}
CHAT = {"choices": [{"message": {"role": "assistant", "content": "b"}}]}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}


def only(request: Any, response: Any) -> Exchange:
    """The only exchange of this request and response."""
    (exchange,) = read_exchanges(request, response, "r")
    return exchange


def answer(response: Any) -> Any:
    """The answer in a response to a plain chat request."""
    return only({"messages": [ASK]}, response).output


@pytest.mark.parametrize(
    "request_body",
    [
        {"messages": [{"role": "developer", "content": "s"}, ASK]},
        {"system": "s", "messages": [ASK]},
        {"system": [{"type": "text", "text": "s"}], "messages": [{"role": "user", "content": [{"text": "a"}]}]},
        {"systemInstruction": {"parts": [{"text": "s"}]}, "contents": [{"role": "user", "parts": [{"text": "a"}]}]},
        {"instructions": "s", "input": "a"},
        {"instructions": "s", "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]},
        {"system": "s", "prompt": "a", "model": "m"},
        {"system": "s", "messages": [{"role": "system", "content": "s"}, ASK]},
        {"contents": [{"parts": [{"text": "a"}]}], "config": {"system_instruction": "s"}},
        {"preamble": "s", "chat_history": [], "message": "a"},
        {"body": {"system": "s", "messages": [ASK]}},
        '{"system": "s", "messages": [{"role": "user", "content": "a"}]}',
    ],
)
def test_every_shape_of_a_request_keeps_its_system_prompt(request_body: Any) -> None:
    prompt = only(request_body, CHAT).prompt
    assert isinstance(prompt, list)
    assert [(message["role"] in ("system", "developer"), message["content"]) for message in prompt] == [
        (True, "s"),
        (False, "a"),
    ]


@pytest.mark.parametrize(
    "response",
    [
        CHAT,
        {"body": CHAT, "status_code": 200},
        {"message": {"role": "assistant", "content": "b"}, "done": True},
        {"role": "assistant", "content": "b"},
        {"content": "b"},
        {"type": "message", "content": [{"type": "text", "text": "b"}]},
        {"candidates": [{"content": {"parts": [{"text": "b"}]}}]},
        {"output": {"message": {"role": "assistant", "content": [{"text": "b"}]}}},
        {"object": "response", "output": [{"type": "message", "content": [{"type": "output_text", "text": "b"}]}]},
        {"generated_text": "b"},
        [{"generated_text": "b"}],
        {"response": "b", "done": True},
        {"outputs": [{"text": "b"}]},
        {"results": [{"outputText": "b"}]},
        {"generations": [[{"text": "b"}]]},
        "b",
        [{"choices": [{"delta": {"content": "b"}}]}, {"choices": [], "usage": {"completion_tokens": 1}}],
        [
            {"type": "message_start", "message": {"role": "assistant", "content": []}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "b"}},
            {"type": "message_stop"},
        ],
        [{"message": {"content": "b"}, "done": False}, {"message": {"content": ""}, "done": True}],
        [
            {"type": "response.created"},
            {"type": "response.completed", "response": {"output": [{"content": "b", "role": "assistant"}]}},
        ],
    ],
)
def test_every_shape_of_a_response_has_its_text(response: Any) -> None:
    assert answer(response) == {"role": "assistant", "content": "b"}


@pytest.mark.parametrize(
    "response",
    [
        {
            "choices": [
                {
                    "message": {
                        "content": None,
                        "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": '{"x": 1}'}}],
                    }
                }
            ]
        },
        {"choices": [{"message": {"content": None, "function_call": {"name": "f", "arguments": '{"x": 1}'}}}]},
        {"content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}}], "role": "assistant"},
        {"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": {"x": 1}}}]}}]},
        {
            "output": {
                "message": {
                    "role": "assistant",
                    "content": [{"toolUse": {"toolUseId": "1", "name": "f", "input": {"x": 1}}}],
                }
            }
        },
        {"output": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"x": 1}'}]},
        {
            "message": {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}],
            }
        },
        [
            {
                "choices": [
                    {"delta": {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f", "arguments": '{"x"'}}]}}
                ]
            },
            {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}}]},
        ],
    ],
)
def test_every_shape_of_a_tool_call_is_read(response: Any) -> None:
    (call,) = answer(response)["tool_calls"]
    assert call["function"] == {"name": "f", "arguments": {"x": 1}}


@pytest.mark.parametrize(
    "messages",
    [
        {"messages": [ASK, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "r"}]}]},
        {
            "messages": [
                ASK,
                {"role": "user", "content": [{"toolResult": {"toolUseId": "1", "content": [{"text": "r"}]}}]},
            ]
        },
        {"messages": [ASK, {"role": "function", "name": "f", "content": "r"}]},
        {"input": [ASK, {"type": "function_call_output", "call_id": "1", "output": "r"}]},
    ],
)
def test_a_tools_result_becomes_a_message_of_its_own(messages: Any) -> None:
    prompt = only(messages, CHAT).prompt
    assert isinstance(prompt, list)
    assert (prompt[-1]["role"], prompt[-1]["content"]) == ("tool", "r")


@pytest.mark.parametrize(
    "tools",
    [
        {"tools": [TOOL]},
        {"tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}]},
        {"tools": [{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}}]},
        {"tools": [{"functionDeclarations": [TOOL["function"]]}]},
        {
            "toolConfig": {
                "tools": [{"toolSpec": {"name": "f", "description": "d", "inputSchema": {"json": {"type": "object"}}}}]
            }
        },
        {"functions": [TOOL["function"]]},
    ],
)
def test_every_shape_of_offered_tools_is_read(tools: dict[str, Any]) -> None:
    assert only({"messages": [ASK]} | tools, CHAT).tools == [TOOL]


@pytest.mark.parametrize(
    "response",
    [
        {"choices": [{"message": {"content": "b", "reasoning_content": "t"}}]},
        {"choices": [{"message": {"content": "b", "reasoning": "t"}}]},
        {"message": {"role": "assistant", "content": "b", "thinking": "t"}},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "b"}]},
        {"candidates": [{"content": {"parts": [{"text": "t", "thought": True}, {"text": "b"}]}}]},
        {
            "output": [
                {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "t"}]},
                {"role": "assistant", "content": "b"},
            ]
        },
        {
            "output": {
                "message": {
                    "role": "assistant",
                    "content": [{"reasoningContent": {"reasoningText": {"text": "t"}}}, {"text": "b"}],
                }
            }
        },
        {"response": "b", "thinking": "t"},
    ],
)
def test_every_shape_of_reasoning_is_read(response: Any) -> None:
    assert answer(response) == {"role": "assistant", "content": "b", "reasoning_content": "t"}


@pytest.mark.parametrize(
    ("part", "warning"),
    [
        ({"type": "redacted_thinking", "data": "x"}, HIDDEN_REASONING),
        ({"type": "thinking", "thinking": "", "signature": "x"}, HIDDEN_REASONING),
        ({"type": "reasoning", "encrypted_content": "x", "summary": []}, HIDDEN_REASONING),
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]}, SUMMARISED_REASONING),
    ],
)
def test_reasoning_that_is_not_in_the_log_is_a_warning(part: Any, warning: str) -> None:
    response = {"output": [part, {"role": "assistant", "content": "b"}]}
    if part["type"] != "reasoning":
        response = {"output": [{"role": "assistant", "content": [part, {"type": "text", "text": "b"}]}]}
    exchange = only({"messages": [ASK]}, response)
    assert exchange.warnings == (warning,)


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        # A usage has the tokens of the prompt and of the output, and how many of the latter are reasoning.
        ({"usage": {"prompt_tokens": 3, "completion_tokens": 5}}, Usage(3, 5)),
        ({"usage": {"completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 4}}}, Usage(None, 5, 4)),
        ({"usage": {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 10}}, Usage(13, 5)),
        (
            {"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 5, "thoughtsTokenCount": 4}},
            Usage(3, 9, 4),
        ),
        ({"prompt_eval_count": 3, "eval_count": 5}, Usage(3, 5)),
        ({"meta_info": {"prompt_tokens": 3, "completion_tokens": 5}}, Usage(3, 5)),
        ({"usage": {"inputTokens": 3, "outputTokens": 5}}, Usage(3, 5)),
        ({"usage": {"prompt_tokens": "3", "completion_tokens": -1}}, Usage()),
        ({}, Usage()),
    ],
)
def test_every_shape_of_usage_is_read(body: dict[str, Any], usage: Usage) -> None:
    assert read_usage(body) == usage


def test_an_echo_of_the_prompt_is_not_part_of_the_output() -> None:
    request = {"prompt": "a b", "echo": True}
    assert only(request, {"choices": [{"text": "a b c"}]}).output == " c"
    assert only({"inputs": "a b", "parameters": {"return_full_text": True}}, {"generated_text": "a b c"}).output == " c"
    for text, reason in (("c", "does not begin with the prompt"), ("a b", "echo of the prompt only")):
        with pytest.raises(ValueError, match=reason):
            only(request, {"choices": [{"text": text}]})


@pytest.mark.parametrize("model", ["claude-x", "bedrock/us.anthropic.claude-x", "vertex_ai/claude-x"])
def test_a_last_message_that_claude_continues_is_a_prefill(model: str) -> None:
    """A prefill is the beginning of the answer, which the request wrote."""
    exchange = only({"model": model, "messages": [ASK, {"role": "assistant", "content": "{"}]}, CHAT)
    assert (exchange.prefill, exchange.prompt) == ("{", [ASK])
    for_another_model = only({"model": "m", "messages": [ASK, {"role": "assistant", "content": "{"}]}, CHAT)
    assert (for_another_model.prefill, len(for_another_model.prompt)) == ("", 2)
    assert "read as a finished turn" in for_another_model.warnings[0]


def test_an_answer_that_an_earlier_turn_of_the_request_has_is_reported() -> None:
    said = {"role": "assistant", "content": "The tide rises because the moon pulls the sea."}
    yes = {"role": "assistant", "content": "Yes."}
    # An answer of fewer than eight words may be given twice.
    for answer, is_reported in ((said, True), (yes, False)):
        exchange = only({"messages": [ASK, answer, ASK]}, {"choices": [{"message": answer}]})
        assert len(exchange.prompt) == 3
        assert [("is the answer itself" in warning) for warning in exchange.warnings] == [True] * is_reported


CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}


@pytest.mark.parametrize(
    "written",
    [
        {"role": "assistant", "content": "b"},
        {"role": "assistant", "content": "b", "tool_calls": [CALL | {"id": "c"}]},
    ],
)
@pytest.mark.parametrize("model", ["m", "claude-x"])
def test_an_answer_that_ends_its_own_request_is_left_out_of_it(model: str, written: Any) -> None:
    response = {"choices": [{"message": written | {"content": " b", "reasoning": "hm"}}]}
    exchange = only({"model": model, "messages": [ASK, written]}, response)
    assert (exchange.prompt, exchange.prefill) == ([ASK], "")
    assert exchange.warnings == ("the logged request ends with the answer itself, which was left out of the prompt",)


def test_an_answer_out_of_several_is_left_out_of_the_request_of_all() -> None:
    response = {"choices": [{"message": {"content": "b"}}, {"message": {"content": "c"}}]}
    exchanges = list(read_exchanges([ASK, {"role": "assistant", "content": "b"}], response, "r"))
    assert [exchange.prompt for exchange in exchanges] == [[ASK], [ASK]]


def test_a_prompt_that_the_server_keeps_is_not_guessed() -> None:
    with pytest.raises(ValueError, match="OpenAI keeps the text of the prompt"):
        only({"prompt": {"id": "pmpt_1", "version": "2"}, "input": "a"}, CHAT)
    with pytest.raises(ValueError, match="kept by the server"):
        only({"input": "a", "previous_response_id": "resp_1"}, CHAT)


def test_every_choice_of_a_streamed_response_is_an_answer_of_its_own() -> None:
    chunks = [{"choices": [{"index": index, "delta": {"content": text}}]} for text in "xy" for index in (1, 0)]
    texts = [exchange.output for exchange in read_exchanges({"messages": [ASK]}, chunks, "r")]
    assert texts == [{"role": "assistant", "content": "xy"}] * 2


def test_ids_are_used_if_prompt_and_output_have_them() -> None:
    assert only({"input_ids": [1, 2]}, {"text": "b", "output_ids": [3]}).output == (3,)
    assert only({"text": "a"}, {"text": "b", "output_ids": [3]}).output == "b"
    with pytest.raises(ValueError, match="prompt is token ids and the output is not"):
        only({"input_ids": [1, 2]}, {"text": "b"})


@pytest.mark.parametrize("text", ['{"answer": 1}', '{"content": "b", "score": 2}', "[1, 2]", '"b"', '{"role": "user"}'])
def test_json_that_the_model_wrote_stays_text(text: str) -> None:
    assert not looks_like_answers(text)
    assert only({"messages": [ASK]}, text).output == {"role": "assistant", "content": text}


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "image_url", "image_url": {"url": "x"}}],
        [{"type": "input_image", "image_url": "x"}],
        [{"inlineData": {"mimeType": "image/png", "data": "x"}}],
        [{"type": "image", "source": {}}],
        [{"type": "input_audio", "input_audio": {}}],
        [{"type": "tool_result", "content": [{"type": "image", "source": {}}]}],
    ],
)
def test_a_prompt_with_more_than_text_is_refused(content: Any) -> None:
    with pytest.raises(ValueError, match="only text can be scored"):
        only({"messages": [{"role": "user", "content": content}]}, CHAT)


def test_choices_together_have_the_tokens_that_the_usage_counts() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 80, "completion_tokens_details": {"reasoning_tokens": 50}}
    response = {"choices": [{"message": {"content": text}} for text in "bc"], "usage": usage}
    first, second = read_exchanges([ASK], response, "r")
    assert (first.usage, second.usage) == (Usage(3, None, 50), Usage(3, None, None))


EVENTS = [{"choices": [{"index": 0, "delta": {"content": part}}]} for part in ("b", "c")]


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ("".join(f"data: {json.dumps(event)}\n\n" for event in EVENTS) + "data: [DONE]\n\n", "bc"),
        ([{"response": f"data: {json.dumps(event)}\n\n"} for event in EVENTS] + [{"response": "data: [DONE]"}], "bc"),
        ('{"message": {"content": "b"}, "done": false}\n{"message": {"content": "c"}, "done": true}\n', "bc"),
        ([{"token": {"text": "b"}, "generated_text": None}, {"token": {"text": "c"}, "generated_text": "bc"}], "bc"),
        ([{"content": "b", "stop": False}, {"content": "c", "stop": True, "tokens_predicted": 2}], "bc"),
        ([{"generation": "b", "generation_token_count": 1}, {"generation": "c", "generation_token_count": 2}], "bc"),
        ([{"outputText": text, "totalOutputTextTokenCount": None} for text in "bc"], "bc"),
        ("data: the mean is 3", "data: the mean is 3"),
        ('{"content": "b"}', "b"),
        ({"messages": [{"role": "assistant", "content": "b"}]}, "b"),
        ({"content": "b", "tokens_predicted": 1, "stop": True, "prompt": "a"}, "b"),
        ({"generated_text": [ASK, {"role": "assistant", "content": "b"}]}, "b"),
        ({"outputs": [{"role": "assistant", "content": "b"}], "output": []}, "b"),
    ],
)
def test_a_response_is_joined_from_its_pieces(response: Any, text: str) -> None:
    assert answer(response) == {"role": "assistant", "content": text}


@pytest.mark.parametrize(
    ("message", "key", "value"),
    [
        (
            {"tool_plan": "hm", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
            "reasoning_content",
            "hm",
        ),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}, "reasoning_content", "hm"),
        ({"tool_calls": [{"type": "custom", "custom": {"name": "f", "input": "ls"}}]}, "tool_calls", "ls"),
        ({"tool_calls": [{"toolCallId": "c", "toolName": "f", "args": {"x": 1}}]}, "tool_calls", {"x": 1}),
        ({"content": [{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]}, "tool_calls", {"x": 1}),
    ],
)
def test_reasoning_and_calls_have_many_names(message: Any, key: str, value: Any) -> None:
    answered = answer({"choices": [{"message": {"role": "assistant"} | message}]})[key]
    assert (answered if key == "reasoning_content" else answered[0]["function"]["arguments"]) == value


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"cachedContent": "c/1"}, "cached prompt"),
        ({"suffix": "z"}, "filled in the middle"),
        ({"image_data": ["x"]}, "image"),
        ({"images": ["x"]}, "image"),
        ({"context": [1, 2]}, "turns before"),
    ],
)
@pytest.mark.parametrize("prompt", [{"prompt": "a"}, {"messages": [ASK]}, {"text": "a"}])
def test_a_prompt_of_which_a_part_is_elsewhere_is_refused(prompt: Any, more: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        only(prompt | more, "b")
    assert only(prompt | dict.fromkeys(more), "b").output


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (
            {"object": "response", "previous_response_id": "r", "output": [{"role": "assistant", "content": "b"}]},
            "kept by",
        ),
        ({"promptFeedback": {"blockReason": "OTHER"}}, r"the prompt was blocked \(OTHER\)"),
        ({"content": "b", "stop": True, "truncated": True}, "the server truncated the prompt"),
        ({"status_code": 500, "body": {"error": {"message": "x"}}}, "the request failed"),
        ({"object": "list", "data": [{"embedding": [0.5]}]}, "is an embedding"),
        ({"choices": [{"delta": {"content": "b"}}]}, "one chunk of a stream"),
        ({"generated_text": [ASK]}, "does not end with a message"),
    ],
)
def test_the_error_for_a_response_that_is_not_a_whole_answer_says_what_it_is(response: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        only({"messages": [ASK]}, response)


EDITED = {
    "type": "message",
    "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "b"}],
    "context_management": {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_input_tokens": 50}]},
}


@pytest.mark.parametrize(
    "response",
    [
        EDITED,
        {"body": json.dumps(EDITED)},
        [{"type": "message_start", "message": EDITED}, {"type": "message_delta", **EDITED}],
    ],
)
def test_a_prompt_that_the_server_shortened_is_refused(response: Any) -> None:
    with pytest.raises(ValueError, match="left out parts of the prompt"):
        only([ASK], response)
    for written in ({"content": "applied_edits"}, EDITED | {"context_management": {"applied_edits": []}}):
        assert only([ASK], written).output


BEGUN = {"role": "assistant", "content": "The b"}


@pytest.mark.parametrize(
    ("request_body", "response"),
    [
        ({"model": "ours"}, {"type": "message", "role": "assistant", "content": "ell", "stop_reason": "end_turn"}),
        ({"continue_final_message": True, "echo": True}, {"choices": [{"message": {"content": "The bell"}}]}),
    ],
)
def test_a_prefill_is_recognised_by_the_answer_too(request_body: Any, response: Any) -> None:
    exchange = only({"messages": [ASK, BEGUN]} | request_body, response)
    assert (exchange.prompt, exchange.prefill, exchange.output) == (
        [ASK],
        "The b",
        {"role": "assistant", "content": "ell"},
    )


@pytest.mark.parametrize("text", ["ell", "The bell"])
def test_a_prefix_may_be_repeated_by_the_answer(text: str) -> None:
    exchange = only({"messages": [ASK, BEGUN | {"prefix": True}]}, {"choices": [{"message": {"content": text}}]})
    assert (exchange.prefill, exchange.output) == ("The b", {"role": "assistant", "content": "ell"})


def test_messages_as_a_prompt_keep_the_tools_beside_them() -> None:
    assert only({"prompt": [ASK], "tools": [TOOL]}, "b").tools == [TOOL]


@pytest.mark.parametrize("body", [{"contents": [{"parts": [{"text": "a"}]}]}, {"message": "a", "chat_history": []}])
def test_a_turn_without_a_role_is_the_users(body: Any) -> None:
    prompt = only(body, {"candidates": [{"content": {"parts": [{"text": "b"}]}}]}).prompt
    assert prompt == [ASK]


def test_a_preamble_is_the_system_prompt_of_a_first_turn() -> None:
    assert only({"message": "a", "preamble": "s"}, "b").prompt == [{"role": "system", "content": "s"}, ASK]
