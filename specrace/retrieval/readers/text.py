"""Plain text, markdown and source code."""

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
    """Text with line numbers; a markdown heading that begins it is its title."""
    text = decode(content)
    for start, end, title in islice(_headings(text), 1):
        if text[:start].strip():
            break
        after = Mark(start, "line", text.count("\n", 0, end) + 1)
        return Reading(title, text[:start] + text[end:], (Mark(0, "line", 1), after) if start else (after,))
    return Reading("", text, (Mark(0, "line", 1),))


def read_code(content: bytes, _: ReadingLimits) -> Reading:
    """Text with line numbers, in which "# ..." is a comment."""
    return Reading("", decode(content), (Mark(0, "line", 1),))


def read_markdown(content: bytes, _: ReadingLimits) -> Reading:
    """Markdown: a heading that begins it, or else its first of level 1, is the title; the others are addresses."""
    return from_markdown(decode(content))


def from_markdown(text: str) -> Reading:
    """As `read_markdown`, of text."""
    headings = [*_headings(text)]
    leading = (each for each in headings if not text[: each[0]].strip() or text.startswith(("# ", "#\t"), each[0]))
    start, end, title = next(leading, (0, 0, ""))
    others = ((place, words) for place, _, words in headings if words and (place, words) != (start, title))
    marks = tuple(Mark(place - (end - start) * (place > start), words) for place, words in others)
    return Reading(title, text[:start] + text[end:], marks)


def _headings(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and words of the lines that are markdown headings outside a code fence."""
    start, fenced = 0, False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith(_FENCES):
            fenced = not fenced
        heading = None if fenced else _HEADING.match(line)
        if heading:
            title = " ".join(heading["title"].rstrip().rstrip("#").split())
            yield start, start + len(line), title[:MAX_TITLE_CHARS]
        start += len(line)
