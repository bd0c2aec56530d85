"""Rows that hold anything in any field, and files that are long."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specrace.core.errors import InputError
from specrace.lab.logs.formats import FORMATS, Format
from specrace.lab.logs.formats.agents.sessions import AgentSession
from specrace.lab.logs.formats.responses import Batch
from specrace.lab.logs.formats.specrace import SpecraceFormat
from specrace.lab.logs.transcripts import TranscriptFile
from tests.lab.logs.formats.written import SHAPES
from tests.lab.parts import write

ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(["", "a", "{}", "[1]", "0"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "a"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path (keys and indices) of every field and item in a row."""
    if isinstance(value, dict):
        inner = list(value.items())
    else:
        inner = list(enumerate(value)) if isinstance(value, list) else []
    return [place for key, field in inner for place in ((*path, key), *places(field, (*path, key)))]


def replaced(row: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy of a row with another value at `place`."""
    row = copy.deepcopy(row)
    inner = row
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return row


@functools.cache
def rows_of(shape: str) -> list[Any]:
    """The first rows of a shape's first file, with at most five numbers in a list; none if it is not JSONL."""
    with tempfile.TemporaryDirectory() as folder:
        path = SHAPES[shape](Path(folder))[0]
        lines = path.read_text().splitlines()[:3] if path.suffix == ".jsonl" else []
    return [shortened(json.loads(line)) for line in lines]


def shortened(value: Any) -> Any:
    """A JSON value with at most five numbers in each of its lists of numbers."""
    if isinstance(value, dict):
        return {key: shortened(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shortened(inner) for inner in (value[:5] if value and isinstance(value[0], int) else value)]
    return value


def chat(messages: Any, answer: Any, *_: Any) -> tuple[list[int], list[int], tuple[str, ...]]:
    """Stands in for a chat template and its tokenizer: it reads every text."""
    size = sum(len(json.dumps(message)) for message in messages)
    return [1] * (size + 1), [2] * (len(json.dumps(answer)) + 1), ()


def tokenize(text: str) -> list[int]:
    """Stands in for a tokenizer: one token for each letter."""
    return [3] * len(text)


def read(path: Path, format: str) -> None:
    """Read a log to its end. It may be refused with an InputError; any other exception fails the test."""
    with contextlib.suppress(InputError):
        for _ in TranscriptFile(path, tokenize=tokenize, chat=chat, skip_bad=True, format=format):
            pass


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_row_with_anything_in_any_field_is_read_or_counted(shape: str, tmp_path: Path, data: st.DataObject) -> None:
    rows = list(rows_of(shape))
    if not rows:
        return
    number = data.draw(st.integers(0, len(rows) - 1))
    rows[number] = replaced(rows[number], data.draw(st.sampled_from(places(rows[number]))), data.draw(ANY))
    path = write(tmp_path / "hostile.jsonl", *rows)
    read(path, data.draw(st.sampled_from([shape.split()[0], ""])))


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=ANY, names=st.sets(st.sampled_from(["messages", "response", "request", "input", "output", "choices"])))
def test_a_row_of_another_kind_is_read_or_counted(format: str, tmp_path: Path, value: Any, names: set[str]) -> None:
    read(write(tmp_path / "other.jsonl", dict.fromkeys(names, value) | {"a": 1}), format)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_that_were_read_leave_no_memory_behind(shape: str) -> None:
    rows = rows_of(shape)
    reader = FORMATS.get(shape.split()[0], SpecraceFormat)()
    if not rows or isinstance(reader, AgentSession):
        return
    if isinstance(reader, Batch):
        reader.find_request = lambda _: rows[0]
    _read_rows(reader, rows, 10)
    tracemalloc.start()
    try:
        _read_rows(reader, rows, 160)
        kept_bytes, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A reader may keep a few requests. If it kept a byte for each character that it reads, it would keep 16,000 bytes.
    assert kept_bytes < 12_000 and peak_bytes < 200_000


def _read_rows(reader: Format, rows: list[Any], count: int) -> None:
    """Read `count` rows, the given ones again and again, and drop what the reader gives."""
    for number in range(count):
        with contextlib.suppress(ValueError, KeyError):
            for _ in reader.read(rows[number % len(rows)]):
                pass
