"""Tensor parallelism: races on a split model, the orders that followers carry out, and how the processes end.

Each process holds a part of every layer. The first one, the leader, runs the race and sends orders; the others follow.
"""

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
from tests.parts import VOCAB, random_tree

ROOT = Path(__file__).resolve().parents[2]
# The number of tokens of the bundled model, whose tokenizer the saved models get.
VOCABULARY = 4160


@dataclass
class LeaderAndFollower:
    """A leader whose messages are queued, and a follower, both with the whole model."""

    leader: LeadingTarget
    follower: Follower
    sent: list[bytes]

    def obey(self, num_left: int = 0) -> None:
        """Let the follower carry out queued orders until `num_left` messages are left."""
        while len(self.sent) > num_left:
            assert self.follower.obey(*tensor_parallel._receive())


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> LeaderAndFollower:
    """Leader and follower run in this process, so their caches can be compared."""
    sent: list[bytes] = []

    def broadcast(size: int, content: bytes = b"") -> bytes:
        if content:
            sent.append(content.ljust(size))
            return content
        assert len(sent[0]) == size
        return sent.pop(0)

    monkeypatch.setattr(tensor_parallel, "_broadcast", broadcast)
    follower = Follower(2)
    follower.target = tiny_target("llama")
    return LeaderAndFollower(LeadingTarget(tiny_model("llama"), None, "llama", Followers(2)), follower, sent)


def test_a_followers_cache_equals_its_leaders(pair: LeaderAndFollower) -> None:
    """The caches are equal after each of 30 steps with random trees, rewinds and clones."""
    rng = random.Random(4)
    with torch.inference_mode():
        # The prompt is longer than an order's first message.
        store: Any = pair.leader.prefill([rng.randrange(VOCAB) for _ in range(300)]).store.clone(500)
        for step in range(30):
            tree = random_tree(rng, rng.randrange(VOCAB), (0, 3, 7, 40)[step % 4])
            pair.leader.logits(store, tree)
            store.keep(tree.path_to(rng.randrange(len(tree))))
            if step % 5 == 4:
                store.rewind(store.length - 2)
                store = store.clone(500)
            pair.leader.plain_logits([1, 2, 3])
            pair.obey()
            mirrored = pair.follower.stores[store.number]
            assert mirrored.data is not None and store.data is not None
            assert torch.equal(mirrored.data[..., : store.length, :], store.data[..., : store.length, :])


def test_a_follower_drops_the_stores_that_its_leader_has_freed(pair: LeaderAndFollower) -> None:
    stores = [pair.leader.prefill([1, 2, 3]).store for _ in range(3)]
    kept_store = stores[1]
    pair.obey()
    follower_stores = list(pair.follower.stores.values())
    assert len(follower_stores) == 3
    del stores
    gc.collect()
    pair.leader.logits(kept_store.clone(8), TokenTree((1,), (-1,)))
    pair.obey()
    # The kept store and its clone are left, with the prompt but its last token; the other two have freed their blocks.
    assert [store.length for store in pair.follower.stores.values()] == [2, 2]
    assert [len(store.blocks) for store in follower_stores] == [0, 1, 0]


def test_a_forward_that_does_not_fit_into_the_store_sends_no_order(pair: LeaderAndFollower) -> None:
    store = pair.leader.prefill([1, 2, 3]).store
    pair.obey()
    with pytest.raises(ValueError, match="holds 2 tokens"):
        pair.leader.logits(store, TokenTree((1,), (-1,)))
    assert not pair.sent


def test_followers_are_told_to_end_unless_the_leader_failed_within_a_forward(pair: LeaderAndFollower) -> None:
    """A follower within a forward cannot receive an order, so sending one could block forever."""
    with pair.leader.followers:
        pair.leader.prefill([1, 2, 3])
    pair.obey(num_left=1)
    assert not pair.follower.obey(*tensor_parallel._receive())
    pair.leader.model.register_forward_pre_hook(split_race.fail)
    with pytest.raises(KeyError), pair.leader.followers:
        pair.leader.prefill([1, 2, 3])
    pair.obey()


@pytest.mark.parametrize(
    ("error", "printed"),
    [(ValueError("no memory\nat 0x7f"), "Process 1 of 2 failed: no memory\n"), (RuntimeError("Connection closed"), "")],
)
def test_a_follower_reports_its_own_failure_but_not_the_loss_of_its_leader(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, printed: str
) -> None:
    def receive() -> None:
        raise error

    monkeypatch.setattr(tensor_parallel, "_receive", receive)
    monkeypatch.setattr(tensor_parallel.dist, "get_rank", lambda: 1)
    assert Follower(2).follow() == 1
    assert capsys.readouterr().err == printed


def test_a_leader_reports_the_loss_of_a_follower(pair: LeaderAndFollower, monkeypatch: pytest.MonkeyPatch) -> None:
    def broadcast(*_: Any) -> None:
        raise RuntimeError("[pair.cc:553] Connection closed by peer")

    monkeypatch.setattr(tensor_parallel, "_broadcast", broadcast)
    with pytest.raises(RuntimeError, match="one of the 2 processes that hold the model has ended"):
        pair.leader.prefill([1, 2, 3])


@pytest.mark.parametrize(("device", "size", "words"), [("cpu", 2, "--device cuda"), ("cuda", 3, "there are 2 GPUs")])
def test_on_a_machine_with_gpus_each_process_needs_its_own(
    monkeypatch: pytest.MonkeyPatch, device: str, size: int, words: str
) -> None:
    monkeypatch.setattr(tensor_parallel, "count_accelerators", lambda: 2)
    with pytest.raises(InputError, match=words):
        check_num_devices(device, size)
    check_num_devices("cuda", 2)


def test_int8_is_refused_for_several_processes() -> None:
    with pytest.raises(InputError, match=r"int8 weights are for one process; use --dtype float32"):
        load_target(BUNDLED_MODEL, dtype="int8", followers=Followers(2))


def save_model(folder: Path, name: str, **changes: Any) -> None:
    """Save a random model with the bundled model's tokenizer."""
    tiny_model(name, vocab_size=VOCABULARY, **changes).save_pretrained(folder)
    for file in BUNDLED_MODEL.glob("token*"):
        shutil.copy(file, folder)


def launch(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `split_race.py` in two processes on the CPU, with a free port, until both have ended."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    split = [sys.executable, "-m", "tests.fork", split_race.__file__, folder]
    variables = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "CUDA_VISIBLE_DEVICES": ""}
    return processes.run([*torchrun, *split], env=os.environ | variables)


def test_two_processes_print_the_whole_models_text_and_end_together(tmp_path: Path) -> None:
    """Every lane prints the whole model's text. When the first process then fails, the second one ends, too."""
    save_model(tmp_path / "model", "llama", max_position_embeddings=1024)
    save_model(tmp_path / "no-plan", "gpt2")
    save_model(tmp_path / "uneven", "llama", num_attention_heads=3, num_key_value_heads=3, hidden_size=24)
    save_model(tmp_path / "missing-layer", "llama")
    change_config(tmp_path / "missing-layer", num_hidden_layers=3)
    result = launch(tmp_path)
    assert result.returncode and "failed on purpose" in result.stderr, result.stderr
    assert "Process 1" not in result.stderr and result.stdout == ""
    results = json.loads((tmp_path / "results.json").read_text())
    whole_target = load_target(tmp_path / "model", graphs=False)
    for case, race in zip(split_race.RACES, results["races"], strict=True):
        assert set(race["identical"].values()) == {True}
        assert race["texts"] == split_race.race_outputs(whole_target, *case)["texts"]
    # Each process has one of the two heads of keys and values.
    store = whole_target.prefill(split_race.PROMPT).store
    assert store.data is not None and results["shape"] == [*store.data.shape[:3], 1, *store.data.shape[4:]]
    limits = whole_target.roofline.as_json(100)
    assert results["roofline"]["kv_bytes"] * 2 == limits["kv_bytes"]
    # Almost all weights are divided between the two processes.
    assert 1.9 < limits["weight_bytes"] / results["roofline"]["weight_bytes"] < 2.0
    assert "no plan to split no-plan" in results["refused"][0]
    assert "3 heads, which 2 processes cannot share" in results["refused"][1]
    assert "9 missing (model.layers.2." in results["refused"][2]
    about = results["about"]
    assert about["device"] == "split over 2 x cpu" and about["engine"] == "eager (tensor parallel)"
    assert about["parameters"] == whole_target.describe()["parameters"]


@pytest.mark.parametrize("arguments", [["race", "Why?"], ["bench"], ["calibrate"]])
def test_a_command_under_torchrun_loads_a_split_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """A fake loader reports into how many parts it would split the model."""

    def load(*_: Any, followers: Followers, **__: Any) -> None:
        raise InputError(f"split in {followers.size}")

    monkeypatch.setattr(loading, "load_choice", load)
    monkeypatch.setattr(workbench, "load_choice", load)
    monkeypatch.setattr(tensor_parallel, "run", lambda command: command(Followers(3)))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert cli.main(arguments) == 2
    assert "split in 3" in capsys.readouterr().err


def test_peers_and_scripted_are_refused_under_torchrun(capsys: pytest.CaptureFixture[str]) -> None:
    for argument in (["--peers", "transformers"], ["--scripted", "a.jsonl", "--shape", "tiny"]):
        assert cli.run_command(["bench", *argument], Followers(2)) == 2
        assert "--peers and --scripted" in capsys.readouterr().err
