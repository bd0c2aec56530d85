"""`python -m specrace bench`: how fast the lanes are on this machine, beside transformers' own decoding."""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.progress import Progress
from rich.table import Table

import specrace
from specrace.bench import COUNTERPARTS, MAX_REPETITIONS, Bench, BenchPrompt, PromptResult, summarise
from specrace.cost import CostCurve
from specrace.drafters import METHODS, find_method
from specrace.errors import InputError
from specrace.options import lane_names, lane_options
from specrace.race import RaceSpec, settings
from specrace.rejection import SAMPLING_RULES
from specrace.score import needs_target
from specrace.terminal import clean, console, quiet_model_library
from specrace.transcripts import TranscriptFile

LANES = ("vanilla", "trie", "prompt-lookup")
QUESTIONS = Path(__file__).resolve().parent.parent / "assets" / "questions.jsonl"
DRAFTING_FROM_DOCUMENTS = ("bigram", "trigram", "rest")
SHAPES = ("tiny", "0.5b", "7b", "8b")


def add_parser(commands: Any) -> None:
    """Add `bench` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("bench", help="measure lanes, and transformers beside them, on many prompts")
    parser.add_argument("--prompts", type=Path, metavar="FILE.jsonl", help='{"question"}, {"prompt"} or {"prompt_ids"}')
    parser.add_argument("--limit", type=int, help="only the first so many prompts")
    parser.add_argument("--lanes", default=",".join(LANES), help="comma-separated; vanilla always runs")
    parser.add_argument("--peers", default="", help="comma-separated: transformers, transformers-pld")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--docs", type=Path, nargs="+", help="files or folders; default: the corpus that ships")
    parser.add_argument("--passages", type=int, default=4, help="passages in a question's prompt; 0: no documents")
    parser.add_argument("--scripted", type=Path, metavar="TRANSCRIPTS.jsonl", help="random weights follow transcripts")
    parser.add_argument("--shape", choices=SHAPES, help="of the scripted model")
    parser.add_argument("--model", help="a folder or a hub id; default: the bundled model")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", help="float32, bfloat16 or float16")
    parser.add_argument("--max-new-tokens", type=int, default=RaceSpec.max_new_tokens)
    parser.add_argument("--num-draft", type=int, help="draft tokens a step, for every lane; default: each lane's own")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--sampling-rule", choices=SAMPLING_RULES, default=RaceSpec.sampling_rule)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--option", action="append", default=[], metavar="LANE.KEY=VALUE", help="see: lanes")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write bench.json, bench.csv and bench.md there")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(options: argparse.Namespace) -> int:
    """Measure and show. Raises InputError for what the user can mend."""
    spec = _spec(options)
    _check(options)
    quiet_model_library()
    bench, prompts, decode = (_scripted if options.scripted else _asked)(options, spec)
    with _progress(len(prompts), len(bench.spec.lanes) + len(bench.peers), bench.repetitions) as report:
        results = bench.run(prompts, report)
    found = {**describe(options, bench), **summarise(results, decode)}
    if options.out is not None:
        write(options.out, found, results)
    if options.json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        _show(found)
    return 0


def _spec(options: argparse.Namespace) -> RaceSpec:
    lanes = options.lanes
    if options.scripted and lanes == ",".join(LANES):
        lanes = ",".join(name for name in METHODS if not unscriptable(name))
    return RaceSpec(
        lanes=lane_names(lanes),
        max_new_tokens=options.max_new_tokens,
        num_draft=options.num_draft,
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        seed=options.seed,
        options=lane_options(options.option),
        sampling_rule=options.sampling_rule,
    )


def _check(options: argparse.Namespace) -> None:
    """Raises InputError before anything is loaded."""
    for name, most in (("repetitions", MAX_REPETITIONS), ("limit", None)):
        value = getattr(options, name)
        if value is not None and not 1 <= value <= (most or value):
            raise InputError(f"--{name} is {value}; give 1 {f'to {most}' if most else 'or more'}.")
    if not 0 <= options.passages <= 12:
        raise InputError(f"--passages is {options.passages}; give 0 to 12.")
    if options.out is not None and (options.out.is_file() or not options.out.absolute().parent.is_dir()):
        raise InputError(f"{options.out} cannot be a folder for the results; give another --out.")
    if (options.shape is None) != (options.scripted is None):
        raise InputError("--scripted TRANSCRIPTS.jsonl and --shape belong together; give both or neither.")
    for name in _peer_names(options):
        if name not in COUNTERPARTS:
            raise InputError(f"There is no peer {name!r}; choose from {', '.join(COUNTERPARTS)}.")
    if options.scripted and (options.peers or options.model or options.temperature):
        raise InputError("A scripted model follows its transcripts: leave out --peers, --model and --temperature.")


def _peer_names(options: argparse.Namespace) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in options.peers.split(",") if name.strip()))


def _asked(options: argparse.Namespace, spec: RaceSpec) -> tuple[Bench, list[BenchPrompt], Callable[..., str]]:
    """The bench on a real model, its prompts, and how their outputs read."""
    from specrace.peers import make_peers
    from specrace.workbench import Workbench

    lines = read_prompts(options.prompts or QUESTIONS, options.limit)
    notes = console(stderr=True)
    notes.quiet = options.json
    given: dict[str, Any] = {} if options.model is None else {"model": options.model}
    given |= {} if options.docs is None else {"documents": options.docs}
    workbench = Workbench.open(
        device=options.device,
        dtype=options.dtype,
        report=lambda message: notes.print(f"{message} ...", style="dim"),
        **given,
    )
    target = workbench.target
    num_lookup = spec.lane_budget("prompt-lookup", target.device_type, workbench.curve)
    bench = Bench(
        target,
        spec,
        peers=make_peers(_peer_names(options), target, spec.rule(), num_lookup),
        repetitions=options.repetitions,
        corpus=workbench.counts() if {"bigram", "trigram"} & set(spec.lanes) else None,
        corpus_index=workbench.suffixes() if "rest" in spec.lanes else None,
        curve=workbench.curve,
    )

    def decode(tokens: Sequence[int]) -> str:
        text: str = target.tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text.strip()

    return bench, [_prompt(workbench, line, spec, options.passages) for line in lines], decode


def _scripted(options: argparse.Namespace, spec: RaceSpec) -> tuple[Bench, list[BenchPrompt], Callable[..., str]]:
    """The bench on a model of a published shape with random weights, whose choices follow transcripts."""
    from specrace.scripted import load_scripted

    for name in spec.lanes:
        if reason := unscriptable(name):
            raise InputError(f"The lane {name} cannot follow a script: {reason}; leave it out of --lanes.")
    transcripts = list(TranscriptFile(options.scripted))[: options.limit]
    if not transcripts:
        raise InputError(f"{options.scripted} holds no transcript.")
    scripts = {each.prompt: each.output for each in transcripts}
    target = load_scripted(options.shape, scripts, device=options.device, dtype=options.dtype)
    prompts = [
        BenchPrompt(each.id or str(number), each.prompt, each.category, len(each.output))
        for number, each in enumerate(transcripts, 1)
    ]
    return Bench(target, spec, repetitions=options.repetitions), prompts, target.decode


def unscriptable(name: str) -> str:
    """Why a lane cannot be measured on a script, "" where it can."""
    method = find_method(name)
    if name in DRAFTING_FROM_DOCUMENTS:
        return "it drafts from documents, and a transcript has none"
    return needs_target(method) or ("it learns from what the model says beside the text" if method.scored_as else "")


def read_prompts(path: Path, limit: int | None = None) -> list[dict[str, Any]]:
    """The lines of a prompt file. Raises InputError that names the file and the line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({getattr(error, 'strerror', None) or 'not UTF-8'}).") from error
    found: list[dict[str, Any]] = []
    for number, text in enumerate(lines, 1):
        if text.strip() and (limit is None or len(found) < limit):
            found.append({"id": str(number), **_read_line(path, number, text)})
    if not found:
        raise InputError(f"{path} holds no prompt; write one JSON object a line.")
    return found


def _read_line(path: Path, number: int, text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        line = None
    if not isinstance(line, dict) or len({"question", "prompt", "prompt_ids"} & set(line)) != 1:
        raise InputError(f'{path}, line {number}: give an object with one of "question", "prompt" and "prompt_ids".')
    for name in ("question", "prompt"):
        if name in line and not (isinstance(line[name], str) and line[name].strip()):
            raise InputError(f"{path}, line {number}: {name} is no text.")
    ids = line.get("prompt_ids", [0])
    if not (isinstance(ids, list) and ids and all(type(token) is int for token in ids)):
        raise InputError(f"{path}, line {number}: prompt_ids is no list of whole numbers.")
    return {name: str(value) if name == "id" else value for name, value in line.items()}


def _prompt(workbench: Any, line: Mapping[str, Any], spec: RaceSpec, passages: int) -> BenchPrompt:
    """A line's prompt: through the retriever, as plain text, or as it is."""
    if "prompt_ids" in line:
        return BenchPrompt(line["id"], tuple(line["prompt_ids"]))
    if "prompt" in line:
        return BenchPrompt(line["id"], tuple(workbench.target.tokenizer(line["prompt"])["input_ids"]), line["prompt"])
    hits = workbench.retrieve(line["question"], passages) if passages else []
    prompt, _ = workbench.fitting_prompt(line["question"], hits, spec)
    return BenchPrompt(line["id"], prompt.tokens, line["question"])


def describe(options: argparse.Namespace, bench: Bench) -> dict[str, Any]:
    """What the figures need beside them: model, machine, versions, settings, command, date."""
    target, spec = bench.target, bench.spec
    about = target.describe()
    curve: CostCurve | None = getattr(bench, "_curve", None)
    return {
        **about,
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "system": platform.platform(terse=True)},
        "versions": {**about["versions"], "specrace": specrace.__version__},
        "command": "python -m specrace " + shlex.join(sys.argv[1:] if sys.argv[1:] else ["bench"]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": {
            **settings(spec),
            "repetitions": bench.repetitions,
            "prompts": str(options.scripted or options.prompts or QUESTIONS.name),
            "peers": {peer.name: peer.settings for peer in bench.peers},
            "cost_curve": curve is not None,
        },
        "timed": "decode: the lane's own clock (draft, target, keep, its tables), without prefill; of a peer what "
        "follows its first output. run: the wall clock of everything, prefill included.",
    }


def _processor() -> str:
    """The processor's name, as Linux tells it, else what Python knows."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@contextmanager
def _progress(prompts: int, contestants: int, repetitions: int) -> Iterator[Callable[[str], None]]:
    """A bar on standard error while a terminal watches."""
    notes = console(stderr=True)
    with Progress(console=notes, transient=True, disable=not notes.is_terminal) as bar:
        # A prompt is a warm-up, and in each repetition every contestant and one race.
        task = bar.add_task("measuring", total=prompts * (1 + repetitions * (contestants + 1)))
        yield lambda what: bar.update(task, advance=1, description=clean(what))


def write(folder: Path, found: Mapping[str, Any], results: Sequence[PromptResult]) -> None:
    """bench.json, bench.csv (a row for each repetition) and bench.md. Raises InputError where that is not possible."""
    try:
        folder.mkdir(exist_ok=True)
        (folder / "bench.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (folder / "bench.md").write_text(markdown(found), encoding="utf-8")
        with (folder / "bench.csv").open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows(csv_rows(results))
    except OSError as error:
        raise InputError(f"{folder} cannot be written ({error.strerror}); choose another --out.") from error


def csv_rows(results: Sequence[PromptResult]) -> Iterator[list[Any]]:
    """A head, then every single measurement."""
    yield ["prompt", "decoder", "repetition", "tokens", "steps", "decode_ms", "interleaved_ms", "run_ms", "loop_tokens"]
    for each in results:
        for name, runs in each.runs.items():
            for number, run in enumerate(runs):
                m, race_ms = run.metrics, each.interleaved_ms[name][number]
                yield [each.prompt.id, name, number, m.tokens, m.steps, m.decode_ms, race_ms, run.run_ms, each.loops]
        for name, outputs in each.peer_runs.items():
            for number, out in enumerate(outputs):
                decode_ms = out.run_ms - out.first_ms
                yield [each.prompt.id, name, number, len(out.tokens), "", decode_ms, "", out.run_ms, each.loops]


HEAD = (
    "decoder",
    "tokens/s",
    "speedup",
    "tokens/step",
    "drafted",
    "accepted",
    "spread",
    "whole run",
    "of limit",
    "badge",
)


def rows(found: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The table's cells: lanes, then peers."""
    base = found["lanes"][0]["tokens_per_s"]
    for lane in found["lanes"]:
        yield (
            lane["lane"],
            f"{lane['tokens_per_s']:.0f}",
            f"{lane['speedup']:.2f}x",
            f"{lane['tau']:.2f}",
            f"{lane['drafted_per_step']:.1f}",
            f"{lane['acceptance_rate']:.0%}",
            f"{lane['spread']:.0%}",
            f"{lane['run_tokens_per_s']:.0f}",
            f"{lane['roofline']['of_limit']:.0%}",
            _badge(lane, found),
        )
    for peer in found["peers"]:
        rate = peer["tokens_per_s"]
        cells = (f"{rate:.0f}", f"{rate / base:.2f}x", "", "", "", f"{peer['spread']:.0%}")
        yield (peer["peer"], *cells, f"{peer['run_tokens_per_s']:.0f}", "", _badge(peer, found))


def _badge(row: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    if row["identical"] is None:
        return "not compared"
    total = len(found["prompts"])
    if row["identical"]:
        return f"identical on {total} of {total}" if row.get("lane") != "vanilla" else "baseline"
    difference = row["first_difference"]
    return f"identical on {row['identical_prompts']} of {total}; first gap {difference['gap']:.3f}, {found['dtype']}"


def sentences(found: Mapping[str, Any]) -> Iterator[str]:
    """What stands under the table."""
    for each in found["comparisons"]:
        yield (
            f"{each['lane']} against {each['peer']}: {each['decode']:.2f}x its decode tokens per second, "
            f"{each['run']:.2f}x in the whole run."
        )
    for lane in found["lanes"]:
        split = lane["split_ms"]
        yield (
            f"{lane['lane']}, a step: draft {split['draft']:.3f} ms, target {split['target']:.3f} ms, verify and keep "
            f"{split['keep']:.3f} ms (host {lane['host_share']:.1%}); interleaved over solo "
            f"{lane['interleaved_over_solo']:.2f}; fastest on {lane['fastest_on']} of {found['counted_prompts']}."
        )
    for each in found["loops"]:
        yield f"Left out, for its output repeats itself: prompt {each['id']} ({each['loop_tokens']} tokens)."
    yield from found["warnings"]


def markdown(found: Mapping[str, Any]) -> str:
    """The table, with what it was measured on."""
    machine, versions = found["machine"], found["versions"]
    scripted = f"**Scripted:** {found['scripted']}.\n\n" if "scripted" in found else ""
    table = [tuple(name.replace("\n", " ") for name in HEAD), ("---",) * len(HEAD), *rows(found)]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table]
    return (
        f"# Bench: {found['model']}, {found['dtype']}, {found['device']}\n\n{scripted}"
        f"{found['date']}; {machine['processor']}, {machine['cores']} cores, {found['threads']} threads; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + f".\n\n```\n{found['command']}\n```\n\n{len(found['prompts'])} prompts, "
        f"{found['settings']['repetitions']} repetitions; medians. {found['timed']}\n\n"
        + "\n".join(lines)
        + "\n\n"
        + "\n".join(f"- {sentence}" for sentence in sentences(found))
        + "\n"
    )


def _show(found: Mapping[str, Any]) -> None:
    """The table on the terminal."""
    out = console()
    device = f"{clean(str(found['model']))}, {found['dtype']}, {clean(str(found['device']))}"
    out.print(f"{device}, {found['threads']} threads; {len(found['prompts'])} prompts, medians", style="bold")
    if "scripted" in found:
        out.print(f"Scripted: {found['scripted']}.", style="bold")
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in HEAD:
        table.add_column(name, justify="left" if name in ("decoder", "badge") else "right")
    for row in rows(found):
        table.add_row(*(clean(cell) for cell in row))
    out.print(table)
    for sentence in sentences(found):
        out.print(clean(sentence))
