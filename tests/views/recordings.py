"""Changes of a recording's texts after which it is still a valid recording.

The rows of a recording are its events as JSON: the first is 'started', the last 'finished', all others are steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rows = list[dict[str, Any]]


def set_result_texts(rows: Rows) -> Rows:
    """Set each result's text to what its steps printed; return the rows."""
    for lane in rows[-1]["lanes"]:
        steps = [row for row in rows[1:-1] if row["lane"] == lane["lane"]]
        lane["text"] = "".join(text for row in steps for text in row["texts"]).strip()
    return rows


def replace_texts(rows: Rows, new: Callable[[int, str], str]) -> Rows:
    """Replace all tokens' texts with those that `new` returns for a token and its text; return the rows."""
    for row in rows[1:-1]:
        row["texts"] = [new(token, text) for token, text in zip(row["emitted"], row["texts"], strict=True)]
        row["pieces"] = [new(token, text) for token, text in zip(row["tree"]["tokens"], row["pieces"], strict=True)]
        for note_row in row.get("note", {}).get("rows", []):
            pairs = zip(note_row["tokens"], note_row["pieces"], strict=True)
            note_row["pieces"] = [new(token, text) for token, text in pairs]
    return set_result_texts(rows)
