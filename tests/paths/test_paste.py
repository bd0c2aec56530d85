"""Exported settings, run in llama.cpp and transformers on the bundled model: they take as many steps as forecast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from specrace.lab.advice.exports import ENGINES, Choice
from specrace.lab.bench.llama_cpp import GgufWeights
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.score import ScoredLane
from specrace.workbench import Workbench
from tests.measure.paste_check import LANES, MAX_ERROR, answer_function, answers, compare, write_weights


@pytest.fixture(scope="module")
def weights(bundled: Workbench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GgufWeights]:
    """The bundled model's weights for llama.cpp."""
    with pytest.MonkeyPatch.context() as patch:
        # `write_weights` changes this path; the patch restores it.
        patch.setattr(bundled.target.config, "_name_or_path", bundled.target.config._name_or_path)
        yield write_weights(bundled.target, tmp_path_factory.mktemp("gguf"))


@pytest.fixture(scope="module")
def transcripts(bundled: Workbench) -> list[Transcript]:
    """Two answers of the bundled model, each with one passage in its prompt."""
    return list(answers(bundled, limit=2, max_new_tokens=40, passages=1))


@pytest.mark.parametrize(("engine", "lane", "options", "num_draft"), LANES)
def test_an_engine_takes_as_many_steps_as_were_forecast(
    engine: str,
    lane: str,
    options: dict[str, Any],
    num_draft: int,
    transcripts: list[Transcript],
    bundled: Workbench,
    weights: GgufWeights,
) -> None:
    scored = ScoredLane.of(lane, options, num_draft)
    # The settings do not depend on the measured acceptance, the last two arguments.
    export = ENGINES[engine].export(Choice(lane, scored.options, num_draft, 1.0, ()))
    row = compare(transcripts, scored, answer_function(engine, bundled.target, weights, export.settings))
    assert row["other_text"] == 0 and row["accepted"] > 0 and row["steps"] < 0.8 * row["tokens"]
    assert row["ratio"] == pytest.approx(1.0, abs=MAX_ERROR)
