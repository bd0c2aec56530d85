"""A race on disk: JSON Lines, one event a line, in race time, strictly typed."""

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
# The largest integer that every JSON reader keeps exactly; no race comes near.
MAX_NUMBER = 2**53
# The longest answer, 4096 tokens, of long ones.
MAX_TEXT = 500_000
MAX_DEPTH = 32
_KINDS: dict[str, type[Event]] = {"started": Started, "step": Step, "finished": Finished, "repeated": Repeated}
_T = TypeVar("_T")


def save(events: Iterable[Event], path: Path) -> None:
    """Write `events` to `path` atomically, of several Repeated the last. Raises InputError if it cannot be written."""
    found = list(events)
    kept = [event for event in found if event is found[-1] or not isinstance(event, Repeated)]
    lines = [json.dumps(to_json(event), ensure_ascii=False) + "\n" for event in kept]
    check_destination(path)
    with as_input_error(path):
        # File names and arguments that are not UTF-8 hold lone surrogates.
        write_atomically(path, "".join(lines).encode("utf-8", "replace"))
        path.chmod(0o644)


def parse(text: str, name: str) -> list[Event]:
    """The events of the recording called `name`: Started, Steps, and Finished unless the recording is cut off.

    Repeated may follow. Raises InputError with the number of the first line that is not an event.
    """
    events = list(_parse(text, name))
    if not events or not isinstance(events[0], Started) or not any(isinstance(each, Step) for each in events):
        raise InputError(f"{name} is not a whole race: it must begin with 'started' and have steps.")
    return events


def _parse(text: str, name: str) -> Iterator[Event]:
    lines = text.split("\n")  # not splitlines: a JSON string may hold other line separators
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = None
        try:
            row = json.loads(line)
            yield from_json(row)
        except (ValueError, RecursionError) as error:
            if row is None and number == len(lines) > 1 and line.startswith("{"):
                return  # the file is cut off inside its last line
            raise InputError(f"{name}, line {number} is no event of a race ({error}).") from error


def to_json(event: Event) -> dict[str, Any]:
    """The event as a JSON object for `from_json`. Fields that are None are left out."""
    kind = type(event).__name__.lower()
    head: dict[str, Any] = {"type": kind, "format": FORMAT} if kind == "started" else {"type": kind}
    found = msgspec.to_builtins(event, enc_hook=_plain)
    return head | {name: value for name, value in found.items() if value is not None}


def _plain(value: Any) -> str | int | float:
    """A subclass of str, int or float, for instance `torch.__version__`, as the plain type."""
    return next(kind(value) for kind in (str, int, float) if isinstance(value, kind))


def from_json(row: Any) -> Event:
    """The event that `to_json` wrote, in this or an older version. Raises ValueError for anything else."""
    check_bounds(row)
    kind = row.get("type") if isinstance(row, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"no event is called {str(kind)[:40]!r}")
    if kind == "started" and row.get("format") != FORMAT:
        raise ValueError(f"recording format {str(row.get('format'))[:40]}, this version reads {FORMAT}")
    return convert(_migrate(row) if kind == "started" else row, _KINDS[kind])


def convert(value: Any, kind: type[_T]) -> _T:
    """JSON as a dataclass, without coercion between types. Raises ValueError."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def check_bounds(value: Any) -> None:
    """Raises ValueError for JSON with too large numbers, too long strings, or more than MAX_DEPTH nested levels."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for each in level:
            kind = type(each)
            if kind is dict:
                inner += [*each, *each.values()]
            elif kind is list:
                inner += each
            elif kind is str:
                if len(each) > MAX_TEXT:
                    raise ValueError(f"a text has {len(each)} characters, more than {MAX_TEXT}")
            # NaN compares false.
            elif (kind is int or kind is float) and not -MAX_NUMBER <= each <= MAX_NUMBER:
                raise ValueError(f"a number is not between -{MAX_NUMBER} and {MAX_NUMBER}")
        level = inner
    if level:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")


def _migrate(row: dict[str, Any]) -> dict[str, Any]:
    """The first line of an older version with the current field names."""
    lanes, about = row.get("lanes"), row.get("about")
    if isinstance(lanes, list):
        row = row | {"lanes": [_rename(lane, "rule", "verifier") for lane in lanes]}
    if isinstance(about, dict) and "settings" in about:
        row = row | {"about": about | {"settings": _rename(about["settings"], "sampling_rule", "verifier")}}
    return row


def _rename(found: Any, old: str, new: str) -> Any:
    return {new if name == old else name: value for name, value in found.items()} if isinstance(found, dict) else found
