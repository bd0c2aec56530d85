"""Compares the figures of all commands and of the page's scorer on the same requests in every format:
python -m tests.measure.commands_check

Writes a log in each of the formats in tests/lab/logs/formats/written.py, runs `score`, `sweep`, `recommend` and `paper`
on it, and the page's scorer if the log is a single file. Prints prompt lookup's tokens per step, and exits with 1 if
any differ.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specrace.cli.main import main as specrace
from specrace.ui.helper.log_scores import score_log
from tests.lab.logs.formats.written import SHAPES, chat_folder

LANE = "prompt-lookup"


def printed(command: Sequence[str], files: Sequence[Path], tokenizer: Path) -> Any:
    """What a command prints as JSON."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = specrace([*command, *map(str, files), "--tokenizer", str(tokenizer), "--json"])
    if code:
        raise SystemExit(f"{' '.join(command)} ended with {code}.")
    return json.loads(out.getvalue())


def page_figure(file: Path, tokenizer: Path) -> float:
    """Prompt lookup's tokens per step on the page.

    `shown` would add the requests' texts, which are not needed here.
    """
    settings = {"path": str(file), "lanes": [LANE], "columns": "", "tokenizer": str(tokenizer), "name": "tokenizer"}
    # The first argument is not used.
    progress = score_log("", json.dumps(settings | {"decodes_ids": True, "shown": False}).encode())
    while True:
        try:
            next(progress)
        # The generator yields progress, and returns the scores as JSON.
        except StopIteration as end:
            return tau_of(json.loads(end.value)["scores"])


def tau_of(result: Any) -> float:
    """Prompt lookup's tokens per step over all requests."""
    return next(row["tau"] for row in result["groups"] if row["lane"] == LANE and row["category"] == "all")


def figures(files: Sequence[Path], tokenizer: Path) -> dict[str, float]:
    """Prompt lookup's tokens per step from each command, and from the page if there is one file."""
    table = printed(("paper", "table1"), files, tokenizer)["tables"][0]
    column = next(name for name in table["columns"] if name.startswith(LANE) and name.endswith("tokens/step"))
    recommendation = printed(("recommend", "--lanes", LANE, "--grid", "num_draft=10"), files, tokenizer)
    figures_by_command = {
        "score": tau_of(printed(("score", "--lanes", LANE), files, tokenizer)),
        "sweep": tau_of(printed(("sweep", "--lanes", LANE, "--grid", "num_draft=10"), files, tokenizer)),
        "recommend": recommendation["recommendation"]["tau"],
        "paper": table["rows"][0][table["columns"].index(column)],
    }
    return figures_by_command if len(files) > 1 else figures_by_command | {"page": page_figure(files[0], tokenizer)}


def main() -> int:
    """Compare the figures for every shape, that is, every way to write the log; return 1 if any differ."""
    different = 0
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = chat_folder(Path(folder) / "chat")
        expected: float | None = None
        for shape, write in SHAPES.items():
            shape_folder = Path(folder) / shape
            shape_folder.mkdir()
            figures_by_command = figures(write(shape_folder), tokenizer)
            # All shapes hold the same requests, so the first shape's score is expected of every shape and command.
            expected = expected or figures_by_command["score"]
            is_same = set(figures_by_command.values()) == {expected}
            different += not is_same
            shown = ", ".join(f"{name} {value:.6f}" for name, value in figures_by_command.items())
            print(f"{'same' if is_same else 'DIFFERS'}  {shape}: {shown}", flush=True)
    print(f"{len(SHAPES)} shapes, {different} differ")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
