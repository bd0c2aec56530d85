"""A race on disk: one event a line of JSON, in race time. Read back without a model."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError
from specrace.core.events import Event, Finished, Started, from_json, to_json
from specrace.core.files import require_regular

MAX_BYTES = 200_000_000
# Far more than any event has, far less than what makes a walk over nested values run out of stack.
MAX_DEPTH = 32


def save(events: Iterable[Event], path: Path) -> None:
    """Write `events` to `path`, all of it or nothing. Raises InputError where that cannot be written."""
    try:
        require_regular(path)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); choose another file.") from error
    part = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as lines:
            for event in events:
                lines.write(json.dumps(to_json(event), ensure_ascii=False) + "\n")
        part.chmod(0o644)
        part.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); choose another file.") from error
    finally:
        part.unlink(missing_ok=True)


def load(path: Path) -> list[Event]:
    """The events of a recording, whole. Raises InputError that names the line which is no event."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path} is larger than {MAX_BYTES // 1_000_000} MB; that is no recorded race.")
        with path.open(encoding="utf-8") as lines:
            return parse(lines, str(path))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text; give a file that race --save wrote.") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); give a file that race --save wrote.") from error


def parse(lines: Iterable[str], name: str) -> list[Event]:
    """The events in the lines of a recording called `name`. Raises InputError that names the line which is no event."""
    events = list(_parse(lines, name))
    if not events or not isinstance(events[0], Started) or not isinstance(events[-1], Finished):
        raise InputError(f"{name} is not a whole race: it must begin with 'started' and end with 'finished'.")
    return events


def _parse(lines: Iterable[str], name: str) -> Iterator[Event]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if _is_deep(row):
                raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
            yield from_json(row)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name}, line {number} is no event of a race ({error}).") from error


def _is_deep(value: Any) -> bool:
    """Whether lists and objects lie in each other more than MAX_DEPTH levels deep."""
    level = [value]
    for _ in range(MAX_DEPTH):
        within = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [each for values in within for each in values if isinstance(each, dict | list)]
    return bool(level)
