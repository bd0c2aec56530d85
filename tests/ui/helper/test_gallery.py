"""Recorded races: the bundled ones, and those that visitors open."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from specrace.cli import app
from specrace.core.errors import InputError
from specrace.ui.helper.gallery import Gallery, open_recorded
from specrace.ui.wire import to_values
from specrace.views.recording_check import TERMINAL_LIMITS, read_recording

RECORDINGS = Path(__file__).resolve().parents[3] / "assets" / "recordings"
FILES = sorted(RECORDINGS.glob("*.jsonl"))


@pytest.fixture(scope="module")
def gallery() -> Gallery:
    """The gallery of the bundled recordings."""
    return Gallery.in_folder(RECORDINGS)


def test_each_bundled_recording_has_a_card_that_names_its_machine(gallery: Gallery) -> None:
    assert sorted(card.name for card in gallery.cards) == [file.stem for file in FILES]
    sizes = [card.parameters for card in gallery.cards]
    assert sizes == sorted(sizes, reverse=True), "the largest models first"
    for card in gallery.cards:
        assert all(getattr(card, fact) for fact in ("question", "date", "model", "dtype", "device"))
        assert card.speedup >= 1.0 and card.fastest in card.lanes and card.ms > 0


def test_recordings_can_keep_the_order_of_their_files() -> None:
    files = [RECORDINGS / "tides.jsonl", RECORDINGS / "smollm2-copying.jsonl"]
    assert [card.name for card in Gallery(files, in_order=True).cards] == ["tides", "smollm2-copying"]


def test_recordings_are_found_by_name_not_by_path(gallery: Gallery) -> None:
    reel = json.loads(str(gallery.play_recorded(FILES[0].stem).reel))
    assert reel["steps"] and reel["results"]
    for name in ("ghost", "../tiny/config", str(FILES[0]), "", None, ["x"], {"a": 1}, 7):
        assert set(to_values(gallery.play_recorded(name))) == {"error"}


def test_unusable_recordings_are_skipped_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.jsonl").write_text("{}")
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe")
    (tmp_path / "c.jsonl").write_bytes(FILES[0].read_bytes())
    with caplog.at_level(logging.WARNING):
        gallery = Gallery.in_folder(tmp_path)
    assert [card.name for card in gallery.cards] == ["c"]
    assert "a.jsonl" in caplog.text and "b.jsonl" in caplog.text
    assert Gallery.in_folder(tmp_path / "nothing").cards == []


def test_a_visitors_file_becomes_a_reel_or_is_refused_in_a_sentence() -> None:
    assert json.loads(open_recorded("race.jsonl", FILES[0].read_bytes()))["phase"] == "finished"
    with pytest.raises(InputError, match=r"race\.jsonl, line 1"):
        open_recorded("race.jsonl", b"hello")
    with pytest.raises(InputError, match=r"race\.jsonl is not text"):
        open_recorded("race.jsonl", b"\xff\xfe")
    with pytest.raises(InputError) as caught:
        open_recorded("x" * 10_000, b"")
    assert len(str(caught.value)) < 300


def test_a_truncated_recording_plays_and_says_that_it_is_cut_off() -> None:
    text = FILES[0].read_text(encoding="utf-8")
    half = text[: len(text) // 2]
    reel = json.loads(open_recorded("half.jsonl", half.encode()))
    # Every complete line is a step, except the first, which starts the race.
    assert reel["phase"] == "stopped" and len(reel["steps"]) == half.count("\n") - 1
    assert "cut off" in reel["headline"] and "cut off" in reel["pace"]["note"]


def deep_recording(depth: int, event_type: str, path: tuple[str, ...]) -> str:
    """A bundled recording whose first event of type `event_type` holds a list nested `depth` deep at `path`."""
    lines = FILES[0].read_text(encoding="utf-8").split("\n")
    number = next(number for number, line in enumerate(lines) if line and json.loads(line)["type"] == event_type)
    row = json.loads(lines[number])
    parent = row
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = "deep"
    lines[number] = json.dumps(row).replace('"deep"', "[" * depth + "]" * depth)
    return "\n".join(lines)


@pytest.mark.parametrize("depth", [100, 500, 600, 700, 800, 900, 5000, 100_000])
@pytest.mark.parametrize(
    ("event_type", "path"),
    [("started", ("about", "x")), ("step", ("lane",)), ("step", ("timing", "draft_ms")), ("finished", ("pace",))],
)
def test_deeply_nested_json_gets_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    depth: int,
    event_type: str,
    path: tuple[str, ...],
) -> None:
    """Such a recording is refused as a visitor's file, in the gallery's folder, in a terminal and with --replay."""
    text = deep_recording(depth, event_type, path)
    with pytest.raises(InputError, match="is not an event of a race"):
        open_recorded("deep", text.encode())
    file = tmp_path / "deep.jsonl"
    file.write_text(text, encoding="utf-8")
    assert Gallery.in_folder(tmp_path).cards == [] and "deep.jsonl" in caplog.text
    with pytest.raises(InputError, match="is not an event of a race"):
        read_recording(file, TERMINAL_LIMITS)
    assert app.main(["--replay", str(file)]) == 2
    message = capsys.readouterr().err
    assert str(file) in message and message.count("\n") == 1


def test_lone_surrogates_do_not_break_the_reel() -> None:
    lines = FILES[0].read_text(encoding="utf-8").split("\n")
    first = json.loads(lines[0])
    first["about"]["question"] = "half a \ud83e character"
    reel = open_recorded("x", "\n".join([json.dumps(first), *lines[1:]]).encode())
    assert json.loads(reel)["head"]["question"] == "half a \ud83e character"
