"""On a GPU every lane prints vanilla's text. Needs torch and transformers, no gradio or faiss; skipped without a GPU.

Captured forwards are replayed as CUDA graphs; eager is transformers.
"""

from __future__ import annotations

import random

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from specrace.core.cost_curve import row_counts
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.drafters import METHODS
from specrace.engine.generate import generate
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.model.capture import capture_graphs
from specrace.model.forward.graphs import CudaCapturer
from specrace.model.sampling import Sampler
from specrace.model.target import Target
from tests.models import give_heads

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def make_target(dtype: torch.dtype) -> Target:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=1024, initializer_range=0.2, eos_token_id=None,
    )  # fmt: skip
    target = Target(AutoModelForCausalLM.from_config(config).to("cuda", dtype))
    give_heads(target)
    return target


def prompts(count: int) -> list[list[int]]:
    rng = random.Random(1)
    return [[rng.randrange(512) for _ in range(rng.randint(2, 40))] * 3 for _ in range(count)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_every_lane_is_identical_in_float32(temperature: float) -> None:
    target = make_target(torch.float32)
    for prompt in prompts(8):
        spec = RaceSpec(tuple(METHODS), max_new_tokens=64, temperature=temperature, seed=3)
        *_, finished = race(target, prompt, spec)
        assert [lane.lane for lane in finished.lanes if not lane.identical] == []


def test_every_bit_of_a_noise_key_changes_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 63 keys, here the seeds themselves, has another bit set. Of 100,000 tokens, few may be drawn twice."""
    monkeypatch.setattr("specrace.model.sampling._mix", lambda seed, _: seed)
    logits = torch.zeros(1, 100_000, device="cuda")
    tokens = [int(Sampler(SamplingParams(1.0, seed=1 << bit)).choose(logits, [3])) for bit in range(63)]
    assert len(set(tokens)) > 55


def test_a_difference_in_bfloat16_is_a_near_tie() -> None:
    target = make_target(torch.bfloat16)
    for prompt in prompts(8):
        *_, finished = race(target, prompt, RaceSpec(tuple(METHODS), max_new_tokens=64))
        # How far the target's two best logits are apart where a lane's text first differs from vanilla's.
        gaps = [lane.first_difference.gap for lane in finished.lanes if lane.first_difference]
        assert all(gap < 1.0 for gap in gaps)


def test_graphed_forwards_equal_eager_ones() -> None:
    """In float32 every lane prints the same tokens, and a tree of each size with a graph has the same logits."""
    eager, graphed = make_target(torch.float32), make_target(torch.float32)
    capture_graphs(graphed, CudaCapturer(graphed.device))
    assert graphed.graphs is not None
    for prompt in prompts(4):
        for method in METHODS:
            outputs = [
                [token for step in generate(target, method, prompt, max_new_tokens=64) for token in step.emitted]
                for target in (eager, graphed)
            ]
            assert outputs[0] == outputs[1], method
        prefix = eager.prefill(prompt)
        # 1, 9, 17, 33 and 65 rows: those of the graphs that a session has by default.
        for rows in row_counts(65):
            tree = TokenTree.chain(prompt[-1], [7] * (rows - 1))
            replayed = graphed.session(prefix, 200).logits(tree)
            torch.testing.assert_close(replayed, eager.logits(prefix.store.clone(2000), tree), rtol=1e-3, atol=1e-2)
