"""The script that torchrun runs in every process of the tensor parallelism test: `split_race.py FOLDER`.

The first process races the model in FOLDER, writes the results there as JSON, and fails in the middle of a forward,
while the other processes wait for its part.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError
from specrace.core.events import Finished, Step
from specrace.drafters import native_methods
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.model import tensor_parallel
from specrace.model.loading import load_target
from specrace.model.target import Target
from specrace.model.tensor_parallel import Followers

# The message that makes the other processes prefill this prompt does not fit into one broadcast.
PROMPT = tuple((7 * position * position + 3) % 1000 for position in range(400))
LANES = tuple(name for name, method in native_methods().items() if not (method.needs_draft_model or method.needs_head))
# Temperature and lanes of each race. With sampling, one lane that drafts chains and one that drafts trees are enough.
RACES = ((0.0, LANES), (0.8, ("vanilla", "prompt-lookup", "fusion")))


def race_outputs(target: Target, temperature: float, lanes: tuple[str, ...]) -> dict[str, Any]:
    """Race `lanes`; returns each lane's output, and whether it is identical to vanilla's."""
    spec = RaceSpec(lanes, max_new_tokens=10, temperature=temperature, seed=5)
    *events, finished = race(target, PROMPT, spec)
    assert isinstance(finished, Finished)
    steps = [event for event in events if isinstance(event, Step)]
    texts = {name: [token for step in steps if step.lane == name for token in step.emitted] for name in lanes}
    return {"texts": texts, "identical": {lane.lane: lane.identical for lane in finished.lanes}}


def refusal(folder: Path, followers: Followers) -> str:
    """The message of the InputError that loading the model in `folder` raises; empty if it loads."""
    try:
        load_target(folder, followers=followers)
    except InputError as error:
        return str(error)
    return ""


def lead(folder: Path, followers: Followers) -> int:
    """Run the first process's part of the test; returns its exit status."""
    results: dict[str, Any] = {
        "refused": [refusal(folder / name, followers) for name in ("no-plan", "uneven", "missing-layer")]
    }
    target = load_target(folder / "model", followers=followers)
    results["races"] = [race_outputs(target, *case) for case in RACES]
    store = target.prefill(PROMPT).store
    assert store.data is not None
    results |= {"shape": store.data.shape, "roofline": target.roofline.as_json(100), "about": target.describe()}
    (folder / "results.json").write_text(json.dumps(results))
    target.model.get_output_embeddings().register_forward_pre_hook(fail)
    target.prefill(PROMPT)
    return 0


def fail(*_: Any) -> None:
    """Fail in this process while the others continue their forward."""
    raise KeyError("failed on purpose")


if __name__ == "__main__":
    sys.exit(tensor_parallel.run(lambda followers: lead(Path(sys.argv[1]), followers)))
