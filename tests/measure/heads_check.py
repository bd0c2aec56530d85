"""Does a trained head change a text, and how much of what it drafts is accepted? Usage:
python -m tests.measure.heads_check --head FOLDER [--model smollm2-135m] [--limit 30] [--temperature 0.8]
python -m tests.measure.heads_check --lanes specinfer [--limit 200] [--part 1/2] [--temperature 0.8]

Decodes questions about the bundled documents (or --questions open, documents), once without and once with each head,
greedily or sampled, and compares the tokens. Without --head, a model that has no shipped head gets random ones. Lanes
with a smaller model are checked in the same way if --lanes names them. --part 1/2 asks the first of every two
questions only, so that a check can be run in parts. With --keep-outputs, drafters know the answers to the earlier
questions. Prints, for each lane, how many texts are identical to vanilla's, the tokens per step, and the share of draft
tokens accepted at each depth. Exits with 1 if a float32 text differs. It takes minutes, so it is not one of the tests.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from specrace.cli.answers import SETS
from specrace.cli.shared.questions import draw_questions, read_prompts
from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.events import Step
from specrace.drafters import find_method, head_lanes
from specrace.engine.generate import generate
from specrace.engine.request import RaceRequest
from specrace.engine.spec import RaceSpec
from specrace.heads.loading import attach_heads
from specrace.model.weights.source import choose_model
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.sources import Sources
from specrace.workbench import Workbench
from tests.heads import folders

# Kind of head -> the function that writes such a head with random weights to a folder.
WRITERS = {
    "block": folders.block,
    "eagle": folders.eagle_one,
    "hydra": folders.hydra,
    "medusa": folders.medusa,
    "space": folders.space,
}


class Tally:
    """The sums over one lane's texts."""

    def __init__(self) -> None:
        self.identical = self.texts = self.steps = self.tokens = 0
        # Depth -> steps that drafted at this depth below an accepted node, and how many accepted a token there.
        self.drafted, self.accepted = Counter[int](), Counter[int]()

    def add(self, steps: Sequence[Step], *, identical: bool) -> None:
        """Add the steps of one text; `identical`: whether it equals vanilla's."""
        self.texts += 1
        self.identical += identical
        self.steps += len(steps)
        self.tokens += sum(len(step.emitted) for step in steps)
        for step in steps:
            tree, path = step.tree, set(step.verdict.path)
            parents = {tree.parents[node] for node in range(1, len(tree))} & path
            self.drafted.update(tree.depths[parent] + 1 for parent in parents)
            self.accepted.update(tree.depths[node] for node in path - {0})

    def describe(self) -> dict[str, object]:
        """The figures, rounded for reading."""
        by_depth = {depth: round(self.accepted[depth] / count, 3) for depth, count in sorted(self.drafted.items())}
        tau = round(self.tokens / max(1, self.steps), 3)
        return {"identical": self.identical, "of": self.texts, "tau": tau, "accepted_by_depth": by_depth}


def main(arguments: Sequence[str]) -> int:
    """Print a line for each lane; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--head", action="append", default=[])
    parser.add_argument("--model", default=BUNDLED_MODEL)
    parser.add_argument("--dtype")
    parser.add_argument("--questions", default="auto", choices=(*SETS, "auto"))
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--keep-outputs", action="store_true")
    parser.add_argument("--lanes", default=",".join(head_lanes()))
    options = parser.parse_args(arguments)
    workbench = Workbench.open(choose_model(options.model, dtype=options.dtype, heads=tuple(options.head)))
    lanes = options.lanes.split(",")
    if not workbench.target.heads and set(lanes) & set(head_lanes()):
        with TemporaryDirectory() as folder:
            written_heads = [
                f"{lane}={WRITERS[find_method(lane).needs_head](Path(folder) / lane, workbench.target)}"
                for lane in head_lanes()
            ]
            attach_heads(workbench.target, written_heads, head_lanes())
    tallies = {lane: Tally() for lane in lanes if lane in workbench.target.heads or not find_method(lane).needs_head}
    # "auto" is no set: its questions are drawn from the documents, with the number of passages that suits the model.
    file, passages = SETS.get(options.questions, (None, None))
    lines = draw_questions(workbench.documents, options.limit) if file is None else read_prompts(file, options.limit)
    spec = RaceSpec(("vanilla",), max_new_tokens=options.max_new_tokens)
    past = PastOutputs()
    part, parts = map(int, options.part.split("/"))
    for seed, line in list(enumerate(lines))[part - 1 :: parts]:
        prompt = tuple(workbench.make_prompt(RaceRequest(line["question"], spec, passages))[0].tokens)
        settings = {"max_new_tokens": options.max_new_tokens, "temperature": options.temperature, "seed": seed}
        sources = Sources(past=past.excluding(prompt, line["question"]))
        texts = {}
        for lane in ("vanilla", *tallies):
            steps = list(generate(workbench.target, lane, prompt, curve=workbench.curve, sources=sources, **settings))
            texts[lane] = [token for step in steps for token in step.emitted]
            if lane in tallies:
                tallies[lane].add(steps, identical=texts[lane] == texts["vanilla"])
        if options.keep_outputs:
            past.add(texts["vanilla"], prompt, line["question"])
    for lane, tally in tallies.items():
        print(json.dumps({"lane": lane, "temperature": options.temperature, **tally.describe()}))
    is_exact = workbench.target.describe()["dtype"] == "float32"
    return int(is_exact and any(tally.identical < tally.texts for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
