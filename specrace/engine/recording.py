"""Recordings: a race as JSON Lines, one event per line, in race time; types are checked strictly."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from specrace.core.errors import InputError
from specrace.core.events import Event, Finished, Repeated, Started, Step
from specrace.core.files import as_input_error, check_destination, write_atomically

FORMAT = 1
# The largest integer that every JSON reader keeps exactly; no race reaches it.
MAX_NUMBER = 2**53
# The maximum length of a text, in characters; the longest answer, of 4096 long tokens, fits.
MAX_TEXT = 500_000
# The maximum number of lists and objects nested in each other.
MAX_DEPTH = 32
_KINDS: dict[str, type[Event]] = {"started": Started, "step": Step, "finished": Finished, "repeated": Repeated}
T = TypeVar("T")


def save(events: Iterable[Event], path: Path) -> None:
    """Write `events` to `path` atomically; of several Repeated, only the last is written. Raises InputError."""
    events = list(events)
    # A race ends with its Repeated events, so the last event is the last of them.
    to_write = [event for event in events if event is events[-1] or not isinstance(event, Repeated)]
    lines = [json.dumps(to_json(event), ensure_ascii=False) + "\n" for event in to_write]
    check_destination(path)
    with as_input_error(path):
        # A file name or argument that is not UTF-8 contains lone surrogates; they are written as question marks.
        write_atomically(path, "".join(lines).encode("utf-8", "replace"))
        # `write_atomically` makes a file that only its owner can read.
        path.chmod(0o644)


def parse(text: str, name: str) -> list[Event]:
    """The events in the text of a recording: Started, Steps, and Finished unless it is cut off; Repeated may follow.

    Raises InputError with `name` and the number of the first line that is not an event.
    """
    events = list(_parse(text, name))
    if not events or not isinstance(events[0], Started) or not any(isinstance(event, Step) for event in events):
        raise InputError(f"{name} is not a whole race: it must begin with 'started' and have steps.")
    return events


def _parse(text: str, name: str) -> Iterator[Event]:
    """Yield the events of a recording; a last line that is cut off is left out."""
    lines = text.split("\n")  # not splitlines: a JSON string may hold other line separators
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = None  # stays None if the line is not JSON
        try:
            row = json.loads(line)
            yield from_json(row)
        except (ValueError, RecursionError) as error:
            if row is None and number == len(lines) > 1 and line.startswith("{"):
                return  # the file is cut off inside its last line
            raise InputError(f"{name}, line {number} is not an event of a race ({error}).") from error


def to_json(event: Event) -> dict[str, Any]:
    """The event as a JSON object for `from_json`. Fields that are None are left out."""
    kind = type(event).__name__.lower()
    header: dict[str, Any] = {"type": kind, "format": FORMAT} if kind == "started" else {"type": kind}
    fields = msgspec.to_builtins(event, enc_hook=plain)
    return header | {name: value for name, value in fields.items() if value is not None}


def plain(value: Any) -> str | int | float:
    """Convert a value of a subclass of str, int or float, such as `torch.__version__`, to the base type."""
    return next(kind(value) for kind in (str, int, float) if isinstance(value, kind))


def from_json(row: Any) -> Event:
    """The event that `to_json` wrote, in this or an older version. Raises ValueError for anything else."""
    check_bounds(row)
    kind = row.get("type") if isinstance(row, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"unknown event type {str(kind)[:40]!r}")
    if kind == "started" and row.get("format") != FORMAT:
        raise ValueError(f"recording format {str(row.get('format'))[:40]}, this version reads {FORMAT}")
    return convert(_migrate(row) if kind == "started" else row, _KINDS[kind])


def convert(value: Any, kind: type[T]) -> T:
    """The JSON value as a dataclass of the type `kind`. Raises ValueError if a field has another type."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def check_bounds(value: Any) -> None:
    """Raises ValueError for a number beyond MAX_NUMBER, a text beyond MAX_TEXT, or nesting beyond MAX_DEPTH."""
    values = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for item in values:
            kind = type(item)
            if kind is dict:
                inner += [*item, *item.values()]
            elif kind is list:
                inner += item
            elif kind is str:
                if len(item) > MAX_TEXT:
                    raise ValueError(f"a text has {len(item)} characters, more than {MAX_TEXT}")
            # No comparison with NaN is true, so NaN is refused, too.
            elif (kind is int or kind is float) and not -MAX_NUMBER <= item <= MAX_NUMBER:
                raise ValueError(f"a number is not between -{MAX_NUMBER} and {MAX_NUMBER}")
        values = inner
    if values:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")


def _migrate(row: dict[str, Any]) -> dict[str, Any]:
    """The event "started", perhaps of an older version, with the current field names."""
    lanes = row.get("lanes")
    about = row.get("about")
    if isinstance(lanes, list):
        row = row | {"lanes": [_rename(lane, "rule", "verifier") for lane in lanes]}
    if isinstance(about, dict) and "settings" in about:
        row = row | {"about": about | {"settings": _rename(about["settings"], "sampling_rule", "verifier")}}
    return row


def _rename(row: Any, old: str, new: str) -> Any:
    """The row with the field `old` renamed to `new`; anything but an object is returned unchanged."""
    if not isinstance(row, dict):
        return row
    return {new if name == old else name: value for name, value in row.items()}
