"""JSON other than one object per line: arrays, pretty-printed objects, reports with requests in them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.lab.logs.files import containers, documents
from specrace.lab.logs.files.containers import Rows
from specrace.lab.logs.files.sources import Source
from specrace.lab.logs.transcripts import TranscriptFile
from tests.lab.parts import COPYING, FRESH

USER, ASSISTANT = {"role": "user", "content": "a b"}, {"role": "assistant", "content": "c"}
ROWS = [COPYING, FRESH, {"id": '{["', "prompt_ids": [1], "output_ids": [2], "note": "é \\ \n [{"}]


def read(path: Path, text: str) -> tuple[list[Any], list[tuple[int, str]]]:
    """The rows in a file of this text, and the bad lines."""
    path.write_text(text, encoding="utf-8")
    bad: list[tuple[int, str]] = []
    return [row for _, row in Rows(Source(path), None, lambda *fault: bad.append(fault))], bad


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ROWS),
        json.dumps(ROWS, indent=2),
        "\ufeff" + json.dumps(ROWS, indent="\t", ensure_ascii=False).replace("\n", "\r\n"),
        "\n\n" + ",\n".join(json.dumps(row, indent=1) for row in ROWS),
        "[\n" + ",\n".join(map(json.dumps, ROWS)) + "\n]\n",
        "[" + ",\n".join(map(json.dumps, ROWS)) + "]",
        json.dumps({"object": "list", "data": ROWS, "has_more": False}),
        json.dumps({"meta": {"columns": ["a"]}, "rows": [{"row_idx": 1, "row": row} for row in ROWS]}, indent=2),
        json.dumps({"data": ROWS[:1]}) + "\n" + json.dumps({"data": ROWS[1:]}) + "\n",
        "\n".join(map(json.dumps, ROWS)),
    ],
)
def test_rows_are_found_in_any_document(tmp_path: Path, text: str) -> None:
    assert read(tmp_path / "t.json", text) == (ROWS, [])


@pytest.mark.parametrize("size", [1, 7, 64, 1 << 16])
def test_rows_do_not_depend_on_where_a_buffer_ends(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_CHUNK", size)
    rows = [*ROWS, {"output_ids": [2], "prompt_ids": [-1, 10**20], "x": [1.5e-7, True, None, "\U0001f600\u20ac"]}]
    for text in (json.dumps(rows, indent=2), json.dumps(rows, indent=1, ensure_ascii=False)):
        assert read(tmp_path / "t.json", text) == (rows, [])


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ([USER, ASSISTANT], [{"messages": [USER, ASSISTANT]}]),
        ([[USER, ASSISTANT]] * 2, [{"messages": [USER, ASSISTANT]}] * 2),
        ([{"from": "human", "value": "a"}], [{"conversations": [{"from": "human", "value": "a"}]}]),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_bare_list_of_messages_is_a_conversation(tmp_path: Path, text: Any, rows: Any, indent: int | None) -> None:
    assert read(tmp_path / "t.json", json.dumps(text, indent=indent)) == (rows, [])


def said(**ids: object) -> list[dict[str, object]]:
    """A question and its answer with these fields."""
    return [USER | ids, ASSISTANT | ids]


@pytest.mark.parametrize("indent", [None, 2])
def test_a_table_of_messages_holds_several_conversations(tmp_path: Path, indent: int | None) -> None:
    first, second = said(conversation_id=1), said(conversation_id=2)
    mixed = [first[0], second[0], first[1], second[1]]
    rows = [{"messages": first}, {"messages": second}]
    assert read(tmp_path / "t.json", json.dumps(mixed, indent=indent)) == (rows, [])


@pytest.mark.parametrize("messages", [[*said(id="a"), *said(id="b")], [*said(thread_id=1), *said(thread_id=None)]])
@pytest.mark.parametrize("indent", [None, 2])
def test_messages_that_may_be_of_several_conversations_are_refused(
    tmp_path: Path, messages: Any, indent: int | None
) -> None:
    rows, bad = read(tmp_path / "t.json", json.dumps(messages, indent=indent))
    assert not rows and "as if of several conversations" in bad[0][1]


@pytest.mark.parametrize(
    "messages",
    [
        [USER | {"id": 1}, ASSISTANT | {"id": 2}, USER | {"id": 3}, ASSISTANT | {"id": 4}],
        [USER, ASSISTANT | {"id": "m1"}, USER, ASSISTANT | {"id": "m1"}],
        [*said(thread_id=1), *said(thread_id=1)],
    ],
)
def test_ids_of_messages_do_not_divide_a_conversation(tmp_path: Path, messages: Any) -> None:
    assert read(tmp_path / "t.json", json.dumps(messages)) == ([{"messages": messages}], [])


def test_a_line_may_be_a_conversation(tmp_path: Path) -> None:
    lines = (json.dumps([USER, ASSISTANT]) + "\n") * 2
    assert read(tmp_path / "t.jsonl", lines) == ([{"messages": [USER, ASSISTANT]}] * 2, [])


@pytest.mark.parametrize("indent", [None, 1])
def test_guidellms_report_holds_requests_of_which_the_failed_ones_are_counted(
    tmp_path: Path, indent: int | None
) -> None:
    done = {"request_args": "{}", "output": "text"}
    requests = {"successful": [done] * 2, "errored": [{"output": None}], "incomplete": [{"output": "te"}]}
    report = {"args": {"data": [{"prompt": "a"}]}, "benchmarks": [{"requests": requests}, {"requests": requests}]}
    rows, bad = read(tmp_path / "t.json", json.dumps(report, indent=indent))
    assert rows == [done] * 4
    assert [reason.split("; ")[0] for _, reason in bad] == [
        "guidellm counts this request as errored",
        "guidellm counts this request as incomplete",
    ] * 2


def test_a_document_larger_than_a_row_is_searched_part_by_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_LINE_BYTES", 2000)
    monkeypatch.setattr(containers, "MAX_LINE_BYTES", 2000)
    monkeypatch.setattr(documents, "_CHUNK", 100)
    rows = ROWS * 40
    report = {"note": ["x" * 100] * 9, "benchmarks": [{"metrics": {"a": [1] * 900}, "requests": {"successful": rows}}]}
    for document in (report, {"a": {"b": [{"c": rows}]}}, {"data": rows}):
        for indent in (None, 2):
            assert read(tmp_path / "t.json", json.dumps(document, indent=indent)) == (rows, [])
    assert read(tmp_path / "t.json", json.dumps({"a": {"b": [[1] * 900]}}))[0] == []
    for too_large in ({"a": ["b" * 5000]}, {"a": 1, "b" * 5000: 1}):
        _, bad = read(tmp_path / "t.json", json.dumps(too_large, indent=1))
        assert len(bad) == 1 and "a text of more than" in bad[0][1]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (
            '[\n{"prompt_ids": [1], "output_ids": [2]},\n{"prompt_ids": [1]',
            3,
            "the text breaks off), and nothing after",
        ),
        ('[\n{"prompt_ids": [1], "output_ids": [2]},\n\n{"prompt_ids" [1]}]', 4, "Expecting ':' delimiter"),
        ('[{"prompt_ids": [1], "output_ids": [2]}\n{}]', 2, "a comma or an end is missing"),
        ('{\n "prompt_ids": [1],\n "output_ids": [2]\n}\nthe end', 5, "this is not JSON"),
        ('[\n{"prompt_ids": [1], "output_ids": [2]},\n5]', 3, "an element of a list but not an object"),
    ],
)
def test_a_broken_document_says_from_which_line_on(tmp_path: Path, text: str, line: int, words: str) -> None:
    rows, bad = read(tmp_path / "t.json", text)
    assert rows == [{"prompt_ids": [1], "output_ids": [2]}]
    assert [number for number, _ in bad] == [line] and words in bad[0][1]


@pytest.mark.parametrize(
    "first", ['{"prompt_ids": [1],', '{"prompt', "{", "[2026-01-01] started", "[INFO] x", "starts"]
)
def test_a_broken_first_line_does_not_hide_the_lines_after_it(tmp_path: Path, first: str) -> None:
    lines = [first, *map(json.dumps, ROWS)]
    rows, bad = read(tmp_path / "t.jsonl", "\n".join(lines))
    assert rows == ROWS and [number for number, _ in bad] == [1]


def test_a_python_literal_is_named(tmp_path: Path) -> None:
    for text in (str(FRESH), str([FRESH])):
        (tmp_path / "t.jsonl").write_text(text)
        with pytest.raises(InputError, match=r"line 1: this is a Python object's text .single quotes., not JSON"):
            list(TranscriptFile(tmp_path / "t.jsonl"))


def test_random_bytes_end_in_rows_or_reasons(tmp_path: Path) -> None:
    draw = random.Random(5)
    whole = json.dumps({"data": ROWS, "more": [{"messages": [USER, ASSISTANT]}]}, indent=1).encode()
    for number in range(400):
        data = bytearray(whole if number % 2 else b"\n".join(json.dumps(row).encode() for row in ROWS))
        for _ in range(draw.randint(1, 4)):
            start = draw.randrange(len(data))
            data[start : start + draw.randint(0, 3)] = draw.choice([b"", b"[", b"{", b'"', b"\n", b"\xff", b"}", b"\\"])
        (tmp_path / "t").write_bytes(data)
        bad: list[tuple[int, str]] = []
        rows = list(Rows(Source(tmp_path / "t"), None, lambda *fault, bad=bad: bad.append(fault)))
        assert all(isinstance(row, dict) for _, row in rows) and (rows or bad)


@pytest.mark.parametrize("max_bytes", [documents.MAX_LINE_BYTES, 400])
def test_what_stands_among_the_rows_of_a_page_is_not_dropped(
    tmp_path: Path, max_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "MAX_LINE_BYTES", max_bytes)
    failed = {"id": "3", "prompt": "a", "output": None}
    page = {"tags": [{"name": "a"}], "pages": [{"data": [*ROWS, failed, "timeout"]}, {"data": []}]}
    rows, bad = read(tmp_path / "t.json", json.dumps(page, indent=1))
    assert rows == [*ROWS, failed]
    assert [reason for _, reason in bad] == ["this is an element of a list but not an object; write objects"]
