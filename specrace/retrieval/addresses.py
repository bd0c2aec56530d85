"""Where in a document a stretch of its text stands, in words."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from specrace.retrieval.readers.reading import Mark


class Addresses:
    """A document's addresses by offset."""

    def __init__(self, text: str, marks: Sequence[Mark]) -> None:
        self._marks, self._starts = marks, [mark.start for mark in marks]
        counts = any(mark.line for mark in marks)
        self._line_ends = [place for place, letter in enumerate(text) if letter == "\n"] if counts else []

    def of(self, start: int, end: int) -> str:
        """For instance "page 3", "line 12–30" or a heading, of the stretch [start, end); "" without an address."""
        first, last = self._at(start), self._at(end - 1)
        if not first or first == last:
            return last
        kind, _, number = first.rpartition(" ")
        other_kind, _, until = last.rpartition(" ")
        counted = kind == other_kind and number.isdecimal() and until.isdecimal()
        return f"{first}–{until}" if counted else f"{first} – {last}"

    def _at(self, place: int) -> str:
        number = bisect_right(self._starts, place) - 1
        if number < 0:
            return ""
        start, address, line = self._marks[number]
        if not line:
            return address
        return f"{address} {line + bisect_right(self._line_ends, place - 1) - bisect_right(self._line_ends, start - 1)}"
