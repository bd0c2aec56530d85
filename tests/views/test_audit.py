from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.core.events import Finished, Started
from specrace.engine.recording import load
from specrace.views.audit import MAX_BYTES, open_recording

RECORDINGS = sorted((Path(__file__).resolve().parents[2] / "assets" / "recordings").glob("*.jsonl"))
Rows = list[dict[str, Any]]


def rows_of(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def text_of(rows: Rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def rows() -> Rows:
    return rows_of(RECORDINGS[0])


def step_of(rows: Rows, lane: str, number: int = 0) -> dict[str, Any]:
    return [row for row in rows if row["type"] == "step" and row["lane"] == lane][number]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_the_recordings_that_ship_pass(path: Path) -> None:
    events = open_recording(path.read_text(encoding="utf-8"), path.name)
    assert events == load(path)
    assert isinstance(events[0], Started) and isinstance(events[-1], Finished)
    assert {"question", "date", "model", "dtype", "device"} <= set(events[0].about)


def test_there_are_recordings_to_check() -> None:
    assert RECORDINGS


def test_line_separators_inside_a_text_are_no_line_ends(rows: Rows) -> None:
    rows[0]["about"]["question"] = "one\u2028two\x85three"
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    first = open_recording(data, "x")[0]
    assert isinstance(first, Started) and first.about["question"] == "one\u2028two\x85three"


def change(path: str, value: Any) -> Callable[[Rows], None]:
    """A change at "row.key.key", the row by its number."""

    def apply(rows: Rows) -> None:
        *way, last = path.split(".")
        place: Any = rows
        for key in way:
            place = place[int(key)] if isinstance(place, list) else place[key]
        place[int(last) if isinstance(place, list) else last] = value

    return apply


def differ(rows: Rows) -> None:
    """The trie's last token becomes another, in all places that must agree about it."""
    last = step_of(rows, "trie", -1)
    last["verdict"]["bonus"] = last["emitted"][-1] = 77
    last["verdict"]["path"] = last["verdict"]["path"][: len(last["emitted"])]


LIES: dict[str, Callable[[Rows], None]] = {
    "a speedup that the steps do not give": change("-1.lanes.3.speedup", 9.9),
    "tokens that were not emitted": change("-1.lanes.3.tokens", 4000),
    "a text that differs and is called identical": differ,
    "a lane that hides that it is identical": change("-1.lanes.3.identical", None),
    "a difference that is none": change(
        "-1.lanes.3.first_difference", {"position": 3, "best": ["a", "b"], "gap": 1.0}
    ),
    "emitted tokens that were not accepted": lambda rows: step_of(rows, "trie").__setitem__("emitted", [1, 2, 3]),
    "no token at all": lambda rows: step_of(rows, "trie").__setitem__("emitted", []),
    "a clock that goes back": lambda rows: step_of(rows, "vanilla", 5).__setitem__("at_ms", 0.0),
    "a time that is no number": lambda rows: step_of(rows, "vanilla", 5).__setitem__("at_ms", math.nan),
    "an endless time": lambda rows: step_of(rows, "vanilla", 5).__setitem__("at_ms", math.inf),
    "a duration below nothing": lambda rows: step_of(rows, "vanilla")["timing"].__setitem__("draft_ms", -1.0),
    "a step of an unknown lane": lambda rows: step_of(rows, "trie").__setitem__("lane", "ghost"),
    "a step twice": lambda rows: rows.insert(2, rows[1]),
    "a lane twice": lambda rows: rows[0]["lanes"].append(rows[0]["lanes"][1]),
    "no vanilla": lambda rows: rows[0]["lanes"].pop(0),
    "a second beginning": lambda rows: rows.insert(1, rows[0]),
    "an origin outside the passages": change("0.about.origins", [[99, 0, 1]]),
    "an origin outside a passage's text": change("0.about.origins", [[0, 0, 10**9]]),
    "an origin that is none": change("0.about.origins", ["x"]),
    "passages that are no passages": change("0.about.passages", ["x"]),
    "a score that is no number": change("0.about.passages.0.score", "high"),
    "a question that is no text": change("0.about.question", {"x": [1]}),
    "parameters that are no number": change("0.about.parameters", "many"),
    "settings that are no settings": change("0.about.settings", [1]),
    "a token that no model has": lambda rows: step_of(rows, "trie")["tree"]["tokens"].__setitem__(0, 10**30),
    "texts that do not belong to tokens": lambda rows: step_of(rows, "trie").__setitem__("texts", ["a"] * 50),
    "a text without end": lambda rows: step_of(rows, "trie")["texts"].__setitem__(0, "x" * 200_000),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_what_is_no_honest_race_is_refused_in_one_sentence(rows: Rows, lie: str) -> None:
    LIES[lie](rows)
    with pytest.raises(InputError, match=r"^odd\.jsonl.*\.$") as refusal:
        open_recording(text_of(rows), "odd.jsonl")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "data",
    ["", "\n\n", "not json", "[]", "{}", '{"type": "started"}', "[" * 100_000, "\x00\x01\ufffd", "null", "1e999"],
)
def test_what_is_no_recording_is_refused_in_one_sentence(data: str) -> None:
    with pytest.raises(InputError, match=r"odd\.jsonl"):
        open_recording(data, "odd.jsonl")


def test_half_a_race_and_a_giant_are_refused(rows: Rows) -> None:
    with pytest.raises(InputError, match="not a whole race"):
        open_recording(text_of(rows[:-1]), "odd.jsonl")
    with pytest.raises(InputError, match="larger than"):
        open_recording(" " * (MAX_BYTES + 1), "odd.jsonl")
