"""Reads tables and records: CSV, Excel, JSON and JSON lines; each row or record becomes a block."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from specrace.retrieval.limits import ReadingLimits
from specrace.retrieval.readers.reading import Blocks, Reading, Refusal, decode, load_parser

# A table's delimiter is recognised from this many characters.
_SAMPLE_CHARS = 4096
# A cell with more characters has probably lost its closing quote.
_MAX_CELL_CHARS = 1 << 20


def read_tsv(content: bytes, limits: ReadingLimits) -> Reading:
    """Read rows of cells between tabs, with line numbers as addresses. Raises Refusal."""
    return _read_rows(decode(content), "\t", skip_spaces=False, limits=limits)


def read_csv(content: bytes, limits: ReadingLimits) -> Reading:
    """Read rows, with line numbers as addresses. Raises Refusal."""
    text = decode(content)
    try:
        dialect = csv.Sniffer().sniff(text[:_SAMPLE_CHARS], delimiters=",;\t|")
        # The dialect's quoting is not used: a sample without doubled quotes, or with apostrophes, would mislead it.
        delimiter, skip_spaces = dialect.delimiter, dialect.skipinitialspace
    except csv.Error:
        delimiter, skip_spaces = ",", False
    return _read_rows(text, delimiter, skip_spaces=skip_spaces, limits=limits)


def _read_rows(text: str, delimiter: str, *, skip_spaces: bool, limits: ReadingLimits) -> Reading:
    """Read rows; `skip_spaces`: spaces after a delimiter do not belong to the cell. Raises Refusal."""
    blocks = Blocks(limits)
    # Set before every file, because the limit is global and other readers set it too.
    csv.field_size_limit(_MAX_CELL_CHARS)
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=skip_spaces)
        add_rows(blocks, _numbered(rows))
    except csv.Error as error:
        raise Refusal(f"is a broken table ({error}): save it again.") from error
    return blocks.reading()


def _numbered(rows: Any) -> Iterator[tuple[str, list[str]]]:
    """Each row of a csv.reader, with the line it begins in as its address."""
    first_line = 1
    for row in rows:
        yield f"line {first_line}", row
        first_line = rows.line_num + 1


def add_rows(blocks: Blocks, rows: Iterable[tuple[str, list[str]]]) -> None:
    """Add a block "column: cell; ..." for each row of `rows`, a pair of the row's address and cells.

    The first row with several filled cells names the columns, if it has no numbers and at most half of its cells are
    blank. Without such a row the blocks are "cell; ...", and so are rows above it, such as a title.
    """
    header: list[str] | None = None
    # The header's text and address. It becomes a block only if no row follows it.
    header_block = ("", "")
    for address, cells in rows:
        cells = [" ".join(cell.split()) for cell in cells]
        filled = [cell for cell in cells if cell]
        if header is None and len(filled) > 1:
            names_columns = 2 * len(filled) >= len(cells) and all(map(_is_name, filled))
            header = cells if names_columns else []
            if header:
                header_block = ("; ".join(filled), address)
                continue
        header_block = ("", "")
        # Cells beyond the header's have no name.
        names = [*(header or []), *[""] * len(cells)]
        pairs = [f"{name}: {cell}" if name else cell for name, cell in zip(names, cells, strict=False) if cell]
        blocks.add("; ".join(pairs), address)
    blocks.add(*header_block)


def _is_name(cell: str) -> bool:
    """Whether a cell could name a column: it is not a number."""
    return not cell.replace(".", "").replace(",", "").lstrip("-").isdigit()


def read_xlsx(content: bytes, limits: ReadingLimits) -> Reading:
    """Read every sheet's rows, with the values of formulas that Excel saved. Raises Refusal."""
    openpyxl, blocks = load_parser("openpyxl"), Blocks(limits)
    try:
        book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True, keep_links=False)
        for sheet in book.worksheets:
            # The size that a sheet declares may be wrong or hostile.
            sheet.reset_dimensions()
            rows = enumerate(sheet.iter_rows(values_only=True), 1)
            name = " ".join(sheet.title.split())
            add_rows(blocks, ((f"sheet {name}, row {number}", list(map(_cell, row))) for number, row in rows))
    except (Refusal, MemoryError, RecursionError):
        raise
    except Exception as error:  # a parser may raise anything for a hostile file
        raise Refusal("is a broken spreadsheet: save it again.") from error
    return blocks.reading()


def _cell(value: object) -> str:
    """A spreadsheet cell as text."""
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, datetime):
        return value.isoformat(" ").removesuffix(" 00:00:00")
    return "" if value is None else str(value)


def read_json(content: bytes, limits: ReadingLimits) -> Reading:
    """Read an array's items or an object's members. Raises Refusal."""
    blocks = Blocks(limits)
    data = _parse(decode(content))
    if isinstance(data, list):
        for number, value in enumerate(data, 1):
            blocks.add(_record(value), f"item {number}")
    elif isinstance(data, dict):
        for key, value in data.items():
            blocks.add(_record({key: value}), f"key {key}")
    else:
        blocks.add(str(data))
    return blocks.reading()


def read_json_lines(content: bytes, limits: ReadingLimits) -> Reading:
    """Read a record from each line; lines that are not JSON are left out. Raises Refusal if none is JSON."""
    blocks = Blocks(limits)
    broken, lines = list[int](), 0
    for number, line in enumerate(decode(content).split("\n"), 1):
        if line.strip():
            lines += 1
            try:
                record = _parse(line)
            except Refusal:
                broken.append(number)
            else:
                blocks.add(_record(record), f"line {number}")
    if lines and len(broken) == lines:
        raise Refusal("holds no JSON: save it again.")
    if not broken:
        return blocks.reading()
    return blocks.reading(problems=(f"has {len(broken):,} lines that are not JSON, the first in line {broken[0]:,}.",))


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refusal("is not JSON, or nested too deeply: save it again.") from error


def _record(value: object) -> str:
    """A JSON value as "path: leaf; ..."."""
    return "; ".join(f"{path}: {leaf}" if path else leaf for path, leaf in _leaves(value, ""))


def _leaves(value: object, path: str) -> Iterator[tuple[str, str]]:
    """A JSON value's leaves, each with the dotted path of keys to it; the items of a list share a path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, path)
    elif value is not None and (words := str(value).strip()):
        yield path, words
