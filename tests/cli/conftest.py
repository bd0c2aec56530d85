"""Runs the command line as a user does, in a process of its own, or its `main` in this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from specrace.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
# A proxy that refuses: whatever asks the network fails at once.
REFUSING = "http://127.0.0.1:9"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def run() -> Run:
    def run(*arguments: object, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "specrace", *map(str, arguments)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HTTPS_PROXY": REFUSING}
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )

    return run


@pytest.fixture
def main_here(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The same in this process, which has loaded its libraries."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("HTTPS_PROXY", REFUSING)

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [*map(str, arguments)]
        try:
            code = main(command)
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else -1
        return subprocess.CompletedProcess(command, code, *capfd.readouterr())

    return run


@pytest.fixture(scope="session")
def recorded(run: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Path]:
    """The race of the issue: its JSON and its recording."""
    path = tmp_path_factory.mktemp("race") / "race.jsonl"
    done = run("race", "What is the n-gram trie built from?", "--json", "--save", path)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout), path
