"""`python -m specrace paper`: the n-gram trie paper's tables and figures, measured on your model or logs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.table import Table as RichTable

from specrace.cli.shared.arguments import (
    add_documents_arguments,
    add_json_argument,
    add_log_arguments,
    add_model_arguments,
    add_setting,
)
from specrace.cli.shared.outputs import check_folder
from specrace.cli.shared.sweeps import TABLE_WIDTH, answer_questions, draw_paper_plot, read_logs, sweep_transcripts
from specrace.cli.shared.terminal import clean, console, print_json
from specrace.core.bundled import QUESTIONS
from specrace.core.errors import InputError
from specrace.lab.advice.presets import NAMES, describe_curve, find_curve
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.plots.drawing import require_matplotlib
from specrace.lab.plots.paper import Table, make_tables, swept_lanes

TABLES_AND_FIGURES = (*(f"table{number}" for number in range(1, 7)), "figure4", "figure5")

# The share of irrelevant passages in table 4.
NOISE = 0.5


def add_parser(commands: Any) -> None:
    """Add `paper` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("paper", help="the n-gram trie paper's tables, on your model or logs")
    parser.add_argument(
        "table_or_figure", nargs="?", choices=TABLES_AND_FIGURES, default=TABLES_AND_FIGURES[0], help="default: table1"
    )
    parser.add_argument(
        "logs", type=Path, nargs="*", metavar="LOG", help="without logs the model answers the questions"
    )
    add_log_arguments(parser)
    parser.add_argument(
        "--questions",
        type=Path,
        default=QUESTIONS,
        metavar="FILE.jsonl",
        help="what the model answers; default: the bundled questions",
    )
    add_documents_arguments(parser)
    add_model_arguments(parser)
    add_setting(parser, "max_new_tokens")
    parser.add_argument("--cost-curve", default="assumed-gpu", metavar="NAME|FILE", help=NAMES)
    parser.add_argument("--processes", type=int, help="default: one for each processor")
    parser.add_argument("--out", type=Path, metavar="DIR", help="also draw a plot: CSV, SVG and PNG in this folder")
    add_json_argument(parser)
    # `answer_questions` and `sweep_transcripts` read these, and this command has no flags for them.
    parser.set_defaults(draft_model=None, keep_outputs=False)


def run(options: argparse.Namespace) -> int:
    """Make a table or figure, draw it and show its numbers. Raises InputError."""
    name = options.table_or_figure
    curve = find_curve(options.cost_curve)
    if options.out is not None:
        require_matplotlib()
        check_folder(options.out, (f"{name}.{kind}" for kind in ("csv", "svg", "png")), options)
    transcripts = read_logs(options) if options.logs else answer_questions(options)
    if name == "table4":
        clean_answers = (replace(transcript, category="clean") for transcript in transcripts)
        transcripts = [*clean_answers, *answer_noisy(options)]
    sweep = sweep_transcripts(options, swept_lanes(name), transcripts, curve)
    tables = make_tables(name, sweep, transcripts, curve)
    if options.out is not None:
        draw_paper_plot(options.out, name, sweep, tables, curve)
    source = f"{len(transcripts)} requests; costs: {describe_curve(curve)}."
    if options.json:
        print_json({"table": name, "source": source, "tables": [asdict(table) for table in tables]})
    else:
        _show(tables, source)
    return 0


def answer_noisy(options: argparse.Namespace) -> list[Transcript]:
    """The model's answers to the questions with half of the passages irrelevant. Raises InputError for logs."""
    if options.logs:
        raise InputError("table4 compares two retrievals, which logs do not have: leave out the logs.")
    return [replace(transcript, category="noisy") for transcript in answer_questions(options, noise=NOISE)]


def _show(tables: Sequence[Table], source: str) -> None:
    out = console()
    out.width = out.width if out.is_terminal else TABLE_WIDTH
    for table in tables:
        printed = RichTable(title=clean(table.title), title_justify="left")
        for column in table.columns:
            printed.add_column(clean(column), justify="right")
        for name, *cells in table.rows:
            # Below 1 are shares and short times, which need three significant digits.
            printed.add_row(clean(name), *(f"{cell:.3g}" if cell < 1 else f"{cell:.2f}" for cell in cells))
        out.print(printed)
    out.print(clean(source))
