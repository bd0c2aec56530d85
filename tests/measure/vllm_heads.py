"""Does a trained drafter accept in vLLM what it accepts here? Usage:
python -m tests.measure.vllm_heads FOLDER [--model NAME] [--head HEAD] [--draft-model MODEL] [--dtype bfloat16]

Takes the environment of vllm_check in FOLDER, writes the target there with its adapter merged, and asks vLLM questions
with and without passages: without drafts, with n-grams, and with a chain of draft tokens from the head (vLLM's `eagle3`
or `eagle`) or from the draft model. The same weights then decode the same prompts here, with such a chain. A step is
equal if ours begins at the same token and accepts as many. Prints how many of vLLM's steps are equal, each step that
differs, and how many texts equal vLLM's without drafts. Exits with 1 if fewer than 97 % of the steps are equal, or if a
text differs from vLLM's without drafts although n-grams do not change it. Results are kept in FOLDER, so an interrupted
run continues where it stopped. It takes about 15 minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile
from math import log
from pathlib import Path
from typing import Any

from specrace.core.bundled import BUNDLED_DRAFT_MODEL, BUNDLED_MODEL
from specrace.core.cost_curve import CostCurve
from specrace.engine.setup import RaceSetup, read_prompt
from specrace.engine.spec import RaceSpec
from specrace.heads.loading import read_head
from specrace.model.weights.fingerprint import fingerprint
from specrace.model.weights.source import choose_model, find_source
from specrace.workbench import Workbench
from tests.measure.vllm_check import measured_counts
from tests.measure.vllm_server import CASES, Case, Rows, answers, make_environment, prompts, tokens_of

HEAD, DRAFT_MODEL = "eagle", "draft-model"
# Further rows cost nothing, so the lane of a head always drafts the whole chain, as vLLM does.
FREE = CostCurve((1, 2), (1.0, 1.0))
# The share of vLLM's steps that must be equal.
BAR = 0.97


@dataclass(frozen=True)
class Chain:
    """A drafter of `length` tokens in every step: its lane here, and its case in vLLM."""

    lane: str
    length: int
    case: Case

    def setup(self, workbench: Workbench, prompt: Sequence[int], limit: int) -> RaceSetup:
        """The setup in which the lane always drafts the whole chain, for up to `limit` tokens."""
        options = {HEAD: {"depth": self.length, "width": 1}} if self.lane == HEAD else {}
        spec = RaceSpec((self.lane,), limit, self.length, options=options)
        prefix = read_prompt(workbench.target, prompt, spec)
        # A forward of the head costs nothing either.
        return RaceSetup(workbench.target, tuple(prompt), prefix, spec, FREE, head_prices={self.lane: 0.0})

    def steps(self, workbench: Workbench, prompt: Sequence[int], limit: int) -> list[tuple[int, ...]]:
        """The tokens that each step emits."""
        lane, steps = self.setup(workbench, prompt, limit).make_lane(self.lane), list[tuple[int, ...]]()
        while not lane.end:
            steps.append(lane.step().emitted)
        return steps

    def gap(self, workbench: Workbench, read: Sequence[int], path: Sequence[int]) -> float | None:
        """How much likelier, as a log-ratio, the head's best guess after `read` and `path` is than its second best.

        None for a draft model.
        """
        if self.lane != HEAD:
            return None
        session = self.setup(workbench, read, 1).open_head(HEAD, self.length)
        session.begin(read[-1])
        guesses = [session.likeliest([tuple(path[:depth])], 2)[0] for depth in range(len(path) + 1)]
        (_, best), (_, second) = guesses[-1]
        return log(best) - log(second)


@dataclass(frozen=True)
class Compared:
    """vLLM's and our steps on a request, up to the first different token: position of a step's first token -> its size.

    `gaps`: position of a step that differs -> `Chain.gap` where the drafts part; None if no step of ours begins there.
    """

    theirs: Mapping[int, int]
    ours: Mapping[int, int]
    gaps: Mapping[int, float | None]
    same_text: bool

    @property
    def equal(self) -> int:
        """How many of vLLM's steps equal ours."""
        return len(self.theirs) - len(self.gaps)


def by_start(sizes: Iterable[int], end: int) -> dict[int, int]:
    """Position of a step's first token -> its size, for the steps within the first `end` tokens."""
    sizes = list(sizes)
    starts = accumulate(sizes, initial=0)
    return {start: size for start, size in zip(starts, sizes, strict=False) if start + size <= end}


def compare(workbench: Workbench, chain: Chain, row: Mapping[str, Any], prompt: Sequence[int], limit: int) -> Compared:
    """Decode a prompt here and compare the steps with vLLM's.

    vLLM's first chunk is the prefill's token, for which nothing was drafted. Here it counts as part of the prompt.
    """
    first, *chunks = row["chunks"]
    text, read = [token for chunk in chunks for token in chunk], [*prompt, *first]
    steps = chain.steps(workbench, read, limit - len(first)) if chunks else []
    tokens = [token for step in steps for token in step]
    alike = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(text, tokens, strict=False))))
    theirs, ours = by_start(map(len, chunks), alike), by_start(map(len, steps), alike)
    gaps = {}
    for start, size in theirs.items():
        if ours.get(start) != size:
            path = text[start : start + min(size, ours.get(start, 0)) - 1]
            gaps[start] = chain.gap(workbench, read + text[:start], path) if start in ours else None
    return Compared(theirs, ours, gaps, text == tokens)


def summary(chain: Chain, compared: Sequence[Compared], rows: Rows, plain: Rows, ngram: Rows) -> dict[str, Any]:
    """The totals over all requests whose chunks vLLM did not join."""
    # Each request's text with the drafter, without drafts, and with n-grams.
    texts = [tuple(map(tokens_of, request_rows)) for request_rows in zip(rows, plain, ngram, strict=True)]
    steps = sum(len(request.theirs) for request in compared)
    return {
        "drafter": chain.case.name,
        "dtype": chain.case.dtype,
        "requests": len(compared),
        "joined": len(rows) - len(compared),
        "steps": steps,
        "equal": sum(request.equal for request in compared),
        "tau": sum(sum(request.theirs.values()) for request in compared) / max(1, steps),
        "tau_here": _mean([size for request in compared for size in request.ours.values()]),
        "same_as_here": sum(request.same_text for request in compared),
        "same_text": sum(text == plain_text for text, plain_text, _ in texts),
        "ngram_same_text": sum(ngram_text == plain_text for _, plain_text, ngram_text in texts),
        # Texts that the drafter changes and n-grams do not.
        "only_here": sum(text != plain_text == ngram_text for text, plain_text, ngram_text in texts),
    }


COLUMNS = {
    "drafter": "drafter",
    "dtype": "dtype",
    "requests": "requests",
    "steps": "steps in vLLM",
    "equal": "equal here",
    "tau": "tokens per step in vLLM",
    "tau_here": "here",
    "same_as_here": "texts as here",
    "same_text": "texts as in vLLM without drafts",
    "ngram_same_text": "with n-grams",
}


def table(row: Mapping[str, Any]) -> str:
    """The summary as a Markdown table."""
    cells = [f"{row[key]:.3f}" if isinstance(row[key], float) else str(row[key]) for key in COLUMNS]
    return "\n".join(f"| {' | '.join(line)} |" for line in (COLUMNS.values(), ["---"] * len(COLUMNS), cells))


def _mean(values: Sequence[int]) -> float:
    return sum(values) / max(1, len(values))


def choose_chain(options: argparse.Namespace) -> Chain:
    """The chain of the command's head or draft model."""
    if options.head is None:
        model = str(find_source(options.draft_model or BUNDLED_DRAFT_MODEL).location)
        config = {"method": "draft_model", "model": model}
        lane, title = DRAFT_MODEL, "draft model"
    else:
        architectures = read_head(options.head).config.get("architectures") or [""]
        method = "eagle3" if architectures[0].endswith("Eagle3") else "eagle"
        config, lane, title = {"method": method, "model": str(options.head)}, HEAD, method
    case = Case(f"{title} {options.tokens}", {**config, "num_speculative_tokens": options.tokens}, dtype=options.dtype)
    return Chain(lane, options.tokens, case)


def write_target(workbench: Workbench, folder: Path) -> Path:
    """Write the target, its adapter merged, for vLLM, unless it is there; returns its folder."""
    model = workbench.target.model
    out = folder / f"target-{fingerprint(model)}-{workbench.target.describe()['dtype']}"
    if not (out / "written").exists():
        model.save_pretrained(out)
        workbench.target.tokenizer.save_pretrained(out)
        (out / "written").touch()
    return out


def main(arguments: Sequence[str]) -> int:
    """Measure and compare; return 1 if too many steps differ, or a text that n-grams do not change."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default=str(BUNDLED_MODEL))
    parser.add_argument("--head", type=Path, help="the folder of an EAGLE head; default: the draft model drafts")
    parser.add_argument("--draft-model")
    parser.add_argument("--tokens", type=int, default=3, help="draft tokens of a step")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--limit", type=int, default=15, help="questions with passages, and as many without")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    program, chain = make_environment(options.folder), choose_chain(options)
    heads = () if options.head is None else (f"{HEAD}={options.head}",)
    choice = choose_model(options.model, dtype=options.dtype, heads=heads, draft_model=options.draft_model)
    workbench = Workbench.open(choice)
    model = write_target(workbench, options.folder)
    requests = list(prompts(workbench, options.limit, options.max_new_tokens))
    # CASES begins with the one without drafts and one with n-grams.
    cases = [*(replace(case, dtype=options.dtype) for case in CASES[:2]), chain.case]
    plain, ngram, rows = (
        answers(
            options.folder / f"{model.name}-{case.name}",
            program,
            str(model),
            case,
            workbench,
            requests,
            options.max_new_tokens,
        )
        for case in cases
    )
    by_id = dict(requests)
    compared = []
    for row in rows:
        if measured_counts(row) is None:
            continue
        compared.append(compare(workbench, chain, row, by_id[row["id"]], options.max_new_tokens))
        for start, gap in compared[-1].gaps.items():
            sizes = compared[-1].theirs[start], compared[-1].ours.get(start, 0)
            print(f"{row['id']} at {start}: vLLM emits {sizes[0]} tokens, we {sizes[1]}; gap {gap}")
    result = summary(chain, compared, rows, plain, ngram)
    (options.folder / f"{model.name}-{chain.case.name}-compared.json").write_text(json.dumps(result, indent=1))
    print(table(result))
    return int(result["equal"] < BAR * result["steps"] or result["only_here"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
