"""`python -m specrace recommend`: recommends a lane and its settings, as text to paste into your engine."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.table import Table

import specrace
from specrace.cli.shared.opening import find_tokenizer
from specrace.cli.shared.outputs import add_output, check_folder
from specrace.cli.shared.sweeps import add_sweep_arguments, read_logs, read_processes, sweep_transcripts, swept_lanes
from specrace.cli.shared.terminal import clean, console, print_json
from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError, shorten
from specrace.core.files import as_input_error, write_atomically
from specrace.core.settings import SETTINGS
from specrace.lab.advice.advice import choice, lane_to_export, profile_file, report, sentences
from specrace.lab.advice.candidates import candidates, engine_lanes, own_lanes
from specrace.lab.advice.exports import ENGINES
from specrace.lab.advice.exports.profile import PROFILE_FILE
from specrace.lab.advice.exports.sglang import CORPUS_FILE, corpus_flags, corpus_lines
from specrace.lab.advice.exports.simulators import SIMULATORS_FILE, simulators_text
from specrace.lab.advice.exports.specrace import SETTINGS_FILE
from specrace.lab.advice.halving import Halving
from specrace.lab.advice.head_profile import HeadForecast, HeadProfile
from specrace.lab.advice.presets import describe_curve, find_curve
from specrace.lab.advice.recommend import Recommender
from specrace.lab.advice.reports.blocks import Report, to_html, to_markdown
from specrace.lab.advice.reports.recommendation import recommendation_report
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.measured import measured_sentence
from specrace.lab.scoring.score import ALL, ScoredLane, longest_loop
from specrace.lab.scoring.sweep import Sweep, SweepFolder
from specrace.retrieval.documents import read_documents

# The cost curve without --cost-curve.
ASSUMED = "assumed-gpu"
MAX_BATCH = 4096  # against a typing error
# The files that may be written into --out, depending on the other arguments.
OUT_FILES = (PROFILE_FILE, SIMULATORS_FILE, CORPUS_FILE, SETTINGS_FILE, *(f"{name}.txt" for name in ENGINES))


def add_parser(commands: Any) -> None:
    """Add `recommend` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser(
        "recommend", help="recommend a lane and settings for your logs, ready to paste into your engine"
    )
    parser.add_argument(
        "logs", type=Path, nargs="+", metavar="LOG|SWEEP_DIR", help="logs, or a folder that sweep --out wrote"
    )
    add_sweep_arguments(parser)
    parser.add_argument(
        "--engine", choices=tuple(ENGINES), help="only drafters that this engine has; default: all lanes of our own"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="try all settings on a sample, and only the best of them on all requests; not with --grid, --keep-outputs "
        "or a sweep's folder",
    )
    parser.add_argument(
        "--batch", default="1", metavar="N", help="requests that the engine decodes together; default 1"
    )
    parser.add_argument(
        "--head-profile",
        type=Path,
        metavar="FILE",
        help="also forecast a trained head, from its acceptance by depth and the cost of its pass in forwards of the "
        'target: {"by_depth": [0.7, 0.6], "pass_cost": 0.1}',
    )
    _add_corpus_arguments(parser)
    add_output(
        parser,
        "--report",
        metavar="FILE.html|FILE.md",
        help="write a report in one file: figures, remarks, settings to paste, sources",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write there the settings for each engine, and how often drafts of each lane were accepted at each depth",
    )
    parser.add_argument(
        "--seed", default=SETTINGS["seed"].default, help="seed of the bootstrap intervals and of --quick's sample"
    )


def _add_corpus_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name the texts of SGLang's external corpus, from which its n-gram drafter drafts."""
    parser.add_argument(
        "--docs", type=Path, nargs="+", help="also write these documents as SGLang's external corpus; needs --out"
    )
    parser.add_argument(
        "--answers",
        action="store_true",
        help="also write the log's answers to that corpus, without duplicates and loops; needs --out, --tokenizer",
    )


def run(options: argparse.Namespace) -> int:
    """Recommend a lane and settings, show them and write the exports. Raises InputError."""
    seed, batch = SETTINGS["seed"].check(options.seed), _batch(options.batch)
    if (options.docs or options.answers) and options.out is None:
        flag = "--docs" if options.docs else "--answers"
        raise InputError(f"{flag} needs --out DIR, the folder for SGLang's corpus file.")
    check_folder(options.out, OUT_FILES, options)
    to_text = None if options.report is None else report_format(options.report)
    head = None if options.head_profile is None else HeadProfile.load(options.head_profile)
    folder = options.logs[0] if len(options.logs) == 1 and holds_sweep(options.logs[0]) else None
    if options.answers and (folder is not None or options.tokenizer is None):
        raise InputError("--answers needs --tokenizer, and logs instead of a sweep, which keeps no texts.")
    transcripts: list[Transcript] = []
    remarks: list[str] = []
    sample_recommender = None
    if options.quick:
        sweep, sample_sweep, transcripts = quick_sweep(options, folder, seed, batch, remarks)
        sample_recommender = Recommender(sample_sweep, _curve(options, sweep), (), seed, batch)
    elif folder is None:
        sweep, transcripts = full_sweep(options, remarks)
    else:
        sweep = load_sweep(options, folder)
    curve = _curve(options, sweep)
    lanes = () if options.engine is None else engine_lanes(options.engine)
    recommender = Recommender(sweep, curve, lanes, seed, batch)
    result = report(
        recommender, list(sentences(recommender, describe_curve(curve), sample_recommender)), options.engine
    )
    result["remarks"] = remarks
    add_measured(result, transcripts, None if head is None else head.forecast(curve, batch))
    if options.out is not None:
        write(options, recommender, result, transcripts)
    if to_text is not None:
        written = f"Written by specrace {specrace.__version__} on {datetime.now(UTC).date().isoformat()}."
        report_text = to_text(recommendation_report(recommender, result, log_names(options), written))
        with as_input_error(options.report, "--report"):
            write_atomically(options.report, report_text.encode(), 0o644)
    if options.json:
        print_json(result)
    else:
        _show(result)
    return 0


def add_measured(result: dict[str, Any], transcripts: Sequence[Transcript], head: HeadForecast | None) -> None:
    """Add to a recommendation what the engine that wrote the logs measured, and the forecast of a head."""
    if measured := measured_sentence(transcripts):
        result["text"].append(measured)
    if head is not None:
        result["text"].append(head.sentence())
        result["head"] = head.as_json()


def report_format(path: Path) -> Callable[[Report], str]:
    """The function that writes a report in the format of the file's ending. Raises InputError."""
    formats = {".html": to_html, ".htm": to_html, ".md": to_markdown}
    if path.suffix.lower() not in formats:
        raise InputError(f"--report is {shorten(path.name)!r}; give a file that ends in .html or .md.")
    return formats[path.suffix.lower()]


def log_names(options: argparse.Namespace) -> str:
    """The names of the logs, without their folders."""
    return ", ".join(shorten(path.resolve().name) for path in options.logs)


def holds_sweep(path: Path) -> bool:
    """Whether this is a folder that `sweep --out` wrote, rather than logs."""
    return path.is_dir() and SweepFolder(path).holds_sweep()


def _batch(text: str) -> int:
    """The number of requests in a batch. Raises InputError."""
    if not (str(text).isascii() and str(text).isdigit() and 1 <= int(text) <= MAX_BATCH):
        raise InputError(f"--batch is {shorten(text)!r}; give 1 to {MAX_BATCH} requests.")
    return int(text)


def _curve(options: argparse.Namespace, sweep: Sweep) -> CostCurve:
    """The curve of --cost-curve, else the sweep's, else an assumed one."""
    if options.cost_curve is None and sweep.curve:
        return sweep.curve
    return find_curve(options.cost_curve or ASSUMED)


def _lanes_to_try(options: argparse.Namespace) -> list[ScoredLane]:
    """The lanes to try: those of --lanes, else those of the --engine, else our own lanes."""
    return swept_lanes(options, engine_lanes(options.engine) if options.engine else own_lanes())


def full_sweep(options: argparse.Namespace, remarks: list[str]) -> tuple[Sweep, list[Transcript]]:
    """Sweep the logs in memory, over --grid or the settings that `recommend` tries.

    Returns the sweep and the transcripts. The remarks on the logs are appended to `remarks`. Raises InputError.
    """
    lanes = _lanes_to_try(options)
    if not options.grid:
        lanes = candidates(lane.name for lane in lanes)
    curve = find_curve(options.cost_curve or ASSUMED)
    transcripts = read_logs(options, remarks)
    return sweep_transcripts(options, lanes, transcripts, curve), transcripts


def quick_sweep(
    options: argparse.Namespace, folder: Path | None, seed: int, batch: int, remarks: list[str]
) -> tuple[Sweep, Sweep, list[Transcript]]:
    """The sweep of the best settings on all requests, that of all settings on a sample, and the transcripts.

    The best settings are found by successive halving. The remarks on the logs are appended to `remarks`. Raises
    InputError.
    """
    if folder is not None:
        raise InputError(
            f"--quick needs logs, but {shorten(folder)} holds a sweep; leave out --quick, or give the logs."
        )
    if options.grid or options.keep_outputs:
        raise InputError("--quick chooses the settings itself; leave out --grid and --keep-outputs.")
    lanes = candidates(lane.name for lane in _lanes_to_try(options))
    transcripts = read_logs(options, remarks)
    sweep = Sweep.of(lanes, transcripts, find_curve(options.cost_curve or ASSUMED))
    # Lane 0 is vanilla.
    competing = list(range(1, len(lanes)))
    # The export for an engine needs the best of that engine's lanes, so they also compete among themselves.
    engine_groups = {
        name: [index for index in competing if engine.has(lanes[index].name)] for name, engine in ENGINES.items()
    }
    halving = Halving(sweep, transcripts, {ALL: competing, **engine_groups}, batch=batch, seed=seed)
    # `run` yields its progress, which is not shown here.
    for _ in halving.run(processes=read_processes(options)):
        pass
    return halving.all_finalists(), halving.sample(ALL), transcripts


def load_sweep(options: argparse.Namespace, folder: Path) -> Sweep:
    """Load the sweep in a folder, whose lanes and settings are fixed. Raises InputError."""
    if options.lanes or options.grid or options.keep_outputs:
        raise InputError(f"{folder} holds a sweep with its own settings; leave out --lanes, --grid and --keep-outputs.")
    return SweepFolder.load(folder)


def write(
    options: argparse.Namespace,
    recommender: Recommender,
    result: Mapping[str, Any],
    transcripts: Sequence[Transcript],
) -> None:
    """Write the exports, the acceptance profile and SGLang's corpus into --out. Raises InputError."""
    files = {
        PROFILE_FILE: json.dumps(profile_file(recommender, log_names(options)), indent=1),
        SIMULATORS_FILE: simulators_text(result["simulators"]),
    }
    for name, export in result["exports"].items():
        if export is not None:
            files |= {f"{name}.txt": _export_text(export), **export["files"]}
    if options.docs or options.answers:
        lane = lane_to_export(recommender, ENGINES["sglang"])
        files[CORPUS_FILE] = corpus_lines(_corpus(options, transcripts))
        if lane is not None and "sglang.txt" in files:
            flags = corpus_flags(choice(recommender, lane))
            is_used = {"the documents": options.docs, "the log's answers": options.answers}
            names = " and ".join(name for name, used in is_used.items() if used)
            files["sglang.txt"] += f"To use {names}, add this, which was not tested: {flags}\n"
    with as_input_error(options.out, "--out"):
        options.out.mkdir(exist_ok=True)
        for name, text in files.items():
            (options.out / name).write_text(text, encoding="utf-8")


def _corpus(options: argparse.Namespace, transcripts: Sequence[Transcript]) -> Iterator[str]:
    """Yield the texts of SGLang's corpus: documents, and the log's distinct answers, except those that loop."""
    if options.docs:
        yield from (document.text for document in read_documents(options.docs))
    if options.answers:
        tokenizer = find_tokenizer(options.tokenizer, quiet=options.json)
        answers = dict.fromkeys(transcript.output for transcript in transcripts)
        texts = (tokenizer.decode(list(output)) for output in answers if not longest_loop(output))
        yield from filter(str.strip, texts)


def _export_text(export: Mapping[str, Any]) -> str:
    """An export as text: forecast, settings to paste, settings for load tests, notes, effects of request fields.

    `synthetic` are the settings with which an engine imitates this acceptance without a drafter; `convention` is a
    sentence on what their numbers count.
    """
    header = (
        f"{export['lane']}, {export['tau']:.2f} tokens a step, forecast {export['speedup']:.2f}x; option names as in "
        f"{export['version']}"
    )
    synthetic = ""
    if export["synthetic"]:
        synthetic = f"The same acceptance, for load tests: {export['synthetic']}\n{export['convention']}"
    effects = (row["sentence"] for row in export["requests"])
    return "\n".join(filter(None, (header, export["settings"].rstrip(), synthetic, *export["notes"], *effects))) + "\n"


def _show(result: Mapping[str, Any]) -> None:
    """Print the recommendation, what was not tested, and what to paste."""
    out = console()
    for number, sentence in enumerate(result["text"]):
        out.print(clean(sentence), style="bold" if not number else "")
    for note in result["option_notes"]:
        out.print(clean(note))
    out.print("\nNot tested:", style="bold")
    for sentence in result["not_tested"]:
        out.print(f"- {clean(sentence)}")
    table = Table("engine", "lane", "forecast", "paste", box=None, header_style="bold", pad_edge=False)
    for name, export in result["exports"].items():
        if export is not None:
            table.add_row(name, export["lane"], f"{export['speedup']:.2f}x", clean(export["settings"].rstrip()))
    out.print()
    out.print(table)
