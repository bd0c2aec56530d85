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
ROOT = SCRIPT.parents[1]
PINS = [
    line
    for file in ("requirements.txt", "requirements-dev.txt")
    for line in (ROOT / file).read_text().splitlines()
    if line.startswith(("torch==", "uv=="))
]
PIP = "python -m pip install --quiet --disable-pip-version-check --no-compile"
UV = "uv pip install --quiet --python VENV/bin/python -r"
INSTALLED = [f"{PIP} {' '.join(PINS)}", f"{UV} requirements-dev.txt"]
LINTERS = {
    "ruff": "python -m ruff check .",
    "the page's scripts": "oxlint --deny-warnings specrace/ui/static tests/browser/modules",
    "their format": "oxfmt --check specrace/ui/static/*.js tests/browser/modules/*.js",
    "the container file": "hadolint Dockerfile",
    "mypy": "python -m mypy",
}
TESTS = "python -m pytest -p tests.schedule -n 3 --no-loadscope-reorder --durations=50 tests"
PROGRAMS = ("python", "pip", "uv", "oxlint", "oxfmt", "hadolint")


def run(folder: Path, fails: str, *arguments: str) -> tuple[int, list[str], list[str]]:
    """Exit code, lines that were printed, and what was asked for, in a virtual environment that is kept in `folder`."""
    (folder / "bin").mkdir(exist_ok=True)
    for name, words in (*((program, PROGRAM) for program in PROGRAMS), ("chromium", "#!/bin/sh\n")):
        (folder / "bin" / name).write_text(words)
        (folder / "bin" / name).chmod(0o755)
    (folder / "pyvenv.cfg").touch()
    notes = folder / "notes"
    notes.unlink(missing_ok=True)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    environment = os.environ | {"SPECRACE_VENV": str(folder), "NOTES": str(notes), "FAILS": fails, "PATH": path}
    done = subprocess.run(["bash", SCRIPT, *arguments], env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines(), notes.read_text().replace(str(folder), "VENV").splitlines()


def test_every_group_runs_beside_the_tests_and_is_announced(tmp_path: Path) -> None:
    code, said, asked = run(tmp_path, "")
    assert code == 0 and said == ["== tests", *(f"== {name}" for name in LINTERS), "All passed."]
    # Linters and tests run at once, in no order.
    assert asked[:2] == INSTALLED and sorted(asked[2:]) == sorted([*LINTERS.values(), TESTS])


@pytest.mark.parametrize(
    ("fails", "named"),
    [
        ("ruff", "ruff"),
        ("oxlint", "the page's scripts"),
        ("oxfmt", "their format"),
        ("hadolint", "the container file"),
        ("mypy", "mypy"),
        ("-m pytest", "tests"),
        ("ruff|-m pytest", ""),
    ],
)
def test_a_group_that_fails_is_named_and_the_others_run(tmp_path: Path, fails: str, named: str) -> None:
    code, said, asked = run(tmp_path, fails)
    assert code == 1 and len(asked) == 3 + len(LINTERS)
    assert said[-1] == f"Failed: {named}." if named else said[-1] in ("Failed: ruff, tests.", "Failed: tests, ruff.")


def test_what_cannot_be_installed_ends_it(tmp_path: Path) -> None:
    for _ in range(2):
        code, said, asked = run(tmp_path, "-m pip")
        assert code != 0 and said == [] and asked == INSTALLED[:1]


def test_where_uv_finds_no_index_pip_looks(tmp_path: Path) -> None:
    code, said, asked = run(tmp_path, "uv pip")
    assert code == 0 and said[-1] == "All passed."
    assert asked[:3] == [*INSTALLED, f"{PIP} -r requirements-dev.txt"]


def test_an_unchanged_environment_is_not_installed_again(tmp_path: Path) -> None:
    run(tmp_path, "")
    code, _, asked = run(tmp_path, "")
    assert code == 0 and sorted(asked) == sorted([*LINTERS.values(), TESTS])
    (tmp_path / "pyvenv.cfg").write_text("version = 3.12.0\n")
    assert run(tmp_path, "")[2][:2] == INSTALLED


def test_a_new_environment_shows_what_requirements_txt_lacks(tmp_path: Path) -> None:
    """The programs are made by a `python3` that stands in, so that none of them is there before."""
    made = tmp_path / "made"
    (tmp_path / "bin").mkdir()
    program = tmp_path / "program"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    links = " ".join(f'&& ln -s {program} "$3/bin/{name}"' for name in PROGRAMS)
    (tmp_path / "bin" / "python3").write_text(f'#!/bin/sh\nmkdir -p "$3/bin" && touch "$3/pyvenv.cfg" {links}\n')
    (tmp_path / "bin" / "chromium").touch()
    for name in ("python3", "chromium"):
        (tmp_path / "bin" / name).chmod(0o755)
    notes = tmp_path / "notes"
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    environment = os.environ | {"SPECRACE_VENV": str(made), "NOTES": str(notes), "FAILS": "import_all", "PATH": path}
    done = subprocess.run(["bash", SCRIPT], env=environment, capture_output=True, text=True)
    assert notes.read_text().replace(str(made), "VENV").splitlines()[:4] == [
        INSTALLED[0],
        f"{UV} requirements.txt",
        "python -m tests.import_all",
        INSTALLED[1],
    ]
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == "Failed: requirements.txt alone."


def test_arguments_are_pytest_s(tmp_path: Path) -> None:
    code, said, asked = run(tmp_path, "-m pytest", "tests/core", "-k", "two words")
    assert code == 1 and said[-1] == "Failed: tests."
    assert sorted(asked[2:]) == sorted([*LINTERS.values(), "python -m pytest tests/core -k two words"])


def test_quick_is_pytest_alone(tmp_path: Path) -> None:
    code, said, asked = run(tmp_path, "", "quick", "-x")
    assert (code, said, asked) == (0, [], [*INSTALLED, "python -m pytest -x"])
    assert run(tmp_path, "-m pytest", "quick")[0] == 1
