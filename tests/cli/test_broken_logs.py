"""Broken lines in every log format: `score` counts them or ends with one sentence, never with a traceback.

`python -m tests.cli.test_broken_logs 3000` tries 3000 random files.
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
from specrace.lab.logs.formats import FORMATS
from specrace.model.chat.tokenizer import ChatTokenizer, load_tokenizer
from tests.lab.logs.formats.written import SHAPES, chat_folder

# A list nested 400 levels deep, and values that a field may have by mistake.
DEEP = json.loads("[" * 400 + "]" * 400)
ODD_VALUES: list[Any] = [
    None, True, -1, 0, 1.5, 10**30, float("nan"), float("inf"), "", "a", "\ud800", "\x00\x1b[31m", [], {}, [[]], [None],
    [{}], {"": {}}, {"content": []}, {"role": {}}, ["a", 1], {"type": "text"}, {"a": DEEP}, DEEP, [1, 10**20],
    "[" * 9000, [{"role": "assistant", "content": None}], [{"function": {"name": 1}}],
]  # fmt: skip


@functools.cache
def shapes() -> dict[str, list[list[str]]]:
    """For every shape of log, the first six lines of each of its files."""
    lines_by_shape = {}
    for shape, make in SHAPES.items():
        with tempfile.TemporaryDirectory() as folder:
            lines_by_shape[shape] = [path.read_text().splitlines()[:6] for path in make(Path(folder))]
    return lines_by_shape


@functools.cache
def tokenizer() -> ChatTokenizer:
    with tempfile.TemporaryDirectory() as folder:
        return load_tokenizer(chat_folder(Path(folder)))


def field_paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every field in a line, at any depth."""
    if isinstance(value, dict):
        fields = list(value.items())
    else:
        fields = list(enumerate(value)) if isinstance(value, list) else []
    return [path, *(inner_path for key, inner in fields for inner_path in field_paths(inner, (*path, key)))]


def replace_field(value: Any, path: tuple[Any, ...], new_value: Any) -> Any:
    """A copy of the line in which the field at `path` has `new_value`, or is deleted if `new_value` is the ellipsis."""
    if not path:
        return {} if new_value is ... else new_value
    copied = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1 and new_value is ...:
        del copied[path[0]]
    else:
        copied[path[0]] = replace_field(copied[path[0]], path[1:], new_value)
    return copied


@st.composite
def broken(draw: st.DrawFn, line: str) -> bytes:
    """The line truncated, with a changed byte, nested wrongly, or with one or two fields missing or of another type."""
    kind = draw(st.sampled_from(["cut", "byte", "field", "field", "field", "nested"]))
    encoded = bytearray(line.encode())
    if kind == "cut":
        return bytes(encoded[: draw(st.integers(0, len(encoded)))])
    if kind == "byte" or not line.startswith("{"):
        encoded[draw(st.integers(0, max(len(encoded) - 1, 0)))] = draw(st.integers(0, 255))
        return bytes(encoded)
    row = json.loads(line)
    if kind == "nested":
        return draw(st.sampled_from([b"[" + encoded + b"]", b'{"a":' * 90_000, b'{"messages":' + encoded + b"}"]))
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(field_paths(row)))
        row = replace_field(row, path, draw(st.sampled_from([..., *ODD_VALUES])))
    return json.dumps(row).encode()


def check_random_log(data: st.DataObject) -> None:
    """Break lines of a log (one file or two), and run `score` on it."""
    shape = data.draw(st.sampled_from(sorted(SHAPES)))
    with tempfile.TemporaryDirectory() as name:
        files = []
        for number, lines in enumerate(shapes()[shape]):
            broken_lines = data.draw(st.sets(st.integers(0, len(lines) - 1), max_size=3))
            content = [
                data.draw(broken(line)) if index in broken_lines else line.encode() for index, line in enumerate(lines)
            ]
            files.append(Path(name) / f"log{number}.{'csv' if shape == 'csv' else 'jsonl'}")
            files[-1].write_bytes(b"\n".join(content) + b"\n")
        arguments = ["score", *map(str, files), "--lanes", "vanilla", "--json", "--tokenizer", "tiny"]
        if data.draw(st.booleans()) and shape != "csv":
            arguments += ["--format", data.draw(st.sampled_from(sorted(FORMATS)))]
        skip_bad = data.draw(st.booleans())
        check_score(arguments + (["--skip-bad"] if skip_bad else []))


def check_score(arguments: list[str]) -> None:
    """Run the command; assert that it prints its JSON, or ends with code 2 and one sentence."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.main(["--traceback", *arguments])
    assert code in (0, 2), err.getvalue()
    assert "Traceback" not in err.getvalue()
    if code == 0:
        assert json.loads(out.getvalue())["outputs"] > 0
    else:
        assert not out.getvalue() and err.getvalue().strip().splitlines()[-1].rstrip().endswith(".")


def check_random_logs(count: int) -> None:
    """Check `count` random logs. Raises AssertionError, or any exception that escapes `score`."""
    with_settings = settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    with_settings(given(st.data())(check_random_log))()


def test_broken_lines_are_counted_or_refused_in_one_sentence(monkeypatch: Any) -> None:
    monkeypatch.setattr("specrace.cli.shared.opening.load_tokenizer", lambda _: tokenizer())
    check_random_logs(100)


if __name__ == "__main__":
    check_random_logs(int(sys.argv[1]))
