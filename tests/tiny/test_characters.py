"""The character-level example: its tokenizer, a short training, and the model that ships."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoTokenizer

from specrace.core.bundled import ASSETS
from specrace.core.events import Finished, Started
from specrace.drafters.sampled_rows import SampledRows
from specrace.engine.request import RaceRequest
from specrace.engine.spec import RaceSpec, plan_lane
from specrace.model.loading import load_target
from specrace.ngrams.dense import MAX_VOCABULARY
from specrace.tiny import characters
from specrace.tiny.__main__ import main
from specrace.tiny.characters import END, Recipe, character_model, character_tokenizer, loss_on, train
from specrace.workbench import Workbench

SHIPPED = ASSETS / "characters"
QUESTION = "Why does bread rise?"


def test_every_character_is_one_token_and_is_decoded_to_itself() -> None:
    tokenizer = character_tokenizer(["The quick brown fox, 12: don't-stop?\n"])
    text = "The fox.\nIt's 5 o'clock - no? yes: 0,9"
    ids = tokenizer(text)["input_ids"]
    assert len(tokenizer) == 65 and len(ids) == len(text) and tokenizer.decode(ids) == text
    assert tokenizer(END)["input_ids"] == [tokenizer.eos_token_id] == [64]


def test_characters_outside_the_vocabulary_are_replaced_without_shifting_offsets() -> None:
    tokenizer = character_tokenizer(["ABCDEFGHIJKLMNOPQRST"])
    encoded = tokenizer("Zé “x”—[1]\t雪", return_offsets_mapping=True)
    assert tokenizer.decode(encoded["input_ids"]) == "ze 'x'- 1   "
    assert encoded["offset_mapping"][-1] == (11, 12)


def set_step_time(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each reading of the clock, one per training step, `seconds` later than the reading before."""
    monkeypatch.setattr(characters, "time", SimpleNamespace(perf_counter=count(0.0, seconds).__next__))


def test_training_lowers_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(0)
    documents = [torch.arange(400) % 7 + torch.randint(0, 2, (400,), generator=random) for _ in range(3)]
    recipe = Recipe(minutes=0.05, stages=((0.0, 4, 32),), hidden=32, layers=1, heads=2, mlp=32)
    model = character_model(65, 64, recipe)
    before = loss_on(model.eval(), documents)
    # The three seconds of the recipe are over at the 96th reading after the first, so 95 steps are run.
    set_step_time(1 / 32, monkeypatch)
    figures = train(documents, model, recipe)
    assert figures["steps"] == 95 and loss_on(model, documents) < before - 2


def test_the_command_writes_a_model_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_step_time(0.4, monkeypatch)
    for name in ("one", "two", "three"):
        (tmp_path / f"{name}.txt").write_text(f"This is document {name}. " * 40)
    out = tmp_path / "model"
    assert main(["characters", "--text", str(tmp_path), "--out", str(out), "--minutes", "0.02"]) == 0
    assert '"symbols": 65' in capsys.readouterr().out
    assert load_target(out).vocab_size == 65
    (tmp_path / "short").mkdir()
    (tmp_path / "short" / "one.txt").write_text("Too little.")
    assert main(["characters", "--text", str(tmp_path / "short"), "--out", str(out)]) == 2


def test_the_bundled_model_is_small_enough_for_dense_tables() -> None:
    assert sum(file.stat().st_size for file in SHIPPED.iterdir()) < 2_000_000
    assert len(AutoTokenizer.from_pretrained(SHIPPED)) == 65 <= MAX_VOCABULARY


def test_bigram_and_trigram_drafts_are_accepted_under_rejection_sampling(bundled: Workbench) -> None:
    workbench = bundled.with_model(SHIPPED)
    spec = RaceSpec(("bigram", "trigram"), 64, num_draft=4, temperature=0.8, verifier="rejection")
    events = list(workbench.ask(RaceRequest(QUESTION, spec, 4)))
    started, finished = events[0], events[-1]
    assert isinstance(started, Started) and isinstance(finished, Finished)
    assert 1 <= len(started.about["passages"]) < 4, "only the passages that fit into the context"
    bigram, trigram = finished.lanes[1:]
    assert trigram.acceptance_rate > bigram.acceptance_rate > 0.05
    assert trigram.tau > 1.2 and trigram.text


def test_the_trigram_drafter_uses_dense_tables_for_the_bundled_model() -> None:
    target = load_target(SHIPPED, graphs=False)
    spec = RaceSpec(("trigram",), 4, temperature=0.8, verifier="rejection")
    from specrace.drafters import DrafterInputs, find_method

    drafter = find_method("trigram").build(
        DrafterInputs((1, 2, 3), target.vocab_size, params=spec.sampling_params()),
        **plan_lane(spec, "trigram", "cpu").options,
    )
    assert isinstance(drafter.rows, SampledRows) and drafter.rows._dense is not None  # type: ignore[attr-defined]
    assert drafter.rows._dense.trigrams.shape == (65, 65, 65)  # type: ignore[attr-defined]
