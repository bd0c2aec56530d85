"""Broken lines in every format: `score` counts them or ends with one sentence, and never with a traceback.

`python -m tests.cli.test_broken_logs 3000` tries 3000 files.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specrace.cli import main
from specrace.lab.formats import FORMATS
from specrace.model.chat_tokenizer import ChatTokenizer, load_tokenizer
from tests.lab.formats.written import SHAPES, chat_folder

DEEP = json.loads("[" * 400 + "]" * 400)
ODD: list[Any] = [
    None, True, -1, 0, 1.5, 10**30, float("nan"), float("inf"), "", "a", "\ud800", "\x00\x1b[31m", [], {}, [[]], [None],
    [{}], {"": {}}, {"content": []}, {"role": {}}, ["a", 1], {"type": "text"}, {"a": DEEP}, DEEP, [1, 10**20],
    "[" * 9000, [{"role": "assistant", "content": None}], [{"function": {"name": 1}}],
]  # fmt: skip


@functools.cache
def shapes() -> dict[str, list[list[str]]]:
    """The first lines of every shape's files."""
    lines_by_shape = {}
    for shape, make in SHAPES.items():
        with tempfile.TemporaryDirectory() as folder:
            lines_by_shape[shape] = [path.read_text().splitlines()[:6] for path in make(Path(folder))]
    return lines_by_shape


@functools.cache
def tokenizer() -> ChatTokenizer:
    with tempfile.TemporaryDirectory() as folder:
        return load_tokenizer(chat_folder(Path(folder)))


def field_paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every field of a line, at any depth."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, inner_value in inner for path in field_paths(inner_value, (*at, key)))]


def changed(value: Any, at: tuple[Any, ...], to: Any) -> Any:
    """The line with the field at this path replaced; deleted where `to` is the ellipsis."""
    if not at:
        return {} if to is ... else to
    copied = dict(value) if isinstance(value, dict) else list(value)
    if len(at) == 1 and to is ...:
        del copied[at[0]]
    else:
        copied[at[0]] = changed(copied[at[0]], at[1:], to)
    return copied


@st.composite
def broken(draw: st.DrawFn, line: str) -> bytes:
    """The line cut, with a changed byte, nested wrongly, or with one or two fields missing or of another type."""
    kind = draw(st.sampled_from(["cut", "byte", "field", "field", "field", "nested"]))
    packed = bytearray(line.encode())
    if kind == "cut":
        return bytes(packed[: draw(st.integers(0, len(packed)))])
    if kind == "byte" or not line.startswith("{"):
        packed[draw(st.integers(0, max(len(packed) - 1, 0)))] = draw(st.integers(0, 255))
        return bytes(packed)
    row = json.loads(line)
    if kind == "nested":
        return draw(st.sampled_from([b"[" + packed + b"]", b'{"a":' * 90_000, b'{"messages":' + packed + b"}"]))
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(field_paths(row)))
        row = changed(row, path, draw(st.sampled_from([..., *ODD])))
    return json.dumps(row).encode()


def check(data: st.DataObject) -> None:
    """One file or pair of files with broken lines."""
    shape = data.draw(st.sampled_from(sorted(SHAPES)))
    with tempfile.TemporaryDirectory() as name:
        files = []
        for number, lines in enumerate(shapes()[shape]):
            which = data.draw(st.sets(st.integers(0, len(lines) - 1), max_size=3))
            content = [data.draw(broken(line)) if at in which else line.encode() for at, line in enumerate(lines)]
            files.append(Path(name) / f"log{number}.{'csv' if shape == 'csv' else 'jsonl'}")
            files[-1].write_bytes(b"\n".join(content) + b"\n")
        arguments = ["score", *map(str, files), "--lanes", "vanilla", "--json", "--tokenizer", "tiny"]
        if data.draw(st.booleans()) and shape != "csv":
            arguments += ["--format", data.draw(st.sampled_from(sorted(FORMATS)))]
        skip = data.draw(st.booleans())
        judge(arguments + (["--skip-bad"] if skip else []))


def judge(arguments: list[str]) -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.main(["--traceback", *arguments])
    assert code in (0, 2), err.getvalue()
    assert "Traceback" not in err.getvalue()
    if code == 0:
        assert json.loads(out.getvalue())["outputs"] > 0
    else:
        assert not out.getvalue() and err.getvalue().strip().splitlines()[-1].rstrip().endswith(".")


def hunt(examples: int) -> None:
    """Raises AssertionError, or whatever escapes, for a file that breaks `score`."""
    hypothesis_runs = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    hypothesis_runs(given(st.data())(check))()


def test_broken_lines_are_counted_or_named(monkeypatch: Any) -> None:
    monkeypatch.setattr("specrace.cli.score.load_tokenizer", lambda _: tokenizer())
    hunt(300)


if __name__ == "__main__":
    hunt(int(sys.argv[1]))
