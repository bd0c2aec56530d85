"""Rejection sampling on models: p is the target's probability, and a lane's tokens follow the target's distribution."""

from __future__ import annotations

import numpy as np
import torch

from specrace.core.events import Step
from specrace.core.rejection import Coins
from specrace.core.sampling_params import SamplingParams
from specrace.drafters import METHODS, DrafterInputs
from specrace.engine.lane import Lane
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.model.capture import capture_replay
from specrace.model.draft_model import DraftModel
from specrace.model.sampling import warp
from specrace.model.target import Target
from tests.models import tiny_target

PROMPT = (2, 3, 4, 2, 3, 5, 2, 3)


def test_p_is_the_targets_probability_at_that_position() -> None:
    target = tiny_target("llama", initializer_range=0.25, eos_token_id=None)
    spec = RaceSpec(("trigram",), temperature=0.8, verifier="rejection", max_new_tokens=24)
    context, num_checks = list(PROMPT), 0
    for step in race(target, PROMPT, spec):
        if not isinstance(step, Step) or step.lane != "trigram":
            continue
        assert step.checks is not None
        path = [*context, *step.tree.tokens[1:]]
        probs = warp(target.plain_logits(path), SamplingParams(0.8)).softmax(dim=-1)
        for index, check in enumerate(step.checks):
            expected = float(probs[len(context) - 1 + index, path[len(context) + index]])
            assert abs(check.p - expected) < 1e-4
            num_checks += 1
        context += step.emitted
    assert num_checks > 10


def test_two_tokens_of_a_lane_are_distributed_as_in_ancestral_sampling() -> None:
    small = tiny_target("llama", seed=3, vocab_size=6, num_hidden_layers=1, initializer_range=0.4)
    smaller = tiny_target("gpt2", seed=1, vocab_size=6, num_hidden_layers=1, initializer_range=0.4)
    # Replayed forwards take less time, and 500 texts are decoded.
    for target in (small, smaller):
        capture_replay(target, packed=False)
        assert target.replay is not None
    params, count, prefix = SamplingParams(0.7, top_p=0.95), 500, small.prefill(PROMPT)
    drafting, expected = DraftModel(smaller), joint_distribution(small, params)
    counts = np.zeros_like(expected)
    for seed in range(count):
        inputs = DrafterInputs(PROMPT, small.vocab_size, seed, params=params, draft_models=(drafting.after(PROMPT),))
        drafter = METHODS["draft-model"].build(inputs, sampled=True)
        session, coins = small.session(prefix, 8, params), Coins(seed, "draft-model")
        lane = Lane("draft-model", drafter, session, PROMPT, max_new_tokens=2, num_draft=2, coins=coins)
        while not lane.end:
            lane.step()
        counts[tuple(lane.tokens)] += 1
    # The mean total variation distance between the frequencies of `count` fair draws and the target's distribution.
    fair_distance = np.sqrt(2 * expected * (1 - expected) / np.pi / count).sum() / 2
    # A lane that redraws from all of p after a rejection is off by 0.12 or more; one that accepts every token, by 0.7.
    assert np.abs(counts / count - expected).sum() / 2 < 1.7 * fair_distance < 0.1


def joint_distribution(target: Target, params: SamplingParams) -> np.ndarray:
    """P(first, second) [V, V], from one plain forward for each first token."""
    logits = torch.stack([target.plain_logits([*PROMPT, first])[-2:] for first in range(target.vocab_size)])
    rows = np.stack([warp(pair, params).double().softmax(dim=-1).numpy() for pair in logits])
    expected: np.ndarray = rows[0, 0][:, None] * rows[:, 1]
    return expected
