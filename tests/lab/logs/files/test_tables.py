"""CSV and Parquet: columns by name, cells that hold JSON, unusable rows."""

from __future__ import annotations

import gzip
import json
import struct
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.ipc
import pytest
from pyarrow.feather import write_feather
from pyarrow.parquet import write_table

from specrace.core.errors import InputError
from specrace.lab.logs.files import tables
from specrace.lab.logs.files.containers import Rows
from specrace.lab.logs.files.sources import Source, find_sources
from specrace.lab.logs.files.tables import read_columns, rename, unpack
from specrace.lab.logs.transcripts import Transcript, TranscriptFile
from tests.lab.parts import pack

IDS = 'question,answer,kind\n"[1, 2]","[3]",qa\n'


def table(path: Path, text: str) -> Path:
    """Write a table, packed if its name ends in .gz; lone surrogates become bytes that are not UTF-8."""
    data = text.encode(errors="surrogateescape")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv"])
def test_columns_are_mapped_to_our_names(tmp_path: Path, name: str) -> None:
    text = IDS if "csv" in name else "question\tanswer\tkind\n[1, 2]\t[3]\tqa\n"
    columns = read_columns("prompt_ids=question, output_ids=answer,category=kind")
    file = TranscriptFile(table(tmp_path / name, text), columns=columns)
    assert list(file) == [Transcript("", "qa", (1, 2), (3,), 4)]
    assert file.describe() == ("csv", "a CSV table")


def test_an_id_and_a_category_need_no_mapping(tmp_path: Path) -> None:
    text = 'question,answer,category,id,prompt_ids\n"[1, 2]","[3]",qa,7,"[9]"\n'
    file = TranscriptFile(
        table(tmp_path / "t.csv", text), columns=read_columns("prompt_ids=question,output_ids=answer")
    )
    assert list(file) == [Transcript("7", "qa", (1, 2), (3,), 4)]


def test_columns_with_our_names_need_no_mapping(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", 'prompt_ids,output_ids\n"[1]","[2]"\n')
    assert list(TranscriptFile(path)) == [Transcript("", "none", (1,), (2,), 3)]


def test_a_column_named_twice_is_not_read_in_place_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("prompt,response,response\nWhat?,The tide rises.,Another model wrote this text.\n")
    log = TranscriptFile(path, tokenize=by_letter)
    (transcript,) = log
    assert "".join(map(chr, transcript.output)) == "The tide rises."
    assert "The field response_2 holds text that was not read" in log.remarks.sentences()[0]


def test_a_parquet_column_named_twice_is_not_read_in_place_of_the_first(tmp_path: Path) -> None:
    columns = [pyarrow.array([text]) for text in ("a", "b", "c")]
    write_table(pyarrow.Table.from_arrays(columns, ["prompt", "output", "prompt"]), tmp_path / "t.parquet")
    rows = [row for _, row in Rows(Source(tmp_path / "t.parquet"), None, lambda *_: None)]
    assert rows == [{"prompt": "a", "output": "b", "prompt_2": "c"}]


def test_unusable_rows_are_counted(tmp_path: Path) -> None:
    # Too few cells, too many, a byte that is not UTF-8, a row that can be used, and an open quotation mark.
    text = 'prompt,output\na\na,b,c\n\udcff,b\nab,c\n"x,y'
    file = TranscriptFile(
        table(tmp_path / "t.csv", text), tokenize=lambda text: [ord(letter) for letter in text], skip_bad=True
    )
    assert [transcript.output for transcript in file] == [(ord("c"),)]
    assert file.skipped == 4
    assert "line 2: the row has more or fewer cells than the header" in file.reasons[0]
    assert "half a character" in file.reasons[2]


@pytest.mark.parametrize(
    "row",
    ['a\t"Hello\nb\t"c" d\n', '"He said \\"yes\\" twice"\t"b"\n', '"Well," he said.\tb\n', 'a\t"never closed\nb\tc\n'],
)
def test_quotation_marks_that_csv_does_not_allow_are_reported(tmp_path: Path, row: str) -> None:
    path = table(tmp_path / "t.tsv", f'prompt\toutput\na\t"b\n""c"""\n\n{row}')
    bad: list[tuple[int, str]] = []
    rows = Rows(Source(path), None, lambda *fault: bad.append(fault))
    assert [row for _, row in rows] == [{"prompt": "a", "output": 'b\n"c"'}]
    assert [number for number, _ in bad] == [5] and "a cell that begins with a quotation mark" in bad[0][1]


def test_an_unclosed_quotation_mark_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_LINE_BYTES", 100)
    for lines, reason in (("a" * 1000, "a line longer than"), ("aaaaaaaa\n" * 100, "field larger than")):
        path = table(tmp_path / "t.csv", "prompt,output\n" + '"' + lines + "\n")
        with pytest.raises(InputError, match=f"this is not CSV .{reason}"):
            list(TranscriptFile(path))


def test_a_truncated_gzip_table_is_reported(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv.gz", 'prompt_ids,output_ids\n"[1]","[2]"\n')
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(InputError, match="the gzip file breaks off"):
        list(TranscriptFile(path))
    file = TranscriptFile(path, skip_bad=True)
    list(file)
    assert file.skipped == 1


def test_a_missing_column_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no column 'reply', but question, answer, kind"):
        list(TranscriptFile(table(tmp_path / "t.csv", IDS), columns={"output": "reply"}, skip_bad=True))


@pytest.mark.parametrize("text", ["prompt", "reply=a", "prompt=", "="])
def test_an_invalid_column_mapping_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="give NAME=COLUMN, where NAME is prompt, output"):
        read_columns(text)


def test_parquet_asks_for_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and so on")
    with pytest.raises(InputError, match=r"needs pyarrow .pip install 'specrace\[parquet\]'"):
        list(TranscriptFile(tmp_path / "t.parquet"))


def test_parquet_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_table(pyarrow.table({"q": [[1, 2], [4]], "a": [[3], [5]], "n": [1, 2]}), path)
    file = TranscriptFile(path, columns={"prompt_ids": "q", "output_ids": "a", "id": "n"})
    assert [(row.id, row.prompt, row.output) for row in file] == [("1", (1, 2), (3,)), ("2", (4,), (5,))]
    assert file.describe()[0] == "parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match="this is not a Parquet file"):
        list(TranscriptFile(path))


MESSAGES = [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "c"}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", 'prompt;output\n"a, b | c";"x; y"\n'),
        ("t.csv", 'prompt\toutput\n"a, b | c"\t"x; y"\n'),
        ("t.csv", 'prompt|output\n"a, b | c"|"x; y"\n'),
        ("t.tsv", 'prompt,output\n"a, b | c","x; y"\n'),
        ("t.csv", 'sep=;\r\nprompt;output\r\n"a, b | c";"x; y"\r\n'),
        ("t.CSV", '"prompt";"output";"a,b,c"\n"a, b | c";"x; y";1\n'),
    ],
)
def test_the_header_tells_what_separates_the_cells(tmp_path: Path, name: str, text: str) -> None:
    (transcript,) = TranscriptFile(table(tmp_path / name, text), tokenize=lambda text: list(map(ord, text)))
    assert "".join(map(chr, transcript.prompt)) == "a, b | c" and "".join(map(chr, transcript.output)) == "x; y"


def test_a_line_of_a_table_longer_than_a_row_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_LINE_BYTES", 100)
    path = table(tmp_path / "t.csv", "prompt_ids,output_ids\n" + "a" * 950 + '\n"[1]","[2]"\n')
    file = TranscriptFile(path, skip_bad=True)
    assert len(list(file)) == 1 and file.skipped == 1


@pytest.mark.parametrize(
    ("column", "cell", "value"),
    [
        ("messages", json.dumps(MESSAGES), MESSAGES),
        ("messages", json.dumps(json.dumps(MESSAGES)), MESSAGES),
        ("request", '{"messages": []}', {"messages": []}),
        ("metadata", '"{\\"a\\": 1}"', {"a": 1}),
        ("tools", "[]", []),
        ("response", '{"choices": [{"message": {"content": "c"}}]}', {"choices": [{"message": {"content": "c"}}]}),
        ("input", json.dumps(json.dumps(MESSAGES)), MESSAGES),
        # A model's own text stays text.
        ("output", '{"name": "Ann", "age": 5}', '{"name": "Ann", "age": 5}'),
        ("output", '[{"name": "Ann"}]', '[{"name": "Ann"}]'),
        ("response", '{"prompt": "a red house"}', '{"prompt": "a red house"}'),
        ("completion", '"quoted"', '"quoted"'),
        ("note", "[1, 2]", "[1, 2]"),
        ("note", "{not json}", "{not json}"),
        ("id", "7", "7"),
    ],
)
def test_cells_that_hold_json_are_parsed_and_texts_are_not(column: str, cell: str, value: object) -> None:
    assert tables.unpack({column: cell}) == {column: value}


def nested_table(count: int) -> pyarrow.Table:
    """Conversations as LMSYS's and WildChat's tables have them, with a time, numbers, and fields that are empty."""
    rows: list[dict[str, Any]] = [
        {
            "conversation": [{"role": "user", "content": f"question {number}", "turn": None}, MESSAGES[1]],
            "timestamp": datetime(2026, 1, 2, tzinfo=UTC),
            "scores": [{"toxic": 0.5, "flag": True}],
            "price": Decimal("1.5"),
            "raw": b"bytes",
        }
        for number in range(count)
    ]
    return pyarrow.Table.from_pylist(rows)


def write_arrow(rows: pyarrow.Table, path: Path) -> None:
    """Write a table as a stream of Arrow batches of 100 rows."""
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, rows.schema) as stream:
        for batch in rows.to_batches(100):
            stream.write(batch)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "feather"])
@pytest.mark.parametrize("packed", ["", ".zst", ".zip"])
def test_nested_columns_come_out_as_json_would_hold_them(tmp_path: Path, kind: str, packed: str) -> None:
    path = tmp_path / f"t.{kind}"
    if kind == "parquet":
        write_table(nested_table(700), path, row_group_size=300)
    elif kind == "arrow":
        write_arrow(nested_table(700), path)
    else:
        write_feather(nested_table(700), path)
    source = find_sources(pack(tmp_path / f"t{packed}", path.read_bytes()) if packed else path)[0][0]
    rows = [row for _, row in Rows(source, None, lambda *_: None)]
    assert len(rows) == 700
    assert rows[699] == {
        "conversation": [{"role": "user", "content": "question 699"}, MESSAGES[1]],
        "timestamp": "2026-01-02 00:00:00+00:00",
        "scores": [{"toxic": 0.5, "flag": True}],
        "price": "1.5",
        "raw": "bytes",
    }


def test_a_map_is_an_object(tmp_path: Path) -> None:
    calls = [[{"arguments": [("place", "Oslo"), ("day", None)]}]]
    kind = pyarrow.list_(pyarrow.struct([("arguments", pyarrow.map_(pyarrow.string(), pyarrow.string()))]))
    write_table(pyarrow.table({"calls": pyarrow.array(calls, kind)}), tmp_path / "t.parquet")
    rows = [row for _, row in Rows(Source(tmp_path / "t.parquet"), None, lambda *_: None)]
    assert rows == [{"calls": [{"arguments": {"place": "Oslo"}}]}]


@pytest.mark.parametrize(
    ("kind", "time"),
    [
        (pyarrow.timestamp("us"), 1 << 62),
        (pyarrow.timestamp("ns", "Nowhere/Town"), 5),
        (pyarrow.date32(), -(1 << 30)),
        (pyarrow.duration("s"), 1 << 55),
    ],
)
def test_a_time_that_python_does_not_know_is_a_number(tmp_path: Path, kind: Any, time: int) -> None:
    integer = pyarrow.int32() if kind.bit_width == 32 else pyarrow.int64()
    times = pyarrow.array([time], integer).cast(kind)
    turns = pyarrow.ListArray.from_arrays([0, 1], pyarrow.StructArray.from_arrays([times], ["at"]))
    write_arrow(pyarrow.table({"time": times, "turns": turns, "output": ["b"]}), tmp_path / "t.arrow")
    rows = [row for _, row in Rows(Source(tmp_path / "t.arrow"), None, lambda *_: None)]
    assert rows == [{"time": time, "turns": [{"at": time}], "output": "b"}]


def test_a_broken_arrow_file_is_refused(tmp_path: Path) -> None:
    write_arrow(nested_table(300), tmp_path / "t.arrow")
    (tmp_path / "t.arrow").write_bytes((tmp_path / "t.arrow").read_bytes()[:-2000])
    with pytest.raises(InputError, match=r"t\.arrow, after row \d+: this is not an Arrow file"):
        list(Rows(Source(tmp_path / "t.arrow"), None, lambda *_: None))


def test_an_arrow_file_whose_texts_lie_outside_of_it_is_refused(tmp_path: Path) -> None:
    write_arrow(pyarrow.table({"prompt": ["abc", "defg"], "output": ["x", "y"]}), tmp_path / "t.arrow")
    data = (tmp_path / "t.arrow").read_bytes()
    # Where "abc" and "defg" begin among the bytes of all prompts, and where the last one ends.
    starts = struct.pack("<3i", 0, 3, 7)
    assert data.count(starts) == 1
    (tmp_path / "t.arrow").write_bytes(data.replace(starts, struct.pack("<3i", 0, -5, 7)))
    with pytest.raises(InputError, match="after row 0: this is not an Arrow file"):
        list(Rows(Source(tmp_path / "t.arrow"), None, lambda *_: None))


@pytest.mark.parametrize("text", ["prompt=a", "output=a,id=b", "prompt=a,output_ids=b"])
def test_columns_without_a_prompt_and_its_output_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="name prompt and output, prompt_ids and output_ids, or messages"):
        read_columns(text)


def test_a_prompt_of_several_columns_is_joined_and_what_nobody_named_is_kept_apart() -> None:
    row = {"id": "7", "question": "Why?", "article": "Yeast rises.", "answer": "Yeast.", "note": "old"}
    renamed = rename(row, read_columns("prompt=article+question,output=answer"))
    assert renamed == {"id": "7", "prompt": "Yeast rises.\n\nWhy?", "output": "Yeast."}
    assert renamed.others == {"note": "old"}
    assert rename({"a+b": "x", "c": "y"}, {"prompt": "a+b", "output": "c"}) == {"prompt": "x", "output": "y"}
    with pytest.raises(ValueError, match="there is no field 'articel', but id, question"):
        rename(row, {"prompt": "articel+question"})
    with pytest.raises(ValueError, match="'n' is not text; join only texts by"):
        rename({"n": 5, "q": "x"}, {"prompt": "n+q"})


def by_letter(text: str) -> list[int]:
    """Stands in for a tokenizer: the code of each letter."""
    return [ord(letter) for letter in text]


def test_a_long_text_that_columns_leave_out_is_reported(tmp_path: Path) -> None:
    """The article was a part of the prompt, so figures without it are wrong."""
    header, line = "question,article,answer", '"Why does bread rise?","Yeast makes gas in dough.","Yeast makes gas."'
    file = table(tmp_path / "t.csv", f"{header}\n{line}\n")
    remarks: dict[str, list[str]] = {}
    for columns in ("prompt=question,output=answer", "prompt=article+question,output=answer"):
        log = TranscriptFile(file, columns=read_columns(columns), tokenize=by_letter)
        assert len([*log]) == 1
        remarks[columns] = [sentence for sentence in log.remarks.sentences() if "not read" in sentence]
    assert [len(sentences) for sentences in remarks.values()] == [1, 0]
    assert "The field article" in remarks["prompt=question,output=answer"][0]


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("prompt", "[{'role': 'user', 'content': \"it's late\"}]"),
        ("prompt", "array([{'content': 'late', 'role': 'user'}],\n      dtype=object)"),
        ("note", "{'id': 'c', 'choices': [{'index': 0}]}"),
        ("attributes.llm.input_messages", "[{'message.content': 'a', 'message.role': 'user'}]"),
    ],
)
def test_messages_as_a_python_objects_text_are_refused(tmp_path: Path, name: str, cell: str) -> None:
    quoted = cell.replace('"', '""')
    path = table(tmp_path / "t.csv", f'prompt_ids,output_ids,{name}\n[1],[2],"{quoted}"\n')
    with pytest.raises(InputError, match=rf"line \d: the column {name} holds a Python object's text"):
        list(TranscriptFile(path))
    assert len(list(TranscriptFile(path, columns=read_columns("prompt_ids=prompt_ids,output_ids=output_ids")))) == 1


@pytest.mark.parametrize("cell", ["{'role': 'admin'}", "{'from': 'Oslo', 'to': 'Bergen'}", "{'choices': ['a', 'b']}"])
def test_a_text_may_be_a_python_object(cell: str) -> None:
    assert unpack({"output": cell}) == {"output": cell}
