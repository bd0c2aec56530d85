"""`python -m specrace sweep`: scores requests x lanes x a grid of settings; needs no model for logs.

A lane with one combination of settings is scored in cells, of a few requests each; a sweep is resumed cell by cell.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specrace.cli.shared.arguments import add_documents_arguments, add_model_arguments, add_setting
from specrace.cli.shared.sweeps import (
    PLOTS,
    TABLE_WIDTH,
    add_sweep_arguments,
    answer_questions,
    check_plots,
    draw_sweep,
    metrics_row,
    read_logs,
    sweep_table,
    sweep_transcripts,
    swept_lanes,
)
from specrace.cli.shared.terminal import clean, console, print_json
from specrace.core.errors import InputError
from specrace.core.files import as_input_error
from specrace.lab.advice.forecast import forecast_sweep
from specrace.lab.advice.presets import find_curve
from specrace.lab.scoring.score import ALL, LOOPING, group_name, scorable_lanes
from specrace.lab.scoring.sweep import Sweep, SweepFolder


def add_parser(commands: Any) -> None:
    """Add `sweep` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("sweep", help="score lanes over a grid of settings, in parallel; can be resumed")
    parser.add_argument("logs", type=Path, nargs="*", metavar="LOG", help="files and folders, in any known format")
    add_sweep_arguments(parser)
    parser.add_argument("--questions", type=Path, metavar="FILE.jsonl", help="instead of logs: the model answers these")
    add_documents_arguments(parser)
    add_model_arguments(parser)
    add_setting(parser, "max_new_tokens")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep every finished cell there, for --resume")
    parser.add_argument(
        "--ray",
        default="",
        metavar="local|ADDRESS",
        help="score on a Ray cluster, on whose machines specrace[ray] is installed",
    )
    parser.add_argument("--plots", action="store_true", help="also draw plots, into the folder plots of --out")
    # The name of --plots in version 0.1.
    parser.add_argument("--pictures", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--resume", action="store_true", help="score only the cells that --out lacks")
    parser.add_argument("--by", choices=("category",), help="also show a row for each category")
    # `open_workbench` reads `draft_model`, and this command has no --draft-model.
    parser.set_defaults(draft_model=None)


def run(options: argparse.Namespace) -> int:
    """Sweep, show the results, and draw plots if asked to. Raises InputError."""
    if bool(options.logs) == (options.questions is not None):
        raise InputError("Give logs, or --questions FILE.jsonl for the model to answer; one of the two.")
    if options.resume and options.out is None:
        raise InputError("--resume needs the --out DIR of the sweep that it finishes.")
    lanes = swept_lanes(options, scorable_lanes())
    curve = None if options.cost_curve is None else find_curve(options.cost_curve)
    plots = options.plots or options.pictures
    if options.pictures:
        print("--pictures is now called --plots; the next version removes the old name.", file=sys.stderr)
    if plots:
        check_plots(options.out, lanes)
    if options.out is not None:
        with as_input_error(options.out, "--out"):
            options.out.mkdir(exist_ok=True)
        # Checked before the model spends time on answers.
        SweepFolder(options.out).refuse_unless(resume=options.resume)
    if options.logs:
        transcripts = read_logs(options)
    else:
        transcripts = answer_questions(options, out=options.out, resume=options.resume)
    sweep = sweep_transcripts(
        options, lanes, transcripts, curve, options.out, resume=options.resume, ray_address=options.ray
    )
    result = report(sweep, by_category=options.by == "category")
    if plots:
        # "pictures" is the name that this field had in version 0.1.
        result["plots"] = result["pictures"] = list(map(str, draw_sweep(options.out, sweep, transcripts)))
    if options.json:
        print_json(result)
    else:
        out = console()
        out.width = out.width if out.is_terminal else TABLE_WIDTH
        out.print(sweep_table(result["groups"]))
        if result["looping"]:
            out.print(
                f"{result['looping']} outputs loop; they count in the figures, and have rows of their own under "
                f"'{LOOPING}'."
            )
        if plots:
            out.print(clean(f"Plots: {options.out / PLOTS}"))
    return 0


def report(sweep: Sweep, *, by_category: bool) -> dict[str, Any]:
    """What `--json` prints: every lane's metrics over all requests, for each category, and over those that loop."""
    looping = [number for number, request in enumerate(sweep.requests) if request.looping]
    requests_by_group: dict[str, Sequence[int]] = {ALL: range(len(sweep.requests))}
    if by_category:
        for number, request in enumerate(sweep.requests):
            name = group_name(request.category)
            requests_by_group[name] = [*requests_by_group.get(name, ()), number]
    if looping:
        requests_by_group[LOOPING] = looping
    forecast = None if sweep.curve is None else forecast_sweep(sweep, sweep.curve)[0]
    groups = []
    for group, numbers in requests_by_group.items():
        speedup = None if forecast is None else forecast.for_requests(numbers).speedup
        for lane in range(len(sweep.lanes)):
            row = metrics_row(sweep, lane, group, sweep.tally(lane, set(numbers)))
            groups.append(row if speedup is None else row | {"expected_speedup": float(speedup[lane])})
    about = sweep.as_json()
    settings = {key: about[key] for key in ("lanes", "keep_outputs", "cost_curve", "fingerprint")}
    counts = {"requests": len(sweep.requests), "looping": len(looping), "cells": len(sweep.cells)}
    return {"groups": groups, **counts, "settings": settings}
