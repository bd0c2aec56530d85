"""`tests/run`: if a check fails, the others still run, and the exit code and the last line report the failure.

The real script runs. Stand-ins replace its programs: each writes its command to the file NOTES, and fails
if the command matches FAILS.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "run"
PROGRAM = """#!/usr/bin/env bash
command="$(basename "$0") $*"
echo "$command" >> "$NOTES"
[[ -z "$FAILS" || ! "$command" =~ $FAILS ]]
"""
ROOT = SCRIPT.parents[1]
TORCH, UV_PIN = (
    next(line for line in (ROOT / file).read_text().splitlines() if line.startswith(name))
    for file, name in (("requirements.txt", "torch=="), ("requirements-dev.txt", "uv=="))
)
PIP = "python -m pip install --quiet --disable-pip-version-check --no-compile"
UV = "uv pip install --quiet --python VENV/bin/python"
INSTALLED = [f"{PIP} {UV_PIN}", f"{PIP} {TORCH}", f"{UV} -r requirements-dev.txt"]
LINTERS = {
    "ruff": "python -m ruff check .",
    "the page's scripts": "oxlint --deny-warnings specrace/ui/static tests/browser/modules",
    "the scripts' format": "oxfmt --check specrace/ui/static/**/*.js tests/browser/modules/*.js",
    "the scripts' types": "deno check --quiet --no-remote --no-npm --config .deno.json specrace/ui/static",
    "the container file": "hadolint Dockerfile",
    "mypy": "python -m mypy",
}
TESTS = "python -m pytest --workers 6 --durations=50 tests"
PROGRAMS = ("python", "pip", "uv", "oxlint", "oxfmt", "deno", "hadolint")


def run_script(folder: Path, fails: str, *arguments: str, wheels: str = "") -> tuple[int, list[str], list[str]]:
    """Run the script with a virtual environment in `folder`; return its exit code, its output and its commands.

    `wheels`: the folder of wheels that pip's settings name.
    """
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    for name, script in (*((program, PROGRAM) for program in PROGRAMS), ("chromium", "#!/bin/sh\n")):
        (folder / "bin" / name).write_text(script)
        (folder / "bin" / name).chmod(0o755)
    (folder / "pyvenv.cfg").touch()
    notes = folder / "notes"
    notes.unlink(missing_ok=True)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    environment = os.environ | {"SPECRACE_VENV": str(folder), "NOTES": str(notes), "FAILS": fails, "PATH": path}
    environment |= {"PIP_FIND_LINKS": wheels}
    done = subprocess.run(["bash", SCRIPT, *arguments], env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines(), notes.read_text().replace(str(folder), "VENV").splitlines()


def test_every_group_runs_in_parallel_with_the_tests_and_is_announced(tmp_path: Path) -> None:
    code, printed, commands = run_script(tmp_path, "")
    assert code == 0 and printed == ["== tests", *(f"== {name}" for name in LINTERS), "All passed."]
    # Linters and tests run at the same time, so their order varies.
    assert commands[:3] == INSTALLED and sorted(commands[3:]) == sorted([*LINTERS.values(), TESTS])


@pytest.mark.parametrize(
    ("fails", "failed_group"),
    [
        ("ruff", "ruff"),
        ("oxlint", "the page's scripts"),
        ("oxfmt", "the scripts' format"),
        ("deno", "the scripts' types"),
        ("hadolint", "the container file"),
        ("mypy", "mypy"),
        ("-m pytest", "tests"),
        ("ruff|-m pytest", ""),
    ],
)
def test_a_group_that_fails_is_named_and_the_others_run(tmp_path: Path, fails: str, failed_group: str) -> None:
    code, printed, commands = run_script(tmp_path, fails)
    # Three installations, the tests and the linters.
    assert code == 1 and len(commands) == 4 + len(LINTERS)
    one_order, other_order = "Failed: ruff, tests.", "Failed: tests, ruff."
    assert printed[-1] in ([f"Failed: {failed_group}."] if failed_group else [one_order, other_order])


def test_a_failed_installation_ends_the_run(tmp_path: Path) -> None:
    for _ in range(2):
        code, printed, commands = run_script(tmp_path, "-m pip")
        assert code != 0 and printed == [] and commands == INSTALLED[:1]


def test_pip_installs_what_uv_cannot(tmp_path: Path) -> None:
    code, printed, commands = run_script(tmp_path, "uv pip")
    assert code == 0 and printed[-1] == "All passed."
    assert commands[:4] == [*INSTALLED, f"{PIP} -r requirements-dev.txt"]


@pytest.mark.parametrize("fails", ["", "uv pip install .* --no-deps"])
def test_uv_installs_a_wheel_of_torch_and_pip_does_if_it_cannot(tmp_path: Path, fails: str) -> None:
    wheel = tmp_path / "wheels" / f"{TORCH.replace('==', '-')}+cpu-cp311-cp311-linux_x86_64.whl"
    wheel.parent.mkdir()
    wheel.touch()
    code, _, commands = run_script(tmp_path / "venv", fails, wheels=str(wheel.parent))
    by_uv = f"{UV} --no-deps {wheel}"
    assert code == 0
    assert commands[:4] == [INSTALLED[0], by_uv, *(INSTALLED[1:] if fails else [INSTALLED[2], commands[3]])]


def test_an_unchanged_environment_is_not_installed_again(tmp_path: Path) -> None:
    run_script(tmp_path, "")
    code, _, commands = run_script(tmp_path, "")
    assert code == 0 and sorted(commands) == sorted([*LINTERS.values(), TESTS])
    # The environment was made anew, with another Python.
    (tmp_path / "pyvenv.cfg").write_text("version = 3.12.0\n")
    assert run_script(tmp_path, "")[2][:3] == INSTALLED


def test_a_new_environment_shows_what_requirements_txt_lacks(tmp_path: Path) -> None:
    """A stand-in for `python3` creates the programs, so none of them exists before it runs."""
    created = tmp_path / "created"
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
    environment = os.environ | {"SPECRACE_VENV": str(created), "NOTES": str(notes), "FAILS": "import_all", "PATH": path}
    environment |= {"PIP_FIND_LINKS": ""}
    done = subprocess.run(["bash", SCRIPT], env=environment, capture_output=True, text=True)
    commands = notes.read_text().replace(str(created), "VENV").splitlines()
    assert commands[:3] == [*INSTALLED[:2], f"{UV} -r requirements.txt"]
    # This command runs beside the others, so its place varies.
    commands.remove("python -m tests.prepare")
    assert commands[3:5] == ["python -m tests.import_all", INSTALLED[2]]
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == "Failed: requirements.txt alone."


def test_arguments_are_passed_to_pytest(tmp_path: Path) -> None:
    code, printed, commands = run_script(tmp_path, "-m pytest", "tests/core", "-k", "two words")
    assert code == 1 and printed[-1] == "Failed: tests."
    assert sorted(commands[3:]) == sorted([*LINTERS.values(), "python -m pytest tests/core -k two words"])


def test_quick_runs_pytest_and_no_linter(tmp_path: Path) -> None:
    code, printed, commands = run_script(tmp_path, "", "quick", "-x")
    assert (code, printed, commands) == (0, [], [*INSTALLED, "python -m pytest -x"])
    assert run_script(tmp_path, "-m pytest", "quick")[0] == 1
