"""Recordings: what is saved is read back; what is no recording is named with its line; nothing is half written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from specrace.core.errors import InputError
from specrace.core.events import Event, Finished, LaneInfo, Started, to_json
from specrace.drafters import METHODS
from specrace.engine.recording import load, save
from tests.parts import function_lane, markov, material


@pytest.fixture
def events() -> list[Event]:
    """A short race of one lane, with texts that JSON and line readers trip over."""
    lane = function_lane((2, 3, 2, 3), METHODS["trie"].build(material((2, 3, 2, 3))), markov(0), max_new_tokens=6)
    steps = []
    while not lane.end:
        steps.append(lane.step())
    hostile = 'a\u2028b\u0085c"\\\n\r</script>\U0001f600 e\u0301'
    return [Started((LaneInfo("trie", "Trie", 8),), 4, 1.0, {"question": hostile}), *steps, Finished(())]


def test_a_race_comes_back_equal(tmp_path: Path, events: list[Event]) -> None:
    path = tmp_path / "race.jsonl"
    save(events, path)
    assert load(path) == events
    assert len(path.read_bytes().splitlines()) == len(events)
    assert [each.name for each in tmp_path.iterdir()] == ["race.jsonl"]


def test_lines_may_be_blank_or_end_as_windows_ends_them(tmp_path: Path, events: list[Event]) -> None:
    path = tmp_path / "race.jsonl"
    path.write_bytes(b"\r\n\r\n".join(json.dumps(to_json(event)).encode() for event in events))
    assert load(path) == events


def test_a_cut_recording_is_refused_by_line(tmp_path: Path, events: list[Event]) -> None:
    path = tmp_path / "race.jsonl"
    save(events, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b"\n", 0, -1) - 5])
    with pytest.raises(InputError, match=rf"race\.jsonl, line {len(events) - 1} "):
        load(path)


@pytest.mark.parametrize("part", [slice(1, None), slice(None, -1), slice(0, 0)])
def test_a_race_without_beginning_or_end_is_refused(tmp_path: Path, events: list[Event], part: slice) -> None:
    path = tmp_path / "race.jsonl"
    save(events[part], path)
    with pytest.raises(InputError, match="not a whole race"):
        load(path)


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
def test_a_line_that_is_no_event_is_named(tmp_path: Path, events: list[Event], line: str) -> None:
    path = tmp_path / "race.jsonl"
    path.write_text("\n".join([json.dumps(to_json(events[0])), line, json.dumps(to_json(events[-1]))]))
    with pytest.raises(InputError, match="line 2 "):
        load(path)


def test_what_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "race.jsonl"
    path.write_bytes(b"\x89PNG\r\n\xff\xfe\x00")
    with pytest.raises(InputError, match="not text"):
        load(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            load(path)


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, events: list[Event]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("kept")
    for path in (tmp_path / "none" / "race.jsonl", tmp_path / "folder", tmp_path / "file" / "race.jsonl"):
        with pytest.raises(InputError, match="cannot be written"):
            save(events, path)
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["file", "folder"]


def test_a_race_that_breaks_leaves_the_old_file(tmp_path: Path, events: list[Event]) -> None:
    path = tmp_path / "race.jsonl"
    path.write_text("the one before")

    def breaking() -> Iterator[Event]:
        yield from events[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save(breaking(), path)
    assert path.read_text() == "the one before"
    assert [each.name for each in tmp_path.iterdir()] == ["race.jsonl"]


def test_text_that_is_no_unicode_is_saved_all_the_same(tmp_path: Path) -> None:
    # A terminal hands over bytes that are no UTF-8 as lone surrogates.
    path = tmp_path / "race.jsonl"
    save([Started((), 1, 0.0, {"question": "\udcff?"}), Finished(())], path)
    assert isinstance(load(path)[0], Started)
