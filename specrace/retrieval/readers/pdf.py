"""Reads PDF files, page by page."""

from __future__ import annotations

import io
import time
from typing import Any

from specrace.retrieval.limits import ReadingLimits
from specrace.retrieval.readers.reading import Blocks, Reading, Refusal, load_parser
from specrace.retrieval.readers.text import MAX_TITLE_CHARS

# Reading stops after this share of a file's time limit, because part of a long PDF is better than nothing.
TIME_SHARE = 0.6


def read_pdf(content: bytes, limits: ReadingLimits) -> Reading:
    """Read the text of each page. Raises Refusal."""
    pypdf = load_parser("pypdf")
    try:
        reader = pypdf.PdfReader(io.BytesIO(content))
        is_locked = reader.is_encrypted and not reader.decrypt("")
        pages = None if is_locked else reader.pages[: limits.pages]
        has_more = not is_locked and len(reader.pages) > limits.pages
    except pypdf.errors.DependencyError:  # decrypting needs a package that is not installed
        pages, has_more = None, False
    except Exception as error:  # a parser may raise anything for a hostile file
        raise Refusal("is a broken PDF: save it again.") from error
    if pages is None:
        raise Refusal("is encrypted: save it without a password.")
    blocks = Blocks(limits)
    problems = [f"is read up to page {limits.pages:,}."] if has_more else []
    deadline = time.monotonic() + TIME_SHARE * limits.seconds
    for number, page in enumerate(pages, 1):
        try:
            text = page.extract_text()
        except (MemoryError, RecursionError):
            raise
        except Exception:  # the other pages may be intact
            problems.append(f"has a broken page {number}, which is left out.")
        else:
            blocks.add(text, f"page {number}")
        if time.monotonic() > deadline and number < len(pages):
            problems.append(f"is read up to page {number:,}: it takes too long.")
            break
    if not blocks.text and not problems:
        raise Refusal("holds no text, perhaps only scanned images: give a PDF with text.")
    return blocks.reading(_title(reader), tuple(problems))


def _title(reader: Any) -> str:
    try:
        title = reader.metadata.title if reader.metadata else ""
    except Exception:
        return ""
    return " ".join(str(title or "").split())[:MAX_TITLE_CHARS]
