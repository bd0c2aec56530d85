"""Reads plain text, markdown and source code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from specrace.retrieval.limits import ReadingLimits
from specrace.retrieval.readers.reading import Mark, Reading, decode

MAX_TITLE_CHARS = 120

_HEADING = re.compile(r"#{1,6}[ \t]+(?P<title>[^\n]*)")
_FENCES = ("```", "~~~")


def read_plain(content: bytes, _: ReadingLimits) -> Reading:
    """Read text with line numbers as addresses; a markdown heading at its beginning is its title."""
    text = decode(content)
    for start, end, title in islice(_headings(text), 1):
        if text[:start].strip():
            break
        after_title = Mark(start, "line", text.count("\n", 0, end) + 1)
        marks = (Mark(0, "line", 1), after_title) if start else (after_title,)
        return Reading(title, text[:start] + text[end:], marks)
    return Reading("", text, (Mark(0, "line", 1),))


def read_code(content: bytes, _: ReadingLimits) -> Reading:
    """Read code with line numbers as addresses, without a title, because "# ..." may be a comment."""
    return Reading("", decode(content), (Mark(0, "line", 1),))


def read_markdown(content: bytes, _: ReadingLimits) -> Reading:
    """Read markdown, with headings as addresses.

    The title is a heading at the beginning, else the first heading of level 1.
    """
    return from_markdown(decode(content))


def from_markdown(text: str) -> Reading:
    """Find the title and the addresses of markdown text; the title is cut out of the text."""
    headings = [*_headings(text)]
    titles = (
        heading for heading in headings if not text[: heading[0]].strip() or text.startswith(("# ", "#\t"), heading[0])
    )
    start, end, title = next(titles, (0, 0, ""))
    marks = tuple(
        # Cutting out the title shifts the offsets of later headings.
        Mark(offset if offset <= start else offset - (end - start), words)
        for offset, _, words in headings
        if words and (offset, words) != (start, title)
    )
    return Reading(title, text[:start] + text[end:], marks)


def _headings(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and words of every line that is a markdown heading, except in fenced code."""
    start, in_fence = 0, False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith(_FENCES):
            in_fence = not in_fence
        heading = None if in_fence else _HEADING.match(line)
        if heading:
            title = " ".join(heading["title"].rstrip().rstrip("#").split())
            yield start, start + len(line), title[:MAX_TITLE_CHARS]
        start += len(line)
