"""Compares a killed sweep with an undisturbed one: `python -m tests.measure.sweep_check [--ray local] [--model NAME]`.

Sweeps twenty questions x four lanes x twelve settings: once undisturbed, once killed five times at random moments and
resumed, and with --ray also on Ray. All tables must agree in every count, and the recommendation must be the same with
other seeds. A sweep saves each answer, and the score of each *cell*, one lane setting on one shard of the requests.
Prints the times. It takes minutes, so it is not one of the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from specrace.answers import ANSWERS
from specrace.core.bundled import BUNDLED_MODEL, QUESTIONS
from specrace.lab.scoring.sweep import CELLS

ROOT = Path(__file__).resolve().parents[2]
NUM_QUESTIONS = 20
GRID = ("trie.n=3,5,13", "prompt-lookup.longest=2,3,5", "suffix.factor=1,2,4", "trigram.min_context_count=1,2,3")
LANES = ",".join(option.partition(".")[0] for option in GRID)
KILLS = 5
SEEDS = (0, 1, 2024)
# These columns are times; all others must be equal.
TIMES = ("draft_ms_per_step", "build_ms_per_output")


def command(name: str, *arguments: object) -> list[str]:
    """The arguments that start a command of specrace."""
    return [sys.executable, "-m", "specrace", name, *map(str, arguments)]


def run(*arguments: object) -> dict[str, Any]:
    """Run a command and return its JSON output. Raises CalledProcessError."""
    done = subprocess.run(command(*map(str, arguments)), cwd=ROOT, stdout=subprocess.PIPE, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def counts(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The table without times."""
    return [{key: value for key, value in row.items() if key not in TIMES} for row in result["groups"]]


def num_saved(out: Path) -> int:
    """The number of answers and cells that a folder holds."""
    files = (out / ANSWERS, out / CELLS)
    return sum(file.read_bytes().count(b"\n") for file in files if file.exists())


def kill(arguments: tuple[object, ...], out: Path, min_saved: int, delay_s: float) -> bool:
    """Start the sweep and kill it `delay_s` after it saved `min_saved` answers and cells; False if it ended before."""
    process = subprocess.Popen(command(*map(str, arguments)), cwd=ROOT, stdout=subprocess.DEVNULL)
    while process.poll() is None and num_saved(out) < min_saved:
        time.sleep(0.005)
    time.sleep(delay_s)
    was_running = process.poll() is None
    process.kill()
    process.wait()
    return was_running


def check_kills(arguments: tuple[object, ...], expected: dict[str, Any], folder: Path) -> bool:
    """Kill and resume the sweep five times.

    Returns whether the table equals the undisturbed one, each cell was scored once, and every kill hit a running sweep.
    """
    # Without a seed, so that every check kills at other moments.
    out, rng, num_hits = folder / "killed", random.Random(), 0
    # Kills are spread over the saved work and not over time, most of which is spent on loading the model. There is none
    # in the last tenth, because the sweep might end before it.
    total = expected["requests"] + expected["cells"]
    kill_points = sorted(rng.randrange(9 * total // 10) for _ in range(KILLS))
    for number, min_saved in enumerate(kill_points, 1):
        num_hits += kill((*arguments, "--out", out, "--resume"), out, min_saved, rng.uniform(0, 0.05))
        print(f"kill {number} after {min_saved} answers and cells: {num_saved(out)} are saved", flush=True)
    result = run(*arguments, "--out", out, "--resume")
    rows = [json.loads(line) for line in (out / CELLS).read_text().splitlines()]
    scored_once = len({(row["lane"], row["shard"]) for row in rows}) == len(rows) == expected["cells"]
    are_equal = counts(result) == counts(expected)
    print(f"{num_hits} kills; same counts: {are_equal}; every cell scored once: {scored_once}", flush=True)
    return are_equal and scored_once and num_hits == KILLS


def check_seeds(folder: Path) -> bool:
    """Whether the recommendation is the same with other seeds."""
    recommendations = [run("recommend", folder, "--seed", seed, "--json")["recommendation"] for seed in SEEDS]
    settings = [
        {key: recommendation[key] for key in ("lane", "options", "num_draft", "tau", "speedup")}
        for recommendation in recommendations
    ]
    are_equal = all(recommendation == settings[0] for recommendation in settings)
    print(f"recommended with the seeds {SEEDS}: {json.dumps(settings[0])}; same: {are_equal}", flush=True)
    return are_equal


def main(arguments: list[str]) -> int:
    """Sweep, kill, resume, compare; return 1 if anything differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=str(BUNDLED_MODEL))
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--ray", metavar="local|ADDRESS")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = QUESTIONS.read_text(encoding="utf-8").splitlines(keepends=True)[:NUM_QUESTIONS]
        (folder / "questions.jsonl").write_text("".join(lines), encoding="utf-8")
        grid = [word for option in (*GRID, "num_draft=4,8,16,32") for word in ("--grid", option)]
        sweep = ("sweep", "--questions", folder / "questions.jsonl", "--model", options.model, "--lanes", LANES, *grid)
        sweep += ("--processes", "2", "--max-new-tokens", options.max_new_tokens, "--json")
        began, before = time.monotonic(), os.times()
        expected = run(*sweep, "--out", folder / "whole")
        whole_s, after = time.monotonic() - began, os.times()
        cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"{expected['requests']} requests x {len(expected['settings']['lanes'])} lane settings", end=": ")
        print(f"{whole_s:.0f} s, {cpu_s:.0f} s of processor time, {memory:.0f} MB", flush=True)
        checks = [check_kills(sweep, expected, folder), check_seeds(folder / "whole")]
        if options.ray:
            are_equal = counts(run(*sweep, "--ray", options.ray)) == counts(expected)
            print(f"on Ray the same counts: {are_equal}", flush=True)
            checks.append(are_equal)
    return 0 if all(checks) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
