"""llama.cpp as a peer, run for real on a small random Llama: its tokens, its stops, its drafts, and what is refused."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from specrace.core.errors import InputError
from specrace.core.sampling_params import SamplingParams
from specrace.engine.spec import RaceSpec
from specrace.lab.bench import COUNTERPARTS, Bench, BenchPrompt
from specrace.lab.figures import summarise
from specrace.lab.llama_cpp import OPTIONS, PREFIX, TYPES, GgufWeights, LlamaCppPeer
from specrace.lab.peers import make_peers
from specrace.model.target import Target
from tests.parts import EOS, VOCAB, random_prompt, tiny_target

PEERS = [name for name in COUNTERPARTS if name.startswith(PREFIX)]


def write_source(target: Target, file: Path, *, vocabulary: int = VOCAB, architecture: str = "llama") -> None:
    """The GGUF that a model's folder holds, of the target's shape; all its weights are zero."""
    config, writer = target.config, gguf.GGUFWriter(file, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_file_type(0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([chr(97 + number) for number in range(vocabulary)])
    writer.add_token_types([gguf.TokenType.NORMAL] * vocabulary)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(EOS)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for key, value in target.model.state_dict().items():
        name = names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert name is not None
        writer.add_tensor(name, np.zeros(value.shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def target(tmp_path: Path) -> Target:
    """A random Llama with grouped heads, and a GGUF in its folder."""
    found = tiny_target("llama", seed=7)
    found.config._name_or_path = str(tmp_path)
    write_source(found, tmp_path / "weights.gguf")
    return found


def vanilla(target: Target, prompt: tuple[int, ...], length: int) -> tuple[int, ...]:
    result = Bench(target, RaceSpec((), max_new_tokens=length), repetitions=1).run([BenchPrompt("one", prompt)])[0]
    return result.runs["vanilla"][0].tokens


def test_every_mode_prints_what_vanilla_prints(target: Target, capfd: pytest.CaptureFixture[str]) -> None:
    """In float32, greedy: so the weights are the target's, heads in llama.cpp's order, and ends and lengths are kept."""
    given = [random_prompt(random.Random(seed)) for seed in range(6)]
    expected = [vanilla(target, prompt, 40) for prompt in given]
    assert {len(tokens) == 40 for tokens in expected} == {True, False}, "some end at the end token, some at the limit"
    assert all(tokens[-1] == EOS for tokens in expected if len(tokens) < 40)
    drafted = 0
    for peer in make_peers(PEERS, target, SamplingParams(), 10):
        for prompt, tokens in zip(given, expected, strict=True):
            run = peer.run(prompt, 40)
            assert run.tokens == tokens, peer.name
            assert 0 < run.first_ms <= run.run_ms and run.first_tokens == 1
            assert run.steps is not None and run.steps + run.accepted == max(len(tokens) - 1, run.accepted + 1)
            assert run.accepted <= run.drafted and (run.drafted == 0 or peer.name != PREFIX)
            drafted += run.drafted
    assert drafted
    assert capfd.readouterr() == ("", "")
