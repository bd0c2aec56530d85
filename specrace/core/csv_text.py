"""Tables as CSV that is safe to open in a spreadsheet; static/lib/csv.js does the same for the page's tables."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

# A spreadsheet treats a cell that begins with one of these as a formula, and logs and questions are not trusted.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """The rows as CSV. None is an empty cell; text that a spreadsheet would run is preceded by an apostrophe."""
    stream = io.StringIO()
    csv.writer(stream).writerows(map(_cell, row) for row in rows)
    return stream.getvalue()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
