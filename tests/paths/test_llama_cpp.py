"""llama.cpp as a peer, run on a small random Llama: its tokens, where it stops, its drafts, and the errors reported.

A peer is a decoder of another library, which the benchmark times beside our lanes.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from specrace.core.errors import InputError
from specrace.core.sampling_params import SamplingParams
from specrace.engine.spec import RaceSpec
from specrace.lab.bench.benchmark import COUNTERPARTS, Bench, BenchPrompt
from specrace.lab.bench.llama_cpp import PREFIX, TYPES, GgufWeights
from specrace.lab.bench.peers import make_peers
from specrace.lab.bench.summary import summarise
from specrace.model.target import Target
from tests.models import tiny_target, write_zero_gguf
from tests.parts import EOS, random_prompt

PEERS = [name for name in COUNTERPARTS if name.startswith(PREFIX)]


@pytest.fixture
def target(tmp_path: Path) -> Target:
    """A random Llama with grouped heads, and a GGUF in its folder."""
    random_target = tiny_target("llama", seed=7)
    random_target.config._name_or_path = str(tmp_path)
    write_zero_gguf(random_target, tmp_path / "weights.gguf")
    return random_target


def vanilla(target: Target, prompt: tuple[int, ...], length: int) -> tuple[int, ...]:
    """The tokens that vanilla decoding prints after `prompt`, at most `length`."""
    result = Bench(target, RaceSpec((), max_new_tokens=length), repetitions=1).run([BenchPrompt("one", prompt)])[0]
    return result.runs["vanilla"][0].tokens


def test_every_mode_prints_vanillas_text(target: Target, capfd: pytest.CaptureFixture[str]) -> None:
    """The peers decode greedily in float32, on the target's weights. Their text also ends where vanilla's ends."""
    test_prompts = [random_prompt(random.Random(seed)) for seed in range(6)]
    expected = [vanilla(target, prompt, 40) for prompt in test_prompts]
    assert {len(tokens) == 40 for tokens in expected} == {True, False}, "some end at the end token, some at the limit"
    assert all(tokens[-1] == EOS for tokens in expected if len(tokens) < 40)
    num_drafted = 0
    for peer in make_peers(PEERS, target, SamplingParams(), 10):
        for prompt, tokens in zip(test_prompts, expected, strict=True):
            run = peer.run(prompt, 40)
            assert run.tokens == tokens, peer.name
            assert 0 < run.first_ms <= run.run_ms and run.first_tokens == 1
            # Reading the prompt gives the first token; a step gives its accepted draft tokens and one more. At least
            # one step is counted.
            assert run.steps is not None and run.steps + run.accepted == max(len(tokens) - 1, run.accepted + 1)
            # The peer whose name is the prefix alone is llama.cpp without a drafter.
            assert run.accepted <= run.drafted and (run.drafted == 0 or peer.name != PREFIX)
            num_drafted += run.drafted
    assert num_drafted
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", TYPES)
def test_weights_are_written_in_the_chosen_type(kind: str, target: Target) -> None:
    weights = GgufWeights(target, kind)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(weights.file).tensors}
    assert tensors["blk.0.ffn_up.weight"].tensor_type == gguf.GGMLQuantizationType[kind.upper()]
    assert tensors["output_norm.weight"].tensor_type == gguf.GGMLQuantizationType.F32
    for name, key in (("token_embd", "model.embed_tokens"), ("blk.1.ffn_down", "model.layers.1.mlp.down_proj")):
        tensor, values = tensors[f"{name}.weight"], target.model.state_dict()[f"{key}.weight"].numpy()
        assert np.allclose(gguf.dequantize(tensor.data, tensor.tensor_type), values, atol=values.max() / 100)
    [peer] = make_peers(["llama-cpp"], target, SamplingParams(), 10, kind)
    assert peer.settings["weights"] == kind and len(peer.run((5, 6, 7), 8).tokens) == 8
    file = weights.file
    del weights
    assert not file.exists(), "the written file is removed"


def test_sampling_uses_the_races_seed(target: Target) -> None:
    outputs = set()
    for seed in (1, 1, 2, 3):
        [peer] = make_peers(["llama-cpp"], target, SamplingParams(temperature=1.5, top_k=20, top_p=0.9, seed=seed), 10)
        outputs.add((seed, peer.run((5, 6, 7), 12).tokens))
    # Both runs with seed 1 print the same text, so that the four runs have three outputs.
    assert len({tokens for _, tokens in outputs}) > 1 and len(outputs) == 3


def test_the_bench_counts_llama_cpps_steps_and_drafts(target: Target) -> None:
    spec = RaceSpec(("prompt-lookup",), max_new_tokens=30)
    peers = make_peers(["transformers", "llama-cpp", "llama-cpp-ngram-simple"], target, spec.sampling_params(), 10)
    prompt = BenchPrompt("one", (5, 6, 7, 8, 9, 10, 5, 6, 7))
    summary = summarise(Bench(target, spec, peers=peers, repetitions=1).run([prompt]), str)
    transformers_peer, plain, simple = summary["peers"]
    assert transformers_peer["tau"] is None and plain["tau"] == 1.0 and plain["acceptance_rate"] is None
    assert simple["drafted_per_step"] > 0 and simple["tau"] >= 1.0 and 0 <= simple["acceptance_rate"] <= 1
    assert plain["identical"] and simple["identical"]
    assert [comparison["lane"] for comparison in summary["comparisons"]] == ["vanilla", "vanilla", "prompt-lookup"]


def test_a_refused_prompt_raises_input_error(target: Target) -> None:
    [peer] = make_peers(["llama-cpp"], target, SamplingParams(), 10)
    with pytest.raises(InputError, match=r"llama\.cpp refuses the prompt"):
        peer.run((5, 10**6), 8)


@pytest.mark.parametrize("package", ["xllamacpp", "gguf"])
def test_a_missing_package_is_reported(package: str, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"{package}: pip install 'specrace\[llama-cpp\]'"):
        make_peers(["llama-cpp"], target, SamplingParams(), 10)
    assert make_peers(["transformers"], target, SamplingParams(), 10)


def test_files_of_another_model_are_refused(target: Target, tmp_path: Path) -> None:
    source, other_file = tmp_path / "weights.gguf", tmp_path / "other.gguf"
    write_zero_gguf(target, other_file, vocabulary=31)
    with pytest.raises(InputError, match="a vocabulary of 31 and llama one of 32"):
        GgufWeights(target, str(other_file))
    other_file.replace(source)
    with pytest.raises(InputError, match="a vocabulary of 31"):
        GgufWeights(target)
    write_zero_gguf(target, source, architecture="gemma")
    with pytest.raises(InputError, match="gemma model cannot be written"):
        GgufWeights(target)
    write_zero_gguf(tiny_target("llama", intermediate_size=64), source)
    with pytest.raises(InputError, match=r"of another model than llama: blk\.0\.ffn"):
        GgufWeights(target)


def test_a_missing_or_broken_file_is_reported(target: Target, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    for content in (b"", b"GGUF", b"no GGUF at all" * 9, (tmp_path / "weights.gguf").read_bytes()[:700]):
        broken.write_bytes(content)
        with pytest.raises(InputError, match=r"broken\.gguf"):
            GgufWeights(target, str(broken))
    with pytest.raises(InputError, match=r"none\.gguf cannot be read"):
        GgufWeights(target, str(tmp_path / "none.gguf"))
    target.config._name_or_path = str(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"no GGUF file beside llama; give one, --peer-weights FILE\.gguf"):
        GgufWeights(target)
