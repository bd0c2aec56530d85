"""Races with servers: their lanes beside ours, compared, recorded, repeated, and left out if they fail."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.core.events import LEFT_OUT, Event, Finished, Repeated, Started, Step, ending
from specrace.engine.generate import generate
from specrace.engine.race import never, race
from specrace.engine.recording import save, to_json
from specrace.engine.spec import RaceSpec
from specrace.servers.connection import Waits
from specrace.servers.race import ServedRace
from specrace.views.detokenize import Narrator
from specrace.views.frames import RaceView, report
from specrace.views.headlines import headline
from specrace.views.recording_check import PAGE_LIMITS, TERMINAL_LIMITS, read_recording
from tests.parts import FunctionTarget, continuation, markov
from tests.servers.replies import (
    Answer,
    Route,
    as_json,
    chat_events,
    chat_routes,
    serving,
    stream,
    vllm_answering,
    vllm_chunk,
    vllm_end,
    vllm_routes,
)
from tests.servers.test_client import FAULTS

PROMPT = (2, 3, 4, 5, 2, 3, 4, 5, 2, 3)
# Lane 0 is vanilla and lane 1 the trie; the servers' lanes follow.
SPEC = RaceSpec(("trie",), max_new_tokens=24)
WAITS = Waits(connect_s=2.0, read_s=5.0, pause_s=0.0)
NGRAM = {"prompt_lookup_min": 1, "prompt_lookup_max": 2}  # options of the drafter that plays vLLM's


def decode(tokens: Sequence[int]) -> str:
    """The text of the tests' tokens."""
    return "".join(chr(97 + token) for token in tokens)


def make_target(**values: Any) -> FunctionTarget:
    """A target over eight tokens, whose text soon repeats itself."""
    return FunctionTarget(markov(1, vocab=8), **values)


def run(target: FunctionTarget, *routes: Route, stop: Any = never, again: Any = never, **how: Any) -> list[Event]:
    """The events of a race beside servers s0, s1, ... with these answers to completions; `how` is for `ServedRace`.

    `stop` says whether the race is to stop, `again` after each run whether another follows.
    """
    with ExitStack() as servers:
        addresses = [
            replace(servers.enter_context(serving(vllm_routes(route))), name=f"s{number}")
            for number, route in enumerate(routes)
        ]
        served = ServedRace(target, PROMPT, SPEC, addresses, decode, WAITS, **how)
        return list(served.run(race(target, PROMPT, SPEC, stop=stop, again=again)))


def started_of(events: list[Event]) -> Started:
    assert isinstance(events[0], Started)
    return events[0]


def steps_of(events: list[Event], lane: str) -> list[Step]:
    return [event for event in events if isinstance(event, Step) and event.lane == lane]


def finished_of(events: list[Event]) -> Finished:
    return ending(events)[0]


def test_the_boxes_of_a_served_lane_are_the_servers_steps() -> None:
    target = make_target()
    events = run(target, vllm_answering(target, decode, **NGRAM))
    own_steps = list(generate(target, "vllm-ngram", PROMPT, max_new_tokens=24, **NGRAM))
    served_steps = steps_of(events, "s0")
    assert sum(step.tree.num_draft for step in own_steps) > 8, "the test has drafts"
    assert [step.emitted for step in served_steps] == [step.emitted for step in own_steps]
    assert [step.accepted for step in served_steps] == [step.accepted for step in own_steps]
    result = finished_of(events).lanes[-1]
    assert result.lane == "s0" and result.identical is True and result.first_difference is None
    assert result.tokens == 24 and result.tau == 24 / len(own_steps) and result.speedup == 0.0


def test_steps_come_in_race_time_and_our_lanes_are_those_of_a_race_without_servers() -> None:
    target = make_target()
    events = run(target, vllm_answering(target, decode, **NGRAM))
    times = [event.at_ms for event in events if isinstance(event, Step)]
    assert times == sorted(times)
    without_servers = list(race(target, PROMPT, SPEC))
    for lane in ("vanilla", "trie"):
        assert [s.emitted for s in steps_of(events, lane)] == [s.emitted for s in steps_of(without_servers, lane)]


def test_tokens_of_one_chunk_that_is_no_step_keep_their_order() -> None:
    target = make_target()
    text = continuation(PROMPT, target.next_token, 24)
    chunks = [
        vllm_chunk(text[n : n + 3], decode(text[n : n + 3]), "length" if n == 21 else None) for n in range(0, 24, 3)
    ]
    events = run(target, stream(*chunks, vllm_end(24)))
    assert [step.index for step in steps_of(events, "s0")] == list(range(24))
    assert [token for step in steps_of(events, "s0") for token in step.emitted] == text
    assert finished_of(events).lanes[-1].identical is True


def test_another_text_is_compared_up_to_the_first_difference() -> None:
    target = make_target()
    tokens = continuation(PROMPT, target.next_token, 24)
    tokens[5] = (tokens[5] + 1) % 8
    ends: list[str | None] = [*[None] * 23, "length"]
    chunks = [vllm_chunk([token], decode([token]), end) for token, end in zip(tokens, ends, strict=True)]
    result = finished_of(run(target, stream(*chunks, vllm_end(24)))).lanes[-1]
    assert result.identical is False and result.first_difference is not None
    assert result.first_difference.position == 5
    assert target.used_params, "the target was asked for its two best tokens there"


def test_a_server_that_fails_is_left_out_with_a_sentence_and_the_others_race_on() -> None:
    target = make_target()
    broken = as_json({"error": {"message": "out of memory"}}, 500)
    cut = stream(vllm_chunk([2], decode([2])), end="abort")
    events = run(target, broken, vllm_answering(target, decode), cut)
    assert [info.lane for info in started_of(events).lanes] == ["vanilla", "trie", "s1"]
    assert [lane.lane for lane in finished_of(events).lanes] == ["vanilla", "trie", "s1"]
    first, second = started_of(events).about[LEFT_OUT]
    assert first == "The server s0 answers with status 500: out of memory."
    assert second.startswith("The server s2 ") and second.endswith("(after 1 chunk).")


def test_whatever_other_servers_do_wrong_the_race_goes_on() -> None:
    """All faults of tests/servers/test_client.py but the two that hang, which would only make the others wait."""
    target = make_target()
    bad_answers = {name: answer for name, (answer, _) in FAULTS.items() if not name.startswith("hangs")}
    assert len(bad_answers) > 20
    with ExitStack() as servers:
        addresses = [servers.enter_context(serving(vllm_routes(answer))) for answer in bad_answers.values()]
        named = [replace(address, name=f"s{number}") for number, address in enumerate(addresses)]
        good = servers.enter_context(serving(vllm_routes(vllm_answering(target, decode))))
        waits = Waits(connect_s=60.0, read_s=60.0, pause_s=0.0)
        served = ServedRace(target, PROMPT, SPEC, [*named, good], decode, waits)
        events = list(served.run(race(target, PROMPT, SPEC)))
    assert [(lane.lane, lane.identical) for lane in finished_of(events).lanes] == [
        ("vanilla", True),
        ("trie", True),
        ("tested", True),
    ]
    left_out = started_of(events).about[LEFT_OUT]
    assert [sentence.split()[2] for sentence in left_out] == [address.name for address in named]


def test_a_race_that_is_stopped_shows_no_later_steps_of_a_server() -> None:
    target = make_target()
    # The race is stopped when it asks for the seventh time whether it should stop.
    calls = iter(range(100))
    events = run(target, vllm_answering(target, decode), stop=lambda: next(calls) >= 6)
    finished = finished_of(events)
    assert finished.stopped
    result = finished.lanes[-1]
    assert result.lane == "s0" and result.tokens == sum(len(step.emitted) for step in steps_of(events, "s0"))
    assert result.end == ("stopped" if result.tokens < 24 else "length")


def test_a_repeated_race_asks_the_server_again_and_has_the_range_of_its_rates() -> None:
    target = make_target()
    answers: Iterator[Route] = iter([vllm_answering(target, decode)] * 2 + [as_json({}, 500)])

    def answer(body: dict[str, Any]) -> Answer:
        route = next(answers)
        return route(body) if callable(route) else route

    runs_left = iter([True, True, False])
    events = run(target, answer, again=lambda _: next(runs_left))
    repeated = [event for event in events if isinstance(event, Repeated)]
    assert len(repeated) == 2
    spread = repeated[0].lanes[-1]
    assert spread.lane == "s0" and (spread.speedup, spread.low, spread.high) == (0.0, 0.0, 0.0)
    assert 0 < spread.slowest <= spread.tokens_per_s <= spread.fastest
    assert "s0 failed in 1 of its runs, which do not count" in repeated[1].note
    assert repeated[1].lanes[-1].fastest == spread.fastest


def test_a_server_is_not_heard_to_its_end_once_the_race_is_stopped() -> None:
    target, stopped = make_target(), list[bool]()
    text = continuation(PROMPT, target.next_token, 24)
    chunks = [vllm_chunk([token], decode([token])) for token in text]

    def endless(_: dict[str, Any]) -> Answer:
        def blocks() -> Iterator[bytes]:
            for number, chunk in enumerate(chunks):
                if number == 3:
                    stopped.append(True)
                yield f"data: {json.dumps(chunk)}\n\n".encode()

        return Answer(blocks(), end="hang")

    stop = lambda: bool(stopped)  # noqa: E731
    with serving(vllm_routes(endless)) as address:
        served = ServedRace(target, PROMPT, SPEC, [address], decode, Waits(2.0, 60.0), stop)
        events = list(served.run(race(target, PROMPT, SPEC, stop=stop)))
    [sentence] = started_of(events).about[LEFT_OUT]
    assert sentence.startswith("The server tested was not heard to its end, because the race was stopped")
    assert finished_of(events).stopped


def test_a_recorded_race_is_read_without_a_server_by_the_terminal_and_the_page(tmp_path: Path) -> None:
    target = make_target()
    events = run(target, vllm_answering(target, decode, **NGRAM))
    file = tmp_path / "race.jsonl"
    save(events, file)
    assert "127.0.0.1" not in file.read_text(), "no address is recorded"
    for limits in (TERMINAL_LIMITS, PAGE_LIMITS):
        read = read_recording(file, limits)
        assert [to_json(event) for event in read] == [to_json(event) for event in events]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('"drafted": 5', '"drafted": -5', "impossible"),
        ('"speedup": 0.0', '"speedup": 9.0', "speedup is 9"),
        ('"first_tokens": 1', '"first_tokens": -1', "impossible count"),
        ('"lane": "s0", "tokens": 24', '"lane": "s0", "tokens": 25', "tokens contradicts"),
        ('"first_tokens": 1', '"first_tokens": 99', "more tokens in its first chunk than in all"),
        ('"chunks_are_steps": true', '"chunks_are_steps": false', "the server's chunks are not steps"),
        ('"draft_ms": 0.0, "target_ms": 0.0', '"draft_ms": 1.0, "target_ms": 0.0', "times that no server reports"),
        ('"num_draft": 0, "options": {}, "build_ms": 0.0', '"num_draft": 9, "options": {}, "build_ms": 0.0', "of ours"),
        ('"engine": "vLLM', f'"engine": "{"x" * 1001}', "too long"),
    ],
)
def test_a_forged_recording_of_a_server_is_refused(tmp_path: Path, old: str, new: str, fault: str) -> None:
    target = make_target()
    file = tmp_path / "race.jsonl"
    save(run(target, vllm_answering(target, decode, **NGRAM)), file)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=fault):
        read_recording(file, TERMINAL_LIMITS)


def test_a_servers_seconds_are_never_ranked_with_race_time() -> None:
    target = make_target()
    events = run(target, vllm_answering(target, decode))
    finished, repeated = ending(events)
    fast = replace(finished.lanes[-1], tokens_per_s=1e9)
    finished = replace(finished, lanes=(*finished.lanes[:-1], fast))
    words = headline(started_of(events), finished, repeated)
    assert "s0 (vLLM 0.32.0) is fastest" not in words
    assert "1000000000 on s0; a server's time is not race time" in words
    lane = report(started_of(events), finished, repeated)["lanes"][-1]
    assert lane["speedup"] is None and lane["served"]["engine"] == "vLLM 0.32.0"
    json.dumps(lane)
    view = RaceView()
    for event in events:
        view.add(event)
    frame = view.keyframe()
    assert frame.lanes[-1].meters.speedup == 0.0 and frame.head is not None and frame.head.lanes[-1].served is not None


@pytest.mark.parametrize("together", [True, False])
def test_servers_answer_at_once_only_if_they_are_asked_so(together: bool) -> None:
    """Together, each server answers only when all are asked, in both runs; else none is asked while another answers."""
    target, lock, now, highest = make_target(), threading.Lock(), [0], [0]
    all_asked = threading.Barrier(3 if together else 1)
    answering = vllm_answering(target, decode, **NGRAM)
    assert callable(answering)

    def answer(body: dict[str, Any]) -> Answer:
        with lock:
            now[0] += 1
            highest[0] = max(highest[0], now[0])
        all_asked.wait(300)
        with lock:
            now[0] -= 1
        return answering(body)

    runs_left = iter([True, False])
    events = run(target, answer, answer, answer, again=lambda _: next(runs_left), together=together)
    assert highest[0] == (3 if together else 1)
    served = [info.served for info in started_of(events).lanes[2:]]
    assert [lane is not None and lane.together for lane in served] == [together] * 3
    assert [lane.identical for lane in finished_of(events).lanes] == [True] * 5
    view = RaceView()
    for event in events:
        view.add(event)
    assert ("while the other servers were asked, too" in view.ending().results[-1].measured) is together


def test_a_server_that_is_left_alone_was_not_measured_together() -> None:
    target = make_target()
    with serving(vllm_routes(vllm_answering(target, decode))) as good, serving({}) as bad:
        addresses = [good, replace(bad, name="bad")]
        served = ServedRace(target, PROMPT, SPEC, addresses, decode, WAITS, together=True)
        started = started_of(list(served.run(race(target, PROMPT, SPEC))))
    [lane] = [info.served for info in started.lanes if info.served is not None]
    assert not lane.together and len(started.about[LEFT_OUT]) == 1


def with_texts(events: list[Event]) -> list[Event]:
    return list(map(Narrator(SimpleNamespace(decode=lambda tokens, **_: decode(tokens))), events))


def other_weights(body: dict[str, Any], change: int | None = None) -> Answer:
    """The answer of a model with other weights than the target's; if `change` is given, the token there is changed."""
    tokens = continuation(tuple(body["prompt"]), markov(7, vocab=8), body["max_tokens"])
    if change is not None:
        tokens[change] = (tokens[change] + 1) % 8
    last = len(tokens) - 1
    chunks = [vllm_chunk([token], decode([token]), "length" if n == last else None) for n, token in enumerate(tokens)]
    return stream(*chunks, vllm_end(len(tokens)))


def test_servers_are_compared_with_the_reference_where_the_target_has_other_weights(tmp_path: Path) -> None:
    target = make_target()
    differing = partial(other_weights, change=5)
    events = with_texts(run(target, other_weights, differing, other_weights, reference="s0"))
    trie, s0, s1, s2 = finished_of(events).lanes[1:]
    assert (trie.identical, s0.identical, s1.identical, s2.identical) == (True, None, False, True)
    assert (s1.differs_at, s1.first_difference) == (5, None)
    view = RaceView()
    for event in events:
        view.add(event)
    badges = [row.badge for row in view.ending().results]
    assert badges[2:] == [
        ("reference", "reference"),
        ("differs", "differs at token 5 of s0"),
        ("identical", "identical to s0"),
    ]
    assert "Every lane of ours printed the same text. s1 (vLLM 0.32.0) differs from s0." in view.ending().headline
    assert [lane["reference"] for lane in report(started_of(events), *ending(events))["lanes"][2:]] == ["s0"] * 3
    save(events, tmp_path / "race.jsonl")
    assert read_recording(tmp_path / "race.jsonl") == events


def test_a_race_whose_reference_does_not_answer_ends_with_a_sentence() -> None:
    broken = as_json({"error": {"message": "out of memory"}}, 500)
    with pytest.raises(
        InputError, match=r"no reference to compare with\. The server s0 answers with status 500: out of"
    ):
        run(make_target(), broken, other_weights, reference="s0")


def test_tokens_are_not_compared_with_a_text() -> None:
    target = make_target()
    with serving(chat_routes(stream(*chat_events("ab")))) as text, serving(vllm_routes(other_weights)) as ids:
        addresses = [text, replace(ids, name="ids")]
        events = ServedRace(target, PROMPT, SPEC, addresses, decode, WAITS, reference="tested").run(
            race(target, PROMPT, SPEC)
        )
        with pytest.raises(InputError, match="tested streams text without token ids, and others send ids"):
            next(events)


def test_a_race_that_is_stopped_before_its_reference_answers_can_be_read(tmp_path: Path) -> None:
    target, asked = make_target(), list[int]()

    def answer(body: dict[str, Any]) -> Answer:
        asked.append(1)
        return other_weights(body)

    with serving(vllm_routes(answer)) as first, serving(vllm_routes(answer)) as second:
        addresses = [first, replace(second, name="last")]
        stop = lambda: bool(asked)  # noqa: E731
        served = ServedRace(target, PROMPT, SPEC, addresses, decode, WAITS, stop, reference="last")
        events = with_texts(list(served.run(race(target, PROMPT, SPEC, stop=stop))))
    assert len(asked) == 1 and not any(info.reference for info in started_of(events).lanes)
    if any(isinstance(event, Step) for event in events):
        save(events, tmp_path / "race.jsonl")
        read_recording(tmp_path / "race.jsonl")


@pytest.mark.parametrize("reference", ["trie", "vanilla", "nobody", "s1"])
def test_a_forged_reference_is_refused(tmp_path: Path, reference: str) -> None:
    path = tmp_path / "race.jsonl"
    save(with_texts(run(make_target(), other_weights, other_weights, reference="s0")), path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0]["lanes"][-1]["reference"] = reference
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError, match=r"reference|badge"):
        read_recording(path)
