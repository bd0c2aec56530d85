"""Reads presentations, and checks every Office file before a parser sees it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

from specrace.retrieval.limits import ReadingLimits
from specrace.retrieval.readers.reading import Blocks, Reading, Refusal, load_parser
from specrace.retrieval.readers.tables import add_rows
from specrace.retrieval.readers.text import MAX_TITLE_CHARS
from specrace.retrieval.readers.unpacking import open_zip, unpack

_DOCTYPES = tuple("<!DOCTYPE".encode(encoding) for encoding in ("utf-8", "utf-16-le", "utf-16-be"))


def with_package_check(read: Callable[[bytes, ReadingLimits], Reading]) -> Callable[[bytes, ReadingLimits], Reading]:
    """Wrap a reader of Office files, which are zips, to refuse one that unpacks to too much or declares entities."""

    def read_checked(content: bytes, limits: ReadingLimits) -> Reading:
        with open_zip(content) as package:
            for info, part in unpack(package, limits):
                is_xml = info.filename.endswith((".xml", ".rels"))
                if is_xml and any(doctype in part for doctype in _DOCTYPES):
                    raise Refusal("declares XML entities, which no Office program writes: save it again.")
        try:
            return read(content, limits)
        except (Refusal, MemoryError, RecursionError):
            raise
        except Exception as error:  # a parser may raise anything for a hostile file
            raise Refusal("is a broken Office file: save it again.") from error

    return read_checked


def read_pptx(content: bytes, limits: ReadingLimits) -> Reading:
    """Read each slide's text, tables and notes."""
    pptx, blocks = load_parser("pptx"), Blocks(limits)
    title, problems = "", list[str]()
    for number, slide in enumerate(pptx.Presentation(io.BytesIO(content)).slides, 1):
        if number > limits.pages:
            problems.append(f"is read up to slide {limits.pages:,}.")
            break
        heading = slide.shapes.title
        if heading is not None:
            title = title or " ".join(heading.text_frame.text.split())[:MAX_TITLE_CHARS]
        for shape in _shapes(slide.shapes):
            address = f"slide {number}"
            if shape.has_text_frame:
                lines = (" ".join(paragraph.text.split()) for paragraph in shape.text_frame.paragraphs)
                words = "\n".join(filter(None, lines))
                blocks.add(f"## {words}" if words and shape == heading else words, address)
            elif getattr(shape, "has_table", False):
                add_rows(blocks, ((address, [cell.text for cell in row.cells]) for row in shape.table.rows))
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            blocks.add(slide.notes_slide.notes_text_frame.text, f"slide {number}")
    return blocks.reading(title, tuple(problems))


def _shapes(shapes: Any) -> Iterator[Any]:
    """All shapes, including those in groups."""
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes)
        else:
            yield shape
