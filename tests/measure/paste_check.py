"""Do engines reach the forecast of the settings that `recommend` writes? Usage:
python -m tests.measure.paste_check --model smollm2-135m

A model answers questions about the bundled documents, greedily. `recommend` reads these answers and writes settings for
llama.cpp, whose own parser reads the flags, and for transformers, whose `generate` gets the arguments. Both engines
answer the questions again. Prints the tokens per step, forecast and measured, for the recommended lane and for every
other lane that the two engines have. Exits with 1 if forecast and measurement differ by more than 3 %. It takes
minutes, so it is not one of the tests.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from specrace.cli.answers import SETS
from specrace.cli.main import main as specrace
from specrace.cli.shared.questions import read_prompts
from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.sampling_params import SamplingParams
from specrace.engine.generate import generate
from specrace.engine.request import RaceRequest
from specrace.engine.spec import RaceSpec
from specrace.lab.advice.exports import ENGINES, Choice
from specrace.lab.bench.llama_cpp import PREFIX, GgufWeights, LlamaCppPeer
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.score import ScoredLane, score_output
from specrace.model.target import Target
from specrace.model.weights.source import choose_model
from specrace.workbench import Workbench
from tests.lab.advice.exports.llama_cpp_flags import parse_flags
from tests.lab.parts import transcript, write_log
from tests.models import write_zero_gguf

MAX_ERROR = 0.03
# Every lane that the two engines have: (engine, lane, options, draft tokens). The options ask for short matches,
# because the answers are short. The recommended lanes are tested in addition.
LANES: tuple[tuple[str, str, dict[str, Any], int], ...] = (
    ("transformers", "prompt-lookup", {"longest": 2}, 10),
    ("transformers", "prompt-lookup", {"longest": 5}, 4),
    ("llama-cpp", "llamacpp-simple", {"size_n": 3, "size_m": 8}, 8),
    ("llama-cpp", "llamacpp-map-k", {"size_n": 3, "size_m": 8}, 8),
    ("llama-cpp", "llamacpp-map-k4v", {"size_n": 3, "size_m": 8, "min_hits": 1}, 8),
    ("llama-cpp", "llamacpp-mod", {"n_match": 3, "n_min": 1, "n_max": 8}, 8),
    ("llama-cpp", "llamacpp-cache", {}, 8),
    ("llama-cpp", "llamacpp-list", {"size_n": 3, "size_m": 8, "n_match": 3, "n_min": 1, "n_max": 8}, 8),
    ("llama-cpp", "llamacpp-list", {"simple": False, "map_k": False, "mod": False, "size_n": 3, "size_m": 8}, 8),
    ("llama-cpp", "llamacpp-list", {"map_k4v": False, "map_k": False, "cache": False, "n_match": 3, "n_min": 1}, 64),
)


@dataclass(frozen=True)
class Run:
    """An engine's answer, its forwards (the prompt's included), and its draft tokens and accepted ones, if known."""

    tokens: tuple[int, ...]
    steps: int
    drafted: int | None = None
    accepted: int | None = None


class PastedLlamaCpp(LlamaCppPeer):
    """llama.cpp with the recommended flags of a command line."""

    def __init__(self, target: Target, weights: GgufWeights, flags: str) -> None:
        super().__init__(PREFIX, target, SamplingParams(), weights)
        self.flags = flags

    def _server_params(self, context: int) -> Any:
        return parse_flags(f"--model {self._weights.file} {self.flags}", super()._server_params(context))

    def answer(self, prompt: Sequence[int], max_new_tokens: int) -> Run:
        run = self.run(prompt, max_new_tokens)
        return Run(run.tokens, max(1, len(run.tokens) - run.accepted), run.drafted, run.accepted)


class PastedTransformers:
    """`model.generate` with the recommended arguments; counts its forwards."""

    def __init__(self, target: Target, arguments: str) -> None:
        self.target, eos_ids = target, sorted(target.eos_ids)
        # The recommendation is Python code: the arguments of `generate`.
        expression = f"GenerationConfig(max_new_tokens=1, do_sample=False, repetition_penalty=1.0, {arguments})"
        self.config = eval(expression, {"GenerationConfig": GenerationConfig})
        self.config.eos_token_id, self.config.pad_token_id = eos_ids, eos_ids[0]

    def answer(self, prompt: Sequence[int], max_new_tokens: int) -> Run:
        ids, rows_of_forwards = torch.tensor([list(prompt)]), list[int]()
        self.config.max_new_tokens = max_new_tokens
        counter = self.target.model.register_forward_pre_hook(
            lambda _, __, inputs: rows_of_forwards.append(inputs["input_ids"].shape[1]), with_kwargs=True
        )
        with counter, torch.inference_mode():
            output = self.target.model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=self.config)
        tokens = tuple(output[0, len(prompt) :].tolist())
        steps = len(rows_of_forwards)
        # Each forward after the prompt's has one row for the pending token and one for each draft token.
        drafted = sum(rows_of_forwards) - len(prompt) - (steps - 1)
        return Run(tokens, steps, drafted, len(tokens) - steps)


def answers(workbench: Workbench, limit: int, max_new_tokens: int, passages: int | None) -> Iterator[Transcript]:
    """The model's answers to questions about the bundled documents, as transcripts."""
    for line in read_prompts(SETS["documents"][0], limit):
        spec, question = RaceSpec(("trie",), max_new_tokens=max_new_tokens), line["question"]
        prompt, _ = workbench.make_prompt(RaceRequest(question, spec, passages))
        steps = generate(workbench.target, "vanilla", prompt.tokens, max_new_tokens=max_new_tokens)
        yield transcript(prompt.tokens, [token for step in steps for token in step.emitted])


def write_weights(target: Target, folder: Path) -> GgufWeights:
    """The target's weights as a temporary GGUF file; if the model's folder has no GGUF, one is written to `folder`."""
    if not list(Path(target.config._name_or_path).glob("*.gguf")):
        write_zero_gguf(target, folder / "weights.gguf")
        target.config._name_or_path = str(folder)
    return GgufWeights(target)


def recommended(log: Path, engine: str) -> dict[str, Any]:
    """The export that the command `recommend` writes for an engine."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert specrace(["recommend", str(log), "--engine", engine, "--processes", "1", "--json"]) == 0
    export: dict[str, Any] = json.loads(out.getvalue())["exports"][engine]
    return export


def answer_function(
    engine: str, target: Target, weights: GgufWeights, settings: str
) -> Callable[[Sequence[int], int], Run]:
    """A function by which an engine with these settings answers: (prompt, maximum of new tokens) -> its run."""
    if engine == "transformers":
        return PastedTransformers(target, settings).answer
    return PastedLlamaCpp(target, weights, settings).answer


def compare(
    transcripts: Sequence[Transcript], lane: ScoredLane, answer: Callable[[Sequence[int], int], Run]
) -> dict[str, Any]:
    """An engine's steps and draft tokens, those forecast for its texts, and `ratio`: forecast tau / measured tau."""
    row: dict[str, Any] = dict.fromkeys(("tokens", "steps", "forecast_steps", "drafted", "forecast_drafted"), 0)
    row |= {"accepted": 0, "forecast_accepted": 0, "other_text": 0}
    for request in transcripts:
        run = answer(request.prompt, len(request.output))
        scored = score_output(lane, transcript(request.prompt, run.tokens)).metrics
        row["tokens"] += len(run.tokens)
        row["steps"] += run.steps
        row["drafted"] += run.drafted or 0
        row["accepted"] += run.accepted or 0
        row["forecast_steps"] += scored.steps
        row["forecast_drafted"] += scored.drafted
        row["forecast_accepted"] += scored.accepted
        row["other_text"] += run.tokens != request.output
    row |= {"tau": row["tokens"] / row["steps"], "forecast": row["tokens"] / row["forecast_steps"]}
    return row | {"ratio": row["forecast"] / row["tau"]}


def main(arguments: list[str]) -> int:
    """Answer, recommend, answer with the engines and compare; return 1 if a forecast is off."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=str(BUNDLED_MODEL))
    parser.add_argument("--adapter", default="auto")
    parser.add_argument("--limit", type=int, default=15)
    parser.add_argument("--max-new-tokens", type=int, default=80)
    parser.add_argument("--passages", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    workbench = Workbench.open(choose_model(options.model, dtype="float32", adapter=options.adapter))
    transcripts = list(answers(workbench, options.limit, options.max_new_tokens, options.passages))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        log = write_log(Path(folder) / "answers.jsonl", transcripts)
        cases = [(engine, recommended(log, engine)) for engine in ("transformers", "llama-cpp")]
        weights = write_weights(workbench.target, Path(folder))
    for engine, lane, lane_options, num_draft in LANES:
        scored = ScoredLane.of(lane, lane_options, num_draft)
        # No acceptance is known here; only the flags for load tests would need it.
        choice = Choice(lane, scored.options, num_draft, mean=1.0, rates=())
        settings = ENGINES[engine].export(choice).settings
        cases.append((engine, {"lane": lane, "options": scored.options, "num_draft": num_draft, "settings": settings}))
    for engine, case in cases:
        scored = ScoredLane.of(case["lane"], case["options"], case["num_draft"])
        row = {"engine": engine, "settings": case["settings"], "recommended": case.get("tau")}
        row |= compare(transcripts, scored, answer_function(engine, workbench.target, weights, case["settings"]))
        rows.append(row)
        print(json.dumps(row), flush=True)
    settings_off = [row["settings"] for row in rows if abs(row["ratio"] - 1) > MAX_ERROR]
    for row in rows:
        if row["recommended"] and abs(row["recommended"] / row["tau"] - 1) > MAX_ERROR:
            settings_off.append(row["settings"])
    num_within = len(rows) - len(set(settings_off))
    print(f"{num_within} of {len(rows)} within {MAX_ERROR:.0%}; off: {', '.join(settings_off) or 'none'}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if settings_off else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
