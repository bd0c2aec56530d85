"""`python -m specrace recommend`: which lane and settings, what they yield, and what to paste into your engine."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from specrace.cli.sweep import add_sweep_arguments, checked_processes, read_logs, sweep_transcripts, swept_lanes
from specrace.cli.terminal import clean, console, print_json
from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError, shorten
from specrace.core.files import as_input_error
from specrace.core.settings import SETTINGS
from specrace.lab.advice import choice, lane_to_export, profile_file, report, sentences
from specrace.lab.candidates import candidates, engine_lanes, own_lanes
from specrace.lab.exports import ENGINES
from specrace.lab.exports.profile import PROFILE_FILE
from specrace.lab.exports.sglang import CORPUS_FILE, corpus_flags, corpus_lines
from specrace.lab.halving import Halving
from specrace.lab.presets import describe_curve, find_curve
from specrace.lab.recommend import Recommender
from specrace.lab.score import ALL
from specrace.lab.sweep import Sweep, SweepFolder
from specrace.retrieval.documents import read_documents

ASSUMED = "assumed-gpu"
MAX_BATCH = 4096


def add_parser(commands: Any) -> None:
    """Add `recommend` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("recommend", help="which lane and settings pay, with the evidence, ready to paste")
    parser.add_argument("logs", type=Path, nargs="+", metavar="LOG|SWEEP_DIR", help="logs, or what sweep --out wrote")
    add_sweep_arguments(parser)
    parser.add_argument("--engine", choices=tuple(ENGINES), help="only the drafters of this engine")
    parser.add_argument("--quick", action="store_true", help="all settings on a sample, and only the best on all")
    parser.add_argument("--batch", default="1", metavar="N", help="requests that the engine decodes at a time (1)")
    parser.add_argument("--docs", type=Path, nargs="+", help="write them as SGLang's corpus; needs --out")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the exports and the acceptance profile there")
    parser.add_argument(
        "--seed", default=SETTINGS["seed"].default, help="seeds the bootstrap intervals and the sample of --quick"
    )


def run(options: argparse.Namespace) -> int:
    """Recommend. Raises InputError."""
    seed, batch = SETTINGS["seed"].check(options.seed), _batch(options.batch)
    if options.docs and options.out is None:
        raise InputError("--docs needs --out DIR, the folder for SGLang's corpus file.")
    folder = options.logs[0] if len(options.logs) == 1 and options.logs[0].is_dir() else None
    sample = None
    if options.quick:
        sweep, all_settings = quick(options, folder, seed, batch)
        sample = Recommender(all_settings, _curve(options, sweep), (), seed, batch)
    else:
        sweep = swept(options) if folder is None else loaded(options, folder)
    curve = _curve(options, sweep)
    found = Recommender(sweep, curve, () if options.engine is None else engine_lanes(options.engine), seed, batch)
    result = report(found, list(sentences(found, describe_curve(curve), sample)), options.engine)
    if options.out is not None:
        write(options, found, result)
    if options.json:
        print_json(result)
    else:
        _show(result)
    return 0


def _batch(given: str) -> int:
    if not (str(given).isascii() and str(given).isdigit() and 1 <= int(given) <= MAX_BATCH):
        raise InputError(f"--batch is {shorten(given)!r}; give 1 to {MAX_BATCH} requests.")
    return int(given)


def _curve(options: argparse.Namespace, sweep: Sweep) -> CostCurve:
    return sweep.curve if options.cost_curve is None and sweep.curve else find_curve(options.cost_curve or ASSUMED)


def swept(options: argparse.Namespace) -> Sweep:
    """A sweep of the logs, in memory."""
    names = engine_lanes(options.engine) if options.engine else own_lanes()
    lanes = swept_lanes(options, names)
    if not options.grid:
        lanes = candidates(each.name for each in lanes)
    curve = find_curve(options.cost_curve or ASSUMED)
    return sweep_transcripts(options, lanes, read_logs(options), curve)


def quick(options: argparse.Namespace, folder: Path | None, seed: int, batch: int) -> tuple[Sweep, Sweep]:
    """The best settings on all requests, and all settings on a sample of them, as on the page."""
    if folder is not None or options.grid or options.keep_outputs:
        raise InputError("--quick chooses among its own settings of logs; leave out --grid and --keep-outputs.")
    names = engine_lanes(options.engine) if options.engine else own_lanes()
    lanes = candidates(each.name for each in swept_lanes(options, names))
    transcripts = read_logs(options)
    sweep = Sweep.of(lanes, transcripts, find_curve(options.cost_curve or ASSUMED))
    everything = list(range(1, len(lanes)))
    # For every engine its nearest lane goes on, for the exports.
    near = {
        name: [number for number in everything if engine.has(lanes[number].name)] for name, engine in ENGINES.items()
    }
    halving = Halving(sweep, transcripts, {ALL: everything, **near}, batch=batch, seed=seed)
    for _ in halving.run(processes=checked_processes(options)):
        pass
    return halving.all_finalists(), halving.sample(ALL)


def loaded(options: argparse.Namespace, folder: Path) -> Sweep:
    """The sweep in a folder, whose lanes and settings are fixed."""
    if options.lanes or options.grid or options.keep_outputs:
        raise InputError(f"{folder} holds a sweep with its own settings; leave out --lanes, --grid and --keep-outputs.")
    return SweepFolder.load(folder)


def write(options: argparse.Namespace, found: Recommender, result: Mapping[str, Any]) -> None:
    """The exports, their files, the profile and SGLang's corpus. Raises InputError."""
    files = {PROFILE_FILE: json.dumps(profile_file(found, ", ".join(path.name for path in options.logs)), indent=1)}
    for name, made in result["exports"].items():
        if made is not None:
            files |= {f"{name}.txt": _export_text(made), **made["files"]}
    if options.docs:
        number = lane_to_export(found, ENGINES["sglang"])
        files[CORPUS_FILE] = corpus_lines(each.text for each in read_documents(options.docs))
        if number is not None and "sglang.txt" in files:
            files["sglang.txt"] += f"With the documents, which was not tested: {corpus_flags(choice(found, number))}\n"
    with as_input_error(options.out, "--out"):
        options.out.mkdir(exist_ok=True)
        for name, text in files.items():
            (options.out / name).write_text(text, encoding="utf-8")


def _export_text(made: Mapping[str, Any]) -> str:
    head = (
        f"{made['lane']}, {made['tau']:.2f} tokens a step, forecast {made['speedup']:.2f}x; names of {made['version']}"
    )
    synthetic = f"The same acceptance, for load tests: {made['synthetic']}" if made["synthetic"] else ""
    return "\n".join(filter(None, (head, made["settings"].rstrip(), synthetic, *made["notes"]))) + "\n"


def _show(result: Mapping[str, Any]) -> None:
    """The sentences, what was not tested, and what to paste."""
    out = console()
    for number, sentence in enumerate(result["text"]):
        out.print(clean(sentence), style="bold" if not number else "")
    out.print("\nNot tested:", style="bold")
    for sentence in result["not_tested"]:
        out.print(f"- {clean(sentence)}")
    table = Table("engine", "lane", "forecast", "paste", box=None, header_style="bold", pad_edge=False)
    for name, made in result["exports"].items():
        if made is not None:
            table.add_row(name, made["lane"], f"{made['speedup']:.2f}x", clean(made["settings"].rstrip()))
    out.print()
    out.print(table)
