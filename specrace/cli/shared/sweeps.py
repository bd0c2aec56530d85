"""Shared by `sweep`, `recommend` and `paper`: their arguments, their transcripts, the live table and the plots."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.table import Table

from specrace.cli.shared.arguments import (
    KEEP_OUTPUTS_HELP,
    LANE_OPTIONS_HELP,
    add_json_argument,
    add_log_arguments,
    lane_names,
    open_log,
)
from specrace.cli.shared.opening import open_workbench
from specrace.cli.shared.questions import read_questions, report_cuts
from specrace.cli.shared.terminal import clean, console
from specrace.core.cost_curve import ASSUMED_GPU, CostCurve
from specrace.core.errors import InputError, shorten
from specrace.core.files import as_input_error
from specrace.core.processors import count_processors
from specrace.core.settings import SETTINGS
from specrace.drafters import METHODS, find_method
from specrace.engine.spec import RaceSpec
from specrace.lab.advice.presets import NAMES, describe_curve
from specrace.lab.advice.recommend import Recommender
from specrace.lab.logs.files.pairs import pair_files
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.plots import paper
from specrace.lab.plots.drawing import require_matplotlib, write_plots
from specrace.lab.plots.paper_plots import paper_plot
from specrace.lab.plots.plot import Plot
from specrace.lab.plots.steps import step_plots
from specrace.lab.plots.sweeps import SweepView, sweep_plots
from specrace.lab.scoring.cells import run_sweep
from specrace.lab.scoring.score import ALL, MAX_CATEGORIES, ScoredLane, Tally
from specrace.lab.scoring.sweep import SHARD_SIZE, Cell, Sweep, SweepFolder, grid_lanes
from specrace.views.colours import lane_hues

# The width of the table in a file or a pipe, in characters.
TABLE_WIDTH = 140
MAX_PROCESSES = 1024
# The folder of --out that holds the plots.
PLOTS = "plots"
# The metrics in the table of a sweep.
TABLE_COLUMNS = ("outputs", "tau", "drafted_per_step", "acceptance_rate", "draft_ms_per_step", "expected_speedup")
# Metric -> its column's title and number format.
COLUMNS = {
    "outputs": ("outputs", "d"),
    "looping": ("looping", "d"),
    "tokens": ("tokens", "d"),
    "steps": ("steps", "d"),
    "tau": ("tokens/step", ".3f"),
    "drafted_per_step": ("drafted/step", ".1f"),
    "acceptance_rate": ("accepted", ".1%"),
    "draft_ms_per_step": ("draft ms/step", ".3f"),
    "build_ms_per_output": ("build ms", ".2f"),
    "shared_ms": ("shared ms", ".1f"),
    "expected_speedup": ("expected speedup", ".2f"),
}


def add_sweep_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that `sweep` and `recommend` share: the logs' format, lanes, grid and costs."""
    add_log_arguments(parser)
    parser.add_argument("--lanes", help=f"comma-separated; vanilla is always swept; {LANE_OPTIONS_HELP}")
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
        lane, dot, option = key.partition(".")
        names_setting = bool(option) if dot else key == "num_draft"
        if not values or not names_setting:
            raise InputError(f"--grid {text!r} is not of the form LANE.KEY=V1,V2 or num_draft=4,8, say trie.n=3,5,13.")
        if dot:
            find_method(lane)
            grid.setdefault(lane, {})[option] = values
        else:
            num_drafts = [SETTINGS["num_draft"].check(value) for value in values]
    return num_drafts, grid


def read_logs(options: argparse.Namespace, all_remarks: list[str] | None = None) -> list[Transcript]:
    """Read all transcripts of the logs. Raises InputError, for instance without transcripts or for too many categories.

    A batch's two files, of requests and of responses, are one log. An answer in several logs, such as those of a
    session and of its resumption, is read once. The remarks on the logs are printed, and appended to `all_remarks`.
    """
    all_remarks = [] if all_remarks is None else all_remarks
    transcripts: list[Transcript] = []
    seen = set[str]()
    for path, requests_path in pair_files(options.logs):
        file = open_log(options, path, requests_path, seen)
        # Reading the transcripts also fills `file.reasons` and `file.remarks`.
        transcripts.extend(file)
        for reason in file.reasons:
            print(f"Left out: {clean(reason)}", file=sys.stderr)
        remarks = [f"{shorten(path.name)}: {clean(remark)}" for remark in file.remarks.sentences()]
        all_remarks += remarks
        for remark in remarks:
            print(remark, file=sys.stderr)
    if not transcripts:
        raise InputError(f"{shorten(options.logs[0])} holds no transcript that can be scored.")
    if len({transcript.category for transcript in transcripts}) > MAX_CATEGORIES:
        raise InputError(f"There are more than {MAX_CATEGORIES} categories; score logs with fewer.")
    return transcripts


def answer_questions(
    options: argparse.Namespace, *, noise: float | None = None, out: Path | None = None, resume: bool = False
) -> list[Transcript]:
    """The model's greedy answers to the questions. Raises InputError.

    `noise`: the share of irrelevant passages, by default the value of --noise. Every answer is written into the folder
    `out`, if given; with `resume`, answers that are already there are reused.
    """
    # Imported here, because it imports torch, which other commands do not need.
    from specrace.answers import answer_once, documents_digest
    from specrace.retrieval.store import read_header

    lines = read_questions(options.questions)
    # The model may decode with the lane trie, so the context must have room for its drafts.
    spec = RaceSpec(("trie",), max_new_tokens=options.max_new_tokens)
    passages = SETTINGS["passages"].check(options.passages)
    noise = SETTINGS["noise"].check(options.noise if noise is None else noise)
    workbench = open_workbench(options)
    about = {name: workbench.target.describe()[name] for name in ("model", "dtype")} | spec.as_json()
    stored = None if options.index is None else read_header(options.index)
    about |= {"documents": documents_digest(workbench, stored), "reranker": options.reranker}
    return answer_once(
        workbench,
        lines,
        spec,
        passages,
        noise,
        about=about,
        out=out,
        resume=resume,
        on_cuts=report_cuts,
    )


def read_processes(options: argparse.Namespace) -> int:
    """The number of processes that score, by default one per processor. Raises InputError."""
    processes: int = options.processes or count_processors()
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
    ray_address: str = "",
) -> Sweep:
    """Sweep the transcripts, with a live table on a terminal. Raises InputError.

    `ray_address`: the Ray cluster that scores, or "local"; "" for processes of this machine without Ray.
    """
    processes = read_processes(options)
    sweep = Sweep.of(lanes, transcripts, curve, options.keep_outputs)
    folder = None if out is None else SweepFolder(out)
    if folder is not None:
        folder.open(sweep, resume=resume)
    with _live_table(sweep, quiet=options.json) as show:
        run_sweep(sweep, transcripts, folder=folder, processes=processes, ray=ray_address, on_progress=show)
    return sweep


@contextmanager
def _live_table(sweep: Sweep, *, quiet: bool) -> Iterator[Callable[[Cell], None]]:
    """Show a live table of the cells so far, if standard error is a terminal; yield a function that adds a cell.

    A cell: a lane's scores on a shard, which is SHARD_SIZE successive requests.
    """
    stderr = console(stderr=True)
    stderr.quiet = quiet or not stderr.is_terminal
    totals = [sweep.tally(lane, range(len(sweep.requests))) for lane in range(len(sweep.lanes))]
    with Live(console=stderr, auto_refresh=False, transient=True) as live:

        def show(cell: Cell) -> None:
            lane, shard = cell
            for number, score in enumerate(sweep.cells[cell], shard * SHARD_SIZE):
                totals[lane].merge(score.to_tally(sweep.requests[number]))
            if not stderr.quiet:
                table = sweep_table(
                    [metrics_row(sweep, lane, ALL, total) for lane, total in enumerate(totals) if total.outputs]
                )
                table.caption = f"{len(sweep.cells)} of {len(sweep.all_cells)} cells"
                live.update(table, refresh=True)

        yield show


def metrics_row(sweep: Sweep, lane: int, category: str, total: Tally) -> dict[str, Any]:
    """A lane's settings and its metrics for a category of requests, which may be ALL (all requests) or LOOPING."""
    return sweep.lanes[lane].describe() | {"settings": sweep.varied_settings(lane), "category": category} | total.row()


def sweep_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table of rows from `metrics_row`."""
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


def check_plots(out: Path | None, lanes: Sequence[ScoredLane]) -> None:
    """Raise InputError if a sweep of `lanes` into `out` could not be drawn. Called before anything is scored."""
    if out is None:
        raise InputError("--plots needs --out DIR; the plots go into DIR/plots.")
    if len(lanes) < 2:
        raise InputError("--plots needs a lane besides vanilla; add one to --lanes.")
    require_matplotlib()


def draw_sweep(out: Path, sweep: Sweep, transcripts: Sequence[Transcript]) -> list[Path]:
    """Draw all plots of a finished sweep into `out`/plots, and return the files. Raises InputError."""
    curve = sweep.curve or ASSUMED_GPU
    view = _view(sweep, curve)
    return _write(out / PLOTS, [*sweep_plots(view), *step_plots(view, transcripts)])


def draw_paper_plot(out: Path, name: str, sweep: Sweep, tables: Sequence[paper.Table], curve: CostCurve) -> list[Path]:
    """Draw the plot of the paper's table or figure `name` into `out`, and return the files. Raises InputError.

    `tables`: the tables that `paper` prints. Figure 5 is drawn from their times, every other plot from the sweep.
    """
    return _write(out, [paper_plot(name, _view(sweep, curve), tables)])


def _view(sweep: Sweep, curve: CostCurve) -> SweepView:
    return SweepView(Recommender(sweep, curve), describe_curve(curve))


def _write(folder: Path, plots: Sequence[Plot]) -> list[Path]:
    with as_input_error(folder, "--out"):
        folder.mkdir(exist_ok=True)
    return write_plots(folder, plots, lane_hues(METHODS))
