"""Reads Word documents: paragraphs, tables, content controls, text boxes, notes, headers and footers.

python-docx finds paragraphs and tables only where nothing wraps them. So wrappers are first taken off: content
controls, tracked insertions, fields and alternative contents. ECMA-376, part 1, section 17 defines the elements.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from specrace.retrieval.limits import ReadingLimits
from specrace.retrieval.readers.reading import Blocks, Mark, Reading, load_parser
from specrace.retrieval.readers.tables import add_rows
from specrace.retrieval.readers.text import from_markdown

_HEADING_STYLE = re.compile(r"heading ([1-6])\Z", re.IGNORECASE)
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}oMath"
_GRAPHIC = "{http://schemas.openxmlformats.org/drawingml/2006/main}graphicData"
_PARAGRAPH, _TABLE, _ROW, _CELL, _BOX = (f"{_W}{name}" for name in ("p", "tbl", "tr", "tc", "txbxContent"))
# Elements that are replaced by their children.
_WRAPPERS = tuple(f"{_W}{name}" for name in ("ins", "moveTo", "smartTag", "customXml", "fldSimple", "dir", "bdo"))
# A moved text is read where it was moved to.
_DELETED = (f"{_W}del", f"{_W}moveFrom")
# The end of a relationship's type -> the XML name and the title of a note, or the address of a header or footer.
_NOTES = {"footnotes": ("footnote", "Footnote"), "endnotes": ("endnote", "Endnote")}
_EDGES = {"header": "page header", "footer": "page footer"}
# The last words of the addresses that mark a graphic as a chart or a diagram.
_CHARTS = ("chart", "chartex", "diagram")


def read_docx(content: bytes, limits: ReadingLimits) -> Reading:
    """Read paragraphs, tables, text boxes and notes in order, with headings as addresses, then headers and footers.

    A note follows the paragraph or table that refers to it. Each different header or footer is read once. The reading's
    problem counts what is not read: deletions, comments, equations, charts and embedded files.
    """
    document = load_parser("docx").Document(io.BytesIO(content))
    parts = _related_parts(document)
    body = document.element.body
    _choose_branches(body)
    unread = _count_unread(body, parts)
    _take_off_wrappers(body)
    notes, blocks = _Notes(parts), Blocks(limits)
    # `_element` and `_tc` are python-docx's names of an item's and a cell's XML.
    for item in document.iter_inner_content():
        if hasattr(item, "rows"):
            add_rows(blocks, (("", [_cell_text(cell._tc) for cell in row.cells]) for row in item.rows))
        else:
            words = " ".join(item.text.split())
            blocks.add(_markdown_prefix(item.style.name or "") + words if words else "")
        for text in (*_box_texts(item._element), *notes.referred_in(item._element)):
            blocks.add(text)
    reading = from_markdown(blocks.text)
    problem = f"is read without its {unread}." if unread else ""
    return replace(_with_edges(reading, parts, limits), problems=(problem,) if problem else ())


def _related_parts(document: Any) -> dict[str, list[Any]]:
    """The root elements of the parts that the document refers to, by the end of their relationship's type."""
    parse = load_parser("docx.oxml").parse_xml
    parts: dict[str, list[Any]] = {}
    for relation in document.part.rels.values():
        name = relation.reltype.rpartition("/")[2]
        if name in (*_NOTES, *_EDGES, "comments") and not relation.is_external:
            parts.setdefault(name, []).append(parse(relation.target_part.blob))
    return parts


def _count_unread(body: Any, parts: dict[str, list[Any]]) -> str:
    """How many deletions, comments, equations, charts and embedded files there are, in words; "" for none."""
    # The text of each deletion; None if only a mark, such as that of a row, was deleted.
    deletions = [next(element.iter(f"{_W}delText"), None) for element in body.iter(f"{_W}del")]
    graphics = [element.get("uri", "").rpartition("/")[2] for element in body.iter(_GRAPHIC)]
    comments = [comment for root in parts.get("comments", ()) for comment in root.iter(f"{_W}comment")]
    counts = {
        "tracked deletion": sum(text is not None for text in deletions),
        "comment": len(comments),
        "equation": sum(1 for _ in body.iter(_MATH)),
        "chart": sum(name in _CHARTS for name in graphics),
        "embedded file": sum(1 for _ in body.iter(f"{_W}altChunk", f"{_W}object")),
    }
    named = [f"{count:,} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count]
    # As in "1 chart, 2 comments and 3 equations".
    return " and ".join(filter(None, (", ".join(named[:-1]), *named[-1:])))


def _take_off_wrappers(root: Any) -> None:
    """Replace the wrappers in a tree by their content, and remove deleted text."""
    _choose_branches(root)
    for element in list(root.iter(*_DELETED)):
        parent = element.getparent()
        # The mark of a deleted row is in the row's properties, and the whole row goes.
        is_row_mark = parent is not None and parent.tag == f"{_W}trPr"
        _replace(parent.getparent() if is_row_mark else element, ())
    for element in list(root.iter(f"{_W}sdt")):
        held = element.find(f"{_W}sdtContent")
        if held is not None and element.find(f"{_W}sdtPr/{_W}showingPlcHdr") is not None:
            # A placeholder ("Click to enter text") is not content. Its cell stays, so that no row loses a column.
            for words in list(held.iter(f"{_W}t")):
                _replace(words, ())
        _replace(element, () if held is None else held)
    for element in list(root.iter(*_WRAPPERS)):
        _replace(element, element)
    for element in list(root.iter(f"{_W}ruby")):
        # The words, without the small signs above them.
        _replace(element, element.findall(f"{_W}rubyBase//{_W}t"))


def _choose_branches(root: Any) -> None:
    """Of alternative contents, made for different versions of Word, keep the first, which is the newest."""
    for element in list(root.iter(f"{_MC}AlternateContent")):
        branch = next(iter(element), None)
        _replace(element, () if branch is None else branch)


def _replace(element: Any, content: Iterable[Any]) -> None:
    """Put `content` in the place of `element`, unless `element` was removed before."""
    parent = element.getparent()
    if parent is not None:
        for child in list(content):
            element.addprevious(child)
        parent.remove(element)


def _text(paragraph: Any) -> str:
    """A paragraph's words, without its text boxes."""
    return " ".join(paragraph.text.split())


def _texts(container: Any) -> Iterator[str]:
    """The texts of the paragraphs in a note, a text box or a header; a row of a table gives one text."""
    for element in container.iterchildren(_PARAGRAPH, _TABLE):
        if element.tag == _PARAGRAPH:
            yield _text(element)
        else:
            for row in element.iterchildren(_ROW):
                yield "; ".join(filter(None, map(_cell_text, row.iterchildren(_CELL))))


def _cell_text(cell: Any) -> str:
    """A cell's paragraphs and the rows of its tables, each on its own line."""
    return "\n".join(filter(None, _texts(cell)))


def _box_texts(element: Any) -> Iterator[str]:
    """The texts of the text boxes in a paragraph or a table, in order, including boxes inside boxes."""
    for box in element.iter(_BOX):
        yield from _texts(box)


class _Notes:
    """The footnotes and endnotes, which are numbered in the order of the references to them."""

    def __init__(self, parts: dict[str, list[Any]]) -> None:
        self._texts: dict[tuple[str, str], str] = {}
        self._num_references = dict.fromkeys(_NOTES, 0)
        for kind, (name, _) in _NOTES.items():
            for root in parts.get(kind, ()):
                _take_off_wrappers(root)
                for note in root.iterchildren(f"{_W}{name}"):
                    self._texts[kind, note.get(f"{_W}id", "")] = " ".join(filter(None, _texts(note)))

    def referred_in(self, element: Any) -> Iterator[str]:
        """The notes to which a paragraph or a table refers, each with its number."""
        for kind, (name, title) in _NOTES.items():
            for reference in element.iter(f"{_W}{name}Reference"):
                self._num_references[kind] += 1
                text = self._texts.get((kind, reference.get(f"{_W}id", "")))
                if text:
                    yield f"{title} {self._num_references[kind]}: {text}"


def _with_edges(reading: Reading, parts: dict[str, list[Any]], limits: ReadingLimits) -> Reading:
    """Append each different header and footer to a reading, except those without letters, such as page numbers."""
    edges = Blocks(limits)
    seen = set[str]()
    for kind, address in _EDGES.items():
        for root in parts.get(kind, ()):
            _take_off_wrappers(root)
            text = "\n".join(filter(None, (*_texts(root), *_box_texts(root))))
            if text not in seen and any(map(str.isalpha, text)):
                seen.add(text)
                edges.add(text, address)
    added = edges.reading()
    if not added.text:
        return reading
    start = f"{reading.text}\n\n" if reading.text else ""
    marks = (Mark(len(start) + mark.start, mark.address) for mark in added.marks)
    return replace(reading, text=start + added.text, marks=(*reading.marks, *marks))


def _markdown_prefix(style: str) -> str:
    """The markdown prefix of a paragraph with this Word style."""
    heading = _HEADING_STYLE.match(style)
    if heading:
        return "#" * int(heading[1]) + " "
    if style == "Title":
        return "# "
    return "- " if style.startswith("List") else ""
