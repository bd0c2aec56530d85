"""Reads tables with named columns as rows: CSV, Parquet and Arrow, which need pyarrow, an optional dependency."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import PurePath
from typing import Any, BinaryIO

from specrace.core.errors import InputError, shorten
from specrace.lab.logs.files.documents import is_message
from specrace.lab.logs.files.kinds import unpacked_name
from specrace.lab.logs.formats.base import MAX_LINE_BYTES, Row, parse_nested
from specrace.lab.logs.formats.paths import leaves, value_at

PARQUET_MAGIC = b"PAR1"
# The beginning of Arrow's file format, and of a message in its stream.
_ARROW_MAGIC = b"ARROW1"
_ARROW_CONTINUATION = b"\xff\xff\xff\xff"
# How many bytes of a Parquet column are read at once.
_BUFFER = 1 << 20
_DELIMITERS = (",", "\t", ";", "|")
# Excel's first line that names the delimiter.
_SEPARATOR_LINE = re.compile(r"sep=(.)[\r\n]*")
_QUOTED = re.compile(r'"[^"]*"')
_QUOTES = (
    "the row that begins here is not CSV: a cell that begins with a quotation mark must end with one, and marks within "
    "it are written twice"
)
# How the csv module's messages about quotation marks end.
_QUOTE_ERRORS = ("expected after '\"'", "unexpected end of data")
# Cells of these columns hold JSON of any kind; in other columns an object or a list of objects is parsed.
_JSON_COLUMNS = {"prompt_ids", "output_ids", "messages", "conversations", "tools"}
# Cells of these columns may hold a model's text that happens to be JSON, so only requests, responses and messages are
# parsed.
_TEXT_COLUMNS = {
    *("prompt", "output", "input", "inputs", "outputs", "instruction", "question", "text", "content", "query"),
    *("response", "completion", "answer", "reply", "generation", "generated_text", "chosen", "rejected", "reasoning"),
}
# Lists that a request or a response has.
_LISTS = ("messages", "choices", "contents", "candidates", "generations")
# The text of a Python object, or of a NumPy array of them, which pandas' to_csv writes in place of JSON, and what shows
# that it holds messages.
_PYTHON_OBJECT = re.compile(r"\s*(?:array\(\s*)?(?:\[\s*)?\{\s*'")
_PYTHON_MESSAGE = re.compile(
    r"'(?:message\.)?(?:role|from)': '(?:system|developer|user|human|assistant|gpt|model|tool|function)'|"
    rf"'(?:{'|'.join(_LISTS)})': \[+\{{"
)
# Columns that are kept under their own names when --columns names others.
_EXTRA_COLUMNS = ("id", "category", "tools")
# Rows read at once from a Parquet file.
_BATCH = 256


def is_csv(name: PurePath) -> bool:
    """Whether a file's name ends in .csv or .tsv, perhaps followed by the suffix of a compressed file."""
    return unpacked_name(name).suffix.lower() in (".csv", ".tsv")


class _Lines:
    """The lines of a text, each of at most MAX_LINE_BYTES characters. Raises csv.Error for a longer one."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._text.readline(MAX_LINE_BYTES + 1)
        if len(line) > MAX_LINE_BYTES:
            while len(piece := self._text.readline(MAX_LINE_BYTES + 1)) > MAX_LINE_BYTES and not piece.endswith("\n"):
                pass
            raise csv.Error(f"a line longer than {MAX_LINE_BYTES // 1_000_000} MB")
        if not line:
            raise StopIteration
        return line


def csv_rows(name: PurePath, stream: io.BufferedReader) -> Iterator[tuple[int, Row | str]]:
    """Yield (line, row) of a CSV file with a header, or (line, reason) for a row that cannot be used.

    The first line decides which delimiter separates the cells; in a tie the file's name does.
    """
    # An unclosed quotation mark must not fill the memory; csv has one limit for the whole process.
    csv.field_size_limit(MAX_LINE_BYTES)
    # Bytes that are not UTF-8 become lone surrogates, which are reported where the text is used.
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    lines = _Lines(text)
    try:
        first_line = next(lines, "")
        # Excel may write a line before the header that names the delimiter, such as sep=;
        pushed_back = [] if _SEPARATOR_LINE.fullmatch(first_line) else [first_line]
    except csv.Error as error:
        yield 1, f"this is not CSV ({error})"
        return
    delimiter = find_delimiter(first_line, is_tsv=unpacked_name(name).suffix.lower() == ".tsv")
    table = csv.reader(chain(pushed_back, lines), delimiter=delimiter, strict=True)
    # The number of lines before the header, which `table` does not count.
    skipped = 1 - len(pushed_back)
    header: list[str] = []
    while True:
        start = table.line_num + 1 + skipped
        try:
            cells = next(table, None)
        except csv.Error as error:
            yield start, _QUOTES if str(error).endswith(_QUOTE_ERRORS) else f"this is not CSV ({error})"
            continue
        if cells is None:
            return
        if not header:
            header = _distinct(cells)
        elif cells:
            fits = len(cells) == len(header)
            reason = "the row has more or fewer cells than the header"
            yield table.line_num + skipped, dict(zip(header, cells, strict=True)) if fits else reason


def _distinct(names: list[str]) -> list[str]:
    """The columns' names, in which a name that an earlier column has gets a number: text, text_2."""
    counts = Counter[str]()
    distinct = []
    for name in names:
        counts[name] += 1
        distinct.append(name if counts[name] == 1 else f"{name}_{counts[name]}")
    return distinct


def find_delimiter(first_line: str, *, is_tsv: bool) -> str:
    """The delimiter of a table with this first line: the commonest outside quotes of comma, tab, semicolon and bar."""
    if separator_line := _SEPARATOR_LINE.fullmatch(first_line):
        return separator_line[1]
    usual = "\t" if is_tsv else ","
    unquoted = _QUOTED.sub("", first_line)
    # The usual delimiter comes first, so it wins a tie.
    return max((usual, *_DELIMITERS), key=unquoted.count)


def is_parquet(first_bytes: bytes) -> bool:
    """Whether a file with these first bytes is Parquet."""
    return first_bytes.startswith(PARQUET_MAGIC)


def is_arrow(first_bytes: bytes) -> bool:
    """Whether a file with these first 8 bytes is Arrow's file format, or its stream, as Hugging Face's datasets are."""
    return first_bytes.startswith((_ARROW_MAGIC, _ARROW_CONTINUATION))


def parquet_rows(file: BinaryIO, name: str) -> Iterator[tuple[int, Row]]:
    """Yield (number, row) of a Parquet file, from 1 on. Raises InputError without pyarrow and for a broken file."""
    with _pyarrow_errors(name, "a Parquet file") as count:
        from pyarrow.parquet import ParquetFile

        # Without these options a whole row group would lie in memory.
        with ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER) as table:
            yield from _number_rows(table.iter_batches(batch_size=_BATCH), count)


def arrow_rows(file: BinaryIO, name: str) -> Iterator[tuple[int, Row]]:
    """Yield (number, row) of an Arrow file or stream, from 1 on. Raises InputError as for Parquet."""
    with _pyarrow_errors(name, "an Arrow file") as count:
        from pyarrow import ipc

        is_stream = file.read(4) == _ARROW_CONTINUATION
        file.seek(0)
        if is_stream:
            yield from _number_rows(ipc.open_stream(file), count)
        else:
            table = ipc.open_file(file)
            yield from _number_rows(map(table.get_batch, range(table.num_record_batches)), count)


@contextmanager
def _pyarrow_errors(name: str, kind: str) -> Iterator[list[int]]:
    """Turn pyarrow's errors, and its absence, into an InputError; the caller counts rows in the yielded [count].

    `kind`: "a Parquet file", ...
    """
    try:
        from pyarrow import ArrowException
    except ImportError as error:
        raise InputError(
            f"{shorten(name)} is {kind}, which needs pyarrow (pip install 'specrace[parquet]'); or write CSV."
        ) from error
    count = [0]
    try:
        yield count
    except (ArrowException, ArithmeticError, LookupError, OSError, ValueError) as error:
        raise InputError(f"{shorten(name)}, after row {count[0]}: this is not {kind}; write it again.") from error


def _number_rows(batches: Iterable[Any], count: list[int]) -> Iterator[tuple[int, Row]]:
    """Yield (number, row) of every row, and keep the number of rows so far in `count[0]`."""
    for batch in batches:
        # Offsets of a damaged file may point outside of its memory.
        batch.validate(full=True)
        names = _distinct(batch.schema.names)
        for start in range(0, batch.num_rows, _BATCH):
            columns = [_cells(column) for column in batch.slice(start, _BATCH).columns]
            for cells in zip(*columns, strict=True):
                count[0] += 1
                yield count[0], {name: plain(cell) for name, cell in zip(names, cells, strict=True)}


def _cells(column: Any) -> list[Any]:
    """The values of a column. Times become numbers if Python has no such date, or does not know their time zone."""
    try:
        cells = column.to_pylist()
    except (ArithmeticError, LookupError, ValueError):
        cells = column.cast(_without_times(column.type)).to_pylist()
    return list(cells)


def _without_times(kind: Any) -> Any:
    """A column's type with whole numbers in place of dates, times and durations."""
    import pyarrow
    from pyarrow import types

    if types.is_temporal(kind) and kind.bit_width <= 64:
        return pyarrow.int32() if kind.bit_width == 32 else pyarrow.int64()
    if types.is_struct(kind):
        return pyarrow.struct([field.with_type(_without_times(field.type)) for field in kind])
    if types.is_list(kind):
        return pyarrow.list_(kind.value_field.with_type(_without_times(kind.value_type)))
    return kind


def plain(value: Any) -> Any:
    """A cell as JSON would hold it: times and other kinds as text, structs and maps without their empty fields.

    A column's structs have the same fields in every row, so a message without tool calls has an empty field for them.
    """
    if isinstance(value, dict):
        return {str(name): plain(field) for name, field in value.items() if field is not None}
    if isinstance(value, list):
        # A map is a list of pairs.
        is_map = bool(value) and all(isinstance(element, tuple) for element in value)
        return plain(dict(value)) if is_map else [plain(element) for element in value]
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    return value if value is None or isinstance(value, str | int | float) else str(value)


def unpack(row: Row) -> Row:
    """The row with its JSON cells parsed. Raises ValueError for a cell with messages that are not JSON."""
    return {name: _unpack_cell(name, cell) if isinstance(cell, str) else cell for name, cell in row.items()}


def _unpack_cell(name: str, cell: str) -> Any:
    if name in _JSON_COLUMNS:
        # JSON of any kind is accepted.
        value = parse_nested(cell, lambda _: True)
    else:
        value = parse_nested(cell, _is_exchange if name in _TEXT_COLUMNS else _is_object)
    if value is cell and _PYTHON_OBJECT.match(cell) and _PYTHON_MESSAGE.search(cell):
        raise ValueError(
            f"the column {shorten(name, 60)} holds a Python object's text (single quotes), not JSON; write it with "
            "json.dumps, or name other columns by --columns"
        )
    return value


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and all(isinstance(item, dict) for item in value))


def _is_exchange(value: Any) -> bool:
    """Whether a value is a request, a response or messages, and not a model's own text that is JSON."""
    if isinstance(value, list):
        return bool(value) and all(map(is_message, value))
    if is_message(value):
        return True
    return any(isinstance(value.get(name), list) for name in _LISTS) or {"model", "prompt"} <= value.keys()


class RenamedRow(dict[str, Any]):
    """A row whose columns were renamed. `others`: the columns for which no new name was given."""

    def __init__(self, row: Row, others: Row) -> None:
        super().__init__(row)
        self.others = others


def rename(row: Row, columns: dict[str, str]) -> RenamedRow:
    """The row with its columns renamed; `columns`: our name -> the row's, or the dotted name of a field in it.

    Texts are joined by an empty line where the row's names are joined by "+". The `_EXTRA_COLUMNS` keep their own
    names. Raises ValueError if the row lacks a field.
    """
    extra = {name: row[name] for name in _EXTRA_COLUMNS if name in row}
    try:
        named = {name: _named_value(row, column) for name, column in columns.items()}
    except KeyError as error:
        names = ", ".join(dict.fromkeys(name for name, _ in leaves(row))) or ", ".join(row)
        raise ValueError(f"there is no field {shorten(error.args[0])!r}, but {shorten(names, 200)}") from error
    used = {part.split(".")[0] for column in columns.values() for part in (column, *column.split("+"))}
    return RenamedRow(extra | named, {name: value for name, value in row.items() if name not in used | extra.keys()})


def _named_value(row: Row, names: str) -> Any:
    """The field of this dotted name or, of several names joined by "+", their texts. Raises KeyError and ValueError."""
    if "+" not in names or names in row:
        return value_at(row, names)
    texts = [value_at(row, name) for name in names.split("+")]
    for name, text in zip(names.split("+"), texts, strict=True):
        if not isinstance(text, str):
            raise ValueError(f"the field {shorten(name)!r} is not text; join only texts by +")
    return "\n\n".join(text for text in texts if text.strip())


def read_columns(text: str) -> dict[str, str]:
    """Parse prompt=COLUMN,output=COLUMN,... into a dictionary; a COLUMN may be A+B. Raises InputError."""
    names = ("prompt", "output", "prompt_ids", "output_ids", "messages", "id", "category")
    columns: dict[str, str] = {}
    for part in text.split(","):
        name, equals, column = part.strip().partition("=")
        if not equals or not column or name not in names:
            raise InputError(f"--columns has {shorten(part)!r}; give NAME=COLUMN, where NAME is {', '.join(names)}.")
        columns[name] = column
    if not any(pair <= columns.keys() for pair in ({"prompt", "output"}, {"prompt_ids", "output_ids"}, {"messages"})):
        raise InputError(
            f"--columns names {shorten(', '.join(columns))} only; name prompt and output, prompt_ids and "
            "output_ids, or messages."
        )
    return columns
