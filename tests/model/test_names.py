from __future__ import annotations

from pathlib import Path

import pytest

from specrace import load_target
from specrace.cli.app import check, parse
from specrace.core.bundled import BUNDLED_MODEL
from specrace.model.names import NAMES, resolve


def test_a_short_name_stands_for_a_folder_or_a_hub_id() -> None:
    assert resolve("tiny") == BUNDLED_MODEL and resolve("smollm2-135m") == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert resolve("someone/model") == "someone/model" and resolve(Path("x" * 5000)) == Path("x" * 5000)
    assert all(name == name.lower() and "/" not in name for name in NAMES)


def test_a_folder_goes_before_a_short_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    assert resolve("tiny") == "tiny"


def test_library_and_page_take_short_names() -> None:
    assert load_target("tiny", graphs=False).name == "tiny"
    options = parse(["--model", "tiny"])
    check(options)
    assert Path(options.model) == BUNDLED_MODEL
