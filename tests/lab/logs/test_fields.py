"""Fields of a line: unread text, fields that --columns names, and lines of no known format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.lab.logs.fields import describe_row, unread_fields
from specrace.lab.logs.files.tables import read_columns
from specrace.lab.logs.formats.base import Exchange
from specrace.lab.logs.formats.paths import value_at
from specrace.lab.logs.transcripts import TranscriptFile
from tests.lab.parts import write

LONG = "The harbour was dug between 1871 and 1884."
EXCHANGE = Exchange([{"role": "user", "content": LONG}], {"role": "assistant", "content": "By hand, with spades only."})


def codes(text: str) -> list[int]:
    """Stands in for a tokenizer: the code of each letter."""
    return [1, *map(ord, text)]


@pytest.mark.parametrize(
    ("row", "names"),
    [
        ({"messages": [{"role": "user", "content": LONG}], "output": "By hand, with spades only."}, []),
        ({"messages": LONG, "passage": "A sentence that the model read."}, ["passage"]),
        ({"request": {"preamble": {"text": "Answer in one short line."}}}, ["request.preamble.text"]),
        ({"extra": '{"context": "Four words are text here"}'}, ["extra.context"]),
        ({"model": "m", "id": "a-b", "created": "2026-01-01 10:00:00", "user_agent": "a b c d e f"}, []),
        ({"error": "a long sentence about a failure", "metadata": {"note": "a long sentence about a note"}}, []),
        ({"copy": f"  {LONG}\n"}, []),
        ({"quoted": json.dumps(LONG)}, []),
        ({"system": "Be brief.", "instructions": "x", "gen_ai.system": "openai"}, ["system"]),
        ({"given_tools": [{"description": "Opens a gate of the lock."}]}, ["given_tools.description"]),
        ({"description": "A test of the new prompt."}, []),
        ({"echo": f"{LONG} By hand, with spades only."}, []),
        ({"text": f"<user>\n{LONG}<end>\n<model>\nBy hand, with spades only.<end>"}, []),
        ({"text": f"Never say who dug it. {LONG}"}, ["text"]),
        ({"sent": 'data: {"choices": [{"delta": {"content": "By hand, with spades only."}}]}'}, []),
    ],
)
def test_fields_with_text_that_is_in_no_exchange_are_named(row: dict[str, Any], names: list[str]) -> None:
    assert unread_fields(row, [EXCHANGE]) == names


def test_exchanges_of_ids_say_nothing_about_text() -> None:
    assert unread_fields({"text": LONG}, [Exchange((1,), (2,))]) == []
    assert unread_fields({"text": LONG}, []) == []


def test_a_field_that_nobody_read_is_remarked_with_its_number_of_lines(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "output": "b", "passage": LONG}] * 3 + [{"prompt": "a", "output": "b"}]
    file = TranscriptFile(write(tmp_path / "t.jsonl", *rows), tokenize=codes)
    assert len(list(file)) == 4
    (remark,) = file.remarks.sentences()
    assert "The field passage holds text that was not read, in 3 lines" in remark


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a", 1),
        ("b.c.1.d", "x"),
        ("e.f", [2]),
        ("g.h", 3),
    ],
)
def test_a_dotted_name_finds_its_value_in_objects_lists_and_json_text(path: str, value: object) -> None:
    row = {"a": 1, "b": {"c": [0, {"d": "x"}]}, "e": '{"f": [2]}', "g.h": 3}
    assert value_at(row, path) == value


@pytest.mark.parametrize("path", ["b", "a.b", "c.2", "c.x"])
def test_a_missing_field_is_reported(path: str) -> None:
    with pytest.raises(KeyError, match=path):
        value_at({"a": 1, "c": [0, 1]}, path)


def test_columns_name_fields_of_a_line_by_dotted_names(tmp_path: Path) -> None:
    row = {"call": {"in": [{"role": "user", "content": "a"}], "out": {"choices": [{"message": {"content": "b"}}]}}}
    columns = read_columns("prompt=call.in,output=call.out.choices.0.message")
    file = TranscriptFile(write(tmp_path / "t.jsonl", row), columns=columns, chat=lambda *_: ([1], [2], ()))
    assert [(transcript.prompt, transcript.output) for transcript in file] == [((1,), (2,))]


def test_a_line_without_a_named_field_says_what_it_has(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", {"question": "a", "reply": "b"})
    with pytest.raises(InputError, match="no field 'prompt', but question, reply"):
        list(TranscriptFile(path, columns={"prompt": "prompt", "output": "reply"}, tokenize=codes))


def test_a_line_of_no_known_format_says_what_it_holds_and_what_to_do(tmp_path: Path) -> None:
    row = {"meta": {"question": "a", "n": 1}, "best": {"answer": "b"}}
    assert describe_row(row) == (
        "this line is of no known format: it has text in meta.question, best.answer; name its fields by "
        "--columns prompt=meta.question,output=best.answer"
    )
    with pytest.raises(InputError, match="line 1: this line is of no known format"):
        list(TranscriptFile(write(tmp_path / "t.jsonl", row)))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({}, "it is empty"),
        ({"prompt_len": 100, "output_len": 20}, "it has only prompt_len, output_len"),
        ({"model": "m", "prompt_tokens": "12", "completion_tokens": "4.5"}, "neither a request nor an output"),
        ({LONG: "By hand.", f"{LONG} By hand.": "b"}, "the names of the fields are sentences"),
    ],
)
def test_no_columns_are_suggested_for_a_line_without_a_request(row: dict[str, Any], reason: str) -> None:
    assert reason in describe_row(row)
    assert "--columns" not in describe_row(row)
