"""Turns a log's file into numbered rows, whatever holds them: JSON, CSV, Parquet or Arrow, packed or not.

A file is read row by row, so it may have any size.
"""

from __future__ import annotations

import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from specrace.core.errors import InputError, shorten
from specrace.lab.logs.files.documents import (
    BrokenError,
    Found,
    IsRow,
    conversation_row,
    find_rows,
    is_message,
    read_document,
)
from specrace.lab.logs.files.packing import DamagedError, open_text
from specrace.lab.logs.files.sources import Source
from specrace.lab.logs.files.tables import (
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

# (number of the line, why it cannot be used). It may raise, which ends the reading.
ReportBad = Callable[[int, str], None]

# A Python object's text, which is no JSON.
_PYTHON_LITERAL = re.compile(rb"\s*\[?\s*\{\s*'")
# The beginning of a log's line, or a part of it, before its JSON.
_PREFIX = re.compile(rb"\s*[^{\[\"]{1,200}\{\s*[\"']")
_EVENT = re.compile(rb"\s*(?:data|event): ?")
_KINDS = "give JSON lines, CSV or Parquet with the requests and outputs"
_PEEKED = 512
# Unpacked bytes that a file may have that must be on the disk to be read.
MAX_ON_DISK = 4 << 30
_COPIED = 1 << 20


def known_row(row: Row) -> bool:
    """Whether a row is of a known format."""
    return recognise(row) is not None


class Rows:
    """The (number, row) of every row of a file that can be read, in order; the others go to `report_bad`.

    `columns`: our name -> the table's column. `pipes`: whether the file may be a pipe, which can be read only once.
    `is_row` tells the rows in a larger JSON document. Raises InputError for a file that cannot be read at all. A packed
    file ends where it is cut off or damaged, which counts as one bad line.
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
        # The kind of table that the file is, "csv", "parquet" or "arrow"; "" for JSON. Known once a row is read.
        self.table = ""
        # Bytes read so far of the file on disk, which may be packed.
        self.bytes_read = 0

    def __iter__(self) -> Iterator[tuple[int, Row]]:
        try:
            with self.source.open(pipes=self.pipes) as raw:
                yield from self._rows(raw)
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"{shorten(self.source)} cannot be read ({reason}); check the path of the log.") from error

    def _rows(self, raw: io.BufferedReader) -> Iterator[tuple[int, Row]]:
        for number, row in self._found(raw):
            if raw.seekable():
                self.bytes_read = raw.tell()
            if isinstance(row, str):
                self.report_bad(number, row)
                continue
            if self.table:
                self._check_columns(row)
            if self.columns:
                try:
                    row = unpack(rename(row, self.columns))
                except ValueError as error:
                    self.report_bad(number, str(error))
                    continue
            yield number, unpack(row) if self.table else row

    def _found(self, raw: io.BufferedReader) -> Iterator[tuple[int, Found]]:
        """(number, row or the reason why it cannot be used) of every row."""
        number = 0
        try:
            stream = open_text(raw, self.source.name)
            head = stream.peek(8)[:8]
            if is_parquet(head) or is_arrow(head):
                self.table = "parquet" if is_parquet(head) else "arrow"
                yield from self._columnar(stream, is_plain=stream is raw and not self.source.member)
                return
            # A log that was cut in place may begin with zeros.
            if b"\0" in stream.peek(_PEEKED)[:_PEEKED].lstrip(b"\0"):
                raise InputError(f"{shorten(self.source)} is a binary file, not a log; {_KINDS}.")
            if is_csv(self.source.name):
                self.table = "csv"
                rows = csv_rows(self.source.name, stream)
            else:
                rows = self._json(stream)
            for number, row in rows:
                yield number, row
        except DamagedError as error:
            yield number + 1, str(error)

    def _columnar(self, stream: io.BufferedReader, *, is_plain: bool) -> Iterator[tuple[int, Found]]:
        read = parquet_rows if self.table == "parquet" else arrow_rows
        with ExitStack() as stack:
            file: Path | BinaryIO = self.source.path
            if not is_plain:
                file = stack.enter_context(tempfile.TemporaryFile())
                copy_to(stream, file, self.source)
            yield from read(file, str(self.source))

    def _check_columns(self, row: Row) -> None:
        """Raises InputError if the table lacks one of the named columns."""
        for column in (self.columns or {}).values():
            if column not in row and column.split(".")[0] not in row:
                raise InputError(
                    f"{shorten(self.source)} has no column {shorten(column)!r}, but {shorten(', '.join(row))}."
                )

    def _json(self, stream: io.BufferedReader) -> Iterator[tuple[int, Found]]:
        """The rows of lines of JSON, or of a JSON document that its first lines begin."""
        begun, is_document = _first_lines(stream)
        if is_document:
            try:
                yield from read_document(stream, begun, self.is_row)
            except BrokenError as error:
                yield error.line, str(error)
            return
        holds_rows: bool | None = None
        for number, line in _lines(begun, stream):
            parsed = line if isinstance(line, str) else _parse(line)
            if isinstance(parsed, str):
                yield number, parsed
                continue
            if holds_rows is None:
                # Told by the first line, because a line of a known format may hold anything.
                holds_rows = not self.is_row(parsed) and any(find_rows(parsed, self.is_row))
            rows = list(find_rows(parsed, self.is_row)) if holds_rows else []
            yield from ((number, row) for row in rows or [parsed])


def _parse(line: bytes) -> Found:
    """The row in a line of JSON, or why there is none."""
    try:
        return parse_line(line)
    except ValueError as error:
        if _PYTHON_LITERAL.match(line):
            return "this is a Python object's text (single quotes), not JSON; write it with json.dumps"
        messages = _messages(line)
        return conversation_row(messages) if messages else _explain(line) or str(error)


def _explain(line: bytes) -> str:
    """What a line is that is no JSON, if that is known, and what to do; "" for others."""
    if line.lstrip().startswith(b"<"):
        return f"this is HTML or XML, such as a login or an error page, not JSON; {_KINDS}"
    if _EVENT.match(line):
        return "this is a raw stream of events, not JSON; log each request with its whole response as one line"
    if _PREFIX.match(line):
        return "text stands before the JSON; cut it off, so that each line is one JSON object"
    return "the list is empty; give requests with their outputs" if line.strip() == b"[]" else ""


def _messages(line: bytes) -> list[Row]:
    """The messages of a line that is a list of them; empty for any other line."""
    try:
        value = json.loads(line) if line.lstrip().startswith(b"[") else None
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) and all(map(is_message, value)) else []


def _first_lines(stream: io.BufferedReader) -> tuple[bytes, bool]:
    """The first one or two lines that are not blank with what is before them, and whether a JSON document begins there.

    A document's first line is a part of a value or an array; lines of JSON have an object each.
    """
    begun = b""
    for _ in range(2):
        line = b"\n"
        while line and not line.strip(b"\xef\xbb\xbf \t\r\n"):
            line = stream.readline(MAX_LINE_BYTES + 1)
            begun += line
        state = _completeness(begun)
        if state != "part" or not line or len(line) > MAX_LINE_BYTES:
            return begun, state == "array" or (state == "part" and bool(line))
    return begun, state == "part"


def _completeness(begun: bytes) -> str:
    """Whether a text begins an "array", or is a "part" of an object, or is an object or no JSON ("")."""
    try:
        text = begun.decode("utf-8-sig", errors="replace").strip()
        value, _ = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        if text[:1] not in ("{", "[") or (error.pos < len(text) and len(begun) <= MAX_LINE_BYTES):
            return ""
        return "array" if text[0] == "[" else "part"
    except (ValueError, RecursionError):
        return ""
    if not isinstance(value, list) or any(map(is_message, value)):
        return ""
    return "array" if any(isinstance(element, dict | list) for element in value) else ""


def _lines(begun: bytes, stream: io.BufferedReader) -> Iterator[tuple[int, bytes | str]]:
    """(number, line) of every line that is not blank, with the reason instead of a line that is too long.

    `begun`: what was read of the stream before.
    """
    number = 0
    for reader in (io.BytesIO(begun), stream):
        while line := reader.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                rest = line
                # Reported before the rest of the line is skipped, because that may never end.
                yield number, f"longer than {MAX_LINE_BYTES // 1_000_000} MB; give one transcript a line"
                while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
                    rest = stream.readline(MAX_LINE_BYTES + 1)
            elif line.strip():
                yield number, line


def copy_to(stream: io.BufferedReader, file: BinaryIO, source: Source) -> None:
    """Write a file's bytes to a temporary one. Raises InputError if there are too many, DamagedError."""
    size = 0
    while data := stream.read(_COPIED):
        size += len(data)
        if size > MAX_ON_DISK:
            raise InputError(f"{shorten(source)} unpacks to more than {MAX_ON_DISK >> 30} GB; unpack it.")
        file.write(data)
    file.seek(0)


def is_lines(source: Source) -> bool:
    """Whether a file holds lines of JSON, plain and in UTF-8, so that it can be read from any line's offset on.

    Raises OSError.
    """
    with source.open() as raw:
        head = raw.peek(8)
        if source.member or is_csv(source.name) or is_arrow(head) or is_parquet(head):
            return False
        try:
            return open_text(raw, source.name) is raw and not _first_lines(raw)[1]
        except DamagedError:
            return False


def first_row(source: Source) -> Row:
    """The first row of a file that can be read; empty if there is none. Raises InputError if the file is unreadable."""
    rows = Rows(source, None, lambda *_: None, pipes=False)
    return next((row for _, row in rows), {})
