"""`python -m specrace sweep`: requests x lanes x a grid of settings. With logs no model runs."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.table import Table

from specrace.cli.arguments import add_documents_arguments, add_model_arguments, add_setting, lane_names, open_workbench
from specrace.cli.plots import PLOTS, check_plots, draw_sweep
from specrace.cli.questions import read_prompts
from specrace.cli.score import COLUMNS, KEEP_OUTPUTS_HELP, add_log_arguments, open_log
from specrace.cli.terminal import clean, console, print_json
from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError, shorten
from specrace.core.files import as_input_error, read_text
from specrace.core.processors import processors
from specrace.core.settings import SETTINGS
from specrace.drafters import find_method
from specrace.engine.spec import RaceSpec
from specrace.lab.cells import run_sweep
from specrace.lab.forecast import forecast_sweep
from specrace.lab.presets import NAMES, find_curve
from specrace.lab.score import ALL, LOOPING, MAX_CATEGORIES, ScoredLane, Tally, group_name, scorable_lanes
from specrace.lab.sweep import SHARD_SIZE, Cell, Sweep, SweepFolder, grid_lanes
from specrace.lab.transcripts import Transcript

if TYPE_CHECKING:
    from specrace.workbench import Workbench

ANSWERS = "answers.jsonl"
MAX_PROCESSES = 1024
TABLE_WIDTH = 140
SHOWN = ("outputs", "tau", "drafted_per_step", "acceptance_rate", "draft_ms_per_step", "expected_speedup")
_MAX_ANSWERS_BYTES = 1_000_000_000


def add_parser(commands: Any) -> None:
    """Add `sweep` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("sweep", help="score lanes over a grid of settings, in parallel and resumable")
    parser.add_argument("logs", type=Path, nargs="*", metavar="LOG", help="requests and outputs, in any known format")
    add_sweep_arguments(parser)
    parser.add_argument("--questions", type=Path, metavar="FILE.jsonl", help="instead of logs: the model answers these")
    add_documents_arguments(parser)
    add_model_arguments(parser)
    add_setting(parser, "max_new_tokens")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep every finished cell there")
    parser.add_argument("--ray", default="", metavar="local|ADDRESS", help="score on a Ray cluster")
    parser.add_argument("--plots", action="store_true", help="also draw it, into the folder plots of --out")
    # What --plots was called in version 0.1.
    parser.add_argument("--pictures", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--resume", action="store_true", help="do only what --out lacks")
    parser.add_argument("--by", choices=("category",), help="a row for each category, too")
    parser.set_defaults(draft_model=None)


def add_sweep_arguments(parser: argparse.ArgumentParser) -> None:
    """What is swept over logs."""
    add_log_arguments(parser)
    parser.add_argument("--lanes", help="comma-separated; vanilla is always swept")
    parser.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="LANE.KEY=V1,V2",
        help="values to try, such as trie.n=3,5 or num_draft=4,8,16; every combination is scored",
    )
    parser.add_argument("--cost-curve", metavar="NAME|FILE", help=f"what calibrate --out wrote, {NAMES}")
    parser.add_argument("--keep-outputs", action="store_true", help=KEEP_OUTPUTS_HELP)
    parser.add_argument("--processes", type=int, help="default: one for each processor")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(options: argparse.Namespace) -> int:
    """Sweep and show the figures. Raises InputError."""
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
        # Before the model answers.
        SweepFolder(options.out).exists(resume=options.resume)
    transcripts = read_logs(options) if options.logs else answered(options)
    sweep = sweep_transcripts(options, lanes, transcripts, curve, options.out, resume=options.resume, ray=options.ray)
    result = report(sweep, by_category=options.by == "category")
    if plots:
        # "pictures" is what version 0.1 called it.
        result["plots"] = result["pictures"] = list(map(str, draw_sweep(options.out, sweep, transcripts)))
    if options.json:
        print_json(result)
    else:
        out = console()
        out.width = out.width if out.is_terminal else TABLE_WIDTH
        out.print(_table(result["groups"]))
        if result["looping"]:
            out.print(f"{result['looping']} outputs loop; they are in the figures, and apart under '{LOOPING}'.")
        if plots:
            out.print(clean(f"Plots: {options.out / PLOTS}"))
    return 0


def swept_lanes(options: argparse.Namespace, default: Sequence[str]) -> list[ScoredLane]:
    """The lanes of the arguments with every combination of their --grid. Raises InputError."""
    num_drafts, grid = read_grid(options.grid)
    return grid_lanes(default if options.lanes is None else lane_names(options.lanes), grid, num_drafts)


def read_grid(given: Sequence[str]) -> tuple[list[int], dict[str, dict[str, list[str]]]]:
    """["num_draft=4,8", "trie.n=3,5"] as ([4, 8], {"trie": {"n": ["3", "5"]}}). Raises InputError."""
    num_drafts: list[int] = []
    grid: dict[str, dict[str, list[str]]] = {}
    for text in given:
        key, _, values = text.partition("=")
        found = [value.strip() for value in values.split(",") if value.strip()]
        lane, dot, name = key.partition(".")
        if not found or not (name if dot else key == "num_draft"):
            raise InputError(f"--grid {text!r} is not of the form LANE.KEY=V1,V2 or num_draft=4,8, say trie.n=3,5,13.")
        if dot:
            find_method(lane)
            grid.setdefault(lane, {})[name] = found
        else:
            num_drafts = [SETTINGS["num_draft"].check(value) for value in found]
    return num_drafts, grid


def read_logs(options: argparse.Namespace) -> list[Transcript]:
    """All transcripts of the logs. Raises InputError where there are none, or too many categories."""
    found: list[Transcript] = []
    for path in options.logs:
        file = open_log(options, path)
        found += file
        for reason in file.reasons:
            print(f"Left out: {clean(reason)}", file=sys.stderr)
    if not found:
        raise InputError(f"{shorten(options.logs[0])} holds no transcript that can be scored.")
    if len({each.category for each in found}) > MAX_CATEGORIES:
        raise InputError(f"There are more than {MAX_CATEGORIES} categories; score logs with fewer.")
    return found


def answered(options: argparse.Namespace) -> list[Transcript]:
    """The model's greedy answers to the questions; with --out each is kept, and with --resume not made again."""
    from specrace.cli.answers import answer, prepare

    lines = read_prompts(options.questions)
    if not all("question" in line for line in lines):
        raise InputError(f'{options.questions} has lines without a question; give lines of {{"question": ...}}.')
    spec = RaceSpec(("trie",), max_new_tokens=options.max_new_tokens)
    chosen = (SETTINGS["passages"].check(options.passages), SETTINGS["noise"].check(options.noise))
    workbench = open_workbench(options)
    about = {name: workbench.target.describe()[name] for name in ("model", "dtype")} | spec.as_json()
    about |= {"documents": _digest(workbench), "reranker": options.reranker}
    file = None if options.out is None else options.out / ANSWERS
    kept = _kept_answers(file) if file is not None and options.resume else {}
    keys = [json.dumps([line["question"], chosen, about]) for line in lines]
    asked = {
        key: prepare(workbench, line["id"], line["question"], spec, *chosen)
        for key, line in zip(keys, lines, strict=True)
        if key not in kept
    }
    found = []
    for key, line in zip(keys, lines, strict=True):
        if key not in kept:
            made = answer(workbench, asked[key], spec)
            category = str(line.get("category", "none"))
            kept[key] = {"id": line["id"], "category": category, "prompt_ids": made.prompt, "output_ids": made.output}
            kept[key]["documents"] = made.documents
            if file is not None:
                with as_input_error(file, "--out"), file.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps({"key": key, **kept[key]}) + "\n")
        row = kept[key]
        prompt, output = tuple(row["prompt_ids"]), tuple(row["output_ids"])
        documents = tuple((start, end, str(name)) for start, end, name in row.get("documents", ()))
        found.append(Transcript(row["id"], row["category"], prompt, output, workbench.target.vocab_size, documents))
    return found


def _digest(workbench: Workbench) -> str:
    """What tells the documents that are asked about from others."""
    digest = hashlib.sha256(str(workbench.num_passages).encode())
    for document in workbench.documents:
        digest.update(f"\0{document.name}\0{document.text}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _kept_answers(file: Path) -> dict[str, dict[str, Any]]:
    """Answers by their questions and settings, but a last line that was cut off, which is dropped."""
    if not file.exists():
        return {}
    text = read_text(file, _MAX_ANSWERS_BYTES, "give another --out")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        with as_input_error(file, "--out"):
            os.truncate(file, len(whole.encode()))
    try:
        rows = [json.loads(line) for line in whole.splitlines()]
        return {row.pop("key"): row for row in rows}
    except (ValueError, AttributeError, KeyError) as error:
        raise InputError(f"{shorten(file)} holds no answers of a sweep; give another --out.") from error


def checked_processes(options: argparse.Namespace) -> int:
    """How many processes score. Raises InputError."""
    processes: int = options.processes or processors()
    if not 1 <= processes <= MAX_PROCESSES:
        raise InputError(f"--processes is {processes}; give 1 to {MAX_PROCESSES}.")
    return processes


def sweep_transcripts(
    options: argparse.Namespace,
    lanes: Sequence[ScoredLane],
    transcripts: Sequence[Transcript],
    curve: CostCurve | None,
    out: Path | None = None,
    *,
    resume: bool = False,
    ray: str = "",
) -> Sweep:
    """Sweep, with a live table on a terminal. Raises InputError."""
    processes = checked_processes(options)
    sweep = Sweep.of(lanes, transcripts, curve, options.keep_outputs)
    folder = None if out is None else SweepFolder(out)
    if folder is not None:
        folder.open(sweep, resume=resume)
    with _live(sweep, quiet=options.json) as show:
        run_sweep(sweep, transcripts, folder=folder, processes=processes, ray=ray, on_progress=show)
    return sweep


@contextmanager
def _live(sweep: Sweep, *, quiet: bool) -> Iterator[Callable[[Cell], None]]:
    """A table on standard error that grows with the cells, while a terminal watches."""
    notes = console(stderr=True)
    notes.quiet = quiet or not notes.is_terminal
    totals = [sweep.tally(lane, range(len(sweep.requests))) for lane in range(len(sweep.lanes))]
    with Live(console=notes, auto_refresh=False, transient=True) as live:

        def show(cell: Cell) -> None:
            for number, score in enumerate(sweep.cells[cell], cell[1] * SHARD_SIZE):
                totals[cell[0]].merge(score.to_tally(sweep.requests[number]))
            if not notes.quiet:
                table = _table([_row(sweep, lane, ALL, total) for lane, total in enumerate(totals) if total.outputs])
                table.caption = f"{len(sweep.cells)} of {len(sweep.all_cells)} cells"
                live.update(table, refresh=True)

        yield show


def report(sweep: Sweep, *, by_category: bool) -> dict[str, Any]:
    """The figures of every lane over all requests, if asked those of each category, and the looping ones."""
    looping = [number for number, each in enumerate(sweep.requests) if each.looping]
    chosen: dict[str, Sequence[int]] = {ALL: range(len(sweep.requests))}
    if by_category:
        for number, each in enumerate(sweep.requests):
            name = group_name(each.category)
            chosen[name] = [*chosen.get(name, ()), number]
    if looping:
        chosen[LOOPING] = looping
    whole = None if sweep.curve is None else forecast_sweep(sweep, sweep.curve)[0]
    groups = []
    for group, numbers in chosen.items():
        speedup = None if whole is None else whole.for_requests(numbers).speedup
        for lane in range(len(sweep.lanes)):
            row = _row(sweep, lane, group, sweep.tally(lane, set(numbers)))
            groups.append(row if speedup is None else row | {"expected_speedup": float(speedup[lane])})
    about = sweep.as_json()
    settings = {key: about[key] for key in ("lanes", "keep_outputs", "cost_curve", "fingerprint")}
    counts = {"requests": len(sweep.requests), "looping": len(looping), "cells": len(sweep.cells)}
    return {"groups": groups, **counts, "settings": settings}


def _row(sweep: Sweep, lane: int, group: str, total: Tally) -> dict[str, Any]:
    """A lane's settings and its figures in a group."""
    return sweep.lanes[lane].describe() | {"settings": sweep.varied_settings(lane), "category": group} | total.row()


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = {key: COLUMNS[key] for key in SHOWN if rows and key in rows[0]}
    table = Table("category")
    for title in ("lane", "settings"):
        table.add_column(title, no_wrap=True)
    for title, _ in columns.values():
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        cells = [format(row[key], form) for key, (_, form) in columns.items()]
        table.add_row(clean(row["category"]), row["lane"], row["settings"], *cells)
    return table
