"""Servers that stream text without token ids: raced as text, and nothing is shown that they do not tell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.core.events import LEFT_OUT, Event, Finished, LaneResult, Started, Step, ending
from specrace.engine.race import race
from specrace.engine.recording import save
from specrace.servers.connection import Connection
from specrace.servers.dialects import Chat, recognise
from specrace.servers.race import ServedRace
from specrace.servers.reply import Request
from specrace.views.detokenize import Narrator
from specrace.views.frames import RaceView, report
from specrace.views.headlines import headline
from specrace.views.recording_check import read_recording
from tests.parts import continuation
from tests.servers.replies import Answer, Route, as_json, chat_events, chat_routes, serving, stream
from tests.servers.test_race import PROMPT, SPEC, WAITS, decode, make_target

LIMIT = SPEC.max_new_tokens
TOKENIZER = SimpleNamespace(decode=lambda tokens, **_: decode(tokens))
MESSAGE = "Context: <passages>\n\nQuestion: why?"


def vanilla_text() -> str:
    """What vanilla prints in these tests: one letter for each token."""
    return decode(continuation(PROMPT, make_target().next_token, LIMIT))


def run(answer: Route, **about: Any) -> list[Event]:
    """The events, with texts, of a race beside a server with this answer to chats."""
    target = make_target()
    with serving(chat_routes(answer, **about)) as address:
        served = ServedRace(target, PROMPT, SPEC, [address], decode, WAITS, message=MESSAGE)
        return list(map(Narrator(TOKENIZER), served.run(race(target, PROMPT, SPEC))))


def result_of(events: Sequence[Event]) -> LaneResult:
    lane = ending(events)[0].lanes[-1]
    assert lane.lane == "tested"
    return lane


def chunks_of(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


@pytest.mark.parametrize(
    ("owner", "version", "engine"),
    [
        ("library", ("/api/version", "0.13.1"), "Ollama 0.13.1"),
        ("organization_owner", ("", ""), "LM Studio"),
        ("tensorrt_llm", ("/version", "1.2.0"), "TensorRT-LLM 1.2.0"),
        ("someone", ("", ""), "an OpenAI-compatible server"),
    ],
)
def test_a_server_is_recognised_by_what_it_answers(owner: str, version: tuple[str, str], engine: str) -> None:
    with serving(chat_routes(Answer(), owner, version)) as address, Connection(address, WAITS) as connection:
        dialect = recognise(connection, needs_ids=False)
        assert isinstance(dialect, Chat) and (dialect.engine, dialect.model) == (engine, "m")
        name_without_version = engine.removesuffix(f" {version[1]}")
        with pytest.raises(InputError, match=f"is {name_without_version}, whose stream has no token ids"):
            recognise(connection)


def test_a_model_can_be_named_that_the_server_does_not_list() -> None:
    """`transformers serve` lists only models of its cache."""
    with serving({"/v1/models": as_json({"data": []})}) as address, Connection(address, WAITS) as connection:
        dialect = recognise(connection, "/home/me/m", needs_ids=False)
        assert dialect.model == "m" and dialect.body(Request((1,), 2))["model"] == "/home/me/m"
        assert recognise(connection, "maker/m", needs_ids=False).model == "maker/m"
        with pytest.raises(InputError, match="lists no models"):
            recognise(connection, needs_ids=False)


def test_the_message_is_sent_greedily_through_the_servers_own_template() -> None:
    seen = list[dict[str, Any]]()

    def answer(body: dict[str, Any]) -> Answer:
        seen.append(body)
        return stream(*chat_events("a"))

    run(answer)
    [body] = seen
    assert body["messages"] == [{"role": "user", "content": MESSAGE}] and "prompt" not in body
    assert (body["temperature"], body["max_tokens"], body["model"]) == (0, LIMIT, "m")


def test_equal_texts_are_identical_and_no_token_is_invented() -> None:
    text = vanilla_text()
    events = run(stream(*chat_events(*chunks_of(text, 3), num_tokens=LIMIT, end="length")))
    result = result_of(events)
    assert result.identical is True and result.differs_at is None and result.text == text
    steps = [event for event in events if isinstance(event, Step) and event.lane == "tested"]
    assert [step.texts for step in steps] == [(part,) for part in chunks_of(text, 3)]
    assert not any(step.emitted or step.num_draft for step in steps)
    # The server counts 24 tokens in 8 chunks: how many were in the first one, and so the rate, is not known.
    assert (result.tokens, result.steps, result.tau, result.tokens_per_s) == (LIMIT, 0, 0.0, 0.0)


@pytest.mark.parametrize(("num_tokens", "end"), [(24, "length"), (24, "stop"), (25, "stop")])
def test_as_many_tokens_as_chunks_give_a_rate(num_tokens: int, end: str) -> None:
    target_text = vanilla_text()
    # Room for the 24 tokens of the text and an end-of-text token.
    spec = replace(SPEC, max_new_tokens=25)
    target = make_target()
    with serving(chat_routes(stream(*chat_events(*target_text, num_tokens=num_tokens, end=end)))) as address:
        served = ServedRace(target, PROMPT, spec, [address], decode, WAITS)
        result = result_of(list(map(Narrator(TOKENIZER), served.run(race(target, PROMPT, spec)))))
    assert result.tokens_per_s == pytest.approx(1000 * (num_tokens - 1) / result.decode_ms)


def test_without_a_count_no_token_and_no_rate_is_shown() -> None:
    events = run(stream(*chat_events("ab", "cd")))
    started, result = events[0], result_of(events)
    assert isinstance(started, Started)
    assert (result.tokens, result.tokens_per_s) == (0, 0.0) and result.decode_ms > 0
    shown = report(started, *ending(events))["lanes"][-1]
    unknown = (
        "tokens",
        "steps",
        "tau",
        "drafted_per_step",
        "acceptance_rate",
        "tokens_per_s",
        "speedup",
        "loop_tokens",
    )
    assert {name: shown[name] for name in unknown} == dict.fromkeys(unknown)
    assert "not known on tested" in headline(started, *ending(events))


def test_another_text_differs_at_a_character() -> None:
    text = vanilla_text()
    other = f"{text[:7]}X{text[8:]}"
    view = RaceView()
    for event in run(stream(*chat_events(f" {other}\n"))):
        view.add(event)
    row = view.ending().results[-1]
    assert row.badge == ("differs", "differs at character 7")
    assert "own chat template words the prompt" in row.measured and "tokens it does not count" in row.measured


def test_a_text_that_is_cut_inside_a_character_is_not_another_text() -> None:
    assert result_of(run(stream(*chat_events(f"{vanilla_text()}\ufffd")))).identical is True


def test_the_pane_has_the_text_and_is_compared_at_the_end() -> None:
    view, badges = RaceView(), set[str]()
    for event in run(stream(*chat_events(*chunks_of(vanilla_text(), 5)))):
        view.add(event)
        if isinstance(event, Step) and event.lane == "tested":
            badges.add(view.keyframe().lanes[-1].badge[1])
    frame = view.keyframe().lanes[-1]
    assert "".join(piece[1] for piece in frame.runs) == vanilla_text() and {piece[0] for piece in frame.runs} == {"own"}
    assert frame.draft is None and badges == {"compared at the end"} and frame.badge[1] == "identical text"


FAULTS: dict[str, tuple[list[Any], str]] = {
    "thoughts apart": (
        [{"choices": [{"delta": {"reasoning_content": "hm"}}]}, *chat_events("ab")],
        "sends its thoughts apart from its answer",
    ),
    "more tokens than asked for": (chat_events("ab", num_tokens=99), "counts 99 tokens in its answer, where 1 to 24"),
    "more chunks than tokens asked for": (chat_events(*"abcdefgh" * 4), "streamed more than the 24 tokens"),
    "no tokens": (chat_events("ab", num_tokens=0), "counts 0 tokens"),
    "no text": (chat_events(num_tokens=1), "ended its answer without a single token"),
    "a tool call": (chat_events("ab", end="tool_calls"), "without saying why the text ends"),
    "an error": ([*chat_events("ab")[:2], {"error": "bad"}], "broke off its answer: bad (after 1 chunk)"),
    "a number": ([{"choices": [{"delta": {"content": 7}, "finish_reason": "stop"}]}], "without a single token"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_server_that_misbehaves_is_left_out_with_a_sentence(name: str) -> None:
    events, words = FAULTS[name]
    started = run(stream(*events))[0]
    assert isinstance(started, Started) and [info.lane for info in started.lanes] == ["vanilla", "trie"]
    [sentence] = started.about[LEFT_OUT]
    assert words in sentence and sentence.startswith("The server tested ") and "\n" not in sentence


def saved_race(path: Path) -> list[Event]:
    """Save a race beside a server of texts, and return its events."""
    events = run(stream(*chat_events(*chunks_of(vanilla_text(), 3), num_tokens=LIMIT)))
    save(events, path)
    return events


def test_a_recording_is_read_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "race.jsonl"
    events = saved_race(path)
    read = read_recording(path)
    assert read == events
    # A recording that is cut off gets the totals of the steps that it still has.
    lines = path.read_text().splitlines()
    last = max(number for number, line in enumerate(lines) if '"lane": "tested"' in line and '"step"' in line)
    path.write_text("\n".join([line for number, line in enumerate(lines) if number < last]))
    cut = read_recording(path)[-1]
    assert isinstance(cut, Finished) and cut.lanes[-1].tokens == 0 and cut.lanes[-1].end == "stopped"


# (part of a recording: the server's first chunk, lane or result; what a forgery claims there; the refusal).
FORGERIES: list[tuple[str, dict[str, Any], str]] = [
    ("step", {"emitted": [0]}, "emits tokens other than"),
    ("step", {"texts": ["ab", "c"]}, "has tokens or lacks a text"),
    ("step", {"texts": []}, "has tokens or lacks a text"),
    ("served", {"chunks_are_steps": True}, "has no tokens, but counts steps or drafts"),
    ("served", {"accepted": 3}, "has no tokens, but counts steps or drafts"),
    ("served", {"first_tokens": 2}, "has no tokens, but counts steps or drafts"),
    ("served", {"tokens": -1}, "impossible count"),
    ("served", {"tokens": 7}, "tokens"),
    ("served", {"sends_ids": True}, "has token ids, but also a count of its tokens"),
    ("result", {"differs_at": 3}, "differs_at contradicts its steps"),
    ("result", {"identical": False}, "badge contradicts"),
]


@pytest.mark.parametrize(("part", "claim", "words"), FORGERIES, ids=str)
def test_a_forged_recording_is_refused(tmp_path: Path, part: str, claim: dict[str, Any], words: str) -> None:
    path = tmp_path / "race.jsonl"
    saved_race(path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    forged = {
        "step": next(row for row in rows if row["type"] == "step" and row["lane"] == "tested"),
        "served": rows[0]["lanes"][-1]["served"],
        "result": rows[-1]["lanes"][-1],
    }[part]
    forged |= claim
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError, match=words):
        read_recording(path)
