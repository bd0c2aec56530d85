"""Runs the command line as a user does, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def run() -> Run:
    def run(*arguments: object, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "specrace", *map(str, arguments)]
        # A proxy that refuses: whatever asks the network fails at once.
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HTTPS_PROXY": "http://127.0.0.1:9"}
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )

    return run


@pytest.fixture(scope="session")
def recorded(run: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Path]:
    """The race of the issue: its JSON and its recording."""
    path = tmp_path_factory.mktemp("race") / "race.jsonl"
    done = run("race", "What is the n-gram trie built from?", "--json", "--save", path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), path
