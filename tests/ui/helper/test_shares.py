"""Races under short links: how long they are kept, how many, whose are deleted first, and what is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from specrace.core.bundled import RECORDINGS
from specrace.ui.helper import shares as shares_module
from specrace.ui.helper.shares import HOUR_S, Shares
from tests.ui.served import Served, serving
from tests.ui.test_front_door import refusal

RACE = (RECORDINGS / "tides.jsonl").read_bytes()
SHARED = "/gradio_api/shared"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The server's folder for visitors' files."""
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def app() -> Iterator[Served]:
    """A server that keeps races for two hours."""
    with serving("--keep-shares", "2", "--uploads-per-hour", "5") as served:
        yield served


def test_a_race_is_kept_for_its_hours_and_then_deleted(folder: Path) -> None:
    now = [0.0]
    shares = Shares(2, lambda: now[0])
    # (visitor, the race's content).
    code = shares.keep("a", b"reel")
    now[0] = 2 * HOUR_S - 1
    assert shares.find(code) == b"reel"
    now[0] = 2 * HOUR_S
    shares.forget_ended()
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    assert shares.find(code) is None


def test_codes_differ_and_no_other_names_a_race() -> None:
    shares = Shares(1)
    codes = {shares.keep("a", b"reel") for _ in range(100)}
    assert len(codes) == 100 and all(code.isalnum() and len(code) == 20 for code in codes)
    assert [shares.find(code) for code in ("", "../../etc/passwd", next(iter(codes))[:-1])] == [None] * 3


@pytest.mark.parametrize(("bound", "value"), [("MAX_SHARES", 4), ("MAX_SHARED_BYTES", 40)])
def test_whoever_takes_the_most_room_loses_the_oldest_race(
    monkeypatch: pytest.MonkeyPatch, folder: Path, bound: str, value: int
) -> None:
    monkeypatch.setattr(shares_module, bound, value)
    shares = Shares(1)
    lone = shares.keep("a", b"0123456789")
    many = [shares.keep("b", b"0123456789") for _ in range(9)]
    # Both bounds leave room for four races: the only one of visitor a, and the latest three of visitor b.
    assert shares.find(lone) and [code for code in many if shares.find(code)] == many[-3:]
    assert sum(path.is_file() for path in folder.rglob("*")) == 4


def test_a_shared_race_is_the_one_that_its_recording_opens(app: Served) -> None:
    kept = app.ask("POST", SHARED, RACE)
    assert kept.status == 200
    shown = app.ask("GET", f"{SHARED}/{kept.text}")
    assert (shown.status, shown.headers["content-encoding"]) == (200, "gzip")
    assert gzip.decompress(shown.body) == app.ask("POST", "/gradio_api/recording?name=a", RACE).body


def test_what_is_no_race_is_not_kept_and_a_visitor_has_a_limit(app: Served) -> None:
    rows = [json.loads(line) for line in RACE.splitlines()]
    rows[-1]["lanes"][-1]["speedup"] = 99.0
    false_recording = "\n".join(map(json.dumps, rows)).encode()
    other = Served(app.port, app.folder, source="127.0.0.9")
    # Five uploads an hour are allowed, so the sixth is refused whatever it holds.
    answers = [other.ask("POST", SHARED, body) for body in (false_recording, b"hello", b"\xff", b"", b"", b"")]
    assert [answer.status for answer in answers] == [400] * 5 + [429]
    assert "speedup is 99" in answers[0].text and "More than 5 files" in answers[5].text
    foreign = app.ask("POST", SHARED, RACE, Origin="https://elsewhere.example")
    assert foreign.status == 403


def test_a_link_to_a_race_that_is_not_kept_gets_a_sentence(app: Served) -> None:
    answer = app.ask("GET", f"{SHARED}/0123456789abcdef0123")
    assert answer.status == 404
    assert answer.text == (
        "This link's race is not on this server, which keeps a race for 2 hours or until a restart. Ask for a new link."
    )


def test_by_default_nothing_is_kept() -> None:
    with serving() as app:
        assert app.ask("POST", SHARED, RACE).status in (404, 405)
        assert b"&quot;share_hours&quot;: 0," in app.ask("GET", "/").body


def test_hours_out_of_range_and_a_server_without_uploads_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for hours in ("-1", "8761"):
        assert "give 0 to 8760 hours" in refusal(["--keep-shares", hours], capsys)
    assert "leave out one of the two" in refusal(["--keep-shares", "1", "--no-uploads"], capsys)
