"""The bench on real small models: transformers as a peer says what lanes say, and the limit of a step is measured."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.core.sampling_params import SamplingParams
from specrace.engine.spec import RaceSpec
from specrace.lab.bench import Bench, BenchPrompt
from specrace.lab.peers import make_peers
from specrace.lab.summary import summarise
from tests.models import tiny_target
from tests.parts import random_prompt


def prompts(count: int) -> list[BenchPrompt]:
    return [BenchPrompt(f"p{number}", random_prompt(random.Random(number))) for number in range(count)]


def words(tokens: Any) -> str:
    return " ".join(map(str, tokens))


def test_lanes_and_peers_are_measured_on_every_prompt() -> None:
    target = tiny_target("llama")
    spec = RaceSpec(("trie", "prompt-lookup"), max_new_tokens=30)
    peers = make_peers(["transformers", "transformers-pld"], target, spec.sampling_params(), 10, longest=4)
    assert [each.settings for each in peers] == [
        {},
        {"prompt_lookup_num_tokens": 10, "max_matching_ngram_size": 4},
    ]
    told: list[str] = []
    results = Bench(target, spec, peers=peers, repetitions=2).run(prompts(3), told.append)
    assert len(told) == 3 * (1 + 2 * 6)
    for each in results:
        assert set(each.runs) == {"vanilla", "trie", "prompt-lookup"} and set(each.peer_runs) == {
            "transformers",
            "transformers-pld",
        }
        assert all(len(runs) == 2 for runs in (*each.runs.values(), *each.peer_runs.values()))
        outputs = {run.tokens for runs in (*each.runs.values(), *each.peer_runs.values()) for run in runs}
        assert len(outputs) == 1, "float32: one text, whoever decodes"
        for runs in each.runs.values():
            for run in runs:
                assert run.run_ms >= run.metrics.decode_ms + run.prefill_ms
                assert run.peak_memory is None or run.peak_memory > 1 << 20
        for runs in each.peer_runs.values():
            for run in runs:
                assert 0 < run.first_ms < run.run_ms and 1 <= run.first_tokens <= len(run.tokens)
    found = summarise(results, words)
    assert [lane["identical"] for lane in found["lanes"]] == [True] * 3
    assert [peer["identical"] for peer in found["peers"]] == [True] * 2
    assert {(each["lane"], each["peer"]) for each in found["comparisons"]} == {
        ("vanilla", "transformers"),
        ("prompt-lookup", "transformers-pld"),
    }
    assert found["lanes"][0]["tau"] == 1.0 and found["lanes"][0]["speedup"] == pytest.approx(1.0)


def test_the_limit_of_a_step_is_measured_anew_at_each_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    bandwidths = iter((1e9, 1e9, 4e9))
    monkeypatch.setattr("specrace.model.target.copy_bandwidth", lambda _: next(bandwidths))
    same = [replace(prompt, id=str(number)) for number, prompt in enumerate(prompts(1) * 2)]
    first, second = Bench(tiny_target("llama"), RaceSpec((), max_new_tokens=4), repetitions=1).run(same)
    assert second.runs["vanilla"][0].limit_ms == pytest.approx(first.runs["vanilla"][0].limit_ms / 4)


def test_an_unknown_peer_is_refused() -> None:
    with pytest.raises(InputError, match="transformers-pld"):
        make_peers(["vllm"], tiny_target("llama"), SamplingParams(), 10)


def test_a_sampling_peer_is_not_compared() -> None:
    target = tiny_target("llama")
    spec = RaceSpec(("trie",), max_new_tokens=12, temperature=0.8)
    peers = make_peers(["transformers"], target, spec.sampling_params(), 10)
    results = Bench(target, spec, peers=peers, repetitions=1).run(prompts(1))
    assert "transformers" not in results[0].differences and results[0].differences["trie"] is None
    assert summarise(results, words)["peers"][0]["identical"] is None
