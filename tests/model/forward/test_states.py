"""Models with layers that keep a state: chains score as plain decoding does, and a rejected draft leaves no trace.

A state has a part "conv" (the last inputs of a convolution) and a part "recurrent". `TokenTree.chain(7, [8, 9])` is the
pending token 7 and a draft of two; `keep((0,))` commits the pending token alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

import specrace.hf
from specrace.core.errors import InputError
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.drafters import native_methods
from specrace.engine.generate import generate
from specrace.lab.bench.peers import make_peers
from specrace.model.draft_check import check_trees
from specrace.model.draft_model import DraftModel
from specrace.model.forward.kv import KVStore
from specrace.model.forward.states import StateStore
from specrace.model.target import Target
from tests.measure.model_zoo import plain_text
from tests.measure.tiny_configs import VOCABULARY, tiny_config

# In this order: linear attention beside attention; state spaces beside attention; layers that do both; convolutions.
KINDS = ("qwen3_5_text", "granitemoehybrid", "falcon_h1", "lfm2")
# The first replaces its states, the second writes into them.
TWO_KINDS = KINDS[:2]


# Granite's experts would take most of the time.
CHANGES = {"granitemoehybrid": {"num_local_experts": 0}}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """For models as small as these a second thread only waits for the first."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_target(kind: str) -> Target:
    torch.manual_seed(0)
    config = tiny_config(kind, **CHANGES.get(kind, {}))
    target = Target(AutoModelForCausalLM.from_config(config).eval(), name=kind)
    target.eos_ids = frozenset()
    return target


@pytest.fixture(scope="module", params=TWO_KINDS)
def target(request: pytest.FixtureRequest) -> Target:
    return make_target(request.param)


def repeating_prompt(count: int = 24) -> tuple[int, ...]:
    rng = random.Random(1)
    phrase = [rng.randrange(3, VOCABULARY) for _ in range(5)]
    return tuple((phrase * count)[:count])


def states_of(store: KVStore) -> dict[Any, torch.Tensor]:
    """The committed tensors of all states, by (which state, name of the part)."""
    assert isinstance(store, StateStore)
    states = store.committed().items()
    tensors = {(key, name): getattr(state, name) for key, state in states for name in ("conv", "recurrent")}
    return {key: tensor for key, tensor in tensors.items() if tensor is not None}


def largest_difference(store: KVStore, other: KVStore) -> float:
    states, other_states = states_of(store), states_of(other)
    assert states.keys() == other_states.keys() and states
    return max(float((state - other_states[key]).abs().max()) for key, state in states.items())


def test_every_lane_prints_what_plain_generate_prints(target: Target) -> None:
    """Every lane runs at one of two temperatures with the first kind of model, and at the other with the second."""
    prompt, count = repeating_prompt(), 10
    target.drafting = DraftModel(target)
    temperatures = (0.0, 0.8)
    expected = [plain_text(target.model, prompt, SamplingParams(value, seed=7), count) for value in temperatures]
    drafted = {}
    # Lanes that need a trained head are left out.
    lanes = sorted(native_methods().keys() - {"block", "eagle", "hybrid", "hydra", "medusa", "space"})
    for number, name in enumerate(lanes, TWO_KINDS.index(target.name)):
        settings = {"temperature": temperatures[number % 2], "seed": 7, "num_draft": 4}
        steps = list(generate(target, name, prompt, max_new_tokens=count, **settings))
        assert [token for step in steps for token in step.emitted] == expected[number % 2], name
        drafted[name] = sum(step.tree.num_draft for step in steps)
        assert all(step.tree.is_chain for step in steps)
    assert min(drafted[name] for name in ("draft-model", "jacobi", "suffix", "trie")) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_after_rejections_is_that_of_decoding_without_drafts(kind: str) -> None:
    target, rng = make_target(kind), random.Random(kind)
    check_trees(target)
    text = [rng.randrange(3, VOCABULARY) for _ in range(12)]
    drafted, plain = (target.prefill(text).store.clone(120) for _ in range(2))
    for _ in range(8):
        accepted = [rng.randrange(3, VOCABULARY) for _ in range(rng.randrange(4))]
        rejected = [rng.randrange(3, VOCABULARY) for _ in range(rng.randrange(4))]
        chain = TokenTree.chain(text[-1], [*accepted, *rejected])
        logits = target.logits(drafted, chain)
        expected = []
        for token in (text[-1], *accepted):
            expected.append(target.logits(plain, TokenTree.chain(token))[0])
            plain.keep((0,))
        torch.testing.assert_close(logits[: len(expected)], torch.stack(expected), rtol=1e-3, atol=1e-3)
        drafted.keep(range(len(expected)))
        text += [*accepted, rng.randrange(3, VOCABULARY)]
        # The states are of the order of 1.
        assert largest_difference(drafted, plain) < 1e-4
    assert drafted.length == plain.length


def test_hidden_states_of_a_chain_are_those_of_its_path(target: Target) -> None:
    levels = (1, 2)
    prefix = target.prefill([5, 6, 7], levels)
    store = prefix.store.clone(20)
    _, features = target.run_tapped(store, TokenTree.chain(7, [8, 9]), levels)
    with torch.inference_mode():
        expected = target.model(input_ids=torch.tensor([[5, 6, 7, 8, 9]]), output_hidden_states=True).hidden_states
        expected = torch.cat([expected[level][0] for level in levels], -1)
    torch.testing.assert_close(features, expected[2:], rtol=1e-3, atol=1e-3)


def test_scoring_without_keeping_leaves_no_trace(target: Target) -> None:
    store = target.prefill([5, 6, 7]).store.clone(40)
    first = target.logits(store, TokenTree.chain(7, [8, 9, 10]))
    before = states_of(store)
    target.logits(store, TokenTree.chain(7))
    target.logits(store, TokenTree.chain(11, [12]))
    assert torch.equal(target.logits(store, TokenTree.chain(7, [8, 9, 10])), first)
    assert all(torch.equal(state, before[key]) for key, state in states_of(store).items())


def test_lanes_do_not_share_their_states(target: Target) -> None:
    prefix = target.prefill([5, 6, 7])
    sessions = [target.session(prefix, 20, rows=(1,)) for _ in range(2)]
    expected = sessions[1].logits(TokenTree.chain(7, [8, 9]))
    for _ in range(3):
        sessions[0].logits(TokenTree.chain(20))
        sessions[0].keep((0,))
    assert torch.equal(sessions[1].logits(TokenTree.chain(7, [8, 9])), expected)
    assert torch.equal(target.session(prefix, 20, rows=(1,)).logits(TokenTree.chain(7, [8, 9])), expected)


def test_a_prompt_of_one_token_races(target: Target) -> None:
    store = target.prefill([5]).store.clone(20)
    chain = target.logits(store, TokenTree.chain(5, [6, 7]))
    torch.testing.assert_close(chain, target.plain_logits([5, 6, 7]), rtol=1e-3, atol=1e-3)


def test_weights_are_read_once_for_all_rows(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forward calls each input and output projection once, with all rows."""
    calls: dict[nn.Linear, list[int]] = {}
    compute = nn.Linear.forward

    def counted(linear: nn.Linear, rows: torch.Tensor) -> torch.Tensor:
        calls.setdefault(linear, []).append(rows.shape[1])
        return compute(linear, rows)

    store = target.prefill([5, 6, 7]).store.clone(20)
    monkeypatch.setattr(nn.Linear, "forward", counted)
    target.logits(store, TokenTree.chain(7, [8, 9, 10]))
    names = {module: name for name, module in target.model.named_modules()}
    projections = [linear for linear in calls if "in_proj" in names[linear] or "out_proj" in names[linear]]
    assert len(projections) >= 4
    assert all(calls[linear] == [4] for linear in projections)


@pytest.mark.parametrize("kind", TWO_KINDS)
def test_nothing_stays_replaced_in_the_model(kind: str) -> None:
    target = make_target(kind)
    store = target.prefill([5, 6, 7]).store.clone(20)
    target.logits(store, TokenTree.chain(7, [8, 9]))
    assert not any("forward" in module.__dict__ for module in target.model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in target.model.modules())


def test_a_tree_with_branches_cannot_be_scored_or_kept(target: Target) -> None:
    store = target.prefill([5, 6, 7]).store.clone(20)
    with pytest.raises(ValueError, match="scores chains only"):
        target.logits(store, TokenTree((7, 8, 9), (-1, 0, 0)))
    with pytest.raises(ValueError, match="only the beginning of a chain"):
        store.keep((0, 2))


def test_a_store_rewinds_to_marked_lengths_only(target: Target) -> None:
    store = target.prefill([5, 6, 7]).store.clone(20)
    for token in (7, 8, 9):
        target.logits(store, TokenTree.chain(token))
        store.commit(1)
        store.mark()
    store.rewind(4)
    expected = target.plain_logits([5, 6, 7, 8, 20])[-1]
    torch.testing.assert_close(target.logits(store, TokenTree.chain(20))[0], expected, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="the states after 2 tokens were not marked"):
        store.rewind(2)


def test_keys_and_values_are_stored_for_attending_layers_only() -> None:
    store = make_target("qwen3_5_text").prefill([5, 6, 7]).store
    # A block holds the keys and values of some layers; of this model's layers, two attend.
    assert sum(len(block) for block in store.blocks) == 2
    assert make_target("mamba").prefill([5, 6, 7]).store.blocks == []


@pytest.mark.parametrize("kind", ["minimax", "recurrent_gemma"])
def test_a_model_that_keeps_its_state_elsewhere_is_refused(kind: str) -> None:
    with pytest.raises(
        InputError, match=rf"{kind} cannot be scored with a chain of drafts \(.*cache.*\); take a model"
    ):
        check_trees(make_target(kind))


def test_transformers_generate_decodes_with_our_methods() -> None:
    target = make_target("qwen3_5_text")
    ids = torch.tensor([repeating_prompt()])
    expected = plain_text(target.model, repeating_prompt(), SamplingParams(), 16)
    arguments = {"max_new_tokens": 16, "eos_token_id": -1, "pad_token_id": 0, "do_sample": False}
    output = target.model.generate(ids, custom_generate=specrace.hf.custom_generate, method="suffix", **arguments)
    assert output[0, ids.shape[1] :].tolist() == expected


def test_a_peer_that_cannot_run_such_a_model_is_refused_before_the_benchmark(target: Target) -> None:
    with pytest.raises(InputError, match=r"does not run .*; leave out transformers-pld"):
        make_peers(["transformers-pld"], target, SamplingParams(), 10)
