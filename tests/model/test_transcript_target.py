"""A scripted target accepts what forced decoding accepts, and runs every forward.

Its weights are random, but its choices follow transcripts: pairs of a prompt and an output that another model gave.
Forced decoding lets a drafter draft such an output without any model.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from specrace.cli.bench import unscriptable
from specrace.core.cost_curve import assumed_curve
from specrace.core.errors import InputError
from specrace.core.tree import TokenTree
from specrace.drafters import METHODS, DrafterInputs, native_methods
from specrace.engine.generate import generate
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.lab.bench.benchmark import Bench, BenchPrompt
from specrace.lab.bench.summary import summarise
from specrace.lab.scoring.score import forced_steps
from specrace.model.capture import capture_graphs
from specrace.model.forward.graphs import COLUMN_STEP
from specrace.model.transcript_target import SHAPES, ScriptedTarget, load_scripted, make_config
from tests.model.forward.test_graphs import FakeCapturer

SMALL = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LANES = tuple(name for name in native_methods() if not unscriptable(name))


def scripts() -> dict[tuple[int, ...], tuple[int, ...]]:
    """Outputs by prompt; parts of each output are copied from its prompt."""
    outputs = {}
    for seed in range(4):
        rng = random.Random(seed)
        prompt = [rng.randrange(50) for _ in range(60)]
        output: list[int] = []
        while len(output) < 50:
            start = rng.randrange(50)
            output += [*prompt[start : start + rng.randint(2, 9)], rng.randrange(50)]
        outputs[tuple(prompt)] = tuple(output)
    return outputs


def small_target(**changes: Any) -> ScriptedTarget:
    """A small target that follows `scripts`."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(make_config("tiny", 50, **SMALL, **changes))
    return ScriptedTarget(model, scripts(), "small")


# trie drafts trees, suffix drafts chains, and fusion also learns from the target's tokens at rejected nodes.
@pytest.mark.parametrize("method", ["trie", "suffix", "fusion"])
def test_steps_accept_what_forced_decoding_accepts(method: str) -> None:
    """Each step emits the transcript's next tokens; their number is the one that `score` counts."""
    target = small_target()
    for prompt, output in itertools.islice(scripts().items(), 2):
        options = METHODS[method].defaults("cpu")
        drafter = METHODS[method].build(DrafterInputs(prompt, target.vocab_size, curve=assumed_curve("cpu")), **options)
        expected = [len(step.emitted) for step in forced_steps(drafter, prompt, output, num_draft=8)]
        steps = list(generate(target, method, prompt, max_new_tokens=len(output), num_draft=8))
        assert tuple(token for step in steps for token in step.emitted) == output
        counts = [len(step.emitted) for step in steps]
        assert counts == expected


def test_a_race_on_a_script_is_identical_and_says_that_it_is_scripted() -> None:
    target = small_target()
    prompt, output = next(iter(scripts().items()))
    started, *_, finished = race(target, prompt, RaceSpec(LANES, max_new_tokens=len(output)))
    assert "random weights" in started.about["scripted"] and started.about["model"] == "scripted small"
    assert all(lane.identical and lane.tokens == len(output) for lane in finished.lanes)


def test_every_forward_is_run() -> None:
    target, calls = small_target(), []
    target.model.register_forward_hook(lambda *_: calls.append(1))
    prompt, output = next(iter(scripts().items()))
    steps = list(generate(target, "trie", prompt, max_new_tokens=len(output)))
    # One forward reads the prompt, and each step runs one.
    assert len(calls) == 1 + len(steps)


def test_off_the_script_the_random_weights_choose() -> None:
    target = small_target()
    prompt, output = next(iter(scripts().items()))
    wrong = (output[0] + 1) % 50
    # Below the root, a branch with the wrong token, and one with the script's next two.
    tree = TokenTree((prompt[-1], wrong, output[0], output[1]), (-1, 0, 0, 2))
    scores = target.session(target.prefill(prompt), 10).score(tree)
    assert (scores.targets[0], scores.targets[2], scores.targets[3]) == (output[0], output[1], output[2])
    model_tokens = target.logits(target.prefill(prompt).store.clone(100), tree).argmax(-1).tolist()
    assert scores.targets[1] == model_tokens[1]


def test_a_scripted_target_on_graphs_prints_the_script() -> None:
    target, capturer = small_target(), FakeCapturer()
    capture_graphs(target, capturer)
    prompt, output = next(iter(scripts().items()))
    steps = generate(target, "trie", prompt, max_new_tokens=len(output))
    tokens = [token for step in steps for token in step.emitted]
    assert tuple(tokens) == output and capturer.replayed > 3
    assert target.graphs is not None and target.graphs.num_stores == 1 and len(prompt) < COLUMN_STEP


def test_bench_runs_a_scripted_target() -> None:
    target = small_target()
    transcripts = list(scripts().items())[:2]
    prompts = [
        BenchPrompt(str(number), prompt, max_new_tokens=len(output))
        for number, (prompt, output) in enumerate(transcripts)
    ]
    summary = summarise(Bench(target, RaceSpec(("trie",)), repetitions=1).run(prompts), target.decode)
    assert [lane["identical"] for lane in summary["lanes"]] == [True, True]
    assert summary["lanes"][0]["tokens"] == sum(len(output) for _, output in transcripts)
    # Tokens a step.
    assert summary["lanes"][1]["tau"] > 1.5


def test_shapes_have_the_published_numbers_of_parameters() -> None:
    with torch.device("meta"):
        sizes = {name: AutoModelForCausalLM.from_config(make_config(name, 0)).num_parameters() for name in SHAPES}
    assert sizes["0.5b"] == 494_032_768 and sizes["7b"] == 6_738_415_616 and sizes["8b"] == 8_030_261_248
    assert make_config("7b", 40_000).vocab_size == 40_000
    with pytest.raises(InputError, match="70b"):
        make_config("70b", 0)


def test_a_script_cannot_be_sampled() -> None:
    target = load_scripted("tiny", {(1, 2): (3, 4)})
    with pytest.raises(InputError, match="temperature"):
        list(generate(target, "vanilla", (1, 2), max_new_tokens=2, temperature=0.5))
    steps = generate(target, "vanilla", (1, 2), max_new_tokens=2)
    assert [token for step in steps for token in step.emitted] == [3, 4]
