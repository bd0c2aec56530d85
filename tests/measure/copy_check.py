"""Recycling and fusion with and without their option `copy`:
`python -m tests.measure.copy_check --model smollm2-135m`.

With `copy`, recycling first drafts what followed an earlier match of the last tokens in prompt or output; fusion also
drafts what the model found likely after the same two tokens.
Runs both bundled sets of questions in float32. Prints for each setting the tokens per step, the draft tokens per step,
the expected speedup (tokens divided by the steps' cost on the cost curve) and the time on the lane's clock. All texts
must be vanilla's. Steps and tokens do not depend on the machine. It takes minutes, so it is not one of the tests.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from specrace.cli.answers import SETS
from specrace.cli.shared.opening import fetch_if_missing
from specrace.cli.shared.questions import read_prompts
from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.cost_curve import CostCurve
from specrace.drafters.fusion.payoff import step_costs
from specrace.engine.lane import Lane
from specrace.engine.request import RaceRequest
from specrace.engine.setup import RaceSetup
from specrace.engine.spec import RaceSpec
from specrace.lab.advice.presets import NAMES, find_curve
from specrace.model.weights.source import ModelChoice, find_source
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.sources import Sources
from specrace.workbench import Workbench

# Name of a setting -> (lane, options).
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "vanilla": ("vanilla", {}),
    "recycling.copy=false": ("recycling", {"copy": False}),
    "recycling.copy=true": ("recycling", {"copy": True}),
    "fusion": ("fusion", {"recycling": False, "copy": False}),
    "fusion.recycling=true": ("fusion", {"recycling": True, "copy": False}),
    "fusion.copy=true": ("fusion", {"recycling": False, "copy": True}),
}
# What is summed over the steps of a setting; `cost` is in forwards over a single row.
FIELDS = ("tokens", "steps", "drafted", "cost", "decode_ms")


def main(arguments: list[str]) -> int:
    """Print a line of JSON for each set of questions and setting; return 1 if a text differs from vanilla's."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=str(BUNDLED_MODEL))
    parser.add_argument("--cost-curve", default="assumed-cpu", help=NAMES)
    parser.add_argument("--limit", type=int, help="maximum questions of a set")
    parser.add_argument("--max-new-tokens", type=int, default=96)
    options = parser.parse_args(arguments)
    workbench = Workbench.open(ModelChoice(fetch_if_missing(find_source(options.model), quiet=True), dtype="float32"))
    curve, num_differing = find_curve(options.cost_curve), 0
    for name in ("documents", "open"):
        sums = {setting: dict.fromkeys(FIELDS, 0.0) for setting in SETTINGS}
        past = PastOutputs()
        for prompt in prompts(workbench, name, options):
            texts = run(workbench, prompt, past, curve, options.max_new_tokens, sums)
            num_differing += len(set(texts)) > 1
            past.add(texts[0], prompt)
        for setting, totals in sums.items():
            print(json.dumps({"questions": name, "setting": setting, **figures(totals)}), flush=True)
    return num_differing > 0


def prompts(workbench: Workbench, name: str, options: argparse.Namespace) -> Iterator[tuple[int, ...]]:
    """The prompts of a set of questions, as token ids; prompts of the open questions have no passages."""
    spec = RaceSpec(("fusion",), max_new_tokens=options.max_new_tokens)
    file, num_passages = SETS[name]
    for line in read_prompts(file, options.limit):
        prompt, _ = workbench.make_prompt(RaceRequest(line["question"], spec, num_passages))
        yield tuple(prompt.tokens)


def run(
    workbench: Workbench,
    prompt: Sequence[int],
    past: PastOutputs,
    curve: CostCurve,
    max_new_tokens: int,
    sums: dict[str, dict[str, float]],
) -> list[tuple[int, ...]]:
    """Decode one prompt with all settings, one step of each in turn; return the texts, add the figures to `sums`."""
    target, lanes = workbench.target, dict[str, Lane]()
    prefix = target.prefill(prompt)
    for setting, (lane, lane_options) in SETTINGS.items():
        spec = RaceSpec((lane,), max_new_tokens=max_new_tokens, options={lane: lane_options})
        sources = Sources(past=past.excluding(prompt))
        lanes[setting] = RaceSetup(target, tuple(prompt), prefix, spec, curve, sources).make_lane(lane)
    while any(not lane.end for lane in lanes.values()):
        for setting, lane in lanes.items():
            if not lane.end:
                step, totals = lane.step(), sums[setting]
                drafted = step.tree.num_draft
                # The last of the costs is that of a step with all the draft tokens.
                values = (len(step.emitted), 1, drafted, step_costs(curve, drafted).costs[-1], step.timing.total_ms)
                for field, value in zip(FIELDS, values, strict=True):
                    totals[field] += value
    return [tuple(lane.tokens) for lane in lanes.values()]


def figures(totals: dict[str, float]) -> dict[str, float]:
    """Totals and ratios, rounded for reading."""
    tokens, steps = totals["tokens"], totals["steps"]
    ratios = {"tau": tokens / steps, "drafted_per_step": totals["drafted"] / steps, "expected": tokens / totals["cost"]}
    ratios["ms_per_token"] = totals["decode_ms"] / tokens
    return {"tokens": int(tokens), "steps": int(steps), **{key: round(value, 3) for key, value in ratios.items()}}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
