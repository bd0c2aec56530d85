"""Short names of models: what they stand for, and which models are on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specrace import load_target
from specrace.cli.app import parse, read_config
from specrace.core.bundled import BUNDLED_MODEL
from specrace.model.weights.names import NAMES, is_complete
from specrace.model.weights.source import find_source


def test_a_short_name_is_lower_case_and_no_path() -> None:
    assert all(name == name.lower() and "/" not in name for name in NAMES)


def test_a_complete_model_has_a_config_a_tokenizer_and_all_weight_files(tmp_path: Path) -> None:
    index, shards = tmp_path / "pytorch_model.bin.index.json", [tmp_path / "a.bin", tmp_path / "b.bin"]
    index.write_text(json.dumps({"weight_map": {"one": "a.bin", "two": "b.bin", "three": "b.bin"}}))
    for file in (*shards, tmp_path / "config.json", tmp_path / "vocab.json"):
        assert not is_complete(tmp_path)
        file.write_text("{}")
    assert is_complete(tmp_path) and not is_complete(None)
    for damaged in ("{", "{}", "[]", '{"weight_map": {"one": 1}}'):
        index.write_text(damaged)
        assert not is_complete(tmp_path)


def test_an_unreadable_cache_counts_as_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache may belong to another user; the page must still start, with the bundled model."""

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Path, "is_file", refuse)
    assert find_source("smollm2-135m").is_missing and not is_complete(tmp_path)


def test_library_and_page_accept_short_names() -> None:
    assert load_target("tiny", graphs=False).name == "tiny"
    assert read_config(parse(["--model", "tiny"])).model.source.location == BUNDLED_MODEL
