"""Reads plain text, markdown and source code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from specrace.retrieval.code_spans import code_spans, front_matter_title, is_inside, with_plain_front_matter
from specrace.retrieval.limits import ReadingLimits
from specrace.retrieval.readers.reading import Mark, Reading, decode
from specrace.retrieval.sentences import Span

# A heading may be a whole paragraph; a title is one line.
MAX_TITLE_CHARS = 120

_HEADING = re.compile(r"#{1,6}[ \t]+(?P<title>[^\n]*)")


# The readers of text ignore the limits: `read_document` checks the number of characters.
def read_plain(content: bytes, _: ReadingLimits) -> Reading:
    """Read text with line numbers as addresses; a markdown heading at its beginning is its title."""
    text = decode(content)
    # Such a mark gives all text after it the address "line N".
    title, marks = "", [Mark(start=0, address="line", line=1)]
    # Only the first heading can be at the beginning.
    for start, end, words in islice(_headings(text, ()), 1):
        if text[:start].strip():
            break
        after_title = Mark(start, "line", text.count("\n", 0, end) + 1)
        # The first mark stays only if blank lines precede the title.
        marks = [*marks, after_title] if start else [after_title]
        title = words
        text = text[:start] + text[end:]
    return Reading(title, text, tuple(marks), code=tuple(code_spans(text)))


def read_code(content: bytes, _: ReadingLimits) -> Reading:
    """Read code with line numbers as addresses, without a title, because "# ..." may be a comment."""
    text = decode(content)
    return Reading("", text, (Mark(start=0, address="line", line=1),), code=((0, len(text)),))


def read_markdown(content: bytes, _: ReadingLimits) -> Reading:
    """Read markdown, with headings as addresses.

    The title is a heading at the beginning, else the first heading of level 1, else the front matter's title.
    """
    return from_markdown(decode(content))


def from_markdown(text: str) -> Reading:
    """Find the title and the addresses of markdown text; a heading that is the title is cut out of the text.

    Front matter becomes a paragraph of its own, without its comments.
    """
    front_title = front_matter_title(text)
    text = with_plain_front_matter(text)
    code = tuple(code_spans(text))
    headings = [*_headings(text, code)]
    titles = (
        heading for heading in headings if not text[: heading[0]].strip() or text.startswith(("# ", "#\t"), heading[0])
    )
    start, end, title = next(titles, (0, 0, ""))
    length = end - start

    def shifted(offset: int) -> int:
        """The offset after the title was cut out."""
        return offset if offset <= start else offset - length

    marks = tuple(Mark(shifted(offset), words) for offset, _, words in headings if words and offset != start)
    remaining_code = tuple((shifted(first), shifted(last)) for first, last in code)
    title = title or front_title[:MAX_TITLE_CHARS]
    return Reading(title, text[:start] + text[end:], marks, code=remaining_code)


def _headings(text: str, code: Sequence[Span]) -> Iterator[tuple[int, int, str]]:
    """Start, end and words of every line that is a markdown heading, except in the spans `code`."""
    start = 0
    for line in text.splitlines(keepends=True):
        heading = _HEADING.match(line)
        if heading and not is_inside(code, start):
            title = " ".join(heading["title"].rstrip().rstrip("#").split())
            yield start, start + len(line), title[:MAX_TITLE_CHARS]
        start += len(line)
