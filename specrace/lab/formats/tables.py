"""Reads tables with named columns, CSV and Parquet, as rows. Parquet needs pyarrow, an optional dependency."""

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
# Cells of these columns hold JSON; all other cells hold text.
_JSON_COLUMNS = {"prompt_ids", "output_ids", "messages", "conversations", "tools"}
# Columns that are read under their own names, even if --columns maps the prompt and the output.
_EXTRA_COLUMNS = ("id", "category", "tools")
# Rows read at once from a Parquet file.
_BATCH = 256


def is_csv(path: Path) -> bool:
    """Whether a file's name ends in .csv or .tsv, perhaps followed by .gz."""
    return Path(path.name.removesuffix(".gz")).suffix in (".csv", ".tsv")


def csv_rows(path: Path, stream: io.BufferedReader | gzip.GzipFile) -> Iterator[tuple[int, Row | str]]:
    """Yield (line, row) of a CSV file with a header, or (line, reason) for a row that cannot be used."""
    # An unclosed quotation mark must not fill the memory; csv has one limit for the whole process.
    csv.field_size_limit(MAX_LINE_BYTES)
    # Bytes that are not UTF-8 become lone surrogates, which are reported where the text is used.
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
        wrong_length = None in row or None in row.values()
        yield table.line_num, "the row has not as many cells as the head" if wrong_length else row


def parquet_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield (number, row) of a Parquet file, from 1 on. Raises InputError without pyarrow and for a broken file."""
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
    """The row, with the cells of JSON columns parsed."""
    return {
        name: json_or_text(cell) if name in _JSON_COLUMNS and isinstance(cell, str) else cell
        for name, cell in row.items()
    }


def rename(row: Row, columns: dict[str, str]) -> Row:
    """The row with its columns renamed; `columns`: our name -> the row's. The `_EXTRA_COLUMNS` keep their own names."""
    extra = {name: row[name] for name in _EXTRA_COLUMNS if name in row}
    return extra | {ours: row.get(theirs) for ours, theirs in columns.items()}


def read_columns(text: str) -> dict[str, str]:
    """Parse prompt=COLUMN,output=COLUMN,... into a dictionary. Raises InputError."""
    names = ("prompt", "output", "prompt_ids", "output_ids", "messages", "id", "category")
    columns: dict[str, str] = {}
    for part in text.split(","):
        ours, equals, theirs = part.strip().partition("=")
        if not equals or not theirs or ours not in names:
            raise InputError(f"--columns has {shorten(part)!r}; give NAME=COLUMN, where NAME is {', '.join(names)}.")
        columns[ours] = theirs
    return columns
