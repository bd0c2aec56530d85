"""`calibrate`: what it measures, its files, and races that use the measured curve."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specrace.cli.main import main
from specrace.core.cost_curve import CostCurve
from specrace.core.events import Finished, Started
from specrace.core.sampling_params import SamplingParams
from specrace.drafters import METHODS
from specrace.engine.race import race
from specrace.engine.request import RaceRequest
from specrace.engine.spec import RaceSpec
from specrace.lab.bench import calibrate as calibrating
from specrace.lab.bench.calibrate import cache_file, measure
from specrace.model.target import Target
from specrace.workbench import Workbench

ROWS = calibrating.ROWS
# On this curve, each further row takes 0.4 of the time of a forward over one row.
STEEP = CostCurve(ROWS, tuple(0.6 + 0.4 * rows for rows in ROWS))
# Two, three or five rows cost more than four, as in float32 on a CPU.
CLIFF = CostCurve((1, 2, 3, 4, 5, 8, 16, 64), (1.0, 2.1, 3.0, 1.4, 2.6, 2.7, 3.4, 7.0))


def small_target(max_context: int = 512) -> Target:
    """A tiny random model of two layers, with a context of `max_context` tokens."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=max_context,
    )
    return Target(LlamaForCausalLM(config), name="small")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's cache folder during this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "specrace"


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(0.8, seed=2)])
def test_filling_trees_to_cheaper_sizes_does_not_change_the_text(params: SamplingParams) -> None:
    target = small_target()
    lanes = ("trie", "recycling", "trigram", "suffix")
    spec = RaceSpec(lanes, max_new_tokens=24, num_draft=3, temperature=params.temperature, seed=params.seed)
    *_, without_curve = race(target, (2, 3, 4, 2, 3, 5, 2), spec)
    *_, with_curve = race(target, (2, 3, 4, 2, 3, 5, 2), spec, curve=CLIFF)
    assert isinstance(without_curve, Finished) and isinstance(with_curve, Finished)
    assert len(with_curve.lanes) == 1 + len(lanes)
    for unfilled, filled in zip(without_curve.lanes[1:], with_curve.lanes[1:], strict=True):
        assert filled.identical and (filled.steps, filled.text) == (unfilled.steps, unfilled.text)


def test_a_curve_describes_the_model_and_the_measurement() -> None:
    curve = measure(small_target(), rows=(1, 4), rounds=3)
    # The longest context leaves room for the four rows in the 512 tokens of the model.
    assert [cost.context for cost in curve.contexts] == [32, 256, 508]
    assert curve.about["model"] == "small" and curve.about["rounds"] == 3
    assert {"dtype", "device", "threads", "versions", "date"} <= set(curve.about)


def test_calibrate_from_the_command_line(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command prints only JSON on standard output, and writes a file for `score` and the cache for races."""
    monkeypatch.setattr(calibrating, "WARM_UP_ROUNDS", 0)
    out = tmp_path / "out.json"
    assert main(["calibrate", "--rounds", "1", "--json", "--out", str(out)]) == 0
    result = json.loads(capfd.readouterr().out)
    assert result["rows"] == list(ROWS) and [context["context"] for context in result["contexts"]] == [32, 256, 1024]
    assert set(result["num_draft"]) == set(METHODS)
    assert result["num_draft"]["vanilla"] == {"32": 0, "256": 0, "1024": 0}
    (file,) = folder.glob("cost-*.json")
    assert result["file"] == str(file)
    curve = CostCurve.load(out)
    assert curve == CostCurve.load(file) and curve.ratio == tuple(result["ratio"])
    line = json.dumps({"id": 1, "category": "c", "prompt_ids": [1, 2, 3], "output_ids": [1, 2, 3]})
    (tmp_path / "t.jsonl").write_text(line + "\n")
    assert main(["score", str(tmp_path / "t.jsonl"), "--lanes", "trie", "--cost-curve", str(out), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["groups"][0]["expected_speedup"] > 0


@pytest.mark.usefixtures("folder")
def test_a_workbench_uses_the_cached_curve_of_its_model(bundled: Workbench, tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("# Note\nThe trie is built from the prompt.\n")
    assert bundled.curve is None
    file = cache_file(bundled.target.describe())
    assert file is not None
    STEEP.save(file)
    workbench = Workbench.open(documents=[tmp_path / "note.md"])
    assert workbench.curve == STEEP
    assert workbench.with_documents(workbench.documents, workbench.retriever.index).curve == STEEP
    request = RaceRequest("What is the trie built from?", RaceSpec(("trie",), max_new_tokens=1))
    started = next(iter(workbench.ask(request)))
    assert isinstance(started, Started)
    # On the steep curve, only short drafts pay.
    assert started.lanes[1].num_draft <= 4


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--rounds", "0"], "--rounds"), (["--out", "/nowhere/x.json"], "/nowhere"), (["--model", "./nothing"], "model")],
)
def test_bad_arguments_print_one_sentence(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert main(["calibrate", *arguments]) == 2
    captured = capsys.readouterr()
    assert words in captured.err and captured.out == "" and len(captured.err.strip().splitlines()) == 1
