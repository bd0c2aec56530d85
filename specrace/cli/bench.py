"""`python -m specrace bench`: measures the speed of lanes and of other decoders on this machine.

Other libraries' decoders, such as llama.cpp's, are peers. `COUNTERPARTS` maps a peer to the lane most like it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

from rich.progress import Progress

import specrace
from specrace.cli.shared.arguments import add_race_arguments, add_transcripts_argument, race_spec
from specrace.cli.shared.opening import open_workbench
from specrace.cli.shared.outputs import check_folder
from specrace.cli.shared.questions import (
    AUTO,
    FORMS,
    auto_count,
    check_question_arguments,
    draw_questions,
    read_prompts,
    report_cuts,
)
from specrace.cli.shared.tables import csv_rows, markdown, show
from specrace.cli.shared.terminal import clean, console, print_json, quiet_model_library
from specrace.core.bundled import QUESTIONS
from specrace.core.csv_text import csv_text
from specrace.core.errors import InputError
from specrace.core.files import as_input_error
from specrace.core.processors import processor_name
from specrace.drafters import find_method, native_methods
from specrace.engine.lane_name import method_of, parse_lane
from specrace.engine.request import RaceRequest
from specrace.engine.spec import RaceSpec, plan_lane
from specrace.lab.bench.benchmark import COUNTERPARTS, MAX_REPETITIONS, Bench, BenchPrompt, PromptResult
from specrace.lab.bench.summary import summarise
from specrace.lab.logs.transcripts import TranscriptFile, write_transcripts
from specrace.lab.scoring.score import why_not_scorable
from specrace.retrieval.prompt import check_prompt

# The lanes without --lanes.
LANES = ("vanilla", "trie", "prompt-lookup")
PROMPTS_HELP = (
    "a .jsonl file of {question}, {prompt} or {prompt_ids}; default: the bundled questions, or auto with --docs or "
    "--index"
)
# The shapes that a model with random weights can have.
SHAPES = ("tiny", "0.5b", "7b", "8b")


def add_parser(commands: Any) -> None:
    """Add `bench` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("bench", help="measure lanes, and other decoders, on many prompts")
    parser.add_argument("--prompts", "--questions", metavar="FILE|auto[:N]", help=f"{FORMS}; {PROMPTS_HELP}")
    parser.add_argument("--limit", type=int, metavar="N", help="read only the first N prompts")
    add_race_arguments(parser, LANES)
    parser.add_argument("--peers", default="", help=f"comma-separated: {', '.join(COUNTERPARTS)}")
    parser.add_argument(
        "--peer-weights",
        metavar="FILE.gguf|TYPE",
        help="weights for llama.cpp: a file, or f32, bf16, f16 or q8_0; default: --dtype",
    )
    parser.add_argument("--repetitions", type=int, default=3, help="runs of each lane on each prompt; default 3")
    parser.add_argument("--forget-outputs", action="store_true", help="let no lane draft from earlier outputs")
    parser.add_argument(
        "--scripted",
        type=Path,
        metavar="TRANSCRIPTS.jsonl",
        help="measure a model with random weights whose outputs follow this log",
    )
    parser.add_argument("--shape", choices=SHAPES, help="with --scripted: the model's published shape")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write bench.json, bench.csv and bench.md there")
    add_transcripts_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Measure, show and write the results. Raises InputError."""
    spec = _spec(options)
    _check(options)
    bench, prompts, decode = _scripted_bench(options, spec) if options.scripted else _model_bench(options, spec)
    with _progress(len(prompts), len(bench.spec.lanes) + len(bench.peers), bench.repetitions) as on_progress:
        results = bench.run(prompts, on_progress)
    report = {**describe(options, bench), **summarise(results, decode)}
    if options.out is not None:
        write(options.out, report, results)
    if options.save_transcripts is not None:
        # None: no server counted draft tokens for these outputs.
        rows = ((result.prompt.id, result.prompt.tokens, result.runs["vanilla"][0].tokens, None) for result in results)
        write_transcripts(options.save_transcripts, rows, Path(_source(options)).stem)
    if options.json:
        print_json(report)
    else:
        show(report)
    return 0


def _spec(options: argparse.Namespace) -> RaceSpec:
    """The race's spec. With `--scripted`, the default lanes are all methods of ours that can follow a script.

    A script is a transcript's output, which the model is made to print.
    """
    if options.scripted and options.lanes == ",".join(LANES):
        options.lanes = ",".join(name for name in native_methods() if not unscriptable(name))
    return race_spec(options)


def _check(options: argparse.Namespace) -> None:
    """Check the arguments before anything is loaded. Raises InputError."""
    check_question_arguments(options, MAX_REPETITIONS)
    if options.out is not None and (options.out.is_file() or not options.out.absolute().parent.is_dir()):
        raise InputError(f"{options.out} cannot be a folder for the results; give another --out.")
    check_folder(options.out, (f"bench.{kind}" for kind in ("json", "csv", "md")), options)
    if (options.shape is None) != (options.scripted is None):
        raise InputError("--scripted TRANSCRIPTS.jsonl and --shape belong together; give both or neither.")
    for name in _peer_names(options):
        if name not in COUNTERPARTS:
            raise InputError(f"There is no peer {name!r}; choose from {', '.join(COUNTERPARTS)}.")
    if options.peer_weights is not None and not any(name.startswith("llama-cpp") for name in _peer_names(options)):
        raise InputError("--peer-weights is for llama.cpp: add --peers llama-cpp, or leave it out.")
    if options.followers is not None and (options.peers or options.scripted):
        raise InputError("Under torchrun there are no peers and no scripted model: leave out --peers and --scripted.")
    if options.scripted and (options.peers or options.model or options.temperature):
        raise InputError("A scripted model follows its transcripts: leave out --peers, --model and --temperature.")


def _peer_names(options: argparse.Namespace) -> list[str]:
    """The names in --peers, the other libraries' decoders to compare with, without duplicates."""
    return list(dict.fromkeys(name.strip() for name in options.peers.split(",") if name.strip()))


def _model_bench(options: argparse.Namespace, spec: RaceSpec) -> tuple[Bench, list[BenchPrompt], Callable[..., str]]:
    """The bench on a real model, its prompts, and the function that decodes its outputs. Raises InputError."""
    from specrace.lab.bench.calibrate import calibrate
    from specrace.lab.bench.peers import check_peers, make_peers

    check_peers(_peer_names(options), options.peer_weights)
    source = _source(options)
    count = auto_count(source)
    # With "auto", questions are drawn below, once the workbench has read the documents.
    lines = [] if count else read_prompts(Path(source), options.limit)
    workbench = open_workbench(options)
    # No line was read only if there is a `count`; `or 0` is for the type checker.
    lines = lines or draw_questions(workbench.documents, count or 0)[: options.limit]
    target = workbench.target
    prompts = [_prompt(workbench, line, spec, options) for line in lines]
    curve = workbench.curve or calibrate(target)
    # Peers draft as many tokens as our prompt-lookup lane does after a prompt of median length.
    curve_at_median = curve.near(round(median(len(prompt.tokens) for prompt in prompts)))
    lookup = plan_lane(spec, lookup_lane(spec), target.device_type, curve_at_median)
    peers = make_peers(
        _peer_names(options),
        target,
        spec.sampling_params(),
        lookup.num_draft,
        options.peer_weights,
        longest=int(lookup.options["longest"]),
    )
    bench = Bench(
        target,
        spec.with_options_in_names(),
        peers=peers,
        repetitions=options.repetitions,
        sources=workbench.sources(spec),
        curve=curve,
        keep_outputs=not options.forget_outputs,
    )

    def decode(tokens: Sequence[int]) -> str:
        text: str = target.tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text.strip()

    return bench, prompts, decode


def lookup_lane(spec: RaceSpec) -> str:
    """The name, perhaps with options, of the first lane with prompt lookup; peers get that lane's settings."""
    return next((name for name in spec.lanes if method_of(name).name == "prompt-lookup"), "prompt-lookup")


def _scripted_bench(options: argparse.Namespace, spec: RaceSpec) -> tuple[Bench, list[BenchPrompt], Callable[..., str]]:
    """The bench on a model with random weights whose outputs follow transcripts, its prompts, and the decode function.

    Raises InputError.
    """
    from specrace.model.transcript_target import load_scripted

    quiet_model_library()
    for name in spec.lanes:
        lane = parse_lane(name)
        method = lane.method.name
        reason = unscriptable(method, {**spec.options.get(method, {}), **lane.options})
        if reason:
            raise InputError(f"The lane {name} cannot follow a script: {reason}; leave it out of --lanes.")
    transcripts = list(TranscriptFile(options.scripted))[: options.limit]
    if not transcripts:
        raise InputError(
            f"{options.scripted} holds no transcript; give a log with prompts and outputs, such as "
            "bench --save-transcripts writes."
        )
    scripts = {transcript.prompt: transcript.output for transcript in transcripts}
    if len(scripts) < len(transcripts):
        raise InputError(
            f"{options.scripted} has prompts with more than one output ({len(transcripts) - len(scripts)} lines too "
            "many), and a scripted model can follow only one; keep one line for each prompt."
        )
    target = load_scripted(options.shape, scripts, device=options.device, dtype=options.dtype)
    prompts = [
        BenchPrompt(transcript.id or str(number), transcript.prompt, transcript.category, len(transcript.output))
        for number, transcript in enumerate(transcripts, 1)
    ]
    named = spec.with_options_in_names()
    bench = Bench(target, named, repetitions=options.repetitions, keep_outputs=not options.forget_outputs)
    return bench, prompts, target.decode


def unscriptable(name: str, options: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Why a lane of the method `name` with these options cannot follow a script; "" if it can."""
    method = find_method(name)
    if method.corpus_part_with({**method.defaults("cpu"), **options}):
        return "it drafts from documents, and a transcript has none"
    # `scoring.build` makes a reduced drafter, for a method whose own needs the target's tokens off the accepted path.
    return why_not_scorable(method) or ("it learns from tokens off the accepted path" if method.scoring.build else "")


def _prompt(workbench: Any, line: Mapping[str, Any], spec: RaceSpec, options: argparse.Namespace) -> BenchPrompt:
    """The prompt from a line with token ids, plain text, or a question for the retriever. Raises InputError."""
    if "prompt_ids" in line:
        return BenchPrompt(line["id"], tuple(line["prompt_ids"]))
    if "prompt" in line:
        check_prompt(line["prompt"])
        return BenchPrompt(line["id"], tuple(workbench.target.tokenizer(line["prompt"])["input_ids"]), line["prompt"])
    request = RaceRequest(line["question"], spec, options.passages, options.noise, options.thinking)
    prompt, hits = workbench.make_prompt(request)
    report_cuts(line["id"], hits)
    return BenchPrompt(line["id"], prompt.tokens, line["question"])


def describe(options: argparse.Namespace, bench: Bench) -> dict[str, Any]:
    """The conditions of the measurement: model, machine, versions, settings, command, date."""
    target, spec = bench.target, bench.spec
    about = target.describe()
    followers = options.followers
    launcher = "python" if followers is None else f"torchrun --nproc-per-node {followers.size}"
    return {
        **about,
        "machine": {"processor": processor_name(), "cores": os.cpu_count(), "system": platform.platform(terse=True)},
        "versions": {**about["versions"], "specrace": specrace.__version__},
        "command": f"{launcher} -m specrace " + shlex.join(map(without_folders, sys.argv[1:] or ["bench"])),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": {
            **spec.as_json(),
            "repetitions": bench.repetitions,
            "prompts": without_folders(_source(options)),
            "peers": {peer.name: peer.settings for peer in bench.peers},
            "cost_curve": None if bench.curve is None else bench.curve.as_json(),
            "earlier_outputs": "kept" if bench.keep_outputs else "not kept",
        },
        "timed": "decode: the lane's own clock (draft, target, keep, its tables for the prompt), without prefill and "
        "what is built once for all requests (shared_ms); for a peer the time after its first tokens. run: the wall "
        "clock of the whole run, with prefill.",
    }


def _source(options: argparse.Namespace) -> str:
    """The file that the prompts come from, or "auto"."""
    default = AUTO if options.docs or options.index else QUESTIONS
    return str(options.scripted or options.prompts or default)


def without_folders(argument: str) -> str:
    """An argument whose absolute path, also one after a "=", is cut to its last part.

    Results must not reveal the user's folders.
    """
    name, equals, value = argument.rpartition("=")
    path = Path(value)
    return f"{name}{equals}{path.name}" if path.is_absolute() and path.name else argument


@contextmanager
def _progress(prompts: int, decoders: int, repetitions: int) -> Iterator[Callable[[str], None]]:
    """Show a progress bar, if standard error is a terminal; yield the function that advances it."""
    stderr = console(stderr=True)
    with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        # For each prompt: a warm-up, and in each repetition a run of every decoder and a race.
        task = bar.add_task("measuring", total=prompts * (1 + repetitions * (decoders + 1)))
        yield lambda what: bar.update(task, advance=1, description=clean(what))


def write(folder: Path, report: Mapping[str, Any], results: Sequence[PromptResult]) -> None:
    """Write bench.json, bench.md and bench.csv (a row for each repetition). Raises InputError if that fails."""
    with as_input_error(folder, "--out"):
        folder.mkdir(exist_ok=True)
        # "replace": file names and arguments that are not UTF-8 contain lone surrogates.
        encoding: dict[str, Any] = {"encoding": "utf-8", "errors": "replace"}
        (folder / "bench.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", **encoding)
        (folder / "bench.md").write_text(markdown(report), **encoding)
        (folder / "bench.csv").write_text(csv_text(csv_rows(results)), newline="", **encoding)
