"""The model card's section of answers: questions about the corpus, with every lane's figures."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict

from specrace.core.errors import InputError
from specrace.core.events import Finished, LaneResult
from specrace.engine.spec import RaceSpec
from specrace.workbench import Workbench

LANES = ("vanilla", "bigram", "trigram", "jacobi", "lookahead", "prompt-lookup", "trie", "draft-model", "fusion")


def main(options: argparse.Namespace) -> None:
    """Race each question once and print Markdown: question, answer, and a table over all questions.

    As in `bench`, lanes may draft from the answers to earlier questions.
    """
    try:
        lines = options.questions.read_text(encoding="utf-8").splitlines()
        asked = [json.loads(line)["question"] for line in lines]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f'{options.questions} cannot be read ({error}); give lines of {{"question": ...}}.') from error
    bench = Workbench.open(model=options.model, keep_outputs=True)
    results: dict[str, list[LaneResult]] = defaultdict(list)
    for number, question in enumerate(asked, 1):
        *_, finished = bench.ask(question, RaceSpec(LANES, max_new_tokens=256))
        assert isinstance(finished, Finished)
        for lane in finished.lanes:
            results[lane.lane].append(lane)
        print(f"{number}. **{question}** {finished.lanes[0].text}", flush=True)
    print("\nEarlier outputs are kept: fusion also drafted from earlier answers.")
    print("\n| lane | tokens per step | speedup | identical |\n|---|---|---|---|")
    base = _rate(results["vanilla"])
    for name, lanes in results.items():
        tau = sum(lane.tokens for lane in lanes) / sum(lane.steps for lane in lanes)
        same = sum(lane.identical is True for lane in lanes)
        print(f"| {name} | {tau:.2f} | {_rate(lanes) / base:.2f} | {same} of {len(lanes)} |")


def _rate(lanes: list[LaneResult]) -> float:
    """Tokens a millisecond over all questions."""
    return sum(lane.tokens for lane in lanes) / sum(lane.decode_ms for lane in lanes)
