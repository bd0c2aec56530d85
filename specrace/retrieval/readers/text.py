"""Plain text, markdown and source code."""

from __future__ import annotations

import re
from collections.abc import Iterator

from specrace.retrieval.limits import Limits
from specrace.retrieval.readers.reading import Mark, Reading, decode

MAX_TITLE_CHARS = 120

_HEADING = re.compile(r"#{1,6}[ \t]+(?P<title>[^\n]*)")
_FENCES = ("```", "~~~")


def read_plain(content: bytes, _: Limits) -> Reading:
    """Text with line numbers; a markdown heading is its title."""
    text = decode(content)
    for start, end, title in _headings(text):
        after = Mark(start, "line", text.count("\n", 0, end) + 1)
        return Reading(title, text[:start] + text[end:], (Mark(0, "line", 1), after) if start else (after,))
    return Reading("", text, (Mark(0, "line", 1),))


def read_code(content: bytes, _: Limits) -> Reading:
    """Text with line numbers, in which "# ..." is a comment."""
    return Reading("", decode(content), (Mark(0, "line", 1),))


def read_markdown(content: bytes, _: Limits) -> Reading:
    """Markdown: the first heading is the title, the others are addresses."""
    return from_markdown(decode(content))


def from_markdown(text: str) -> Reading:
    """As `read_markdown`, of text."""
    first, *others = [*_headings(text)] or [(0, 0, "")]
    start, end, title = first
    marks = tuple(Mark(place - (end - start), words) for place, _, words in others if words)
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
