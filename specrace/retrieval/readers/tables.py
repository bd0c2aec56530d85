"""Tables and records: CSV, Excel sheets, JSON and JSON lines, a row or record a block."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from specrace.retrieval.limits import ReadingLimits
from specrace.retrieval.readers.reading import Blocks, Reading, Refusal, decode, load_parser

_SAMPLE = 4096
# Characters; a longer cell has lost its closing quote.
_MAX_CELL = 1 << 20


def read_tsv(content: bytes, limits: ReadingLimits) -> Reading:
    """Rows between tabs, with line numbers. Raises Refusal."""
    return _read_rows(decode(content), "\t", False, limits)


def read_csv(content: bytes, limits: ReadingLimits) -> Reading:
    """Rows with line numbers. Raises Refusal."""
    text = decode(content)
    try:
        sniffed = csv.Sniffer().sniff(text[:_SAMPLE], delimiters=",;\t|")
        # Not its quoting: a sample without a doubled quote says nothing of the rest, nor do apostrophes in prose.
        delimiter, spaced = sniffed.delimiter, sniffed.skipinitialspace
    except csv.Error:
        delimiter, spaced = ",", False
    return _read_rows(text, delimiter, spaced, limits)


def _read_rows(text: str, delimiter: str, spaced: bool, limits: ReadingLimits) -> Reading:
    blocks = Blocks(limits)
    # The library's limit is one for the process.
    csv.field_size_limit(_MAX_CELL)
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=spaced)
        add_rows(blocks, _numbered(rows))
    except csv.Error as error:
        raise Refusal(f"is a broken table ({error}): save it again.") from error
    return blocks.reading()


def _numbered(rows: Any) -> Iterator[tuple[str, list[str]]]:
    first = 1
    for row in rows:
        yield f"line {first}", row
        first = rows.line_num + 1


def add_rows(blocks: Blocks, rows: Iterable[tuple[str, list[str]]]) -> None:
    """Add each row as "column: cell; ...", the columns named by the first row of several cells if those are words.

    Up to half of its cells may be blank, and a title may stand above it.
    """
    header: list[str] | None = None
    bare = ("", "")
    for address, cells in rows:
        cells = [" ".join(cell.split()) for cell in cells]
        filled = [cell for cell in cells if cell]
        if header is None and len(filled) > 1:
            header = cells if 2 * len(filled) >= len(cells) and all(map(_is_name, filled)) else []
            if header:
                bare = ("; ".join(filled), address)
                continue
        bare = ("", "")
        names = [*(header or []), *[""] * len(cells)]
        pairs = [f"{name}: {cell}" if name else cell for name, cell in zip(names, cells, strict=False) if cell]
        blocks.add("; ".join(pairs), address)
    blocks.add(*bare)


def _is_name(cell: str) -> bool:
    return not cell.replace(".", "").replace(",", "").lstrip("-").isdigit()


def read_xlsx(content: bytes, limits: ReadingLimits) -> Reading:
    """Every sheet's rows as Excel saved their values. Raises Refusal."""
    openpyxl, blocks = load_parser("openpyxl"), Blocks(limits)
    try:
        book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True, keep_links=False)
        for sheet in book.worksheets:
            # A file may state any size.
            sheet.reset_dimensions()
            rows = enumerate(sheet.iter_rows(values_only=True), 1)
            name = " ".join(sheet.title.split())
            add_rows(blocks, ((f"sheet {name}, row {number}", [_cell(each) for each in row]) for number, row in rows))
    except (Refusal, MemoryError, RecursionError):
        raise
    except Exception as error:  # a parser of hostile files raises what it likes
        raise Refusal("is a broken spreadsheet: save it again.") from error
    return blocks.reading()


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, datetime):
        return value.isoformat(" ").removesuffix(" 00:00:00")
    return "" if value is None else str(value)


def read_json(content: bytes, limits: ReadingLimits) -> Reading:
    """An array's items, or an object's members. Raises Refusal."""
    blocks = Blocks(limits)
    found = _parse(decode(content))
    if isinstance(found, list):
        for number, value in enumerate(found, 1):
            blocks.add(_record(value), f"item {number}")
    elif isinstance(found, dict):
        for key, value in found.items():
            blocks.add(_record({key: value}), f"key {key}")
    else:
        blocks.add(str(found))
    return blocks.reading()


def read_json_lines(content: bytes, limits: ReadingLimits) -> Reading:
    """Each line's record; lines that are no JSON are counted. Raises Refusal where none is."""
    blocks, broken, lines = Blocks(limits), list[int](), 0
    for number, line in enumerate(decode(content).split("\n"), 1):
        if line.strip():
            lines += 1
            try:
                found = _parse(line)
            except Refusal:
                broken.append(number)
            else:
                blocks.add(_record(found), f"line {number}")
    if lines and len(broken) == lines:
        raise Refusal("holds no JSON: save it again.")
    problem = f"has {len(broken):,} lines that are no JSON, the first in line {broken[0]:,}." if broken else ""
    return blocks.reading(problems=(problem,) if broken else ())


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refusal("is no JSON, or nested too deeply: save it again.") from error


def _record(value: object) -> str:
    return "; ".join(f"{path}: {leaf}" if path else leaf for path, leaf in _leaves(value, ""))


def _leaves(value: object, path: str) -> Iterator[tuple[str, str]]:
    """The words of a value, each with the dotted path of keys to it; the items of a list share theirs."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, path)
    elif value is not None and (words := str(value).strip()):
        yield path, words
