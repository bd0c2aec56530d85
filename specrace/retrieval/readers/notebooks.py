"""Reads Jupyter notebooks, cell by cell."""

from __future__ import annotations

import json
from typing import Any

from specrace.retrieval.limits import ReadingLimits
from specrace.retrieval.readers.reading import Blocks, Reading, Refusal, decode
from specrace.retrieval.readers.text import from_markdown


def read_notebook(content: bytes, limits: ReadingLimits) -> Reading:
    """Read each cell's source and its output. Raises Refusal."""
    blocks, title = Blocks(limits), ""
    try:
        for number, cell in enumerate(json.loads(decode(content))["cells"], 1):
            source = _join_lines(cell.get("source", ""))
            is_markdown = cell.get("cell_type") == "markdown"
            if is_markdown:
                title = title or from_markdown(source).title
            blocks.add(source, f"cell {number}", code=not is_markdown)
            for output in cell.get("outputs", ()):
                data = output.get("data") or {}
                blocks.add(_join_lines(output.get("text") or data.get("text/plain", "")), f"cell {number}", code=True)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise Refusal("is a broken notebook: save it again.") from error
    return blocks.reading(title)


def _join_lines(value: Any) -> str:
    """Text as one string; notebooks store a string or a list of lines."""
    return value if isinstance(value, str) else "".join(value)
