"""Fields of a log's line by their dotted names, such as request.body.messages.0.content."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specrace.lab.logs.formats.base import Row, json_or_text, parse_nested

# How many objects, lists and JSON texts are opened within one another; a guess.
MAX_DEPTH = 8


def leaves(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """(dotted name, text) of every text in a value; list indices are left out of the names."""
    if isinstance(value, str):
        # `bool` accepts every object and list that is not empty.
        inner = parse_nested(value, bool) if value[:1] in ("{", "[", '"') else value
        # Some exports write every text as a JSON string, in quotes.
        inner = json_or_text(value) if inner is value and value[:1] == '"' else inner
        if inner == value or depth >= MAX_DEPTH:
            yield name, value
        else:
            yield from leaves(inner, name, depth + 1)
    elif isinstance(value, dict) and depth < MAX_DEPTH:
        for key, inner in value.items():
            yield from leaves(inner, f"{name}.{key}" if name else str(key), depth + 1)
    elif isinstance(value, list) and depth < MAX_DEPTH:
        for inner in value:
            yield from leaves(inner, name, depth + 1)


def value_at(row: Row, path: str) -> Any:
    """The value of a field by its dotted name, in which numbers are list indices; JSON text on the way is parsed.

    Raises KeyError if there is no such field.
    """
    if path in row:
        return row[path]
    value: Any = row
    for part in path.split("."):
        # As above, `bool` accepts everything that is not empty.
        value = parse_nested(value, bool)
        if isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            raise KeyError(path)
    return value
