"""The lane "measured": counts of an engine that drafts like the twin agree with the twin, and other counts do not.

A twin is our reproduction of an engine's drafter; `vllm-ngram` is that of vLLM's, which looks n-grams up in the text.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specrace.core.events import Step
from specrace.lab.logs.formats.measured import read_measured
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.measured import MeasuredBoard, measured_sentence
from specrace.lab.scoring.score import Scoreboard, ScoredLane, score_output
from tests.lab.parts import run, transcript, write

NGRAM = {"prompt_lookup_min": 1, "prompt_lookup_max": 2}
TWIN = ScoredLane.of("vllm-ngram", NGRAM, 4)


def repeating(seed: int) -> Transcript:
    """A transcript of few tokens, so that copies are often accepted."""
    draw = random.Random(seed)
    period = [draw.randrange(6) for _ in range(8)]
    return transcript(period * 2, [*period, draw.randrange(6), *period, *draw.choices(range(6), k=5)])


def counts_of(lane: ScoredLane, text: Transcript, *, sizes: bool = True) -> dict[str, Any]:
    """What an engine that drafts as `lane` would count of a text; `sizes`: also the tokens of each step."""
    steps = list[Step]()
    score_output(lane, text, watch=steps.append)
    drafts = [step for step in steps if step.tree.num_draft]
    counts: dict[str, Any] = {
        "engine": "vLLM 0.32.0",
        "per_step_drafted": [step.tree.num_draft for step in drafts],
        "per_step_accepted": [step.accepted for step in drafts],
    }
    return counts | ({"step_sizes": [len(step.emitted) for step in steps]} if sizes else {})


def as_measured(text: Transcript, counts: dict[str, Any]) -> Transcript:
    """The transcript with these counts of an engine."""
    return replace(text, measured=read_measured(counts, len(text.output)))


def board_of(lane: ScoredLane, texts: list[Transcript]) -> Scoreboard:
    """A scoreboard of one lane to which these texts were added."""
    board = Scoreboard([lane], by_category=True)
    for text in texts:
        board.add(text)
    return board


@pytest.mark.parametrize("sizes", [True, False])
def test_an_engine_that_drafts_as_the_twin_agrees_with_it(sizes: bool) -> None:
    texts = [as_measured(text, counts_of(TWIN, text, sizes=sizes)) for text in map(repeating, range(20))]
    board = board_of(TWIN, texts)
    twin, measured = board.groups()[0], board.measured.rows()[0]
    (agreement,) = board.measured.agreements()
    assert (agreement["outputs"], agreement["equal"], agreement["differ"]) == (20, 20, 0)
    assert measured["tau"] <= twin["tau"] <= measured["tau_high"] and measured["accept_length"] > 1.0
    if sizes:
        assert measured["tau"] == twin["tau"] == measured["tau_high"]
        assert measured["acceptance_rate"] == twin["acceptance_rate"] > 0
        assert measured["drafted_per_step"] == twin["drafted_per_step"]
    assert "vllm-ngram drafts as the engine did in all 20 outputs." in list(board.measured.sentences())


def test_an_engine_with_other_settings_is_told_apart() -> None:
    # It drafts only after matches of five tokens, and so less often than the twin.
    other_settings = ScoredLane.of("vllm-ngram", {"prompt_lookup_min": 5, "prompt_lookup_max": 5}, 2)
    texts = [as_measured(text, counts_of(other_settings, text)) for text in map(repeating, range(20))]
    (agreement,) = board_of(TWIN, texts).measured.agreements()
    assert agreement["differ"] > 10 and agreement["measured_tau"] < agreement["forecast_tau"]
    assert any("drafts differently" in line for line in board_of(TWIN, texts).measured.sentences())


def test_a_last_draft_past_the_end_does_not_count_as_a_difference() -> None:
    text = repeating(1)
    counts = counts_of(TWIN, text)
    counts["per_step_drafted"] = [*counts["per_step_drafted"][:-1], counts["per_step_drafted"][-1] + 1]
    (agreement,) = board_of(TWIN, [as_measured(text, counts)]).measured.agreements()
    assert (agreement["equal"], agreement["past_end"], agreement["differ"]) == (0, 1, 0)


def test_twins_of_other_engines_are_not_compared() -> None:
    text = repeating(2)
    counts = counts_of(TWIN, text) | {"engine": "llama.cpp b0"}
    board = board_of(TWIN, [as_measured(text, counts)])
    # A row for the group "all", and one for the only category.
    assert board.measured.agreements() == [] and len(board.measured.rows()) == 2


def test_categories_have_their_own_figures_and_together_make_the_whole() -> None:
    texts = [as_measured(text, counts_of(TWIN, text)) for text in map(repeating, range(4))]
    texts = [replace(text, category="ab"[number % 2]) for number, text in enumerate(texts)]
    rows = {row["category"]: row for row in board_of(TWIN, texts).measured.rows()}
    assert rows["all"]["steps"] == rows["a"]["steps"] + rows["b"]["steps"]
    sentence = measured_sentence(texts)
    assert sentence.startswith("Measured on vLLM 0.32.0 in 4 requests: ") and f"a {rows['a']['tau']:.3f}" in sentence
    assert measured_sentence([repeating(1)]) == "" and list(MeasuredBoard().sentences()) == []


def test_score_shows_the_measured_lane(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = repeating(3)
    ids = {"prompt_ids": text.prompt, "output_ids": text.output}
    log = write(tmp_path / "t.jsonl", ids | {"measured": counts_of(TWIN, text)}, ids)
    lanes = ("--lanes", "vllm-ngram,trie", "--num-draft", "4", "--option", "vllm-ngram.prompt_lookup_min=1")
    lanes += ("--option", "vllm-ngram.prompt_lookup_max=2", "--csv", str(tmp_path / "t.csv"))
    assert run(log, *lanes, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert [row["outputs"] for row in result["measured"]] == [1]
    name = "vllm-ngram:prompt_lookup_min=1:prompt_lookup_max=2"
    assert [(row["lane"], row["equal"]) for row in result["agreement"]] == [(name, 1)]
    assert (tmp_path / "t.csv").read_text().splitlines()[-1].startswith("measured,all,1,,")
    assert run(log, *lanes) == 0
    printed = capsys.readouterr().out
    assert "│ measured" in printed and f"{name} drafts as the engine did in all 1 outputs." in " ".join(printed.split())
