"""A model that several processes hold: its race, what the followers do, and how all of them end."""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from specrace import workbench
from specrace.cli import main as cli
from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.errors import InputError
from specrace.core.tree import TokenTree
from specrace.model import loading, tensor_parallel
from specrace.model.loading import load_target
from specrace.model.tensor_parallel import Follower, Followers, LeadingTarget, check_num_devices
from tests import processes
from tests.model import split_race
from tests.models import change_config, tiny_model, tiny_target
from tests.parts import random_tree

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = 4160


@dataclass
class Wire:
    """A leader whose orders are queued, and a follower with the whole model, which carries them out when told."""

    leader: LeadingTarget
    follower: Follower
    sent: list[bytes]

    def obey(self, num_left: int = 0) -> None:
        """Let the follower carry out the queued orders, except the last `num_left` messages."""
        while len(self.sent) > num_left:
            assert self.follower.obey(*tensor_parallel._receive())


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """One process plays both sides, so their caches can be compared."""
    sent: list[bytes] = []

    def broadcast(size: int, words: bytes = b"") -> bytes:
        if words:
            sent.append(words.ljust(size))
            return words
        assert len(sent[0]) == size
        return sent.pop(0)

    monkeypatch.setattr(tensor_parallel, "_broadcast", broadcast)
    follower = Follower(2)
    follower.target = tiny_target("llama")
    return Wire(LeadingTarget(tiny_model("llama"), None, "llama", Followers(2)), follower, sent)


def test_a_follower_keeps_what_its_leader_keeps(wire: Wire) -> None:
    """Random trees, branches kept, rewinds and clones: after each step both caches hold the same."""
    chance = random.Random(4)
    with torch.inference_mode():
        # The prompt is longer than an order's first message.
        store: Any = wire.leader.prefill([chance.randrange(32) for _ in range(300)]).store.clone(500)
        for step in range(30):
            tree = random_tree(chance, chance.randrange(32), (0, 3, 7, 40)[step % 4])
            wire.leader.logits(store, tree)
            store.keep(tree.path_to(chance.randrange(len(tree))))
            if step % 5 == 4:
                store.rewind(store.length - 2)
                store = store.clone(500)
            wire.leader.plain_logits([1, 2, 3])
            wire.obey()
            mirrored = wire.follower.stores[store.number]
            assert mirrored.data is not None and store.data is not None
            assert torch.equal(mirrored.data[..., : store.length, :], store.data[..., : store.length, :])


def test_a_follower_drops_what_its_leader_drops(wire: Wire) -> None:
    stores = [wire.leader.prefill([1, 2, 3]).store for _ in range(3)]
    kept_store = stores[1]
    wire.obey()
    theirs = list(wire.follower.stores.values())
    assert len(theirs) == 3
    del stores
    gc.collect()
    wire.leader.logits(kept_store.clone(8), TokenTree((1,), (-1,)))
    wire.obey()
    assert [store.length for store in wire.follower.stores.values()] == [2, 2]
    assert [len(store.blocks) for store in theirs] == [0, 1, 0]


def test_a_forward_that_does_not_fit_is_not_ordered(wire: Wire) -> None:
    store = wire.leader.prefill([1, 2, 3]).store
    wire.obey()
    with pytest.raises(ValueError, match="holds 2 tokens"):
        wire.leader.logits(store, TokenTree((1,), (-1,)))
    assert not wire.sent


def test_followers_are_dismissed_unless_they_were_left_within_a_forward(wire: Wire) -> None:
    """Between two orders they hear the end; within one they would not, and an order to them could wait for ever."""
    with wire.leader.followers:
        wire.leader.prefill([1, 2, 3])
    wire.obey(num_left=1)
    assert not wire.follower.obey(*tensor_parallel._receive())
    wire.leader.model.register_forward_pre_hook(split_race.fail)
    with pytest.raises(KeyError), wire.leader.followers:
        wire.leader.prefill([1, 2, 3])
    wire.obey()


@pytest.mark.parametrize(
    ("error", "printed"),
    [(ValueError("no memory\nat 0x7f"), "Process 1 of 2 failed: no memory\n"), (RuntimeError("Connection closed"), "")],
)
def test_a_follower_ends_with_one_sentence_or_silently_after_its_leader(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, printed: str
) -> None:
    def receive() -> None:
        raise error

    monkeypatch.setattr(tensor_parallel, "_receive", receive)
    monkeypatch.setattr(tensor_parallel.dist, "get_rank", lambda: 1)
    assert Follower(2).follow() == 1
    assert capsys.readouterr().err == printed


def test_a_leader_without_its_followers_says_so(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    def broadcast(*_: Any) -> None:
        raise RuntimeError("[pair.cc:553] Connection closed by peer")

    monkeypatch.setattr(tensor_parallel, "_broadcast", broadcast)
    with pytest.raises(RuntimeError, match="one of the 2 processes that hold the model has ended"):
        wire.leader.prefill([1, 2, 3])


@pytest.mark.parametrize(("device", "size", "words"), [("cpu", 2, "--device cuda"), ("auto", 3, "there are 2 GPUs")])
def test_each_process_needs_a_gpu_where_there_are_some(
    monkeypatch: pytest.MonkeyPatch, device: str, size: int, words: str
) -> None:
    monkeypatch.setattr("specrace.model.device_map.count_accelerators", lambda: 2)
    monkeypatch.setattr(tensor_parallel, "count_accelerators", lambda: 2)
    with pytest.raises(InputError, match=words):
        check_num_devices(device, size)
    check_num_devices("cuda", 2)


def test_int8_is_for_one_process() -> None:
    with pytest.raises(InputError, match=r"int8 weights are for one process; use --dtype float32"):
        load_target(BUNDLED_MODEL, dtype="int8", followers=Followers(2))


def save_model(folder: Path, name: str, **changes: Any) -> None:
    """A random model on disk with the bundled one's tokenizer."""
    tiny_model(name, vocab_size=VOCABULARY, **changes).save_pretrained(folder)
    for file in BUNDLED_MODEL.glob("token*"):
        shutil.copy(file, folder)


def launch(folder: Path) -> subprocess.CompletedProcess[str]:
    """Two processes on the CPU, on a port that is free; both are gone before this returns."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", split_race.__file__, folder]
    surroundings = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "CUDA_VISIBLE_DEVICES": ""}
    return processes.run(torchrun, env=os.environ | surroundings)


def test_two_processes_race_as_one_does_and_end_together(tmp_path: Path) -> None:
    """Every lane prints vanilla's text, which is the whole model's; then the first process fails."""
    save_model(tmp_path / "model", "llama", max_position_embeddings=1024)
    save_model(tmp_path / "no-plan", "gpt2")
    save_model(tmp_path / "uneven", "llama", num_attention_heads=3, num_key_value_heads=3, hidden_size=24)
    save_model(tmp_path / "missing-layer", "llama")
    change_config(tmp_path / "missing-layer", num_hidden_layers=3)
    ended = launch(tmp_path)
    assert ended.returncode and "failed on purpose" in ended.stderr, ended.stderr
    assert "Process 1" not in ended.stderr and ended.stdout == ""
    results = json.loads((tmp_path / "results.json").read_text())
    whole_target = load_target(tmp_path / "model", graphs=False)
    for case, race in zip(split_race.RACES, results["races"], strict=True):
        assert set(race["identical"].values()) == {True}
        assert race["texts"] == split_race.raced(whole_target, *case)["texts"]
    store = whole_target.prefill(split_race.PROMPT).store
    assert store.data is not None and results["shape"] == [*store.data.shape[:3], 1, *store.data.shape[4:]]
    limits = whole_target.roofline.as_json(100)
    assert results["roofline"]["kv_bytes"] * 2 == limits["kv_bytes"]
    assert 1.9 < limits["weight_bytes"] / results["roofline"]["weight_bytes"] < 2.0
    assert "no plan to split no-plan" in results["refused"][0]
    assert "3 heads, which 2 processes cannot share" in results["refused"][1]
    assert "9 missing (model.layers.2." in results["refused"][2]
    assert (
        results["about"]["device"] == "split over 2 x cpu" and results["about"]["engine"] == "eager (tensor parallel)"
    )
    assert results["about"]["parameters"] == whole_target.describe()["parameters"]


@pytest.mark.parametrize("arguments", [["race", "Why?"], ["bench"], ["calibrate"]])
def test_a_command_under_torchrun_loads_a_split_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """The first process runs the command; a stand-in for the loader reports what it would load."""

    def load(*_: Any, followers: Followers, **__: Any) -> None:
        raise InputError(f"split in {followers.size}")

    monkeypatch.setattr(loading, "load_target", load)
    monkeypatch.setattr(workbench, "load_target", load)
    monkeypatch.setattr(tensor_parallel, "run", lambda command: command(Followers(3)))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert cli.main(arguments) == 2
    assert "split in 3" in capsys.readouterr().err


def test_under_torchrun_what_would_need_one_process_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for argument in (["--peers", "transformers"], ["--scripted", "a.jsonl", "--shape", "tiny"]):
        assert cli.run_command(["bench", *argument], Followers(2)) == 2
        assert "--peers and --scripted" in capsys.readouterr().err
