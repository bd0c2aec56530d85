"""CSV and Parquet: columns by name, cells that hold JSON, unusable rows."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pyarrow
import pytest
from pyarrow.parquet import write_table

from specrace.core.errors import InputError
from specrace.lab.formats import tables
from specrace.lab.formats.tables import read_columns
from specrace.lab.transcripts import Transcript, TranscriptFile

IDS = 'question,answer,kind\n"[1, 2]","[3]",qa\n'


def table(path: Path, text: str) -> Path:
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


def test_unusable_rows_are_counted(tmp_path: Path) -> None:
    text = 'prompt,output\na\na,b,c\n\udcff,b\nab,c\n"x,y'
    file = TranscriptFile(
        table(tmp_path / "t.csv", text), tokenize=lambda text: [ord(letter) for letter in text], skip_bad=True
    )
    assert [letter.output for letter in file] == [(99,)]
    assert file.skipped == 4
    assert "line 2: the row has not as many cells as the head" in file.reasons[0]
    assert "half a character" in file.reasons[2]


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
