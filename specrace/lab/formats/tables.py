"""Tables with named columns, CSV and Parquet, as rows. Parquet needs pyarrow, an extra."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError, shorten
from specrace.lab.formats.base import MAX_LINE_BYTES, Row, json_or_text

PARQUET_MAGIC = b"PAR1"
# Cells of these columns hold JSON, the others text.
_JSON_COLUMNS = {"prompt_ids", "output_ids", "messages", "conversations", "tools"}
# Columns that count under these names, whatever the prompt's and the output's are called.
_MORE = ("id", "category", "tools")
# Rows read at once from a Parquet file.
_BATCH = 256


def is_csv(path: Path) -> bool:
    """Whether a name ends in .csv or .tsv, packed or not."""
    return Path(path.name.removesuffix(".gz")).suffix in (".csv", ".tsv")


def csv_rows(path: Path, stream: io.BufferedReader | gzip.GzipFile) -> Iterator[tuple[int, Row | str]]:
    """(line, row) of a CSV file with a head, or (line, reason) for a row that cannot be used."""
    # A quotation mark that never closes must not fill the memory; the library's limit is one for the process.
    csv.field_size_limit(MAX_LINE_BYTES)
    # What is not UTF-8 becomes half characters, which are named where the text is used.
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    delimiter = "\t" if ".tsv" in path.suffixes else ","
    table = csv.DictReader(text, delimiter=delimiter)
    while True:
        try:
            row: dict[Any, Any] | None = next(table, None)
        except csv.Error as error:
            yield table.line_num, f"this is not CSV ({error})"
            continue
        if row is None:
            return
        wrong = None in row or None in row.values()
        yield table.line_num, "the row has not as many cells as the head" if wrong else row


def parquet_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """(row, its cells) of a Parquet file, the first row 1. Raises InputError without pyarrow and for a broken file."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise InputError(
            f"{shorten(path)} is a Parquet file, which needs pyarrow (pip install 'specrace[parquet]'); or write CSV."
        ) from error
    number = 0
    try:
        with ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (ArrowException, OSError) as error:
        raise InputError(f"{shorten(path)}, after row {number}: this is not Parquet; write it again.") from error


def unpack(row: Row) -> Row:
    """The row with the cells that hold JSON parsed."""
    return {
        name: json_or_text(cell) if name in _JSON_COLUMNS and isinstance(cell, str) else cell
        for name, cell in row.items()
    }


def rename(row: Row, columns: dict[str, str]) -> Row:
    """The row under our names: `columns` gives the column of each. What says more of a request keeps its own name."""
    more = {name: row[name] for name in _MORE if name in row}
    return more | {ours: row.get(theirs) for ours, theirs in columns.items()}


def read_columns(text: str) -> dict[str, str]:
    """prompt=COLUMN,output=COLUMN,... as a dictionary. Raises InputError."""
    known = ("prompt", "output", "prompt_ids", "output_ids", "messages", "id", "category")
    columns: dict[str, str] = {}
    for part in text.split(","):
        ours, equals, theirs = part.strip().partition("=")
        if not equals or not theirs or ours not in known:
            raise InputError(f"--columns has {shorten(part)!r}; give NAME=COLUMN, where NAME is {', '.join(known)}.")
        columns[ours] = theirs
    return columns
