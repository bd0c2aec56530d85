"""Every container is streamed: 1,800 rows need no more memory than a few, and 3,000 broken lines give one sentence."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from pyarrow.parquet import write_table

from specrace.core.errors import InputError
from specrace.lab.logs.files.containers import Rows
from specrace.lab.logs.files.sources import find_sources
from specrace.lab.logs.transcripts import TranscriptFile
from tests.lab.parts import pack, write

COUNT = 1800
# Bytes; less than half of the rows' text.
MAX_PEAK = 500_000


def make_row(number: int) -> dict[str, object]:
    """A row of 60 words that do not compress well."""
    words = [f"{zlib.crc32(f'{number} {word}'.encode()):x}" for word in range(60)]
    return {"id": str(number), "prompt": " ".join(words), "output": "yes"}


ROWS = [make_row(number) for number in range(COUNT)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
CSV = "id;prompt;output\n" + "".join(f'{row["id"]};"{row["prompt"]}";yes\n' for row in ROWS)


def text_writer(content: Callable[[], str], encoding: str = "utf-8") -> Callable[[Path], object]:
    """A function that writes the text to a path; the text is made only when it is written."""
    return lambda path: path.write_bytes(content().encode(encoding))


def report() -> str:
    """A report as guidellm writes it."""
    requests = {"successful": ROWS, "errored": [], "incomplete": []}
    return json.dumps({"benchmarks": [{"requests": requests}]}, indent=1)


def parquet(path: Path) -> None:
    """Write the rows as a Parquet file of ten row groups."""
    write_table(pyarrow.Table.from_pylist(ROWS), path, row_group_size=250)


CONTAINERS: dict[str, Callable[[Path], object]] = {
    "t.jsonl": text_writer(lambda: LINES),
    "t.utf16.jsonl": text_writer(lambda: LINES, "utf-16"),
    "t.csv": text_writer(lambda: CSV),
    "array.json": text_writer(lambda: json.dumps(ROWS, indent=2)),
    "lines-of-an-array.json": text_writer(lambda: "[\n" + LINES.replace("}\n", "},\n")[:-2] + "\n]"),
    "objects.json": text_writer(lambda: "\n".join(json.dumps(row, indent=1) for row in ROWS)),
    "t.parquet": parquet,
    **{f"t{end}": lambda path: pack(path, LINES.encode()) for end in (".gz", ".zst", ".xz", ".bz2", ".zip")},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTAINERS)
def test_all_rows_are_streamed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    CONTAINERS[name](path)
    (source,), _other_files = find_sources(path)
    # The first reading loads libraries. Bad lines are reported to the last argument of `Rows`.
    for _ in Rows(source, None, lambda *_: None):
        break
    tracemalloc.start()
    try:
        numbers = [int(row["id"]) for _, row in Rows(source, None, lambda *_: None)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert numbers == list(range(COUNT))
    assert peak < MAX_PEAK < len(LINES) / 2


def test_a_report_larger_than_a_row_may_be_gives_all_its_requests(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(report())
    rows = [row for _, row in Rows(find_sources(path)[0][0], None, lambda *_: None)]
    assert rows == ROWS


# "\udcfe" stands for the byte 0xfe, which is not UTF-8.
@pytest.mark.parametrize(
    "line", ["{'prompt': 'a'}", "[1, 2]", '{"prompt": "a', "{", "]", '"text"', "\udcfe\udcfe", "[[", ","]
)
@pytest.mark.parametrize("name", ["t.jsonl", "t.csv", "t.json.zst"])
def test_three_thousand_broken_lines_end_in_a_sentence(tmp_path: Path, name: str, line: str) -> None:
    data = (line + "\n").encode(errors="surrogateescape") * 3000
    path = tmp_path / name
    if path.suffix == ".zst":
        pack(path, data)
    else:
        path.write_bytes(data)
    file = TranscriptFile(path, skip_bad=True)
    assert list(file) == [] and file.skipped >= 1
    with pytest.raises(InputError, match=r"line \d+: "):
        list(TranscriptFile(path))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"<!DOCTYPE html>", "this is HTML or XML"),
        (b'data: {"choices": []}', "a raw stream of events"),
        (b'2026-01-01 12:00:00 INFO {"prompt": "a", "output": "b"}', "text stands before the JSON"),
        (b"INFO openai: {'prompt': 'a'}", "text stands before the JSON"),
        (b"[]", "the list is empty"),
        (b'{"a": "b', "Unterminated string starting at column 7"),
        (b'", "meta": {"a": 1}}', "this is not JSON"),
    ],
)
def test_the_error_for_a_line_that_is_not_json_says_what_it_is(tmp_path: Path, line: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        list(TranscriptFile(write(tmp_path / "t.jsonl", line)))
