"""`python -m specrace score`: scores lanes on transcripts, in tokens per step, without a model."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import Progress
from rich.table import Table

import specrace
from specrace.cli.shared.arguments import (
    KEEP_OUTPUTS_HELP,
    LANE_OPTIONS_HELP,
    OPTION_HELP,
    add_json_argument,
    add_log_arguments,
    lane_names,
    lane_options,
    open_log,
)
from specrace.cli.shared.outputs import add_output
from specrace.cli.shared.sweeps import COLUMNS, TABLE_WIDTH
from specrace.cli.shared.terminal import clean, console, print_json
from specrace.core.cost_curve import CostCurve
from specrace.core.csv_text import csv_text
from specrace.core.errors import InputError
from specrace.core.files import as_input_error, write_atomically
from specrace.core.settings import SETTINGS
from specrace.drafters import METHODS
from specrace.engine.lane_name import method_of, with_shared_options
from specrace.lab.logs.transcripts import TranscriptFile
from specrace.lab.scoring.score import Scoreboard, ScoredLane, scorable_lanes, why_not_scorable


def add_parser(commands: Any) -> None:
    """Add `score` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("score", help="score lanes on your logs, by forced decoding; needs no model")
    parser.add_argument(
        "file", type=Path, metavar="LOG", help="requests and outputs, in any known format: a file, a zip or a folder"
    )
    parser.add_argument(
        "requests",
        type=Path,
        nargs="?",
        metavar="OTHER",
        help="the second file of a batch, whose requests and responses may come in either order",
    )
    add_log_arguments(parser)
    parser.add_argument("--lanes", help=f"comma-separated; default: every lane that can be scored; {LANE_OPTIONS_HELP}")
    parser.add_argument(
        "--num-draft", help="maximum draft tokens in a step, for every lane; default: each lane's default on a GPU"
    )
    parser.add_argument("--option", action="append", default=[], metavar="LANE.KEY=VALUE", help=OPTION_HELP)
    parser.add_argument("--by", choices=("category",), help="also show a row for each category")
    parser.add_argument(
        "--cost-curve",
        type=Path,
        metavar="FILE.json",
        help="a curve that calibrate --out wrote; adds the expected speedup",
    )
    parser.add_argument("--keep-outputs", action="store_true", help=KEEP_OUTPUTS_HELP)
    add_output(parser, "--csv", metavar="FILE.csv", help="also write the table there")
    add_json_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Score a file and show the result. Raises InputError."""
    lanes = scored_lanes(options)
    curve = CostCurve.load(options.cost_curve) if options.cost_curve is not None else None
    file = open_log(options, options.file, options.requests)
    by_category = options.by == "category"
    board = Scoreboard(lanes, by_category=by_category, curve=curve, keep_outputs=options.keep_outputs)
    with _progress(file) as show:
        for transcript in file:
            board.add(transcript)
            show(board.outputs)
    for reason in file.reasons:
        print(f"Left out: {clean(reason)}", file=sys.stderr)
    if not board.outputs:
        for remark in file.remarks.sentences():
            print(clean(remark), file=sys.stderr)
        raise InputError(f"{options.file} holds no transcript that can be scored ({file.skipped} lines left out).")
    result = report(options, board, file, curve)
    if options.csv is not None:
        write_csv(options.csv, [*result["groups"], *result["measured"]])
    if options.json:
        print_json(result)
    else:
        _show(result)
    return 0


def scored_lanes(options: argparse.Namespace) -> list[ScoredLane]:
    """The lanes that the arguments name, with the options of --option and those in the names. Raises InputError."""
    num_draft = SETTINGS["num_draft"].check(options.num_draft)
    names = scorable_lanes() if options.lanes is None else lane_names(options.lanes)
    shared = lane_options(options.option)
    return [
        ScoredLane.of(name, shared.get(method_of(name).name, {}), num_draft)
        for name in with_shared_options(names, shared)
    ]


@contextmanager
def _progress(file: TranscriptFile) -> Iterator[Any]:
    """Show a progress bar over the file's bytes, if standard error is a terminal.

    Yields a function that updates it, called with the number of outputs.
    """
    stderr = console(stderr=True)
    size = file.path.stat().st_size if file.path.is_file() else 0
    with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        task = bar.add_task("scoring", total=size or None)
        yield lambda outputs: bar.update(task, completed=file.bytes_read, description=f"{outputs} outputs")


def report(
    options: argparse.Namespace, board: Scoreboard, file: TranscriptFile, curve: CostCurve | None
) -> dict[str, Any]:
    """What `--json` prints: all metrics, and the settings under which they hold."""
    reasons = {name: why_not_scorable(method) for name, method in METHODS.items()}
    not_scored = {name: reason for name, reason in reasons.items() if reason}
    return {
        "groups": board.groups(curve),
        "measured": board.measured.rows(),
        "agreement": board.measured.agreements(),
        "measured_text": list(board.measured.sentences()),
        "file": str(options.file),
        "format": file.describe()[0],
        "format_title": file.describe()[1],
        "outputs": board.outputs,
        "skipped": file.skipped,
        "skipped_by_reason": dict(file.faults.most_common()),
        "remarks": file.remarks.sentences(),
        "options": dict(file.remarks.options.most_common()),
        "looping": {"outputs": board.looping, "in_figures": True, "without_them": "tau_without_looping"},
        "settings": {
            "lanes": [lane.describe() for lane in board.lanes],
            "num_draft": "each lane's default on a GPU" if options.num_draft is None else options.num_draft,
            "vocab_size": options.vocab_size,
            "tokenizer": options.tokenizer,
            "earlier_outputs": "kept" if options.keep_outputs else "not kept",
            "cost_curve": None if curve is None else {"rows": curve.rows, "ratio": curve.ratio},
        },
        "not_scored": [{"lane": name, "reason": reason} for name, reason in not_scored.items()],
        "versions": {"specrace": specrace.__version__, "python": platform.python_version()},
    }


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write the rows as a CSV table with the columns of the first row; what a row lacks stays empty.

    Raises InputError if that fails.
    """
    columns = list(rows[0])
    table = csv_text([columns, *([row.get(name) for name in columns] for row in rows)])
    with as_input_error(path):
        write_atomically(path, table.encode("utf-8", "replace"), 0o644)


def _show(result: dict[str, Any]) -> None:
    """Print the table, and notes below it."""
    out = console()
    if not out.is_terminal:
        out.width = TABLE_WIDTH
    rows = result["groups"]
    out.print(f"{clean(result['file'])}: {result['format_title']}")
    columns = {key: value for key, value in COLUMNS.items() if key in rows[0]}
    table = Table("lane", "category")
    for title, _ in columns.values():
        table.add_column(title, justify="right", no_wrap=True)
    for row in [*rows, *result["measured"]]:
        cells = [format(row[key], form) if key in row else "–" for key, (_, form) in columns.items()]
        table.add_row(row["lane"], clean(row["category"]), *cells)
    out.print(table)
    for note in _notes(result):
        out.print(note)


def _notes(result: dict[str, Any]) -> Iterator[str]:
    """Yield the notes below the table: how lanes were scored, and what was left out."""
    yield from map(clean, result["measured_text"])
    settings = result["settings"]
    draft_sizes = ", ".join(f"{lane['lane']} {lane['num_draft']}" for lane in settings["lanes"])
    yield f"Draft tokens a step ({settings['num_draft']}): {draft_sizes}."
    for lane in settings["lanes"]:
        # Either "whole", or the part of the method that was scored, in words.
        if lane["scored"] != "whole":
            yield f"{lane['lane']} is scored in part: {lane['scored']}."
    for lane in result["not_scored"]:
        yield f"{lane['lane']} cannot be scored without its model: {lane['reason']}."
    if settings["earlier_outputs"] == "kept":
        yield "Lanes that can draft from outputs of earlier prompts (fusion, suffix and others) did so."
    if result["looping"]["outputs"]:
        number = result["looping"]["outputs"]
        yield f"{number} outputs loop; they count in the figures, and have rows of their own under 'looping'."
    if result["skipped"]:
        yield f"{result['skipped']} bad lines were left out."
    yield from map(clean, result["remarks"])
