"""Sources and choices of models: how names are looked up, and what a choice keeps when its model changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specrace.core.bundled import BUNDLED_MODEL
from specrace.model.weights.names import NAMES
from specrace.model.weights.source import ModelSource, choose_model, find_source, named_source

HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.fixture(autouse=True)
def empty_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any fetched model."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def test_a_short_name_stands_for_a_folder_or_a_hub_id() -> None:
    assert find_source("tiny") == ModelSource("tiny", BUNDLED_MODEL, NAMES["tiny"])
    assert find_source("smollm2-135m") == ModelSource("smollm2-135m", HUB, NAMES["smollm2-135m"], is_missing=True)
    assert find_source("someone/model").location == "someone/model"
    long_path = Path("x" * 5000)
    assert find_source(long_path).location == long_path and not find_source(long_path).is_missing


def test_a_folder_takes_precedence_over_a_short_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2-135m").mkdir()
    assert find_source("smollm2-135m") == ModelSource("smollm2-135m", "smollm2-135m")


def test_a_model_is_the_same_under_every_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_source("tiny").is_same(find_source(BUNDLED_MODEL))
    assert find_source("model").is_same(find_source(tmp_path / "model"))
    assert not find_source("tiny").is_same(find_source("tiny-draft"))
    before = find_source("smollm2-135m")
    (tmp_path / "smollm2-135m").mkdir()
    assert before.is_same(find_source("smollm2-135m")), "the model has been fetched since then"


def test_a_choice_of_another_model_keeps_its_settings_but_not_the_draft_model() -> None:
    choice = choose_model("own/model", draft_model="tiny-draft", device="cuda", lean=True, adapter="none")
    other = choice.with_model(find_source("other"), "bfloat16")
    assert other == choose_model("other", device="cuda", dtype="bfloat16", lean=True, adapter="none")
    assert choose_model("a", adapter="folder").with_model(find_source("b")).adapter == "auto"
    assert replace(choice, dtype="float32").with_model(choice.source).dtype == "float32"
    assert choice.draft == find_source("tiny-draft")


def test_a_source_has_a_folder_or_none_and_a_title_for_messages(tmp_path: Path) -> None:
    assert find_source(tmp_path).is_folder and find_source("./nowhere").is_folder and find_source("a/b/c").is_folder
    hub, long_path = find_source(HUB), find_source("x" * 5000)
    assert not hub.is_folder and hub.folder is None and not long_path.is_folder and len(long_path.title) < 300
    assert find_source("tiny").title == BUNDLED_MODEL.name and hub.title == HUB
    snapshot = tmp_path / "hub" / f"models--{HUB.replace('/', '--')}" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("1")
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (snapshot / name).write_text("{}")
    assert hub.folder == snapshot


def test_a_missing_model_is_looked_up_again(tmp_path: Path) -> None:
    choice = choose_model("smollm2-135m", draft_model="tiny-draft")
    assert choice.source.is_missing and choice.refresh() == choice
    folder = tmp_path / "specrace" / "models" / "smollm2-135m"
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    assert choice.refresh().source == named_source("smollm2-135m") == find_source(choice.source).refresh()
    assert choice.refresh().source.location == folder and choice.refresh().draft == choice.draft


def test_several_draft_models_keep_their_order_and_leave_with_the_model() -> None:
    choice = choose_model("tiny", draft_model=["tiny-draft", Path("other")])
    assert [source.name for source in choice.drafts] == ["tiny-draft", "other"] and choice.draft == choice.drafts[0]
    assert [source.name for source in choice.refresh().drafts] == ["tiny-draft", "other"]
    assert choice.with_model(find_source("tiny")).drafts == choice.drafts
    assert choice.with_model(find_source("smollm2-135m")).drafts == ()
    assert [choose_model("tiny", draft_model=name).drafts for name in (None, [])] == [(), ()]
