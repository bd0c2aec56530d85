"""Forecast speedups against measured ones: `python -m tests.measure.forecast_check --model smollm2-135m --limit 30`.

Measures the machine's cost curve, races twelve lane settings on questions, and forecasts their speedups from vanilla's
outputs and the curve. Prints both speedups, and how many forecasts are within 10 %. It takes minutes, so it is not one
of the tests; run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specrace.cli.answers import SETS
from specrace.cli.shared.questions import read_prompts
from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.cost_curve import CostCurve
from specrace.engine.request import RaceRequest
from specrace.engine.spec import RaceSpec
from specrace.lab.advice.forecast import Forecast, forecast_sweep
from specrace.lab.bench.benchmark import Bench, BenchPrompt, PromptResult
from specrace.lab.bench.calibrate import measure
from specrace.lab.bench.summary import summarise
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.cells import run_sweep
from specrace.lab.scoring.score import ScoredLane
from specrace.lab.scoring.sweep import Sweep
from specrace.model.weights.source import choose_model
from specrace.workbench import Workbench

# Three races of four lanes: (draft tokens, lane -> options).
RACES: tuple[tuple[int, dict[str, dict[str, Any]]], ...] = (
    (4, {"prompt-lookup": {}, "trie": {}, "suffix": {}, "bigram": {}}),
    (
        10,
        {
            "prompt-lookup": {"longest": 5, "shortest": 2},
            "trie": {"n": 5, "prefix": 2},
            "suffix": {"tree": True},
            "trigram": {},
        },
    ),
    (16, {"prompt-lookup": {}, "trie": {}, "suffix": {}, "fusion": {"corpus": False, "recycling": False}}),
)
# A forecast is close if it differs by at most this share from the race; and how many of the 12 must be close.
MAX_ERROR, MIN_CLOSE = 0.1, 10


def forecast_of(results: Sequence[PromptResult], lanes: Sequence[ScoredLane], curve: CostCurve) -> Forecast:
    """The forecast for vanilla and these lanes, in this order, from vanilla's outputs in a race.

    Leaves out outputs that end in a loop, as the race's summary does, unless all do.
    """
    counted = [result for result in results if not result.loops] or results
    # The last field is the size of the vocabulary; any that includes all tokens will do.
    transcripts = [
        Transcript(result.prompt.id, "none", result.prompt.tokens, tokens, max(*result.prompt.tokens, *tokens) + 1)
        for result in counted
        for tokens in [result.runs["vanilla"][0].tokens]
    ]
    sweep = Sweep.of((ScoredLane.of("vanilla", {}), *lanes), transcripts, curve)
    run_sweep(sweep, transcripts)
    return forecast_sweep(sweep, curve)[0]


def main(arguments: list[str]) -> int:
    """Race, forecast, compare; return 1 if fewer than 10 of the 12 forecasts are close."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=str(BUNDLED_MODEL))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--limit", type=int, default=30)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    workbench = Workbench.open(choose_model(options.model, dtype=options.dtype))
    curve = measure(workbench.target)
    prompts = []
    for line in read_prompts(SETS["documents"][0], options.limit):
        spec = RaceSpec(("trie",), max_new_tokens=options.max_new_tokens)
        prompt, _ = workbench.make_prompt(RaceRequest(line["question"], spec))
        prompts.append(BenchPrompt(line["id"], prompt.tokens))
    rows = []
    for num_draft, lanes in RACES:
        spec = RaceSpec(tuple(lanes), options.max_new_tokens, num_draft, options=lanes)
        bench = Bench(workbench.target, spec, repetitions=options.repetitions, curve=curve, keep_outputs=False)
        results = bench.run(prompts)
        # `str` in place of a tokenizer, because the summary's texts are not used.
        raced = {lane_summary["lane"]: lane_summary for lane_summary in summarise(results, str)["lanes"]}
        expected = forecast_of(
            results, [ScoredLane.of(name, lane_options, num_draft) for name, lane_options in lanes.items()], curve
        )
        # Index 0 of the forecast is vanilla.
        for index, (name, lane_options) in enumerate(lanes.items(), 1):
            row = {"lane": name, "num_draft": num_draft, "options": lane_options, "tau_raced": raced[name]["tau"]}
            row |= {"forecast": float(expected.speedup[index]), "raced": raced[name]["speedup"]}
            row |= {"tau": float(expected.tau[index]), "ratio": row["forecast"] / row["raced"]}
            rows.append(row)
            print(json.dumps(row), flush=True)
    num_close = sum(abs(row["ratio"] - 1) <= MAX_ERROR for row in rows)
    print(f"{num_close} of {len(rows)} within {MAX_ERROR:.0%}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return num_close < MIN_CLOSE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
