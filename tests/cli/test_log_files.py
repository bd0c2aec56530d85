"""Logs of several files give the same figures in all commands: a batch's two files, a folder, a zip."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.lab.logs.formats.written import batch_one_file, batch_pair, chat_folder
from tests.lab.parts import pack

LANES = ("--lanes", "prompt-lookup", "--json")


@pytest.fixture
def paths_by_storage(tmp_path: Path) -> dict[str, list[Path]]:
    """The ways in which one batch may be stored, by name, with the paths to give to a command."""
    folder, packed = tmp_path / "batch", tmp_path / "packed"
    folder.mkdir()
    packed.mkdir()
    requests, responses = batch_pair(folder)
    zst = [pack(packed / f"{path.name}.zst", path.read_bytes()) for path in (requests, responses)]
    with zipfile.ZipFile(tmp_path / "batch.zip", "w") as archive:
        for path in (requests, responses):
            archive.write(path, path.name)
    return {
        "pair": [requests, responses],
        "reversed": [responses, requests],
        "packed": zst,
        "folder": [folder],
        "zip": [tmp_path / "batch.zip"],
        "one file": batch_one_file(tmp_path),
    }


def figures(done: Any) -> tuple[int, int]:
    """(tokens, steps) of prompt lookup on all requests, from any command's JSON."""
    assert done.returncode == 0, done.stderr
    groups = json.loads(done.stdout)["groups"]
    row = next(row for row in groups if row["lane"].startswith("prompt-lookup") and row["category"] == "all")
    return row["tokens"], row["steps"]


def test_a_batch_gives_the_same_figures_however_it_is_stored(
    call_main: Run, paths_by_storage: dict[str, list[Path]], tmp_path: Path
) -> None:
    tokenizer = ("--tokenizer", str(chat_folder(tmp_path / "chat")))
    results = {
        (command, storage): figures(call_main(command, *map(str, paths), *tokenizer, *LANES, *more_arguments))
        for command, more_arguments in (("score", ()), ("sweep", ("--processes", "1")))
        for storage, paths in paths_by_storage.items()
    }
    tokens, steps = results["score", "pair"]
    assert tokens > steps > 20
    assert set(results.values()) == {(tokens, steps)}, results


@pytest.mark.parametrize("command", ["recommend", "paper"])
def test_other_commands_read_a_batch_too(
    call_main: Run, paths_by_storage: dict[str, list[Path]], tmp_path: Path, command: str
) -> None:
    tokenizer = ["--tokenizer", str(chat_folder(tmp_path / "chat")), "--processes", "1"]
    for storage in ("reversed", "folder"):
        paths = list(map(str, paths_by_storage[storage]))
        arguments = ["table1", *paths] if command == "paper" else [*paths, "--lanes", "prompt-lookup"]
        done = call_main(command, *arguments, *tokenizer, "--json")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert "20 requests" in json.dumps(result) or result.get("requests") == 20
