"""The parts of a report, and the report as Markdown and as one HTML file that runs nothing and loads nothing.

All texts may come from logs, so they are escaped in both formats; control characters become blanks.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_STYLE = """
:root { color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 0 auto; padding: 1rem }
h1, h2 { line-height: 1.2 }
h2 { margin-top: 2rem; border-top: 1px solid GrayText; padding-top: 1rem }
div { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
caption { text-align: start; padding-bottom: .4rem }
th, td { padding: .2rem .9rem .2rem 0; text-align: start; vertical-align: top; border-bottom: 1px solid GrayText }
pre { overflow-x: auto; padding: .6rem .8rem; border: 1px solid GrayText; border-radius: .3rem; white-space: pre-wrap }
p, li { overflow-wrap: anywhere }
"""
# The characters that Markdown may read as markup.
_MARKUP = re.compile(r"([\\`*_\[\]<>|~&])")


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of sentences."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """An unordered list."""

    items: Sequence[str]


@dataclass(frozen=True)
class Code:
    """Text to paste."""

    text: str


@dataclass(frozen=True)
class Table:
    """A table with a caption."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


Block = Paragraph | Bullets | Code | Table


@dataclass(frozen=True)
class Section:
    """A headed part of a report."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Report:
    """A report: its title, a first paragraph, and its sections."""

    title: str
    summary: str
    sections: Sequence[Section] = field(default_factory=tuple)


def to_html(report: Report) -> str:
    """The report as one HTML file, whose policy allows its own style and nothing else."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    sections = "".join(
        f"<section>\n<h2>{_html(section.title)}</h2>\n{''.join(map(_html_block, section.blocks))}</section>\n"
        for section in report.sections
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{_html(report.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{_html(report.title)}</h1>\n<p>{_html(report.summary)}</p>\n{sections}</main>\n</body>\n</html>\n"
    )


def _html_block(block: Block) -> str:
    match block:
        case Paragraph(text):
            return f"<p>{_html(text)}</p>\n"
        case Bullets(items):
            lines = "".join(f"<li>{_html(item)}</li>\n" for item in items)
            return f"<ul>\n{lines}</ul>\n"
        case Code(text):
            return f"<pre><code>{html.escape(_printable(text))}</code></pre>\n"
        case Table(caption, header, rows):
            titles = "".join(f'<th scope="col">{_html(title)}</th>' for title in header)
            lines = "".join(f"<tr>{''.join(f'<td>{_html(cell)}</td>' for cell in row)}</tr>\n" for row in rows)
            table = f"<caption>{_html(caption)}</caption>\n<thead><tr>{titles}</tr></thead>\n<tbody>\n{lines}</tbody>"
            return f"<div><table>\n{table}\n</table></div>\n"


def _html(text: str) -> str:
    return html.escape(_line(text))


def to_markdown(report: Report) -> str:
    """The report as Markdown."""
    parts = [f"# {_markdown(report.title)}", _markdown(report.summary)]
    for section in report.sections:
        parts += [f"## {_markdown(section.title)}", *map(_markdown_block, section.blocks)]
    return "\n\n".join(parts) + "\n"


def _markdown_block(block: Block) -> str:
    match block:
        case Paragraph(text):
            return _markdown(text)
        case Bullets(items):
            return "\n".join(f"- {_markdown(item)}" for item in items)
        case Code(text):
            # The fence must be longer than any run of backticks in the text.
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
            return f"{fence}\n{_printable(text)}\n{fence}"
        case Table(caption, header, rows):
            lines = [header, ["---"] * len(header), *rows]
            body = "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)
            return f"{_markdown(caption)}:\n\n{body}"


def _cell(text: str) -> str:
    return text if text == "---" else _escaped(text)


def _markdown(text: str) -> str:
    """A text, escaped and on one line; a number or a sign at its start would begin a list, a heading or a rule."""
    return re.sub(r"^(\d+)([.)])", r"\1\\\2", re.sub(r"^([#+=-])", r"\\\1", _escaped(text)))


def _escaped(text: str) -> str:
    return _MARKUP.sub(r"\\\1", _line(text))


def _line(text: str) -> str:
    return " ".join(_printable(text).split())


def _printable(text: str) -> str:
    """The text with blanks for unprintable characters, such as those that reverse the direction of text."""
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)
