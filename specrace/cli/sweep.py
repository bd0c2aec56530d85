"""`python -m specrace sweep`: scores requests x lanes x a grid of settings. Logs need no model."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.table import Table

from specrace.cli.arguments import (
    add_documents_arguments,
    add_json_argument,
    add_model_arguments,
    add_setting,
    lane_names,
    open_workbench,
)
from specrace.cli.plots import PLOTS, check_plots, draw_sweep
from specrace.cli.questions import read_questions
from specrace.cli.score import COLUMNS, KEEP_OUTPUTS_HELP, add_log_arguments, open_log
from specrace.cli.terminal import clean, console, print_json
from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError, shorten
from specrace.core.files import as_input_error, read_text
from specrace.core.processors import processors
from specrace.core.settings import SETTINGS
from specrace.drafters import find_method
from specrace.engine.spec import RaceSpec
from specrace.lab.advice.forecast import forecast_sweep
from specrace.lab.advice.presets import NAMES, find_curve
from specrace.lab.logs.files.pairs import pair_files
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.cells import run_sweep
from specrace.lab.scoring.score import ALL, LOOPING, MAX_CATEGORIES, ScoredLane, Tally, group_name, scorable_lanes
from specrace.lab.scoring.sweep import SHARD_SIZE, Cell, Sweep, SweepFolder, grid_lanes

if TYPE_CHECKING:
    from specrace.retrieval.store import Head
    from specrace.workbench import Workbench

ANSWERS = "answers.jsonl"
MAX_PROCESSES = 1024
# The width of the table in a file or a pipe, in characters.
TABLE_WIDTH = 140
TABLE_COLUMNS = ("outputs", "tau", "drafted_per_step", "acceptance_rate", "draft_ms_per_step", "expected_speedup")
_MAX_ANSWERS_BYTES = 1_000_000_000


def add_parser(commands: Any) -> None:
    """Add `sweep` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("sweep", help="score lanes over a grid of settings, in parallel; can be resumed")
    parser.add_argument("logs", type=Path, nargs="*", metavar="LOG", help="files and folders, in any known format")
    add_sweep_arguments(parser)
    parser.add_argument("--questions", type=Path, metavar="FILE.jsonl", help="instead of logs: the model answers these")
    add_documents_arguments(parser)
    add_model_arguments(parser)
    add_setting(parser, "max_new_tokens")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write every finished cell there, for --resume")
    parser.add_argument("--ray", default="", metavar="local|ADDRESS", help="score on a Ray cluster")
    parser.add_argument("--plots", action="store_true", help="also draw it, into the folder plots of --out")
    # What --plots was called in version 0.1.
    parser.add_argument("--pictures", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--resume", action="store_true", help="score only the cells that --out lacks")
    parser.add_argument("--by", choices=("category",), help="also show a row for each category")
    parser.set_defaults(draft_model=None)


def add_sweep_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that `sweep` and `recommend` share: the logs' format, lanes, grid and costs."""
    add_log_arguments(parser)
    parser.add_argument("--lanes", help="comma-separated; vanilla is always swept")
    parser.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="LANE.KEY=V1,V2",
        help="values to try, such as trie.n=3,5 or num_draft=4,8,16; every combination is scored",
    )
    parser.add_argument("--cost-curve", metavar="NAME|FILE", help=f"a curve that calibrate --out wrote, {NAMES}")
    parser.add_argument("--keep-outputs", action="store_true", help=KEEP_OUTPUTS_HELP)
    parser.add_argument("--processes", type=int, help="default: one for each processor")
    add_json_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Sweep, show the figures, and draw them if asked to. Raises InputError."""
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
        SweepFolder(options.out).exists(resume=options.resume)
    transcripts = read_logs(options) if options.logs else answer_questions(options)
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
            sentence = "outputs loop; they count in the figures, and have rows of their own under"
            out.print(f"{result['looping']} {sentence} '{LOOPING}'.")
        if plots:
            out.print(clean(f"Plots: {options.out / PLOTS}"))
    return 0


def swept_lanes(options: argparse.Namespace, default: Sequence[str]) -> list[ScoredLane]:
    """The lanes of --lanes, or the `default` lanes, with every combination of --grid. Raises InputError."""
    num_drafts, grid = read_grid(options.grid)
    return grid_lanes(default if options.lanes is None else lane_names(options.lanes), grid, num_drafts)


def read_grid(texts: Sequence[str]) -> tuple[list[int], dict[str, dict[str, list[str]]]]:
    """Parse ["num_draft=4,8", "trie.n=3,5"] into ([4, 8], {"trie": {"n": ["3", "5"]}}). Raises InputError."""
    num_drafts: list[int] = []
    grid: dict[str, dict[str, list[str]]] = {}
    for text in texts:
        key, _, joined_values = text.partition("=")
        values = [value.strip() for value in joined_values.split(",") if value.strip()]
        lane, dot, name = key.partition(".")
        if not values or not (name if dot else key == "num_draft"):
            raise InputError(f"--grid {text!r} is not of the form LANE.KEY=V1,V2 or num_draft=4,8, say trie.n=3,5,13.")
        if dot:
            find_method(lane)
            grid.setdefault(lane, {})[name] = values
        else:
            num_drafts = [SETTINGS["num_draft"].check(value) for value in values]
    return num_drafts, grid


def read_logs(options: argparse.Namespace, told: list[str] | None = None) -> list[Transcript]:
    """Read all transcripts of the logs. Raises InputError, also if there are none or too many categories.

    The requests and the responses of a batch are one log. An answer that stands in several logs, as resumed sessions'
    do, is read once. The remarks on the logs are also appended to `told`.
    """
    told = [] if told is None else told
    transcripts: list[Transcript] = []
    seen = set[str]()
    for path, requests in pair_files(options.logs):
        file = open_log(options, path, requests, seen)
        transcripts += file
        for reason in file.reasons:
            print(f"Left out: {clean(reason)}", file=sys.stderr)
        remarks = [f"{shorten(path.name)}: {clean(remark)}" for remark in file.remarks.sentences()]
        told += remarks
        for remark in remarks:
            print(remark, file=sys.stderr)
    if not transcripts:
        raise InputError(f"{shorten(options.logs[0])} holds no transcript that can be scored.")
    if len({transcript.category for transcript in transcripts}) > MAX_CATEGORIES:
        raise InputError(f"There are more than {MAX_CATEGORIES} categories; score logs with fewer.")
    return transcripts


def answer_questions(options: argparse.Namespace) -> list[Transcript]:
    """The model's greedy answers to the questions. Raises InputError.

    With --out, every answer is written there; with --resume, the answers written there are reused.
    """
    from specrace.cli.answers import answer_question, prepare
    from specrace.retrieval.store import read_head

    lines = read_questions(options.questions)
    spec = RaceSpec(("trie",), max_new_tokens=options.max_new_tokens)
    passages, noise = SETTINGS["passages"].check(options.passages), SETTINGS["noise"].check(options.noise)
    workbench = open_workbench(options)
    about = {name: workbench.target.describe()[name] for name in ("model", "dtype")} | spec.as_json()
    stored = None if options.index is None else read_head(options.index)
    about |= {"documents": _digest(workbench, stored), "reranker": options.reranker}
    file = None if options.out is None else options.out / ANSWERS
    rows = _read_answers(file) if file is not None and options.resume else {}
    keys = [json.dumps([line["question"], (passages, noise), about]) for line in lines]
    prepared = {
        key: prepare(workbench, line["id"], line["question"], spec, passages, noise)
        for key, line in zip(keys, lines, strict=True)
        if key not in rows
    }
    for key, line in zip(keys, lines, strict=True):
        if key not in rows:
            new_answer = answer_question(workbench, prepared[key], spec)
            rows[key] = {
                "id": line["id"],
                "category": str(line.get("category", "none")),
                "prompt_ids": new_answer.prompt,
                "output_ids": new_answer.output,
                "documents": new_answer.documents,
            }
            if file is not None:
                with as_input_error(file, "--out"), file.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps({"key": key, **rows[key]}) + "\n")
    return [_transcript(rows[key], workbench.target.vocab_size) for key in keys]


def _transcript(row: Mapping[str, Any], vocab_size: int) -> Transcript:
    """The transcript in a row of ANSWERS."""
    prompt, output = tuple(row["prompt_ids"]), tuple(row["output_ids"])
    documents = tuple((start, end, str(name)) for start, end, name in row.get("documents", ()))
    return Transcript(row["id"], row["category"], prompt, output, vocab_size, documents)


def _digest(workbench: Workbench, stored: Head | None) -> str:
    """A digest of what decides which passages a question finds: documents, their cut into passages, and embedder.

    The head of a `stored` index stands for its cut. It has the index's date, too: it may have been built again.
    """
    digest = hashlib.sha256(workbench.embedder.name.encode())
    for document in workbench.documents:
        digest.update(f"\0{document.name}\0{document.text}".encode("utf-8", "surrogatepass"))
    if stored is not None:
        digest.update(json.dumps(asdict(stored)).encode())
    else:
        for passage in workbench.retriever.index.passages:
            digest.update(f"\0{passage.start} {passage.end} {passage.document}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _read_answers(file: Path) -> dict[str, dict[str, Any]]:
    """Read the answers of an earlier sweep, by question and settings; an incomplete last line is cut off."""
    if not file.exists():
        return {}
    text = read_text(file, _MAX_ANSWERS_BYTES, "give another --out")
    complete = text[: text.rfind("\n") + 1]
    if complete != text:
        with as_input_error(file, "--out"):
            os.truncate(file, len(complete.encode()))
    try:
        rows = [json.loads(line) for line in complete.splitlines()]
        return {row.pop("key"): row for row in rows}
    except (ValueError, AttributeError, KeyError) as error:
        raise InputError(f"{shorten(file)} holds no answers of a sweep; give another --out.") from error


def checked_processes(options: argparse.Namespace) -> int:
    """The number of processes that score. Raises InputError."""
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
    """Sweep the transcripts, with a live table on a terminal. Raises InputError."""
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
    """Show a live table of the cells so far, if standard error is a terminal; yield a function that adds a cell."""
    notes = console(stderr=True)
    notes.quiet = quiet or not notes.is_terminal
    totals = [sweep.tally(lane, range(len(sweep.requests))) for lane in range(len(sweep.lanes))]
    with Live(console=notes, auto_refresh=False, transient=True) as live:

        def show(cell: Cell) -> None:
            lane, shard = cell
            for number, score in enumerate(sweep.cells[cell], shard * SHARD_SIZE):
                totals[lane].merge(score.to_tally(sweep.requests[number]))
            if not notes.quiet:
                table = _table([_row(sweep, lane, ALL, total) for lane, total in enumerate(totals) if total.outputs])
                table.caption = f"{len(sweep.cells)} of {len(sweep.all_cells)} cells"
                live.update(table, refresh=True)

        yield show


def report(sweep: Sweep, *, by_category: bool) -> dict[str, Any]:
    """What `--json` prints: every lane's figures over all requests, over the looping ones, and for each category."""
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
            row = _row(sweep, lane, group, sweep.tally(lane, set(numbers)))
            groups.append(row if speedup is None else row | {"expected_speedup": float(speedup[lane])})
    about = sweep.as_json()
    settings = {key: about[key] for key in ("lanes", "keep_outputs", "cost_curve", "fingerprint")}
    counts = {"requests": len(sweep.requests), "looping": len(looping), "cells": len(sweep.cells)}
    return {"groups": groups, **counts, "settings": settings}


def _row(sweep: Sweep, lane: int, group: str, total: Tally) -> dict[str, Any]:
    """A lane's settings and its figures for a group."""
    return sweep.lanes[lane].describe() | {"settings": sweep.varied_settings(lane), "category": group} | total.row()


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = {key: COLUMNS[key] for key in TABLE_COLUMNS if rows and key in rows[0]}
    table = Table("category")
    for title in ("lane", "settings"):
        table.add_column(title, no_wrap=True)
    for title, _ in columns.values():
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        cells = [format(row[key], form) for key, (_, form) in columns.items()]
        table.add_row(clean(row["category"]), row["lane"], row["settings"], *cells)
    return table
