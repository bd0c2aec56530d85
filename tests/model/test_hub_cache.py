"""Models in the hub's cache: complete ones are loaded without asking the hub, and no others are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from specrace.core.errors import InputError
from specrace.model import loading, machine
from specrace.model.loading import load_target
from tests.models import byte_tokenizer, tiny_model

HUB, COMMIT = "someone/model", "1" * 40
INDEX = "model.safetensors.index.json"


class SilentHub:
    """A hub that does not answer."""

    def model_info(self, *_: Any, **__: Any) -> None:
        raise ConnectionError("the hub was asked")


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model in several files in the hub's cache."""
    home = tmp_path / "models--someone--model"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text(COMMIT)
    folder = home / "snapshots" / COMMIT
    tokenizer = byte_tokenizer()
    tiny_model("llama", vocab_size=len(tokenizer)).save_pretrained(folder, max_shard_size="20KB")
    tokenizer.save_pretrained(folder)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(loading, "HfApi", SilentHub)
    return folder


def test_a_whole_model_is_loaded_without_asking(snapshot: Path) -> None:
    assert (snapshot / INDEX).is_file() and len(list(snapshot.glob("*.safetensors"))) > 1
    assert load_target(HUB, graphs=False).name == HUB


@pytest.mark.parametrize("lacking", ["config.json", "tokenizer.json", "a part of the weights"])
def test_what_an_interrupted_download_left_is_not_taken_for_a_model(snapshot: Path, lacking: str) -> None:
    (snapshot / lacking if "." in lacking else sorted(snapshot.glob("*.safetensors"))[-1]).unlink()
    with pytest.raises(InputError, match="the hub was asked"):
        load_target(HUB, graphs=False)


def test_pickled_weights_are_a_model_too(snapshot: Path) -> None:
    for file in (*snapshot.glob("*.safetensors"), snapshot / INDEX):
        file.unlink()
    model = tiny_model("llama", vocab_size=len(byte_tokenizer()))
    torch.save(model.state_dict(), snapshot / "pytorch_model.bin")
    assert load_target(HUB, graphs=False).name == HUB


def test_weights_that_do_not_fit_are_refused_under_a_hub_id_too(
    snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(file.stat().st_size for file in snapshot.glob("*.safetensors"))
    # Other files in the folder are not read.
    (snapshot / "consolidated.safetensors").write_bytes(bytes(2 * size))
    meminfo = tmp_path / "meminfo"
    monkeypatch.setattr(machine, "_MEMORY", meminfo)
    meminfo.write_text(f"MemAvailable: {size // 1024 + 1} kB\n")
    load_target(HUB, graphs=False)
    meminfo.write_text(f"MemAvailable: {size // 1024 - 1} kB\n")
    with pytest.raises(InputError, match="too little memory for someone/model: its weights take"):
        load_target(HUB, graphs=False)
