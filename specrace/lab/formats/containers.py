"""Turns a log's file into numbered rows, whatever holds them: lines of JSON, CSV or Parquet, plain or gzip.

A file is read row by row, so it may have any size.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from specrace.core.errors import InputError, shorten
from specrace.core.files import open_regular
from specrace.lab.formats.base import MAX_LINE_BYTES, Row, parse_line
from specrace.lab.formats.tables import PARQUET_MAGIC, csv_rows, is_csv, parquet_rows, rename, unpack

GZIP_MAGIC = b"\x1f\x8b"

# (number of the line, why it cannot be used). It may raise, which ends the reading.
ReportBad = Callable[[int, str], None]


class Rows:
    """The (number, row) of every row of a file that can be read, in order; the others go to `report_bad`.

    `columns`: our name -> the table's column. `pipes`: whether the file may be a pipe, which can be read only once.
    Raises InputError for a file that cannot be read at all. A truncated gzip file ends where it is cut off, which
    counts as one bad line.
    """

    def __init__(
        self, path: Path, columns: dict[str, str] | None, report_bad: ReportBad, *, pipes: bool = True
    ) -> None:
        self.path = path
        self.columns = columns
        self.report_bad = report_bad
        self.pipes = pipes
        # The kind of table that the file is, "csv" or "parquet"; "" for JSON. Known once the first row is read.
        self.table = ""
        # Bytes read so far of the file on disk, which may be compressed.
        self.bytes_read = 0

    def __iter__(self) -> Iterator[tuple[int, Row]]:
        try:
            with open_regular(self.path, pipes=self.pipes) as raw:
                yield from self._rows(raw)
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"{shorten(self.path)} cannot be read ({reason}); give a JSONL file.") from error

    def _rows(self, raw: io.BufferedReader) -> Iterator[tuple[int, Row]]:
        rows: Iterator[tuple[int, Row | str]]
        if raw.peek(4)[:4] == PARQUET_MAGIC:
            self.table = "parquet"
            rows = iter(parquet_rows(self.path))
        elif is_csv(self.path):
            self.table = "csv"
            rows = self._csv_rows(raw)
        else:
            rows = self._json_rows(raw)
        for number, row in rows:
            if self.table and isinstance(row, dict):
                self._check_columns(row)
            if isinstance(row, str):
                self.report_bad(number, row)
            elif self.columns:
                yield number, unpack(rename(row, self.columns))
            else:
                yield number, unpack(row) if self.table else row

    def _check_columns(self, row: Row) -> None:
        """Raises InputError if the table lacks one of the named columns."""
        for column in (self.columns or {}).values():
            if column not in row:
                raise InputError(
                    f"{shorten(self.path)} has no column {shorten(column)!r}, but {shorten(', '.join(row))}."
                )

    def _csv_rows(self, raw: io.BufferedReader) -> Iterator[tuple[int, Row | str]]:
        number = 0
        try:
            for number, row in csv_rows(self.path, self._decompressed(raw)):
                self._note_position(raw)
                yield number, row
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            yield number + 1, _gzip_fault(error)

    def _json_rows(self, raw: io.BufferedReader) -> Iterator[tuple[int, Row | str]]:
        for number, line in self._lines(raw):
            try:
                yield number, parse_line(line)
            except ValueError as error:
                yield number, str(error)

    def _note_position(self, raw: io.BufferedReader) -> None:
        if raw.seekable():
            self.bytes_read = raw.tell()

    def _lines(self, raw: io.BufferedReader) -> Iterator[tuple[int, bytes]]:
        """(number, line) of every line that is not blank, without its end."""
        lines = self._decompressed(raw)
        number = 0
        while True:
            number += 1
            try:
                line = rest = lines.readline(MAX_LINE_BYTES + 1)
                if len(line) > MAX_LINE_BYTES:
                    # Reported before the rest of the line is skipped, because that may never end.
                    self.report_bad(number, f"longer than {MAX_LINE_BYTES // 1_000_000} MB; give one transcript a line")
                    while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
                        rest = lines.readline(MAX_LINE_BYTES + 1)
                    continue
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                self.report_bad(number, _gzip_fault(error))
                return
            if not line:
                return
            self._note_position(raw)
            if line.strip():
                yield number, line

    def _decompressed(self, raw: io.BufferedReader) -> io.BufferedReader | gzip.GzipFile:
        """A reader of the decompressed bytes. Raises InputError for a file named .gz that is not gzip."""
        if raw.peek(2)[:2] == GZIP_MAGIC:
            return gzip.GzipFile(fileobj=raw)
        if self.path.suffix == ".gz" and raw.peek(1):
            raise InputError(
                f"{shorten(self.path)}, line 1: this is not gzip, though the name ends in .gz; rename or pack it."
            )
        return raw


def first_row(path: Path) -> Row:
    """The first row of a file that can be read; empty if there is none. Raises InputError if the file is unreadable."""
    rows = Rows(path, None, lambda *_: None, pipes=False)
    return next((row for _, row in rows), {})


def _gzip_fault(error: Exception) -> str:
    kind = "breaks off" if isinstance(error, EOFError) else "is damaged"
    return f"the gzip file {kind} here; copy or write it again"
