"""Output to any stream: characters that it cannot encode are escaped, and a closed pipe ends a command quietly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
# No encoding but Unicode's has all of these letters.
WORDS = "résumé 日本 Ω"
LINES = [
    {"category": WORDS, "prompt_ids": [1, 2, 3, 4, 5], "output_ids": [2, 3, 4, 5, 6]},
    {"category": "b", "prompt_ids": [5, 2, 3, 4, 1], "output_ids": [2, 3, 4, 1]},
]
SHORT = ("--lanes", "trie", "--max-new-tokens", "4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log, a document and questions about it."""
    folder = tmp_path_factory.mktemp("streams")
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    (folder / "docs").mkdir()
    (folder / "docs" / "a.md").write_text(
        f"# {WORDS}\n\n{WORDS} is the harbour's name. Ferries leave at six.\n", "utf-8"
    )
    (folder / "questions.jsonl").write_text(json.dumps({"id": WORDS, "question": f"What is {WORDS}?"}) + "\n")
    return folder


# The commands that take a second or two, and those that load a model or score thousands of tokens.
LIGHT = [
    ("score", "log.jsonl", "--by", "category", "--lanes", "trie"),
    ("score", "log.jsonl", "--by", "category", "--lanes", "trie", "--json"),
    ("sweep", "log.jsonl", "--grid", "trie.n=3,5"),
    ("recommend", "log.jsonl"),
    ("lanes",),
    ("models",),
    ("replay", ROOT / "assets" / "recordings" / "tides.jsonl"),
    ("--help",),
]
HEAVY = [
    ("race", f"What is {WORDS}?", "--docs", "docs", *SHORT),
    ("bench", "--prompts", "questions.jsonl", "--docs", "docs", "--repetitions", "1", *SHORT),
    ("answers", "--questions", "questions.jsonl", "--docs", "docs", "--max-new-tokens", "4"),
    ("index", "docs", "--out", WORDS),
]
# `bench` and `answers` print through what `race` and `score` print through.
PRINTING_LIKE_OTHERS = ("bench", "answers")


def slow(commands: list[tuple[object, ...]]) -> list[Any]:
    """The commands as parameters that the quick run leaves out."""
    return [pytest.param(command, marks=pytest.mark.slow) for command in commands]


COMMANDS = [*LIGHT, *slow(HEAVY)]
ENCODED = [*LIGHT, *slow([command for command in HEAVY if command[0] not in PRINTING_LIKE_OTHERS])]


def run(
    folder: Path, command: tuple[object, ...], stdout: int, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a new process, which reads its environment at its start."""
    arguments = [str(argument) for argument in command]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", **environment}
    return subprocess.run(
        [sys.executable, "-m", "specrace", *arguments], cwd=folder, env=env, stdout=stdout, stderr=subprocess.PIPE
    )


@pytest.mark.parametrize("command", ENCODED, ids=lambda command: command[0])
def test_a_stream_of_another_encoding_gets_escapes(folder: Path, tmp_path: Path, command: tuple[object, ...]) -> None:
    command = tuple(tmp_path / "index" if word == WORDS else word for word in command)
    done = run(folder, command, subprocess.PIPE, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and b"failed" not in done.stderr
    if "--json" in command:
        assert {group["category"] for group in json.loads(done.stdout)["groups"]} >= {WORDS, "b"}
    elif command[0] == "score":
        assert rb"r\xe9sum\xe9 \u65e5\u672c \u03a9" in done.stdout


@pytest.mark.parametrize(
    ("environment", "shown"),
    [
        ({"PYTHONIOENCODING": "cp1252"}, rb"r" + b"\xe9sum\xe9 " + rb"\u65e5\u672c \u03a9"),
        ({"PYTHONIOENCODING": "latin-1"}, rb"r" + b"\xe9sum\xe9 " + rb"\u65e5\u672c \u03a9"),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, rb"r\xe9sum\xe9 \u65e5\u672c \u03a9"),
        ({"PYTHONIOENCODING": "utf-8"}, WORDS.encode()),
    ],
    ids=["cp1252", "latin-1", "C", "utf-8"],
)
def test_what_a_stream_can_encode_is_not_escaped(folder: Path, environment: Mapping[str, str], shown: bytes) -> None:
    done = run(folder, LIGHT[0], subprocess.PIPE, **environment)
    assert (done.returncode, done.stderr) == (0, b"") and shown in done.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_closed_pipe_ends_a_command_quietly(folder: Path, tmp_path: Path, command: tuple[object, ...]) -> None:
    command = tuple(tmp_path / "index" if word == WORDS else word for word in command)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run(folder, command, writing)
    finally:
        os.close(writing)
    assert done.returncode == 0, done.stderr
    assert not [word for word in (b"failed", b"Exception", b"Traceback", b"Broken") if word in done.stderr]


def test_bad_input_still_ends_with_two_when_nobody_reads_the_output(folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run(folder, ("score", "none.jsonl"), writing)
    finally:
        os.close(writing)
    assert done.returncode == 2 and done.stderr.startswith(b"none.jsonl")
