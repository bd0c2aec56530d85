"""Turns a log's file into numbered rows, whatever holds them: JSON, CSV, Parquet or Arrow, packed or not.

A file is read row by row, so it may have any size.
"""

from __future__ import annotations

import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from typing import BinaryIO

from specrace.core.errors import InputError, shorten
from specrace.lab.logs.files.documents import (
    BrokenError,
    IsRow,
    RowOrReason,
    conversation_rows,
    find_rows,
    is_message,
    read_document,
)
from specrace.lab.logs.files.kinds import HEAD_BYTES, READ_KINDS
from specrace.lab.logs.files.packing import DamagedError, open_text
from specrace.lab.logs.files.sources import Source
from specrace.lab.logs.files.tables import (
    RenamedRow,
    arrow_rows,
    csv_rows,
    is_arrow,
    is_csv,
    is_parquet,
    parquet_rows,
    rename,
    unpack,
)
from specrace.lab.logs.formats import recognise
from specrace.lab.logs.formats.base import MAX_LINE_BYTES, Row, parse_line

# Called with (number of a line, why it cannot be used). It may raise, which ends the reading.
ReportBad = Callable[[int, str], None]

# The text of a Python object, which is not JSON.
_PYTHON_LITERAL = re.compile(rb"\s*(?:\[\s*)?\{\s*'")
# Text such as a date and a level, which a logger writes before the JSON.
_PREFIX = re.compile(rb"\s*[^{\[\"]{1,200}\{\s*[\"']")
# The beginning of a line of server-sent events.
_EVENT = re.compile(rb"\s*(?:data|event): ?")
_GIVE = f"give {READ_KINDS} with the requests and outputs"
# How many bytes a file may unpack to if it has to be unpacked to the disk; a guess.
MAX_ON_DISK = 4 << 30
# How many bytes are copied at once.
_COPY_BYTES = 1 << 20


def known_row(row: Row) -> bool:
    """Whether a row is of a known format."""
    return recognise(row) is not None


class Rows:
    """Every row of a file with its number, in order; lines that cannot be read go to `report_bad`.

    `columns`: our name -> the table's column. `pipes`: whether the file may be a pipe, which can be read only once.
    `is_row`: whether an object in a larger JSON document is a row. Raises InputError for a file that cannot be read at
    all. A compressed file ends where it is cut off or damaged, which counts as one bad line.
    """

    def __init__(
        self,
        source: Source,
        columns: dict[str, str] | None,
        report_bad: ReportBad,
        *,
        pipes: bool = True,
        is_row: IsRow = known_row,
    ) -> None:
        self.source = source
        self.columns = columns
        self.report_bad = report_bad
        self.pipes = pipes
        self.is_row = is_row
        # "csv", "parquet" or "arrow" if the file is a table, "" for JSON. Set when the first row is read.
        self.table = ""
        # Bytes read so far of the file on disk, before they are unpacked.
        self.bytes_read = 0

    def __iter__(self) -> Iterator[tuple[int, Row]]:
        try:
            with self.source.open(pipes=self.pipes) as raw:
                yield from self._rows(raw)
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"{shorten(self.source)} cannot be read ({reason}); check the path of the log.") from error

    def _rows(self, raw: io.BufferedReader) -> Iterator[tuple[int, Row]]:
        for number, row in self._rows_or_reasons(raw):
            if raw.seekable():
                self.bytes_read = raw.tell()
            if isinstance(row, str):
                self.report_bad(number, row)
                continue
            if self.table:
                self._check_columns(row)
            try:
                if self.columns:
                    renamed = rename(row, self.columns)
                    row = RenamedRow(unpack(renamed), renamed.others)
                elif self.table:
                    row = unpack(row)
            except ValueError as error:
                self.report_bad(number, str(error))
                continue
            yield number, row

    def _rows_or_reasons(self, raw: io.BufferedReader) -> Iterator[tuple[int, RowOrReason]]:
        """(number, row) of every row, with the reason in place of a row that cannot be read."""
        number = 0
        try:
            stream = open_text(raw, self.source.name)
            first_bytes = stream.peek(8)[:8]
            if is_parquet(first_bytes) or is_arrow(first_bytes):
                self.table = "parquet" if is_parquet(first_bytes) else "arrow"
                yield from self._columnar(stream, is_plain=stream is raw and raw.seekable())
                return
            # A log that was truncated while its writer had it open begins with zeros.
            if b"\0" in stream.peek(HEAD_BYTES)[:HEAD_BYTES].lstrip(b"\0"):
                raise InputError(f"{shorten(self.source)} is a binary file, not a log; {_GIVE}.")
            if is_csv(self.source.name):
                self.table = "csv"
                rows = csv_rows(self.source.name, stream)
            else:
                rows = self._json(stream)
            for number, row in rows:
                yield number, row
        except DamagedError as error:
            yield number + 1, str(error)

    def _columnar(self, stream: io.BufferedReader, *, is_plain: bool) -> Iterator[tuple[int, RowOrReason]]:
        """The rows of a Parquet or Arrow file. Unless `is_plain`, it is unpacked to the disk first, to be seekable."""
        read = parquet_rows if self.table == "parquet" else arrow_rows
        if is_plain:
            stream.seek(0)
            yield from read(stream, str(self.source))
            return
        with tempfile.TemporaryFile() as file:
            copy_to(stream, file, self.source)
            yield from read(file, str(self.source))

    def _check_columns(self, row: Row) -> None:
        """Raises InputError if the table lacks one of the named columns."""
        for name in (self.columns or {}).values():
            # `name` may join several names by "+", each of which may be the dotted name of a field in a column.
            column = next((part for part in name.split("+") if part.split(".")[0] not in row), None)
            if name not in row and column is not None:
                raise InputError(
                    f"{shorten(self.source)} has no column {shorten(column)!r}, but {shorten(', '.join(row))}."
                )

    def _json(self, stream: io.BufferedReader) -> Iterator[tuple[int, RowOrReason]]:
        """The rows of JSON lines, or of a larger JSON document; the first lines tell which it is."""
        start, is_document = _first_lines(stream)
        if is_document:
            try:
                yield from read_document(stream, start, self.is_row)
            except BrokenError as error:
                yield error.line, str(error)
            return
        holds_rows: bool | None = None
        for number, line in _lines(start, stream):
            # A line that is too long comes as a reason, which is text.
            for parsed in [line] if isinstance(line, str) else _parse(line):
                if isinstance(parsed, str):
                    yield number, parsed
                    continue
                if holds_rows is None:
                    # The first line decides for all, because a line of a known format may hold anything, even rows.
                    holds_rows = not self.is_row(parsed) and any(find_rows(parsed, self.is_row))
                rows = list(find_rows(parsed, self.is_row)) if holds_rows else []
                yield from ((number, row) for row in rows or [parsed])


def _parse(line: bytes) -> list[RowOrReason]:
    """The row in a line of JSON, those of a line that is a list of messages, or why there is none."""
    try:
        return [parse_line(line)]
    except ValueError as error:
        if _PYTHON_LITERAL.match(line):
            return ["this is a Python object's text (single quotes), not JSON; write it with json.dumps"]
        messages = _messages(line)
        return list(conversation_rows(messages)) if messages else [_explain(line) or str(error)]


def _explain(line: bytes) -> str:
    """What a line that is not JSON is, and what to do; "" if it looks like nothing known."""
    if line.lstrip().startswith(b"<"):
        return f"this is HTML or XML, such as a login or an error page, not JSON; {_GIVE}"
    if _EVENT.match(line):
        return "this is a raw stream of events, not JSON; log each request with its whole response as one line"
    if _PREFIX.match(line):
        return "text stands before the JSON; cut it off, so that each line is one JSON object"
    return "the list is empty; give requests with their outputs" if line.strip() == b"[]" else ""


def _messages(line: bytes) -> list[Row]:
    """The messages of a line that is a list of messages; none for any other line."""
    try:
        value = json.loads(line) if line.lstrip().startswith(b"[") else None
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) and all(map(is_message, value)) else []


def _first_lines(stream: io.BufferedReader) -> tuple[bytes, bool]:
    """(the bytes up to the first or second line that is not blank; whether they begin a larger JSON document).

    In JSON lines the first line is a whole object. A larger document begins with an array or with part of an object.
    """
    start = b""
    for _ in range(2):
        # Read on to the next line that is not blank.
        line = b"\n"
        while line and not line.strip(b"\xef\xbb\xbf \t\r\n"):
            line = stream.readline(MAX_LINE_BYTES + 1)
            start += line
        kind = _kind_of_start(start)
        if kind != "part" or not line or len(line) > MAX_LINE_BYTES:
            # Part of an object may also be a single line that is too long to be a row.
            return start, kind == "array" or (kind == "part" and bool(line))
    return start, kind == "part"


def _kind_of_start(start: bytes) -> str:
    """What a text begins with: "array" for an array of rows, "part" for part of an object, "" for anything else."""
    try:
        text = start.decode("utf-8-sig", errors="replace").strip()
        value, _ = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        if text[:1] not in ("{", "[") or (error.pos < len(text) and len(start) <= MAX_LINE_BYTES):
            return ""
        return "array" if text[0] == "[" else "part"
    except (ValueError, RecursionError):
        return ""
    if not isinstance(value, list) or any(map(is_message, value)):
        return ""
    return "array" if any(isinstance(element, dict | list) for element in value) else ""


def _lines(start: bytes, stream: io.BufferedReader) -> Iterator[tuple[int, bytes | str]]:
    """(number, line) of every line that is not blank; a line that is too long is replaced by a reason, as text.

    `start`: the bytes that were already read from the stream.
    """
    number = 0
    for reader in (io.BytesIO(start), stream):
        while line := reader.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                piece = line
                # Reported before the rest of the line is skipped, because the line may never end.
                yield number, f"longer than {MAX_LINE_BYTES // 1_000_000} MB; give one transcript a line"
                while len(piece) > MAX_LINE_BYTES and not piece.endswith(b"\n"):
                    piece = stream.readline(MAX_LINE_BYTES + 1)
            elif line.strip():
                yield number, line


def copy_to(stream: io.BufferedReader, file: BinaryIO, source: Source) -> None:
    """Copy a stream to a temporary file. Raises InputError if it is too long, and DamagedError."""
    size = 0
    while data := stream.read(_COPY_BYTES):
        size += len(data)
        if size > MAX_ON_DISK:
            raise InputError(f"{shorten(source)} unpacks to more than {MAX_ON_DISK >> 30} GB; unpack it.")
        file.write(data)
    file.seek(0)


def is_lines(source: Source) -> bool:
    """Whether a file holds JSON lines, uncompressed and in UTF-8, so that reading can start at any line's offset.

    Raises OSError.
    """
    with source.open() as raw:
        first_bytes = raw.peek(8)
        if source.member or is_csv(source.name) or is_arrow(first_bytes) or is_parquet(first_bytes):
            return False
        try:
            return open_text(raw, source.name) is raw and not _first_lines(raw)[1]
        except DamagedError:
            return False


def first_row(source: Source) -> Row:
    """The first row of a file that can be read; empty if there is none. Raises InputError if the file is unreadable."""
    rows = Rows(source, None, lambda *_: None, pipes=False)
    return next((row for _, row in rows), {})
