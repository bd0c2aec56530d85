"""Conversations: which turns count, and which messages cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from specrace.lab.logs.formats.chats import Completions, LMEval, OpenAIChat, ShareGPT

USER, ANSWER = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}


def test_each_turn_has_its_own_history() -> None:
    first, second = OpenAIChat().read({"messages": [USER, ANSWER, USER, ANSWER], "id": 7, "category": "qa"})
    assert first.prompt == [USER] and second.prompt == [USER, ANSWER, USER]
    assert (first.output, first.id, first.category) == (ANSWER, "7", "qa")


def test_an_opening_assistant_turn_is_only_history() -> None:
    turns = [{"from": "gpt", "value": "x"}, {"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
    (exchange,) = ShareGPT().read({"conversations": turns})
    assert exchange.prompt == [{"role": "assistant", "content": "x"}, USER]


def test_a_demonstration_is_only_history() -> None:
    shown = [{"role": role, "content": role[0], "is_demo": True} for role in ("user", "assistant")]
    asked = [{"role": "user", "content": "b"}, {"role": "assistant", "content": "c", "is_demo": False}]
    (exchange,) = OpenAIChat().read({"messages": [*shown, *asked]})
    assert [message["content"] for message in exchange.prompt] == ["u", "a", "b"]  # type: ignore[index, call-overload]


def test_what_gemini_cli_wrote_itself_is_only_history() -> None:
    texts = ["a", "Got it. Thanks for the context!", "b", "c"]
    turns = [{"role": ("user", "model")[index % 2], "parts": [{"text": text}]} for index, text in enumerate(texts)]
    (exchange,) = OpenAIChat().read({"messages": turns})
    assert [message["content"] for message in exchange.prompt] == texts[:3]  # type: ignore[index, call-overload]


def test_content_parts_and_tool_calls_are_read() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    question = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    result = {"role": "tool", "tool_call_id": "c", "content": "3"}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    tools = [{"type": "function", "function": {"name": "f"}}]
    first, second = OpenAIChat().read({"messages": [question, calling, result, ANSWER], "tools": tools})
    assert first.prompt == [{"role": "user", "content": "ab"}]
    assert isinstance(first.output, dict) and first.output["tool_calls"][0]["function"]["arguments"] == {"x": 1}
    assert second.prompt[-1] == result and second.tools == tools


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "messages is empty"),
        ([USER], "never answers"),
        ("a", "messages is not a list"),
        ([1], "a message is not an object"),
        ([{"content": "a"}, ANSWER], "role of a message is not text"),
        ([{"role": "user", "content": 3}, ANSWER], "content of a message is not a list"),
        ([{"role": "user", "content": [{"type": "image_url"}]}, ANSWER], "part of type image_url; only text"),
        ([{"role": "user", "content": "\ud800"}, ANSWER], "half a character"),
        ([USER, ANSWER | {"tool_calls": [{}]}], "function of a tool call is not an object"),
    ],
)
def test_an_unreadable_conversation_is_reported(messages: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        list(OpenAIChat().read({"messages": messages}))


def test_how_long_messages_took_is_no_order() -> None:
    (exchange,) = OpenAIChat().read({"messages": [USER | {"time": 2.5}, ANSWER | {"time": 0.3}]})
    assert exchange.output == ANSWER


@pytest.mark.parametrize("times", [(4, 3, 2, 1), ("2026-02-01T10:00", "2026-02-01T09:00", "2026-01-31", "2026-01-30")])
def test_messages_from_the_newest_to_the_oldest_are_refused(times: Any) -> None:
    messages = [message | {"created_at": time} for message, time in zip([ANSWER, USER] * 2, times, strict=True)]
    with pytest.raises(ValueError, match="from the newest to the oldest, by their created_at"):
        list(OpenAIChat().read({"messages": messages}))
    assert len(list(OpenAIChat().read({"messages": messages[::-1]}))) == 2


# Equal times, texts that do not sort by date, times of two kinds, a single time; and only the middle is out of order.
@pytest.mark.parametrize("times", [(5, 5), ("31/01", "01/02"), (9, "2026-01-30"), (None, 3), (1, 9, 7, 9)])
def test_other_times_of_messages_say_nothing(times: Any) -> None:
    messages = [message | {"timestamp": time} for message, time in zip([USER, ANSWER] * 2, times, strict=False)]
    assert list(OpenAIChat().read({"messages": messages}))


def test_an_unknown_speaker_is_reported() -> None:
    with pytest.raises(ValueError, match="a turn is from narrator; the known speakers are human"):
        list(ShareGPT().read({"conversations": [{"from": "narrator", "value": "a"}]}))


HUMAN, GPT = {"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}


@pytest.mark.parametrize("row", [{"conversations": [[HUMAN, GPT]]}, {"items": [HUMAN, GPT]}, {"data": ["a", "b"]}])
def test_turns_are_unpacked(row: Any) -> None:
    assert ShareGPT.looks_like(row)
    (exchange,) = ShareGPT().read(row)
    assert (exchange.prompt, exchange.output) == ([USER], ANSWER)


@pytest.mark.parametrize("row", [{"items": [{"id": 1}]}, {"data": [1, 2]}, {"data": {}}])
def test_items_and_data_of_other_kinds_are_not_conversations(row: Any) -> None:
    assert not ShareGPT.looks_like(row)


@pytest.mark.parametrize("name", ["images", "image", "videos", "audios", "image_path", "videoUrl"])
def test_a_picture_beside_the_conversation_is_reported(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} stands beside the conversation"):
        list(ShareGPT().read({"conversations": [HUMAN, GPT], name: ["x.png"]}))
    assert list(ShareGPT().read({"conversations": [HUMAN, GPT], name: None, "image_name": "swe/task:1"}))


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "a", "chosen": [USER, ANSWER], "rejected": [USER, ANSWER]},
        {"prompt": [USER], "chosen": [ANSWER], "rejected": [ANSWER]},
        {"conversations": [HUMAN], "chosen": GPT, "rejected": GPT},
        {"chosen": [USER, ANSWER], "rejected": [USER, ANSWER]},
    ],
)
def test_the_chosen_answer_is_scored(row: Any) -> None:
    (exchange,) = Completions().read(row)
    assert (exchange.prompt, exchange.output) == ([USER], ANSWER)


def test_a_preference_may_be_two_texts() -> None:
    text = "\n\nHuman: a\n\nAssistant: b\n\nHuman: c\n\nAssistant: d"
    (exchange,) = Completions().read({"chosen": text, "rejected": text})
    assert (exchange.prompt, exchange.output) == (text.removesuffix(" d"), " d")
    with pytest.raises(ValueError, match="have no prompt beside them"):
        list(Completions().read({"chosen": "a b", "rejected": "a c"}))


def test_a_repeated_sample_has_several_answers() -> None:
    row = {"doc_id": 1, "arguments": [["a", {}]], "resps": [["b", "c"]]}
    assert [exchange.output for exchange in LMEval().read(row)] == ["b", "c"]


def test_a_system_prompt_beside_a_prompt_makes_a_chat_and_a_failed_row_is_reported() -> None:
    row = {"system": "Be short.", "prompt": "a", "completion": "b"}
    (exchange,) = Completions().read(row)
    assert exchange.prompt == [{"role": "system", "content": "Be short."}, {"role": "user", "content": "a"}]
    with pytest.raises(ValueError, match=r"^the request failed"):
        Completions().read({**row, "error": "timeout"})
