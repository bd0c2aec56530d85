"""`tests/run`: whatever fails, the rest runs, and the exit code and the last line tell. The real script, with programs
that only note what they are asked for, and fail where they are told to.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "run"
PROGRAM = """#!/usr/bin/env bash
asked="$(basename "$0") $*"
echo "$asked" >> "$NOTES"
[[ -z "$FAILS" || ! "$asked" =~ $FAILS ]]
"""
WHOLE = [
    "python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements-dev.txt",
    "python -m ruff check .",
    "python -m mypy",
    "oxlint --deny-warnings specrace/ui/static tests/browser/modules",
    "oxfmt --check specrace/ui/static/*.js tests/browser/modules/*.js",
    "hadolint Dockerfile",
    "python -m pytest -n 2 --dist worksteal -m not browser",
    "python -m pytest -n 3 --dist loadfile -m browser tests/browser",
]
GROUPS = (
    "ruff",
    "mypy",
    "the page's scripts",
    "their format",
    "the container file",
    "tests without a browser",
    "tests in a browser",
)
PROGRAMS = ("python", "pip", "oxlint", "oxfmt", "hadolint")


def run(folder: Path, fails: str, *arguments: str) -> tuple[int, list[str], list[str]]:
    """Exit code, lines that were printed, and what was asked for."""
    (folder / "bin").mkdir()
    for name, words in (*((each, PROGRAM) for each in PROGRAMS), ("chromium", "#!/bin/sh\n")):
        (folder / "bin" / name).write_text(words)
        (folder / "bin" / name).chmod(0o755)
    notes = folder / "notes"
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    environment = os.environ | {"SPECRACE_VENV": str(folder), "NOTES": str(notes), "FAILS": fails, "PATH": path}
    done = subprocess.run(["bash", SCRIPT, *arguments], env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines(), notes.read_text().splitlines()


def test_every_group_runs_and_is_announced(tmp_path: Path) -> None:
    code, said, asked = run(tmp_path, "")
    assert (code, asked) == (0, WHOLE)
    assert said == [f"== {name}" for name in GROUPS] + ["All passed."]


@pytest.mark.parametrize(
    ("fails", "named"),
    [
        ("ruff", "ruff"),
        ("mypy", "mypy"),
        ("oxlint", "the page's scripts"),
        ("oxfmt", "their format"),
        ("hadolint", "the container file"),
        ("not browser", "tests without a browser"),
        ("loadfile", "tests in a browser"),
        ("ruff|pytest", "ruff, tests without a browser, tests in a browser"),
    ],
)
def test_a_group_that_fails_is_named_and_the_others_run(tmp_path: Path, fails: str, named: str) -> None:
    code, said, asked = run(tmp_path, fails)
    assert (code, asked, said[-1]) == (1, WHOLE, f"Failed: {named}.")


def test_what_cannot_be_installed_ends_it(tmp_path: Path) -> None:
    code, said, asked = run(tmp_path, "pip")
    assert code != 0 and said == [] and asked == WHOLE[:1]


def test_arguments_are_pytest_s(tmp_path: Path) -> None:
    code, said, asked = run(tmp_path, "pytest", "tests/core", "-k", "two words")
    assert (code, asked[1:]) == (1, [*WHOLE[1:6], "python -m pytest tests/core -k two words"])
    assert said[-1] == "Failed: tests."
