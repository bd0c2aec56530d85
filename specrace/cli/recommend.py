"""`python -m specrace recommend`: which lane and settings, what they yield, and what to paste into your engine."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from specrace.cli.sweep import add_sweep_arguments, read_logs, sweep_transcripts, swept_lanes
from specrace.cli.terminal import clean, console, print_json
from specrace.core.errors import InputError
from specrace.core.files import explained
from specrace.core.settings import SETTINGS
from specrace.lab.advice import choice, exported, exports, profile_file, sentences
from specrace.lab.exports import ENGINES
from specrace.lab.exports.profile import PROFILE_FILE
from specrace.lab.exports.sglang import CORPUS_FILE, corpus_flags, corpus_lines
from specrace.lab.forecast import is_twin
from specrace.lab.presets import describe_curve, find_curve
from specrace.lab.recommend import Recommender
from specrace.lab.score import scorable_lanes
from specrace.lab.sweep import Sweep, SweepFolder
from specrace.retrieval.documents import read_documents

ASSUMED = "assumed-gpu"
# What is tried where no --grid is given, beside every lane's defaults.
NUM_DRAFTS = ("4", "8", "16", "32")
GRID: dict[str, dict[str, Sequence[Any]]] = {
    "fusion": {"chain": (False, True)},
    "vllm-ngram": {"prompt_lookup_min": (2,), "prompt_lookup_max": (3, 5)},
    "sglang-ngram": {"match_type_prob": (False, True)},
    "trtllm-ngram": {"max_matching_ngram_size": (2, 4)},
    "llamacpp-simple": {"size_n": (3, 12)},
    "llamacpp-map-k": {"size_n": (3, 12)},
    "llamacpp-map-k4v": {"size_n": (3, 12)},
    "llamacpp-mod": {"n_match": (3, 24), "n_min": (1,)},
}


def add_parser(commands: Any) -> None:
    """Add `recommend` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("recommend", help="which lane and settings pay, with the evidence, ready to paste")
    parser.add_argument("logs", type=Path, nargs="+", metavar="LOG|SWEEP_DIR", help="logs, or what sweep --out wrote")
    add_sweep_arguments(parser)
    parser.add_argument("--engine", choices=tuple(ENGINES), help="only the drafters of this engine")
    parser.add_argument("--docs", type=Path, nargs="+", help="write them as SGLang's corpus; needs --out")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the exports and the acceptance profile there")
    parser.add_argument("--seed", default=SETTINGS["seed"].default, help="of the bootstrap; the choice needs none")


def run(options: argparse.Namespace) -> int:
    """Recommend. Raises InputError."""
    seed = SETTINGS["seed"].check(options.seed)
    if options.docs and options.out is None:
        raise InputError("--docs needs --out DIR, the folder for SGLang's corpus file.")
    folder = options.logs[0] if len(options.logs) == 1 and options.logs[0].is_dir() else None
    sweep = swept(options) if folder is None else loaded(options, folder)
    curve = sweep.curve if options.cost_curve is None and sweep.curve else find_curve(options.cost_curve or ASSUMED)
    found = Recommender(sweep, curve, () if options.engine is None else engine_lanes(options.engine), seed)
    result = report(found, list(sentences(found, describe_curve(curve))), options.engine)
    if options.out is not None:
        write(options, found, result)
    if options.json:
        print_json(result)
    else:
        _show(result)
    return 0


def engine_lanes(engine: str) -> tuple[str, ...]:
    """The lanes that are an engine's own drafters, else those nearest to them."""
    known = ENGINES[engine]
    own = [name for name in scorable_lanes() if known.prefix and name.startswith(known.prefix)]
    return tuple(own) or tuple(name for name in known.nearest if name in own_lanes())


def own_lanes() -> list[str]:
    """The lanes that can be scored and are no engine's."""
    return [name for name in scorable_lanes() if not is_twin(name)]


def swept(options: argparse.Namespace) -> Sweep:
    """A sweep of the logs, in memory."""
    names = engine_lanes(options.engine) if options.engine else own_lanes()
    lanes = swept_lanes(options, names)
    if not options.grid:
        options.grid = [f"num_draft={','.join(NUM_DRAFTS)}"]
        for lane, settings in GRID.items():
            if lane in {each.name for each in lanes}:
                options.grid += [f"{lane}.{name}={','.join(map(str, values))}" for name, values in settings.items()]
        lanes += [each for each in swept_lanes(options, names) if each not in lanes]
    curve = find_curve(options.cost_curve or ASSUMED)
    return sweep_transcripts(options, lanes, read_logs(options), curve)


def loaded(options: argparse.Namespace, folder: Path) -> Sweep:
    """The sweep in a folder, whose lanes and settings are fixed."""
    if options.lanes or options.grid or options.keep_outputs:
        raise InputError(f"{folder} holds a sweep with its own settings; leave out --lanes, --grid and --keep-outputs.")
    return SweepFolder.load(folder)


def report(found: Recommender, text: Sequence[str], engine: str | None) -> dict[str, Any]:
    """The result as JSON; `text` is the recommendation in sentences."""
    chosen = exports(found)
    return {
        "recommendation": found.recommendation(),
        "groups": found.groups,
        "exports": {name: made for name, made in chosen.items() if engine in (None, name)},
        "profile": found.profile(),
        "not_tested": found.not_tested,
        "text": list(text),
        "batches": found.batches,
        "requests": len(found.counted),
        "looping": len(found.sweep.requests) - len(found.counted),
        "settings": {"seed": found.seed, "cost_curve": found.curve.as_json(), "keep_outputs": found.sweep.keep_outputs},
    }


def write(options: argparse.Namespace, found: Recommender, result: Mapping[str, Any]) -> None:
    """The exports, their files, the profile and SGLang's corpus. Raises InputError."""
    files = {PROFILE_FILE: json.dumps(profile_file(found, ", ".join(path.name for path in options.logs)), indent=1)}
    for name, made in result["exports"].items():
        if made is not None:
            files |= {f"{name}.txt": _export_text(made), **made["files"]}
    if options.docs:
        number = exported(found, ENGINES["sglang"])
        files[CORPUS_FILE] = corpus_lines(each.text for each in read_documents(options.docs))
        if number is not None and "sglang.txt" in files:
            files["sglang.txt"] += f"With the documents, which was not tested: {corpus_flags(choice(found, number))}\n"
    with explained(options.out, "--out"):
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
