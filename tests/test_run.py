"""`tests/run`: whatever fails, the rest runs, and the exit code and the last line tell. The real script, with a Python
that only notes what it is asked for, and fails where it is told to.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "run"
PYTHON = """#!/usr/bin/env bash
echo "$*" >> "$NOTES"
[[ -z "$FAILS" || ! "$*" =~ $FAILS ]]
"""
WHOLE = [
    "-m pip install --quiet --disable-pip-version-check -r requirements-dev.txt",
    "-m ruff check .",
    "-m mypy",
    "-m pytest -n 2 --dist worksteal -m not browser",
    "-m pytest -n 2 --dist loadfile -m browser tests/browser",
]


def run(folder: Path, fails: str, *arguments: str) -> tuple[int, list[str], list[str]]:
    """Exit code, lines that were printed, and what Python was asked for."""
    for name, words in (("python", PYTHON), ("chromium", "#!/bin/sh\n")):
        (folder / "bin").mkdir(exist_ok=True)
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
    assert said == ["== ruff", "== mypy", "== tests without a browser", "== tests in a browser", "All passed."]


@pytest.mark.parametrize(
    ("fails", "named"),
    [
        ("ruff", "ruff"),
        ("mypy", "mypy"),
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
    assert (code, asked[1:]) == (1, ["-m ruff check .", "-m mypy", "-m pytest tests/core -k two words"])
    assert said[-1] == "Failed: tests."
