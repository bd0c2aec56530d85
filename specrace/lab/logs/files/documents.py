"""Finds the rows of a log in JSON other than one object per line, reading the file piece by piece.

- An array, as ShareGPT is distributed, or objects one after another; both may be pretty-printed.
- An object that holds lists of rows somewhere, such as a page of an API's results.
- guidellm's report, {"benchmarks": [{"requests": {"successful": [...], "errored": [...], "incomplete": [...]}}]}
  (vllm-project/guidellm, src/guidellm/schemas/request_stats.py: GenerativeRequestStats).

A value larger than `MAX_LINE_BYTES` is not a row. Its parts are searched one by one, so memory is bounded.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Callable, Generator, Iterator
from typing import Any

from specrace.lab.logs.formats.base import MAX_LINE_BYTES, Row

# Whether an object is a row of a known format.
IsRow = Callable[[Row], bool]
# A row, or the reason why a value is not a row.
RowOrReason = Row | str
# The keys that lead to a value; _ELEMENT stands for the index of an array's element.
KeyPath = tuple[str, ...]

_CHUNK = 1 << 16
# The length of the longest JSON tokens that the end of the buffer may cut: an escaped surrogate pair (or -Infinity).
_MAX_TOKEN_CHARACTERS = 12
# How many keys and elements may lead to a row; a guess.
_MAX_DEPTH = 12
_BLANK = re.compile(r"[ \t\n\r\ufeff]*")
_DECODER = json.JSONDecoder()
_MB = MAX_LINE_BYTES // 1_000_000
_ELEMENT = "*"
_CONTENT_FIELDS = {"content", "tool_calls", "parts"}
# Names of a message's field that tells to which conversation it belongs.
_CONVERSATION_ID = re.compile(r"(?:conversation|conv|thread|session|chat|dialog(?:ue)?)_?id", re.IGNORECASE)
_NO_OBJECT = "this is an element of a list but not an object; write objects"
# The names of guidellm's lists of requests that have no complete answer.
_UNFINISHED = ("errored", "incomplete")


class _TooLargeError(Exception):
    """A value is larger than a row may be."""


class BrokenError(Exception):
    """The document cannot be read beyond `line`; the message says why."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


class _Cursor:
    """A position in the text of a stream; only text from there on is kept."""

    def __init__(self, stream: io.BufferedReader, start: bytes) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0
        self._ended = False
        # A position in the text whose line number is known, and that number.
        self._counted = (0, 1)
        self._decode(start, ended=False)

    @property
    def line(self) -> int:
        """The number of the line at the position, from 1."""
        at, line = self._counted
        line += self._text.count("\n", at, self._at)
        self._counted = (self._at, line)
        return line

    def peek(self) -> str:
        """The next character that is not blank; "" at the end."""
        while True:
            blank = _BLANK.match(self._text, self._at)
            self._at = blank.end() if blank else self._at
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def take(self, expected: str) -> bool:
        """Move past the next character if it is the `expected` one."""
        is_next = self.peek() == expected
        self._at += is_next
        return is_next

    def value(self) -> Any:
        """Decode the value at the position and move past it. Raises _TooLargeError, BrokenError."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                is_cut = error.msg.startswith("Unterminated") or error.pos >= len(self._text) - _MAX_TOKEN_CHARACTERS
                if is_cut and len(self._text) - self._at > MAX_LINE_BYTES:
                    raise _TooLargeError from error
                if not is_cut or not self._more():
                    raise self.broken(error) from error
                continue
            except (ValueError, RecursionError) as error:
                reason = "this JSON has a number too long or is nested too deeply; write plain objects"
                raise BrokenError(self.line, reason) from error
            # The end of a number may be the end of the buffer.
            if end == len(self._text) and not isinstance(value, dict | list) and self._more():
                continue
            if end - self._at > MAX_LINE_BYTES:
                raise _TooLargeError
            self._at = end
            return value

    def next_element(self, end: str) -> None:
        """Move past the comma before the next element, if this is not the `end`. Raises BrokenError."""
        if not self.take(",") and self.peek() != end:
            raise self.broken()

    def broken(self, error: json.JSONDecodeError | None = None) -> BrokenError:
        """The error for text that is not JSON at the position, or where the decoder stopped."""
        if error is not None:
            self._at = min(error.pos, len(self._text))
        what = error.msg if error else "a comma or an end is missing"
        if self._at >= len(self._text):
            what = "the text breaks off"
        reason = f"this is not JSON ({what}), and nothing after it was read; write one object a line, or a list"
        return BrokenError(self.line, reason)

    def _more(self) -> bool:
        """Read on; False at the end of the stream. The text before the position is dropped."""
        if self._ended:
            return False
        line = self.line
        self._text = self._text[self._at :]
        self._at = 0
        self._counted = (0, line)
        # A long value is decoded from its start after each reading. As each reading doubles the text, this costs only
        # about twice as much as decoding the value once.
        data = self._stream.read(max(_CHUNK, len(self._text)))
        self._decode(data, ended=not data)
        return True

    def _decode(self, data: bytes, *, ended: bool) -> None:
        self._ended = ended
        try:
            self._text += self._decoder.decode(data, final=ended)
        except UnicodeDecodeError as error:
            raise BrokenError(self.line, "this is not UTF-8 text; write the file as UTF-8") from error


def read_document(stream: io.BufferedReader, start: bytes, is_row: IsRow) -> Iterator[tuple[int, RowOrReason]]:
    """Yield (line, row) for each row in a series of JSON values, and (line, reason) for other values.

    `start`: the bytes that were already read from the stream. Raises BrokenError where the JSON breaks off or is wrong.
    """
    cursor = _Cursor(stream, start)
    while first_character := cursor.peek():
        if first_character not in ("{", "["):
            raise cursor.broken()
        yield from _array(cursor, is_row) if first_character == "[" else _outermost(cursor, is_row)
        cursor.take(",")


def _array(cursor: _Cursor, is_row: IsRow) -> Iterator[tuple[int, RowOrReason]]:
    """The rows of an outermost array: its elements, or a conversation that is the array itself."""
    line = cursor.line
    conversation: list[Row] = []
    size = 0
    cursor.take("[")
    while not cursor.take("]"):
        for item_line, item in _outermost(cursor, is_row):
            if isinstance(item, dict) and is_message(item):
                conversation.append(item)
                size += len(str(item.values()))
                if size > MAX_LINE_BYTES:
                    raise BrokenError(line, f"a conversation of more than {_MB} MB; give one conversation a line")
            else:
                yield item_line, item
        cursor.next_element("]")
    if conversation:
        yield from ((line, row) for row in conversation_rows(conversation))


def _outermost(cursor: _Cursor, is_row: IsRow) -> Iterator[tuple[int, RowOrReason]]:
    """The rows in the value at the position: a whole document, or an element of the outermost array."""
    cursor.peek()
    line = cursor.line
    try:
        value = cursor.value()
    except _TooLargeError:
        holds_rows = False
        for inner in _large(cursor, (), is_row):
            holds_rows = True
            yield inner
        if not holds_rows:
            yield line, f"this is longer than {_MB} MB and holds no list of requests; give one request a line"
        return
    if isinstance(value, list) and value and all(map(is_message, value)):
        yield from ((line, row) for row in conversation_rows(value))
    elif is_message(value):
        yield line, value
    elif isinstance(value, dict):
        rows = list(find_rows(value, is_row))
        yield from ((line, row) for row in rows or [value])
    else:
        yield line, _NO_OBJECT


def _large(cursor: _Cursor, path: KeyPath, is_row: IsRow) -> Iterator[tuple[int, RowOrReason]]:
    """The rows in an object or array that is too large to be a row itself; `path` leads to it."""
    if len(path) > _MAX_DEPTH:
        raise BrokenError(cursor.line, "this JSON is nested too deeply; write plain objects")
    if cursor.take("{"):
        while not cursor.take("}"):
            try:
                key = cursor.value()
            except _TooLargeError:
                raise _large_text(cursor) from None
            if not isinstance(key, str) or not cursor.take(":"):
                raise cursor.broken()
            yield from _member(cursor, (*path, key), is_row)
            cursor.next_element("}")
    elif cursor.take("["):
        among_rows = False
        while not cursor.take("]"):
            among_rows = yield from _member(cursor, (*path, _ELEMENT), is_row, among_rows=among_rows)
            cursor.next_element("]")
    else:
        raise _large_text(cursor)


def _large_text(cursor: _Cursor) -> BrokenError:
    """The error for a text at the position that is too large to be a value or a name."""
    return BrokenError(cursor.line, f"a text of more than {_MB} MB, and nothing after it was read; leave it out")


def _member(
    cursor: _Cursor, path: KeyPath, is_row: IsRow, *, among_rows: bool = False
) -> Generator[tuple[int, RowOrReason], None, bool]:
    """The rows in the value at the position, which is part of a large object or array; `path` leads to it.

    `among_rows`: the value follows a row in a list. Returns the `among_rows` of the list's next value.
    """
    cursor.peek()
    line = cursor.line
    try:
        value = cursor.value()
    except _TooLargeError:
        yield from _large(cursor, path, is_row)
        return among_rows
    rows = list(_rows_in(value, path, is_row)) or (_as_row(value) if among_rows else [])
    yield from ((line, row) for row in rows)
    return among_rows or any(row is value for row in rows)


def find_rows(document: Row, is_row: IsRow) -> Iterator[RowOrReason]:
    """The rows in an object: itself, or elements of lists in it; a reason stands for an element that is no row."""
    yield from _rows_in(document, (), is_row)


def _rows_in(value: Any, path: KeyPath, is_row: IsRow) -> Iterator[RowOrReason]:
    """The rows in a value, as `find_rows`; `path` leads to the value."""
    if len(path) > _MAX_DEPTH:
        return
    if isinstance(value, list):
        rows_of = [list(_rows_in(element, (*path, _ELEMENT), is_row)) for element in value]
        among_rows = any(row is element for element, rows in zip(value, rows_of, strict=True) for row in rows)
        for element, rows in zip(value, rows_of, strict=True):
            yield from rows or (_as_row(element) if among_rows else [])
    elif isinstance(value, dict):
        # guidellm's requests are at benchmarks, *, requests, successful, *.
        if "benchmarks" in path and path[-3:-2] == ("requests",) and path[-1] == _ELEMENT:
            yield f"guidellm counts this request as {path[-2]}; it has no output" if path[-2] in _UNFINISHED else value
        elif (not path or _ELEMENT in path) and is_row(value):
            yield value
        else:
            for key, child in value.items():
                yield from _rows_in(child, (*path, key), is_row)


def _as_row(element: Any) -> list[RowOrReason]:
    """The row for an element that looks like none, in a list with rows: the format's reader says what it lacks."""
    return [element if isinstance(element, dict) else _NO_OBJECT]


def is_message(value: object) -> bool:
    """Whether a value is a message of a conversation, by the names of its fields."""
    if not isinstance(value, dict):
        return False
    return {"from", "value"} <= value.keys() or ("role" in value and bool(_CONTENT_FIELDS & value.keys()))


def conversation_rows(messages: list[Row]) -> Iterator[RowOrReason]:
    """A row for each conversation in a list of messages: the list is one, or a table with the messages of many."""
    id_fields = list(
        dict.fromkeys(name for message in messages for name in message if _CONVERSATION_ID.fullmatch(name))
    )
    conversations: dict[tuple[str, ...], list[Row]] = {}
    for message in messages:
        conversations.setdefault(tuple(str(message.get(name)) for name in id_fields or ("id",)), []).append(message)
    # Without `id_fields`, an `id` may be each message's own, which says nothing about conversations.
    if len(conversations) == 1 or not (id_fields or any(map(_shares_id, conversations.values()))):
        yield {"conversations" if "from" in messages[0] else "messages": messages}
    elif id_fields and all(message.get(name) is not None for message in messages for name in id_fields):
        for conversation in conversations.values():
            yield from conversation_rows(conversation)
    else:
        ids = " and ".join(id_fields) or "id"
        yield f"the messages differ in {ids}, as if of several conversations; write a line with the messages of each"


def _shares_id(messages: list[Row]) -> bool:
    """Whether the `id` that these messages share is their conversation's, because they have several speakers."""
    speakers = {str(message.get("role", message.get("from"))) for message in messages}
    return messages[0].get("id") is not None and len(speakers) > 1
