"""At which level are similar states followed by similar text, and do they know tokens that fusion misses? Usage:
python -m tests.measure.state_levels [--model smollm2-135m] [--questions open|documents] [--limit 10]

Level i is the hidden state that enters layer i. Decodes answers greedily with the lane fusion, reads the whole text
with the model once more, and looks at each place of the answer for the most similar state before it, as the lane
`states` does. Prints for each level how often the first copied token is right: where the pending token (the last one
emitted) occurs earlier, where it does not, where fusion drafted nothing, and where fusion drafted and missed. It takes
minutes, so it is not one of the tests.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from specrace.cli.answers import SETS
from specrace.cli.shared.questions import read_prompts
from specrace.core.events import Step
from specrace.engine.generate import generate
from specrace.engine.request import RaceRequest
from specrace.engine.spec import RaceSpec
from specrace.model.weights.source import choose_model
from specrace.workbench import Workbench

# The levels that are looked at divide the layers into this many parts.
PARTS = 6


def similar_places(states: Tensor, text: Sequence[int], start: int) -> Iterator[tuple[int, int, bool]]:
    """(pending place, the first copied token, whether the pending token occurs earlier), for places from `start` on.

    The pending token has no state yet, so the state before it is compared. `states`: [tokens, hidden size].
    """
    rows = normalize(states.float(), dim=-1)
    ids = torch.tensor(text)
    for pending in range(max(2, start), len(text) - 1):
        scores = rows[: pending - 1] @ rows[pending - 1]
        matches = ids[1:pending] == text[pending]
        # A match outweighs any difference of similarities, which lie between -1 and 1. After state i comes token i + 1,
        # in the place of the pending token, and token i + 2 is the one to copy.
        yield pending, text[int((scores + 4 * matches).argmax()) + 2], bool(matches.any())


def drafted_after(steps: Sequence[Step], start: int) -> dict[int, set[int]]:
    """Pending place -> the tokens that fusion drafted next there."""
    drafted = {}
    for step in steps:
        drafted[start] = {step.tree.tokens[node] for node in step.tree.children[0].values()}
        start += len(step.emitted)
    return drafted


def main(arguments: Sequence[str]) -> int:
    """Print a line for each level."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--questions", choices=tuple(SETS), default="documents")
    parser.add_argument("--limit", type=int, default=10)
    options = parser.parse_args(arguments)
    workbench = Workbench.open(choose_model(options.model))
    target, (file, passages) = workbench.target, SETS[options.questions]
    spec = RaceSpec(("vanilla",), max_new_tokens=64)
    levels = sorted({target.num_layers * part // PARTS for part in range(PARTS + 1)})
    right, asked = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
    for line in read_prompts(file, options.limit):
        prompt = workbench.make_prompt(RaceRequest(line["question"], spec, passages))[0].tokens
        steps = list(generate(target, "fusion", prompt, curve=workbench.curve, max_new_tokens=64))
        text = [*prompt, *(token for step in steps for token in step.emitted)]
        drafted = drafted_after(steps, len(prompt) - 1)
        with torch.inference_mode():
            hidden = target.model(input_ids=torch.tensor([text]), output_hidden_states=True).hidden_states
        for level in levels:
            for pending, copied, matched in similar_places(hidden[level][0], text, len(prompt) - 1):
                cases = ["matched" if matched else "unmatched"]
                if pending in drafted and text[pending + 1] not in drafted[pending]:
                    cases.append("fusion missed" if drafted[pending] else "fusion drafted nothing")
                asked.update((level, case) for case in cases)
                right.update((level, case) for case in cases if copied == text[pending + 1])
    for level in levels:
        cases = {case: f"{right[level, case]} of {asked[level, case]}" for at, case in sorted(asked) if at == level}
        print(json.dumps({"level": level, "questions": options.questions, **cases}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
