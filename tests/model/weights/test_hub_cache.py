"""Models in the hub's cache: only complete ones are loaded without asking the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from specrace.core.errors import InputError
from specrace.model import pretrained
from specrace.model.loading import load_target
from specrace.model.machine import memory
from tests.models import byte_tokenizer, tiny_model

HUB, COMMIT = "someone/model", "1" * 40
INDEX = "model.safetensors.index.json"


class UnreachableHub:
    """A hub whose error shows that it was asked."""

    def model_info(self, *_: Any, **__: Any) -> None:
        raise ConnectionError("the hub was asked")


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model in the hub's cache, with its weights in several files."""
    home = tmp_path / "models--someone--model"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text(COMMIT)
    folder = home / "snapshots" / COMMIT
    tokenizer = byte_tokenizer()
    tiny_model("llama", vocab_size=len(tokenizer)).save_pretrained(folder, max_shard_size="20KB")
    tokenizer.save_pretrained(folder)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(pretrained, "HfApi", UnreachableHub)
    return folder


def test_a_complete_model_is_loaded_without_asking_the_hub(snapshot: Path) -> None:
    assert (snapshot / INDEX).is_file() and len(list(snapshot.glob("*.safetensors"))) > 1
    assert load_target(HUB, graphs=False).name == HUB


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "*.safetensors"])
def test_an_incomplete_download_is_not_loaded(snapshot: Path, missing: str) -> None:
    sorted(snapshot.glob(missing))[-1].unlink()
    with pytest.raises(InputError, match="the hub was asked"):
        load_target(HUB, graphs=False)


def test_pickled_weights_are_loaded(snapshot: Path) -> None:
    for file in (*snapshot.glob("*.safetensors"), snapshot / INDEX):
        file.unlink()
    model = tiny_model("llama", vocab_size=len(byte_tokenizer()))
    torch.save(model.state_dict(), snapshot / "pytorch_model.bin")
    assert load_target(HUB, graphs=False).name == HUB


def test_a_cached_model_that_does_not_fit_into_memory_is_refused(
    snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(file.stat().st_size for file in snapshot.glob("*.safetensors"))
    # Other files in the folder are not read.
    (snapshot / "consolidated.safetensors").write_bytes(bytes(2 * size))
    meminfo = tmp_path / "meminfo"
    monkeypatch.setattr(memory, "_MEMORY", meminfo)
    meminfo.write_text(f"MemAvailable: {size // 1024 + 1} kB\n")
    load_target(HUB, graphs=False)
    meminfo.write_text(f"MemAvailable: {size * 4 // 5 // 1024} kB\n")
    with pytest.raises(InputError, match="too little memory for someone/model: its weights take"):
        load_target(HUB, graphs=False)
