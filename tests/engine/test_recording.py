"""Recordings: saved races are read back, errors name the bad line, and no file is left half written."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from specrace.core.errors import InputError
from specrace.core.events import Event, Finished, LaneInfo, LaneSpread, Repeated, Started
from specrace.drafters import METHODS
from specrace.engine.recording import parse, save, to_json
from tests.parts import function_lane, inputs, markov


def reload(path: Path) -> list[Event]:
    """The events of a saved race."""
    return parse(path.read_text(encoding="utf-8"), path.name)


@pytest.fixture
def events() -> list[Event]:
    """A short race of one lane, with characters that JSON or line readers may treat specially."""
    lane = function_lane((2, 3, 2, 3), METHODS["trie"].build(inputs((2, 3, 2, 3))), markov(0), max_new_tokens=6)
    steps = []
    while not lane.end:
        steps.append(lane.step())
    hostile = 'a\u2028b\u0085c"\\\n\r</script>\U0001f600 e\u0301'
    return [Started((LaneInfo("trie", "Trie", 8),), 4, 1.0, {"question": hostile}), *steps, Finished(())]


def test_a_saved_race_is_read_back_equal(tmp_path: Path, events: list[Event]) -> None:
    path = tmp_path / "race.jsonl"
    save(events, path)
    assert reload(path) == events
    assert len(path.read_bytes().splitlines()) == len(events)
    assert [file.name for file in tmp_path.iterdir()] == ["race.jsonl"]


def test_only_the_last_summary_of_repeated_runs_is_saved(tmp_path: Path, events: list[Event]) -> None:
    path = tmp_path / "race.jsonl"
    spread = LaneSpread("trie", 1.2, 1.1, 1.3, 90.0)
    repeats = [Repeated(runs, (spread,), False, f"Medians of {runs} runs.") for runs in (2, 3, 4)]
    save([*events, *repeats], path)
    assert reload(path) == [*events, repeats[-1]]


def test_blank_lines_and_windows_line_ends_are_accepted(tmp_path: Path, events: list[Event]) -> None:
    path = tmp_path / "race.jsonl"
    path.write_bytes(b"\r\n\r\n".join(json.dumps(to_json(event)).encode() for event in events))
    assert reload(path) == events


@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_a_recording_that_is_cut_off_has_the_events_of_its_whole_lines(
    tmp_path: Path, events: list[Event], share: float
) -> None:
    path = tmp_path / "race.jsonl"
    save(events, path)
    text = path.read_text(encoding="utf-8")
    text = text[: int(share * len(text))]
    events_before = parse(text, "cut")
    assert events_before == events[: len(events_before)] and len(events_before) == text.count("\n")


def test_a_broken_line_before_the_last_is_refused(tmp_path: Path, events: list[Event]) -> None:
    path = tmp_path / "race.jsonl"
    save(events, path)
    lines = path.read_text(encoding="utf-8").split("\n")
    lines[2] = lines[2][:-5]
    with pytest.raises(InputError, match=r"cut, line 3 "):
        parse("\n".join(lines), "cut")


@pytest.mark.parametrize("kept", [slice(1, None), slice(0, 1), slice(0, 0)])
def test_a_race_without_its_first_event_or_without_steps_is_refused(
    tmp_path: Path, events: list[Event], kept: slice
) -> None:
    path = tmp_path / "race.jsonl"
    save(events[kept], path)
    with pytest.raises(InputError, match="not a whole race"):
        reload(path)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "null",
        "[1, 2]",
        '"started"',
        "{}",
        '{"type": "lap"}',
        '{"type": "started", "format": 99, "lanes": [], "prompt_tokens": 1, "prefill_ms": 0, "about": {}}',
        '{"type": "started", "format": 1, "lanes": [], "prompt_tokens": Infinity, "prefill_ms": 0, "about": {}}',
        pytest.param("[" * 100_000, id="deep"),
        pytest.param("9" * 10_000, id="long-number"),
    ],
)
def test_the_error_names_the_line_that_is_not_an_event(tmp_path: Path, events: list[Event], line: str) -> None:
    path = tmp_path / "race.jsonl"
    path.write_text("\n".join([json.dumps(to_json(events[0])), line, json.dumps(to_json(events[-1]))]))
    with pytest.raises(InputError, match="line 2 "):
        reload(path)


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path, events: list[Event]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("kept")
    for path in (tmp_path / "none" / "race.jsonl", tmp_path / "folder", tmp_path / "file" / "race.jsonl"):
        with pytest.raises(InputError, match="cannot be written"):
            save(events, path)
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["file", "folder"]


def test_an_interrupted_race_leaves_the_old_file(tmp_path: Path, events: list[Event]) -> None:
    path = tmp_path / "race.jsonl"
    path.write_text("an older race")

    def interrupted() -> Iterator[Event]:
        yield from events[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save(interrupted(), path)
    assert path.read_text() == "an older race"
    assert [file.name for file in tmp_path.iterdir()] == ["race.jsonl"]


def test_a_failed_write_raises_input_error_and_leaves_the_old_file(tmp_path: Path, events: list[Event]) -> None:
    """The write fails as on a full disk, because the system limits the size of this process's files."""
    path = tmp_path / "race.jsonl"
    path.write_text("an older race")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(InputError, match="cannot be written"):
            save(events, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "an older race"
    assert [file.name for file in tmp_path.iterdir()] == ["race.jsonl"]


def test_lone_surrogates_are_saved_as_question_marks(tmp_path: Path, events: list[Event]) -> None:
    """Python represents bytes of the command line that are not UTF-8 as lone surrogates."""
    path = tmp_path / "race.jsonl"
    save([Started((), 1, 0.0, {"question": "\udcff?"}), *events[1:]], path)
    started = reload(path)[0]
    assert isinstance(started, Started) and started.about["question"] == "??"
