"""Races llama.cpp's own server beside our lanes. Usage: python -m tests.measure.llama_server_check FOLDER [--limit N]

Makes an environment with the package xllamacpp in FOLDER (once; it takes a package index), writes the bundled model as
a float32 GGUF, and starts llama.cpp's server on loopback: without drafts, and with three of its drafters. Vanilla and
the servers race on questions with passages of the bundled documents. Checked for each answer: the text is vanilla's,
the times rise, no box marks what a step accepted (llama.cpp streams token by token) and the lane says why, and its
counts are those in the server's own log. The twin of each drafter, our reproduction of it, forecasts the counts from
the text. Chromium then plays the last race from an exported file, where each pane must show the text, the counts and
the reason; a picture of it is in FOLDER. Prints a table, and exits with 1 if anything is off.

In this build, ngram-map-k and ngram-cache keep what they stored from earlier prompts, so their forecast is checked for
their first answer only. If the token limit cuts a character, the server streams fewer tokens than it counts; it is then
left out.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
from playwright.sync_api import sync_playwright

from specrace.cli.answers import SETS
from specrace.cli.shared.questions import read_questions
from specrace.cli.shared.servers import ServedLanes
from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.events import LEFT_OUT, Event, Started, Step, ending
from specrace.engine.recording import save
from specrace.engine.request import RaceRequest
from specrace.engine.spec import RaceSpec
from specrace.lab.bench.llama_cpp import tensors
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.score import ScoredLane, score_output
from specrace.model.target import Target
from specrace.model.weights.source import choose_model
from specrace.servers.address import PORT, Launch
from specrace.servers.launch import launched
from specrace.ui.stage.html_file import read_recordings, write_html
from specrace.workbench import Workbench
from tests.browser.apps import FLAGS, find_chromium
from tests.models import write_shape

PACKAGE = "xllamacpp==2026.10.11549"
SERVER = Path(__file__).with_name("llama_server.py")
START_S = 120.0
# Part of the sentence for a server that held back the tokens of a cut character.
HELD_BACK = "if the limit cuts a character"
# In the log of a server: draft acceptance = 0.61111 (   44 accepted /    72 generated)
ACCEPTANCE = re.compile(r"draft acceptance = [\d.]+ \( *(\d+) accepted / *(\d+) generated\)")


@dataclass(frozen=True)
class Case:
    """A server's name, llama.cpp's drafter, the twin that forecasts it, and the settings of each.

    `keeps`: the drafter keeps what it stored from earlier prompts.
    """

    name: str
    kind: str = ""
    twin: str = ""
    settings: Mapping[str, int] = field(default_factory=dict)
    keeps: bool = False

    @property
    def words(self) -> list[str]:
        """The drafter and its settings, as arguments of llama_server.py."""
        return [self.kind, *(f"{name}={value}" for name, value in self.settings.items())] if self.kind else []


CASES = (
    Case("cpp-plain"),
    Case("cpp-simple", "ngram-simple", "llamacpp-simple", {"size_n": 3, "size_m": 8}),
    Case("cpp-map-k", "ngram-map-k", "llamacpp-map-k", {"size_n": 3, "size_m": 8}, keeps=True),
    Case("cpp-cache", "ngram-cache", "llamacpp-cache", keeps=True),
)


def make_environment(folder: Path) -> Path:
    """Install xllamacpp into `folder`/env unless it is there; returns its Python."""
    python = folder / "env" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", PACKAGE], check=True)
    return python


def write_weights(target: Target, file: Path) -> None:
    """Write a target of the Llama family, with its vocabulary, as a float32 GGUF."""
    config, tokenizer, writer = target.config, target.tokenizer, gguf.GGUFWriter(file, "llama")
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    texts = {number: text for text, number in tokenizer.get_vocab().items()}
    types = [gguf.TokenType.NORMAL if number in texts else gguf.TokenType.UNUSED for number in range(target.vocab_size)]
    for number, token in tokenizer.added_tokens_decoder.items():
        types[number] = gguf.TokenType.CONTROL if token.special else gguf.TokenType.USER_DEFINED
    write_shape(writer, config)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([texts.get(number, f"[unused {number}]") for number in range(target.vocab_size)])
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_eos_token_id(min(target.eos_ids))
    writer.add_add_bos_token(False)
    for name, values in tensors(target, "llama"):
        writer.add_tensor(name, values.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def logged(log: Path) -> list[tuple[int, int]]:
    """(draft tokens, accepted tokens) of each answer with drafts, as a server logged them."""
    return [(int(drafted), int(accepted)) for accepted, drafted in ACCEPTANCE.findall(log.read_text())]


def forecast(case: Case, transcript: Transcript, limit: int) -> tuple[int, int]:
    """(draft tokens, accepted tokens) that the twin forecasts; llama.cpp cuts a draft that would pass the limit."""
    steps, drafted, accepted, remaining = list[Step](), 0, 0, limit
    score_output(ScoredLane.of(case.twin, dict(case.settings)), transcript, watch=steps.append)
    for step in steps:
        drafted += min(step.num_draft, remaining - 1)
        accepted += min(step.accepted, remaining - 1)
        remaining -= len(step.emitted)
    return drafted, accepted


def check_race(
    name: str, events: Sequence[Event], prompt: tuple[int, ...], logs: Sequence[Sequence[tuple[int, int]]], vocab: int
) -> Iterator[dict[str, Any]]:
    """A row for each server's answer, with its faults. `logs`: the draft and accepted tokens each server logged."""
    started, (finished, _) = events[0], ending(events)
    assert isinstance(started, Started)
    if left_out := started.about.get(LEFT_OUT, ()):
        print("\n".join(f"Question {name}: {sentence}" for sentence in left_out))
        if not all(HELD_BACK in sentence for sentence in left_out):
            raise SystemExit(1)
        return
    infos = {info.lane: info for info in started.lanes}
    results = {lane.lane: lane for lane in finished.lanes}
    limit = started.about["settings"]["max_new_tokens"]
    for case, entries in zip(CASES, logs, strict=True):
        steps = [event for event in events if isinstance(event, Step) and event.lane == case.name]
        info, result, times = infos[case.name], results[case.name], [step.at_ms for step in steps]
        served, output = info.served, tuple(token for step in steps for token in step.emitted)
        assert served is not None
        counts = served.drafted or 0, served.accepted or 0
        faults = {
            "another text": not result.identical,
            "times": times != sorted(times) or info.prefill_ms <= 0.0 or not result.tokens_per_s,
            "boxes": served.chunks_are_steps or any(step.tree.num_draft for step in steps),
            "no reason": "token by token" not in served.note,
            "counts": [counts] != (list(entries) or [(0, 0)]),
            # Every forward emits one token of its own beside the accepted ones.
            "steps": served.steps is not None and served.steps + counts[1] != len(output),
        }
        twin = forecast(case, Transcript(name, "none", prompt, output, vocab), limit) if case.twin else None
        yield {
            "question": name,
            "server": case.name,
            "tokens": len(output),
            "steps": served.steps or len(output),
            "tokens_per_s": result.tokens_per_s,
            "drafted": counts[0],
            "accepted": counts[1],
            "forecast": twin,
            "equal": twin == counts,
            "faults": [fault for fault, is_off in faults.items() if is_off],
        }


def look(folder: Path, recording: Path, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Play an exported race in Chromium; return what its panes lack. `rows`: the rows of the race's servers."""
    file = folder / "race.html"
    file.write_text(write_html(read_recordings([recording])), encoding="utf-8")
    faults = []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        page = chromium.new_page(viewport={"width": 1600, "height": 900}, reduced_motion="reduce")
        page.goto(file.as_uri())
        page.wait_for_selector(".stage[data-mode=result]")
        page.screenshot(path=folder / "race.png", full_page=True)
        vanilla = page.locator(".pane[data-lane=vanilla] .text > p:last-child").inner_text()
        for row in rows:
            pane = page.locator(f".pane[data-lane={row['server']}]")
            foot = pane.locator("footer").inner_text()
            counts = f"{row['accepted']}/{row['drafted']} accepted" if row["drafted"] else ""
            lacks = {
                "the text": pane.locator(".text > p:last-child").inner_text() != vanilla,
                f"the counts {counts!r}": counts not in foot,
                "the reason": "no boxes" not in foot or "token by token" not in foot,
                "a lane without boxes": pane.locator(".run").count() > 0,
                "where it was measured": f"measured on {row['server']}" not in pane.locator("header").inner_text(),
            }
            faults += [f"{row['server']}: the pane lacks {thing}" for thing, is_missing in lacks.items() if is_missing]
        chromium.close()
    return faults


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The sums over each server's answers, as a Markdown table."""
    names = ("drafter", "requests", "drafted, forecast", "drafted", "accepted, forecast", "accepted")
    lines = [[*names, "requests with equal counts", "tokens per step"], ["---"] * 8]
    for case in CASES:
        answers = [row for row in rows if row["server"] == case.name]
        sums = {name: sum(row[name] for row in answers) for name in ("drafted", "accepted", "equal", "tokens", "steps")}
        # The twin's draft tokens (0) and accepted tokens (1).
        twin = [str(sum(row["forecast"][index] for row in answers)) if case.twin else "–" for index in (0, 1)]
        line = [case.kind or "none", str(len(answers)), twin[0], str(sums["drafted"]), twin[1], str(sums["accepted"])]
        lines.append([*line, str(sums["equal"]) if case.twin else "–", f"{sums['tokens'] / sums['steps']:.3f}"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def run_races(options: argparse.Namespace, workbench: Workbench, python: Path) -> list[dict[str, Any]]:
    """Start the servers and race; returns a row for each answer. The last race is saved in the folder."""
    weights, spec = options.folder / "weights.gguf", RaceSpec((), max_new_tokens=options.max_new_tokens)
    write_weights(workbench.target, weights)
    logs = [options.folder / f"{case.name}.log" for case in CASES]
    rows = list[dict[str, Any]]()
    with ExitStack() as servers:
        addresses = []
        for case, log in zip(CASES, logs, strict=True):
            log.unlink(missing_ok=True)
            launch = Launch(case.name, (str(python), str(SERVER), str(weights), PORT, *case.words))
            addresses.append(servers.enter_context(launched(launch, log, START_S)))
        for line in read_questions(SETS["documents"][0])[: options.limit]:
            request, before = RaceRequest(line["question"], spec), list(map(logged, logs))
            events = list(workbench.ask(request, beside=ServedLanes(addresses)))
            save(events, options.folder / "race.jsonl")
            entries = [logged(log)[len(earlier) :] for log, earlier in zip(logs, before, strict=True)]
            prompt = workbench.prepare(request).prompt
            rows += check_race(line["id"], events, prompt, entries, workbench.target.vocab_size)
    return rows


def main(arguments: list[str]) -> int:
    """Race, check, look; return 1 if anything is off."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=int, default=30)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    python = make_environment(options.folder)
    rows = run_races(options, Workbench.open(choose_model(BUNDLED_MODEL, dtype="float32")), python)
    # Each question has one row for each case, in the order of CASES; a drafter that keeps earlier prompts is checked
    # in the first question only.
    for number, row in enumerate(rows):
        keeps = CASES[number % len(CASES)].keeps
        if row["forecast"] and not row["equal"] and (not keeps or number < len(CASES)):
            row["faults"].append(f"{row['forecast']} forecast")
    (options.folder / "answers.json").write_text(json.dumps(rows, indent=1))
    faults = [f"{row['server']}, question {row['question']}: {fault}" for row in rows for fault in row["faults"]]
    faults += look(options.folder, options.folder / "race.jsonl", rows[-len(CASES) :])
    print(table(rows))
    print("\n".join(faults) or f"Nothing is off in {len(rows)} answers.")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
