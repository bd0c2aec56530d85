"""Choosing tokens: their frequencies, warping as in transformers, and noise that depends on seed and position only.

Warping applies temperature, top-k and top-p to logits. A drawn token is the argmax of warped logits plus noise.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from specrace.core.errors import InputError
from specrace.core.rejection import warp_probs
from specrace.core.sampling_params import SamplingParams
from specrace.core.settings import SETTINGS
from specrace.core.verify import NO_TOKEN
from specrace.model import sampling
from specrace.model.sampling import Sampler, warp

# The largest seed that the settings allow.
MAX_SEED = 2**53


def draw(logits: Tensor, positions: list[int], **params: float) -> list[int]:
    """Choose tokens with a new sampler."""
    tokens: list[int] = Sampler(SamplingParams(**params)).choose(logits, positions).tolist()  # type: ignore[arg-type]
    return tokens


def random_logits(rows: int, vocab: int, seed: int = 0) -> Tensor:
    return 3 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))


def total_variation(params: SamplingParams, logits: Tensor, count: int) -> float:
    """The total variation distance between the frequencies at `count` positions and the warped softmax."""
    tokens: list[int] = []
    sampler = Sampler(params)
    for first in range(0, count, 1000):
        tokens += sampler.choose(logits.expand(1000, -1), range(first, first + 1000)).tolist()
    frequencies = torch.bincount(torch.tensor(tokens), minlength=logits.shape[-1]) / count
    return float((frequencies - warp(logits[None], params).softmax(dim=-1)[0]).abs().sum() / 2)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(1.0),
        SamplingParams(0.6, seed=9),
        SamplingParams(1.5, top_k=4),
        SamplingParams(0.9, top_p=0.8, seed=MAX_SEED),
    ],
)
def test_frequencies_are_those_of_the_softmax(params: SamplingParams) -> None:
    # With 20,000 draws from 12 tokens, the distance is about 0.007; to another distribution, it is ten times as large.
    assert total_variation(params, random_logits(1, 12)[0] / 2, 20_000) < 0.02


@pytest.mark.parametrize(
    "params", [{}, {"temperature": 0.8}, {"temperature": 1.0, "top_k": 3}, {"temperature": 1.0, "top_p": 0.5}]
)
@pytest.mark.parametrize("columns", [slice(None), slice(5, 6)])
def test_a_row_with_a_nan_has_no_token(params: dict[str, float], columns: slice) -> None:
    logits = random_logits(3, 12)
    expected = draw(logits, [7, 8, 9], **params)
    logits[1, columns] = math.nan
    assert draw(logits, [7, 8, 9], **params) == [expected[0], NO_TOKEN, expected[2]]


def test_neighbouring_positions_and_seeds_are_independent() -> None:
    logits = torch.zeros(20_000, 4)
    first = torch.tensor(draw(logits, list(range(20_000)), temperature=1.0, seed=0))
    second = torch.tensor(draw(logits, list(range(20_000)), temperature=1.0, seed=1))
    for left, right in ((first[:-1], first[1:]), (first, second), (first[:-1], second[1:])):
        pairs = torch.bincount(4 * left + right, minlength=16) / len(left)
        assert (pairs - 1 / 16).abs().sum() / 2 < 0.02


@given(st.integers(0, MAX_SEED), st.lists(st.integers(0, 5000), min_size=1, max_size=80))
def test_the_token_at_a_position_does_not_depend_on_the_batch(seed: int, positions: list[int]) -> None:
    logits = torch.zeros(1, 50)
    sampler = Sampler(SamplingParams(1.0, seed=seed))
    in_one_call = sampler.choose(logits.expand(len(positions), -1), positions).tolist()
    in_own_calls = [draw(logits, [position], temperature=1.0, seed=seed)[0] for position in positions]
    assert in_one_call == in_own_calls == [sampler.choose(logits, [position]).item() for position in positions]


def test_noise_beyond_the_cached_positions_is_drawn_again_identically() -> None:
    logits = random_logits(1, 40)
    sampler = Sampler(SamplingParams(1.0, seed=3))
    # A sampler keeps the noise of up to 256 positions.
    first = [sampler.choose(logits, [position]).item() for position in range(300)]
    assert [sampler.choose(logits, [position]).item() for position in range(300)] == first


def test_different_seeds_draw_different_tokens() -> None:
    logits = torch.zeros(64, 1000)
    outputs = {tuple(draw(logits, list(range(64)), temperature=1.0, seed=seed)) for seed in (0, 1, 2, 2**32, MAX_SEED)}
    assert len(outputs) == 5


@pytest.mark.parametrize("bit", range(54))
def test_every_bit_of_the_seed_changes_the_tokens(bit: int) -> None:
    logits = torch.zeros(8, 1000)
    assert draw(logits, list(range(8)), temperature=1.0) != draw(logits, list(range(8)), temperature=1.0, seed=1 << bit)


def test_noise_depends_on_the_upper_bits_of_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys, here the seeds themselves, have equal lower 32 bits; torch's CPU generator would use only these."""
    monkeypatch.setattr("specrace.model.sampling._mix", lambda seed, _: seed)
    logits = torch.zeros(1, 100_000)
    tokens = {draw(logits, [3], temperature=1.0, seed=5 + (upper << 32))[0] for upper in range(16)}
    assert len(tokens) > 12, "16 keys seldom draw the same of 100,000 tokens"


def test_noise_follows_the_gumbel_distribution() -> None:
    """The distribution function is exp(-exp(-x)), and no value is infinite."""
    sampler = Sampler(SamplingParams(1.0))
    noise = sampler.perturbed(torch.zeros(1, 50_000).expand(20, -1), range(20))
    assert noise.isfinite().all() and noise.dtype == torch.float32
    for x in (-1.5, -0.5, 0.5, 2.0, 6.0):
        assert (noise < x).double().mean() == pytest.approx(math.exp(-math.exp(-x)), abs=0.002)


def test_rows_of_one_position_share_the_noise_but_not_the_logits() -> None:
    logits = torch.stack([torch.tensor([0.0, 100.0]), torch.tensor([100.0, 0.0])])
    assert draw(logits, [7, 7], temperature=1.0) == [1, 0]


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("top_k", [0, 1, 5, 1000])
@pytest.mark.parametrize("top_p", [1e-9, 0.1, 0.5, 0.95, 1.0])
def test_warping_equals_transformers_warpers(temperature: float, top_k: int, top_p: float) -> None:
    logits = random_logits(20, 60)
    expected = TemperatureLogitsWarper(temperature)(None, logits)
    if top_k:
        expected = TopKLogitsWarper(top_k)(None, expected)
    if top_p < 1.0:
        expected = TopPLogitsWarper(top_p)(None, expected)
    assert torch.equal(warp(logits, SamplingParams(temperature, top_p, top_k)), expected)


def test_top_p_and_top_k_never_exclude_the_best_token() -> None:
    logits = random_logits(50, 30)
    best = logits.argmax(dim=-1).tolist()
    assert draw(logits, list(range(50)), temperature=5.0, top_p=1e-9) == best
    assert draw(logits, list(range(50)), temperature=5.0, top_k=1) == best


def test_temperature_zero_is_greedy_and_needs_no_noise() -> None:
    logits = random_logits(9, 30)
    assert draw(logits, list(range(9)), seed=5) == logits.argmax(dim=-1).tolist()


@pytest.mark.parametrize("temperature", [1e-3, 1e-6, 1e-12, 1e-38, 1e-42, 5e-324])
def test_a_temperature_close_to_zero_is_greedy(temperature: float) -> None:
    logits = random_logits(200, 100)
    assert draw(logits, list(range(200)), temperature=temperature) == logits.argmax(dim=-1).tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_sampled_in_float32(dtype: torch.dtype) -> None:
    logits = random_logits(100, 50).to(dtype)
    assert draw(logits, list(range(100)), temperature=0.7) == draw(logits.float(), list(range(100)), temperature=0.7)


@pytest.mark.parametrize("infinite", [math.inf, -math.inf])
@pytest.mark.parametrize("params", [{}, {"temperature": 0.8}, {"temperature": 0.8, "top_p": 0.5, "top_k": 3}])
def test_infinite_logits_still_give_a_token(infinite: float, params: dict[str, float]) -> None:
    """A model whose logits overflow must not end a race."""
    logits = random_logits(3, 20)
    logits[0, 4], logits[1] = infinite, infinite
    assert all(0 <= token < 20 for token in draw(logits, [1, 2, 3], **params))


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", value) for value in (-0.1, math.nan, math.inf, -math.inf, 1e9)]
    + [("top_p", value) for value in (0.0, -1.0, 1.1, math.nan)]
    + [("top_k", -1), ("seed", -1), ("seed", MAX_SEED + 1), ("seed", 10**30)],
)
def test_values_out_of_bounds_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=SETTINGS[name].label):
        SamplingParams(**{name: value})  # type: ignore[arg-type]


def test_noise_is_drawn_only_for_new_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    uniform = sampling._uniform

    def record(key: int, count: int, device: torch.device) -> Tensor:
        drawn.append(key)
        return uniform(key, count, device)

    monkeypatch.setattr(sampling, "_uniform", record)
    sampler, logits = Sampler(SamplingParams(1.0, seed=3)), torch.zeros(129, 40)
    for root in range(7, 12):
        sampler.choose(logits, range(root, root + 129))
    # The first call draws for 129 positions; each of the four further calls has one new position.
    assert len(drawn) == len(set(drawn)) == 129 + 4


PARAMS = st.builds(
    SamplingParams,
    st.sampled_from([0.3, 0.7, 1.0, 1.3, 5.0]),
    st.sampled_from([0.2, 0.6, 0.95, 1.0]),
    st.integers(0, 9),
)


@given(PARAMS, st.integers(0, 10**6))
def test_warp_probs_equals_warp(params: SamplingParams, seed: int) -> None:
    probs = np.random.default_rng(seed).dirichlet([0.5] * 8, size=3)
    expected = warp(torch.log(torch.from_numpy(probs)), params).softmax(dim=-1).numpy()
    assert warp_probs(probs, params) == pytest.approx(expected, abs=1e-9)
