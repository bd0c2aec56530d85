"""Records two real races with the bundled model: python -m tests.measure.record_races FOLDER"""

from __future__ import annotations

import sys
from pathlib import Path

from specrace.engine import recording
from specrace.engine.request import RaceRequest
from specrace.engine.spec import RaceSpec
from specrace.workbench import Workbench
from tests.browser.parts import QUESTION

LANES = ("vanilla", "trigram", "jacobi", "lookahead", "trie", "suffix")
SPECS = {
    "greedy": RaceSpec(LANES, max_new_tokens=90),
    "sampled": RaceSpec(("vanilla", "trigram"), max_new_tokens=48, temperature=0.3, verifier="rejection"),
}


def main() -> None:
    """Run each race and save its recording."""
    workbench = Workbench.open()
    for name, spec in SPECS.items():
        recording.save(list(workbench.ask(RaceRequest(QUESTION, spec))), Path(sys.argv[1]) / f"{name}.jsonl")


if __name__ == "__main__":
    main()
