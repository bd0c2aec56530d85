"""The benchmark on small models: transformers prints the lanes' text, and a step's bandwidth bound is measured.

A peer is a decoder of another library, which the benchmark times beside our lanes.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.core.sampling_params import SamplingParams
from specrace.engine.spec import RaceSpec
from specrace.lab.bench.benchmark import Bench, BenchPrompt
from specrace.lab.bench.peers import make_peers
from specrace.lab.bench.summary import summarise
from tests.models import tiny_target
from tests.parts import random_prompt


def prompts(count: int) -> list[BenchPrompt]:
    """Random prompts with the ids p0, p1, ..."""
    return [BenchPrompt(f"p{number}", random_prompt(random.Random(number))) for number in range(count)]


def text_of(tokens: Any) -> str:
    """The ids of the tokens; it stands in for the text, because the model has no tokenizer."""
    return " ".join(map(str, tokens))


def test_lanes_and_peers_are_measured_on_every_prompt() -> None:
    target = tiny_target("llama")
    spec = RaceSpec(("trie", "prompt-lookup"), max_new_tokens=16)
    peers = make_peers(["transformers", "transformers-pld"], target, spec.sampling_params(), 10, longest=4)
    assert [peer.settings for peer in peers] == [
        {},
        {"prompt_lookup_num_tokens": 10, "max_matching_ngram_size": 4},
    ]
    progress: list[str] = []
    results = Bench(target, spec, peers=peers, repetitions=2).run(prompts(2), progress.append)
    # A line for each prompt's warm-up; in each repetition, one for each of three lanes and two peers, and one for all
    # lanes step by step.
    assert len(progress) == 2 * (1 + 2 * 6)
    for result in results:
        assert set(result.runs) == {"vanilla", "trie", "prompt-lookup"} and set(result.peer_runs) == {
            "transformers",
            "transformers-pld",
        }
        assert all(len(runs) == 2 for runs in (*result.runs.values(), *result.peer_runs.values()))
        outputs = {run.tokens for runs in (*result.runs.values(), *result.peer_runs.values()) for run in runs}
        assert len(outputs) == 1, "in float32 every decoder prints the same text"
        for runs in result.runs.values():
            for run in runs:
                assert run.run_ms >= run.metrics.decode_ms + run.prefill_ms
                assert run.peak_memory is None or run.peak_memory > 1 << 20
        for runs in result.peer_runs.values():
            for run in runs:
                assert 0 < run.first_ms < run.run_ms and 1 <= run.first_tokens <= len(run.tokens)
    summary = summarise(results, text_of)
    assert [lane["identical"] for lane in summary["lanes"]] == [True] * 3
    assert [peer["identical"] for peer in summary["peers"]] == [True] * 2
    assert {(ratio["lane"], ratio["peer"]) for ratio in summary["comparisons"]} == {
        ("vanilla", "transformers"),
        ("prompt-lookup", "transformers-pld"),
    }
    assert summary["lanes"][0]["tau"] == 1.0 and summary["lanes"][0]["speedup"] == pytest.approx(1.0)


def test_the_bandwidth_bound_is_measured_again_for_each_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    # Measured when the bound is first computed, and again for each of the two prompts.
    bandwidths = iter((1e9, 1e9, 4e9))
    monkeypatch.setattr("specrace.model.target.copy_bandwidth", lambda _: next(bandwidths))
    equal_prompts = [replace(prompt, id=str(number)) for number, prompt in enumerate(prompts(1) * 2)]
    first, second = Bench(tiny_target("llama"), RaceSpec((), max_new_tokens=4), repetitions=1).run(equal_prompts)
    assert second.runs["vanilla"][0].limit_ms == pytest.approx(first.runs["vanilla"][0].limit_ms / 4)


def test_an_unknown_peer_is_refused() -> None:
    with pytest.raises(InputError, match="transformers-pld"):
        make_peers(["vllm"], tiny_target("llama"), SamplingParams(), 10)


def test_a_peer_that_samples_is_not_compared_with_vanilla() -> None:
    target = tiny_target("llama")
    spec = RaceSpec(("trie",), max_new_tokens=12, temperature=0.8)
    peers = make_peers(["transformers"], target, spec.sampling_params(), 10)
    results = Bench(target, spec, peers=peers, repetitions=1).run(prompts(1))
    assert "transformers" not in results[0].differences and results[0].differences["trie"] is None
    assert summarise(results, text_of)["peers"][0]["identical"] is None
