"""Rules of CONTRIBUTING.md that a program can check: names, docstrings, lengths; a file that breaks one fails."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = [*sorted((ROOT / "specrace").rglob("*.py")), ROOT / "app.py"]
SCRIPTS = sorted((ROOT / "specrace" / "ui" / "static").rglob("*.js"))

MAX_FUNCTION_LINES = 45
MAX_FILE_LINES = 400
# Names that do not say what a variable holds.
VAGUE_NAMES = {"each", "found"}
# Names use `max_` and `min_` instead, except in "at least".
BANNED_WORDS = {"most", "least"}
# Docstrings that begin like this send the reader elsewhere.
POINTING = re.compile(r"(As|The same|The reverse|Another, here)\b")


def _names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of everything that the module binds: variables, parameters, attributes, functions, classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name


def _bad_names(tree: ast.Module) -> Iterator[str]:
    for line, name in _names(tree):
        words = name.strip("_").lower().split("_")
        if name in VAGUE_NAMES:
            yield f"{line}: {name!r} does not say what it holds"
        elif BANNED_WORDS & {words[0], words[-1]} and words[:-1] != ["at"]:
            yield f"{line}: {name!r}; write max_, min_ or num_"


def _bad_docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if POINTING.match(text):
                line = getattr(node, "lineno", 1)
                yield f"{line}: {text.splitlines()[0]!r} does not say what this does"


def _long_functions(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{node.lineno}: {node.name} has {lines} lines, more than {MAX_FUNCTION_LINES}"


def problems(source: str) -> list[str]:
    """What a Python file breaks, a line each."""
    tree, count = ast.parse(source), len(source.splitlines())
    too_long = [f"1: {count} lines, more than {MAX_FILE_LINES}"] if count > MAX_FILE_LINES else []
    return [*too_long, *_bad_names(tree), *_bad_docstrings(tree), *_long_functions(tree)]


def script_problems(source: str) -> list[str]:
    """What a script of the page breaks, a line each."""
    vague = re.compile(r"\b(?:const|let|var)\s+(?:each|found)\b|\(\s*(?:each|found)\s*[,)]|\b(?:each|found)\s*=>")
    banned = re.compile(r"\b(?:const|let|var|function)\s+(?:MOST|LEAST)_\w+")
    lines = source.splitlines()
    too_long = [f"1: {len(lines)} lines, more than {MAX_FILE_LINES}"] if len(lines) > MAX_FILE_LINES else []
    return too_long + [
        f"{number}: {line.strip()}" for number, line in enumerate(lines, 1) if vague.search(line) or banned.search(line)
    ]


def test_every_file_keeps_the_rules() -> None:
    """One test for all files: a test of its own for each took longer to run than to check."""
    assert breaches(FILES, problems) == {}
    assert breaches(SCRIPTS, script_problems) == {}


def breaches(files: Sequence[Path], check: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """What each of the files breaks, by its path; files that break nothing are left out."""
    by_file = {str(path.relative_to(ROOT)): check(path.read_text(encoding="utf-8")) for path in files}
    return {path: lines for path, lines in by_file.items() if lines}


@pytest.mark.parametrize(
    "source",
    [
        "for each in lanes:\n    pass\n",
        "found = 1\n",
        "def f(each):\n    pass\n",
        "MOST_ROWS = 3\n",
        "def f(*, most=1):\n    pass\n",
        "class A:\n    def f(self):\n        self.rows_least = 1\n",
        'def f():\n    """As g, but longer."""\n',
        'def f():\n    """The same, on the GPU."""\n',
        "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES,
        "x = 1\n" * (MAX_FILE_LINES + 1),
    ],
)
def test_a_file_that_breaks_a_rule_is_named(source: str) -> None:
    assert len(problems(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "lanes.map((each) => each.name);",
        "for (const each of lanes) draw(lane);",
        "lanes.map(each => each.name);",
        "const MOST_ROWS = 3;",
        "x;\n" * (MAX_FILE_LINES + 1),
    ],
)
def test_a_script_that_breaks_a_rule_is_named(source: str) -> None:
    assert len(script_problems(source)) == 1


def test_plain_files_keep_the_rules() -> None:
    assert problems('def f(lanes):\n    """Draw the lanes."""\n    return [lane.name for lane in lanes]\n') == []
    assert script_problems("// Each lane, as found.\nlanes.map((lane) => lane.name);") == []
