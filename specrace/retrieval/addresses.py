"""Addresses: where a piece of text is in its document, such as "page 3"."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from specrace.retrieval.readers.reading import Mark


class Addresses:
    """Looks up the address of a piece of a document's text by its offsets. A mark is the address from an offset on."""

    def __init__(self, text: str, marks: Sequence[Mark]) -> None:
        self._marks = marks
        self._starts = [mark.start for mark in marks]
        has_lines = any(mark.line for mark in marks)
        self._line_ends = [offset for offset, letter in enumerate(text) if letter == "\n"] if has_lines else []

    def describe(self, start: int, end: int) -> str:
        """The address of the text [start, end), such as "page 3", "line 12–30" or a heading; "" if it has none."""
        first, last = self._address_at(start), self._address_at(end - 1)
        # Text before the first mark has no address.
        if not first or first == last:
            return last
        kind, _, number = first.rpartition(" ")
        last_kind, _, last_number = last.rpartition(" ")
        is_range = kind == last_kind and number.isdecimal() and last_number.isdecimal()
        return f"{first}–{last_number}" if is_range else f"{first} – {last}"

    def _address_at(self, offset: int) -> str:
        """The address of the character at `offset`; "" if it has none."""
        index = bisect_right(self._starts, offset) - 1
        if index < 0:
            return ""
        start, address, line = self._marks[index]
        if not line:
            return address
        lines_between = bisect_right(self._line_ends, offset - 1) - bisect_right(self._line_ends, start - 1)
        return f"{address} {line + lines_between}"
