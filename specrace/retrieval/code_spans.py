"""Finds code in markdown: in front matter and in fenced blocks, "# ..." is a comment, not a heading."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile

from specrace.retrieval.sentences import Span

# Front matter begins in the first line: YAML between "---" and "---" or "...", TOML between "+++" and "+++".
_FRONT_MATTER = re.compile(
    r"(?:---[ \t]*\n(?![ \t]*\n)(?P<yaml>.*?)^(?:---|\.\.\.)|\+\+\+[ \t]*\n(?P<toml>.*?)^\+\+\+)[ \t]*(?:\n|\Z)",
    re.DOTALL | re.MULTILINE,
)
# Anything longer is not front matter, but a text whose paragraphs are separated by rules.
_MAX_FRONT_MATTER_CHARS = 100_000
# The first line that is not a comment sets a key; without this check, a text between two rules would be front matter.
_FIRST_KEY = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*[\w\"'.-][^\n:=]{0,80}[:=](?:\s|\Z)")
_TITLE = re.compile(r"^title[ \t]*[:=][ \t]*(?P<title>[^\n]*)$", re.MULTILINE | re.IGNORECASE)
_QUOTED = re.compile(r"\"(?P<double>(?:[^\"\\]|\\.)*)\"|'(?P<single>(?:[^']|'')*)'")
# A comment at the end of a value.
_COMMENT = re.compile(r"(?:\A|[ \t])#.*\Z")
# A value that begins with one of these characters continues in the next lines, or is not a string.
_NO_PLAIN_VALUE = tuple(">|[{&*!%@`")
# The line that opens or closes a code block.
_FENCE = re.compile(r"[ \t]*(?P<marks>`{3,}|~{3,})(?P<rest>[^\n]*)")


def code_spans(text: str) -> Iterator[Span]:
    """The spans of front matter and of fenced code, with the lines that open and close them, in order."""
    start = front_matter_end(text)
    if start:
        yield 0, start
    fence, fence_start = "", 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        # The match must not go beyond the line's end.
        match = _FENCE.match(text, start, end)
        if match and not fence:
            # A line such as "```x``` is code" is not a fence.
            if match["marks"][0] == "~" or "`" not in match["rest"]:
                fence, fence_start = match["marks"], start
        elif match and match["marks"].startswith(fence) and not match["rest"].strip():
            yield fence_start, end
            fence = ""
        start = end
    if fence:
        yield fence_start, len(text)


def front_matter_end(text: str) -> int:
    """The offset at which a text's front matter ends; 0 if it has none."""
    match = _FRONT_MATTER.match(text, 0, _MAX_FRONT_MATTER_CHARS)
    if match is None:
        return 0
    body = match["toml"] if match["yaml"] is None else match["yaml"]
    return match.end() if _FIRST_KEY.match(body) else 0


def front_matter_title(text: str) -> str:
    """The title that a text's front matter gives; "" if it gives none in one line."""
    match = _TITLE.search(text, 0, front_matter_end(text))
    value = match["title"].strip() if match else ""
    if quoted := _QUOTED.match(value):
        double, single = quoted["double"], quoted["single"]
        value = re.sub(r"\\(.)", r"\1", double) if single is None else single.replace("''", "'")
    elif value.startswith(_NO_PLAIN_VALUE):
        return ""
    else:
        value = _COMMENT.sub("", value)
    return " ".join(value.split())


def with_plain_front_matter(text: str) -> str:
    """The text with a blank line below its front matter, and without the front matter's marks and comments."""
    end = front_matter_end(text)
    if not end:
        return text
    lines = [line for line in text[:end].splitlines()[1:-1] if not line.lstrip().startswith("#")]
    return "\n".join([*lines, "", text[end:]])


def overlapping(spans: Sequence[Span], start: int, end: int) -> tuple[Span, ...]:
    """The parts of the spans, which are in order, in [start, end); offsets in the result count from `start`."""
    first = bisect_right(spans, start, key=lambda span: span[1])
    within = takewhile(lambda span: span[0] < end, islice(spans, first, None))
    return tuple((max(opens, start) - start, min(closes, end) - start) for opens, closes in within)


def is_inside(spans: Sequence[Span], offset: int) -> bool:
    """Whether one of the spans, which are in order, contains the offset."""
    index = bisect_right(spans, offset, key=lambda span: span[0]) - 1
    return index >= 0 and offset < spans[index][1]
