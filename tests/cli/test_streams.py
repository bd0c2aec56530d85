"""Output to any stream: characters that it cannot encode are escaped, and a closed pipe ends a command quietly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from specrace.cli.main import main
from tests import processes

ROOT = Path(__file__).resolve().parents[2]
# No encoding but Unicode's has all of these letters.
WORDS = "résumé 日本 Ω"
LINES = [
    {"category": WORDS, "prompt_ids": [1, 2, 3, 4, 5], "output_ids": [2, 3, 4, 5, 6]},
    {"category": "b", "prompt_ids": [5, 2, 3, 4, 1], "output_ids": [2, 3, 4, 1]},
]
SHORT_RACE = ("--lanes", "trie", "--max-new-tokens", "4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log and a document."""
    folder = tmp_path_factory.mktemp("streams")
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    (folder / "docs").mkdir()
    (folder / "docs" / "a.md").write_text(
        f"# {WORDS}\n\n{WORDS} is the harbour's name. Ferries leave at six.\n", "utf-8"
    )
    return folder


# The quick commands take a second or two; the slow ones load a model or score thousands of tokens.
QUICK = [
    ("score", "log.jsonl", "--by", "category", "--lanes", "trie"),
    ("score", "log.jsonl", "--by", "category", "--lanes", "trie", "--json"),
    ("sweep", "log.jsonl", "--grid", "trie.n=3,5"),
    ("recommend", "log.jsonl"),
    ("lanes",),
    ("models",),
    ("replay", ROOT / "assets" / "recordings" / "tides.jsonl"),
    ("--help",),
]
# `bench` and `answers` are left out, because they print with the functions that `race` and `score` use.
SLOW = [("race", f"What is {WORDS}?", "--docs", "docs", *SHORT_RACE), ("index", "docs", "--out", WORDS)]
COMMANDS = [*QUICK, *(pytest.param(command, marks=pytest.mark.slow) for command in SLOW)]


# Runs a command as if the process had started with PYTHONIOENCODING=ascii.
ASCII = """
import sys
sys.stdout, sys.stderr = (open(file, "w", encoding="ascii", closefd=False) for file in (1, 2))
from specrace.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def run(
    folder: Path, command: tuple[object, ...], stdout: int, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a new process, which reads its environment at its start."""
    arguments = [str(argument) for argument in command]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", **environment}
    return subprocess.run(
        [sys.executable, "-m", "specrace", *arguments], cwd=folder, env=env, stdout=stdout, stderr=subprocess.PIPE
    )


def with_output_in(command: tuple[object, ...], folder: Path) -> list[object]:
    """The arguments of a command; if it writes an index, it writes the index into `folder`."""
    return [folder / "index" if word == WORDS else word for word in command]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_stream_of_another_encoding_gets_escapes(folder: Path, tmp_path: Path, command: tuple[object, ...]) -> None:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = processes.run(["-c", ASCII, *with_output_in(command, tmp_path)], cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and "failed" not in done.stderr
    if "--json" in command:
        assert {group["category"] for group in json.loads(done.stdout)["groups"]} >= {WORDS, "b"}
    elif command[0] == "score":
        assert r"r\xe9sum\xe9 \u65e5\u672c \u03a9" in done.stdout


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"PYTHONIOENCODING": "cp1252"}, rb"r" + b"\xe9sum\xe9 " + rb"\u65e5\u672c \u03a9"),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, rb"r\xe9sum\xe9 \u65e5\u672c \u03a9"),
        ({"PYTHONIOENCODING": "utf-8"}, WORDS.encode()),
    ],
    ids=["cp1252", "C", "utf-8"],
)
def test_what_a_stream_can_encode_is_not_escaped(folder: Path, environment: Mapping[str, str], expected: bytes) -> None:
    done = run(folder, QUICK[0], subprocess.PIPE, **environment)
    assert (done.returncode, done.stderr) == (0, b"") and expected in done.stdout


def run_unread(folder: Path, command: list[object]) -> tuple[int, str]:
    """Run a command whose output is a pipe that nobody reads; return its exit code and its errors."""
    reading, writing = os.pipe()
    os.close(reading)
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with os.fdopen(os.memfd_create("stderr"), "r+") as errors:
        process = processes.start(
            ["-m", "specrace", *command], cwd=folder, env=env, output=writing, errors=errors.fileno()
        )
        os.close(writing)
        code = process.wait()
        errors.seek(0)
        return code, errors.read()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_closed_pipe_ends_a_command_quietly(folder: Path, tmp_path: Path, command: tuple[object, ...]) -> None:
    code, errors = run_unread(folder, with_output_in(command, tmp_path))
    assert code == 0, errors
    assert not [word for word in ("failed", "Exception", "Traceback", "Broken") if word in errors]


def test_a_closed_pipe_ends_a_new_interpreter_quietly(folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run(folder, QUICK[0], writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("command", [("lanes",), ("lanes", "--json")], ids=" ".join)
def test_a_full_disk_is_said_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(command) == 2
    sentence = "The output cannot be written (No space left on device); free some space, or write it elsewhere.\n"
    assert capfd.readouterr().err == sentence


def test_bad_input_still_ends_with_two_when_nobody_reads_the_output(folder: Path) -> None:
    code, errors = run_unread(folder, ["score", "none.jsonl"])
    assert code == 2 and errors.startswith("none.jsonl")
