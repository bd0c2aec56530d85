"""Forwards replayed as TorchScript, traced and fused, with each kind of product: they score like the eager model.

A traced forward is a recording of the model's own modules, a fused one our decoder; either may be packed (with copies
of the weights). Eager is transformers. `TokenTree.chain(5, [6])` is the pending token 5 and the draft token 6.
"""

from __future__ import annotations

import gc
import logging
import math
import random
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from transformers import LlamaForCausalLM

from specrace.core.bundled import BUNDLED_DRAFT_MODEL, BUNDLED_MODEL
from specrace.core.errors import InputError
from specrace.core.events import Finished, Step
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.drafters import native_methods
from specrace.engine.generate import generate
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.lab.bench.peers import make_peers
from specrace.model import capture as capture_module
from specrace.model.capture import capture_replay, drop_layers
from specrace.model.forward import traced
from specrace.model.forward.products import PlainProduct
from specrace.model.forward.scripted import FusedForward
from specrace.model.forward.traced import copy_modules, pack_linears
from specrace.model.loading import load_target, make_ready
from specrace.model.machine import memory
from specrace.model.machine.roofline import weight_bytes
from specrace.model.target import Target
from tests.models import COMPILABLE, assert_same_scores, give_heads, tiny_model, tiny_target
from tests.parts import VOCAB, random_prompt, random_tree

PACKED = [False, True]


def traced_target(name: str, *, packed: bool = False, **changes: Any) -> Target:
    """A small target whose forwards are replayed."""
    target = tiny_target(name, **changes)
    capture_replay(target, packed=packed, fused=False)
    assert target.describe()["engine"] == ("TorchScript, packed weights" if packed else "TorchScript")
    return target


# Shared by tests that do not change the target, because capturing takes longer than a test.
shared_target = cache(traced_target)


@pytest.mark.parametrize(
    ("name", "attention", "packed"),
    [
        ("llama", "sdpa", False),
        ("llama", "eager", True),
        ("qwen2", "sdpa", True),
        ("qwen3", "eager", False),
        ("mistral", "sdpa", True),
        ("gpt2", "sdpa", True),
        ("gpt2", "eager", False),
        ("gpt-neox", "sdpa", False),
        ("gpt-neox", "eager", True),
    ],
)
def test_replayed_forwards_score_like_eager_forwards(name: str, attention: str, packed: bool) -> None:
    """Over several steps with random trees, logits and caches are equal up to rounding."""
    target, eager = shared_target(name, packed=packed, attention=attention), tiny_target(name, attention=attention)
    rng = random.Random(name)
    text = list(random_prompt(rng))
    store, eager_store = target.prefill(text).store.clone(400), eager.prefill(text).store.clone(400)
    for size in (0, 1, 6, 2, 0, 15, 20, 40):
        tree = random_tree(rng, text[-1], size)
        logits, expected = target.logits(store, tree), eager.logits(eager_store, tree)
        assert logits.shape == expected.shape == (len(tree), VOCAB)
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-3)
        assert torch.equal(logits.argmax(-1), expected.argmax(-1))
        path = tree.path_to(rng.randrange(len(tree)))
        store.keep(path)
        eager_store.keep(path)
        assert store.data is not None and eager_store.data is not None
        caches = (store.data[..., : store.length, :], eager_store.data[..., : store.length, :])
        torch.testing.assert_close(*caches, rtol=1e-4, atol=1e-3)
        text += [tree.tokens[node] for node in path[1:]] + [rng.randrange(VOCAB)]


# The attention of the targets without and with packed weights, which the test above captures, too.
ATTENTIONS = {"llama": ("sdpa", "eager"), "gpt2": ("eager", "sdpa")}


@pytest.mark.parametrize(("name", "temperature"), [("llama", 0.8), ("gpt2", 0.0)])
def test_a_replayed_race_prints_the_tokens_of_an_eager_race(name: str, temperature: float) -> None:
    spec = RaceSpec(("trie", "lookahead", "draft-model", "eagle"), 14, temperature=temperature, seed=5)
    prompt = random_prompt(random.Random(3))
    texts = []
    for with_packed in PACKED:
        target = shared_target(name, packed=with_packed, attention=ATTENTIONS[name][with_packed])
        events = list(race(target, prompt, spec))
        assert isinstance(events[-1], Finished) and all(lane.identical for lane in events[-1].lanes)
        texts.append([event.emitted for event in events[1:-1] if event.lane == "vanilla"])  # type: ignore[union-attr]
    eager = generate(tiny_target(name), "vanilla", prompt, max_new_tokens=14, temperature=temperature, seed=5)
    assert texts[0] == texts[1] == [step.emitted for step in eager]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_replays_with_plain_16_bit_weights_are_bit_identical(dtype: torch.dtype) -> None:
    eager, replayed = (Target(tiny_model("llama").to(dtype), name="llama") for _ in range(2))
    capture_replay(replayed, packed=False, fused=False)
    assert replayed.replay is not None
    prompt = [3, 4, 5, 6, 7]
    for size in (1, 2, 9):
        tree = TokenTree.chain(7, [8] * (size - 1))
        logits = [model.logits(model.prefill(prompt).store.clone(40), tree) for model in (eager, replayed)]
        assert torch.equal(*logits)


def test_a_prompt_of_one_token_is_replayed_from_its_second_step() -> None:
    target, eager = shared_target("llama", packed=False, attention="sdpa"), tiny_target("llama")
    sessions = [model.session(model.prefill([5]), 10) for model in (target, eager)]
    for tree in (TokenTree.chain(5, [6]), TokenTree.chain(7), TokenTree((8, 9, 2), (-1, 0, 0))):
        targets = [session.score(tree).targets for session in sessions]
        assert targets[0] == targets[1]
        for session in sessions:
            session.keep((0,))


# A model that cannot be replayed stays eager.


class _TokenDependent(LlamaForCausalLM):
    """Negates its logits if the first token is odd."""

    def forward(self, input_ids: Any = None, **kwargs: Any) -> Any:
        output = super().forward(input_ids=input_ids, **kwargs)
        if int(input_ids[0, 0]) % 2:
            output.logits = -output.logits
        return output


class _PositionDependent(LlamaForCausalLM):
    """Turns its positions into a Python number, which a trace would freeze."""

    def forward(self, position_ids: Any = None, **kwargs: Any) -> Any:
        output = super().forward(position_ids=position_ids, **kwargs)
        output.logits[..., 5] += 0.0 if position_ids is None else float(position_ids.max())
        return output


class _Untraceable(LlamaForCausalLM):
    """Cannot be traced."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if torch.jit.is_tracing():
            raise KeyError("no tracing here")
        return super().forward(*args, **kwargs)


class _NotFinite(LlamaForCausalLM):
    """Returns logits that are NaN."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        output.logits = output.logits * float("nan")
        return output


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (_TokenDependent, "the model's operations depend on its tokens"),
        (_PositionDependent, "a replay differs from the eager forward by"),
        (_Untraceable, "not traced: KeyError: 'no tracing here'"),
    ],
)
def test_a_model_that_cannot_be_traced_correctly_stays_eager(kind: Any, reason: str) -> None:
    model = tiny_model("llama", num_hidden_layers=1)
    target = Target(kind(model.config).eval(), name="odd")
    capture_replay(target)
    engine = target.describe()["engine"]
    assert target.replay is None and engine.startswith("eager (not traced: ") and reason in engine
    assert len(target.session(target.prefill([3, 4]), 9).score(TokenTree.chain(4, [5])).targets) == 2


def test_a_model_of_nan_is_not_traced_and_refused_at_its_first_tree() -> None:
    target = Target(_NotFinite(tiny_model("llama", num_hidden_layers=1).config).eval(), name="odd")
    capture_replay(target)
    assert target.replay is None
    assert "a replay differs from the eager forward by nan" in target.describe()["engine"]
    with pytest.raises(InputError, match="not numbers"):
        target.session(target.prefill([3, 4]), 9).score(TokenTree.chain(4, [5]))


@pytest.mark.parametrize(("fused", "packed"), [(False, False), (False, True), (True, False)])
def test_a_dropped_target_frees_its_weights(fused: bool, packed: bool) -> None:
    target = Target(tiny_model("llama", num_hidden_layers=1))
    capture_replay(target, packed=packed, fused=fused)
    assert target.forward_kind.startswith("fused") == fused and target.forward_kind.endswith("weights") == packed
    target.session(target.prefill([3, 4]), 9).score(TokenTree.chain(4, [5]))
    weights = [StorageWeakRef(parameter.untyped_storage()) for parameter in target.model.parameters()]
    assert not any(storage.expired() for storage in weights)
    del target
    gc.collect()
    assert all(storage.expired() for storage in weights)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("TorchScript was removed\nin this version"), "RuntimeError: TorchScript was removed"),
        (AttributeError(), "AttributeError"),
        # A long reason is shortened in its middle.
        (TypeError("x" * 300), "TypeError: " + "x" * 29 + "…" + "x" * 40),
    ],
)
def test_if_torch_cannot_trace_the_reason_is_recorded_and_nothing_is_printed(
    error: Exception,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        warnings.warn("TorchScript is not supported in Python 3.14+ and may break.", DeprecationWarning, stacklevel=2)
        raise error

    monkeypatch.setattr(torch._C, "_create_graph_by_tracing", fail)
    monkeypatch.setattr(torch.jit, "script", fail)
    caplog.set_level(logging.INFO, "specrace")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        target = tiny_target("llama", num_hidden_layers=1)
        capture_replay(target)
    assert target.forward_kind == f"eager (not traced: {reason})"
    assert not warned and capfd.readouterr() == ("", "")
    assert {record.levelname for record in caplog.records} == {"INFO"} and reason in caplog.text
    events = list(race(target, [3, 4, 5, 3, 4], RaceSpec(("trie",), max_new_tokens=6)))
    assert isinstance(events[-1], Finished) and events[-1].lanes[1].identical


# Packed weights.


def test_packing_does_not_change_the_model() -> None:
    model = tiny_model("llama", tie_word_embeddings=True)
    modules, weights = list(model.modules()), [parameter.data_ptr() for parameter in model.parameters()]
    copied = copy_modules(model)
    assert sum(parameter.numel() for parameter in copied.parameters()) == sum(
        parameter.numel() for parameter in model.parameters()
    )
    assert [parameter.data_ptr() for parameter in copied.parameters()] == weights
    assert len(pack_linears(copied)) == sum(type(module) is nn.Linear for module in modules)
    assert not any(type(module) is nn.Linear for module in copied.modules())
    assert list(model.modules()) == modules and [parameter.data_ptr() for parameter in model.parameters()] == weights
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_peers_run_the_models_original_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    target = traced_target("llama", packed=True)
    monkeypatch.setattr(target, "replay", None)
    (peer,) = make_peers(["transformers"], target, SamplingParams(), 5)
    heads_run: list[Any] = []
    target.model.lm_head.register_forward_hook(lambda module, *_: heads_run.append(module))
    assert len(peer.run([3, 4, 5], 4).tokens) == len(heads_run) and all(
        type(module) is nn.Linear for module in heads_run
    )


def test_weights_are_not_packed_without_memory_for_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engines = []
    # 10 GB and 10 kB; the weights take more than 20 kB.
    for kilobytes in (10**7, 10):
        meminfo = tmp_path / "meminfo"
        meminfo.write_text(f"MemTotal: 99999999 kB\nMemAvailable:   {kilobytes} kB\n")
        monkeypatch.setattr(memory, "_MEMORY", meminfo)
        target = Target(tiny_model("llama", num_hidden_layers=1))
        capture_replay(target, fused=False)
        engines.append(target.forward_kind)
    assert engines == ["TorchScript, packed weights", "TorchScript"]


def test_weights_are_not_packed_without_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("mkldnn: no such kernel")

    monkeypatch.setattr(traced, "PackedProduct", fail)
    target = Target(tiny_model("llama", num_hidden_layers=1))
    capture_replay(target, fused=False)
    assert target.forward_kind == "TorchScript"


# The fused forward of the Llama family.


KINDS = {"plain": "fused TorchScript", "packed": "fused TorchScript, packed weights"}


@cache
def fused_target(name: str, kind: str = "plain") -> Target:
    """A small target that runs the fused forward."""
    target = Target(tiny_model(name), name=name)
    give_heads(target)
    capture_replay(target, packed=kind == "packed")
    assert target.forward_kind == KINDS[kind]
    return target


@cache
def eager_target(name: str) -> Target:
    """A target with the weights of `fused_target`, run by transformers' modules."""
    return Target(tiny_model(name), name=name)


@pytest.mark.parametrize(
    ("name", "kind"), [("llama", "plain"), ("qwen2", "packed"), ("qwen3", "plain"), ("mistral", "packed")]
)
def test_trees_are_scored_as_by_transformers_modules(name: str, kind: str) -> None:
    assert_same_scores(fused_target(name, kind), eager_target(name), name, atol=2e-3)


@pytest.mark.parametrize(("name", "kind", "temperature"), [("llama", "plain", 0.8), ("qwen2", "packed", 0.0)])
def test_every_lane_prints_vanillas_text(name: str, kind: str, temperature: float) -> None:
    lanes = tuple(lane for lane, method in native_methods().items() if not method.needs_draft_model)
    spec = RaceSpec(lanes, max_new_tokens=12, temperature=temperature, seed=5)
    events = list(race(fused_target(name, kind), random_prompt(random.Random(3)), spec))
    assert isinstance(events[-1], Finished) and all(lane.identical for lane in events[-1].lanes)


@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_a_prompt_fills_the_cache_as_transformers_modules_do(count: int) -> None:
    prompt = [random.Random(count).randrange(VOCAB) for _ in range(count + 1)]
    targets = (fused_target("qwen2", "packed"), eager_target("qwen2"))
    store, expected = (target.prefill(prompt).store for target in targets)
    assert store.length == expected.length == count and store.data is not None and expected.data is not None
    torch.testing.assert_close(store.data, expected.data, rtol=1e-4, atol=1e-4)


def test_make_ready_also_captures_the_draft_model_unless_graphs_is_false() -> None:
    target = load_target(BUNDLED_MODEL, draft_model=BUNDLED_DRAFT_MODEL, ready=False)
    make_ready(target)
    eager = load_target(BUNDLED_MODEL, graphs=False)
    engines = []
    for loaded in (target, eager):
        (drafting,) = loaded.draft_models()
        assert drafting is not None and isinstance(drafting.model, Target)
        engines.append(drafting.model.forward_kind)
    assert eager.forward_kind == "eager"
    assert engines == [target.forward_kind, "eager"] and target.forward_kind.startswith("fused TorchScript")


@pytest.mark.parametrize("changes", [{"hidden_act": "gelu"}, {"layer_types": ["full_attention", "sliding_attention"]}])
def test_a_model_with_other_layers_is_refused(changes: dict[str, Any]) -> None:
    model = tiny_model("llama")
    for name, value in changes.items():
        setattr(model.config, name, value)
    with pytest.raises(ValueError, match="not those of the Llama family"):
        FusedForward(model, PlainProduct, "")


def race_outputs(target: Target, prompt: tuple[int, ...], spec: RaceSpec) -> dict[str, list[int]]:
    """Race on `prompt`; returns the tokens that each lane prints."""
    outputs: dict[str, list[int]] = {name: [] for name in spec.lanes}
    for event in race(target, prompt, spec):
        if isinstance(event, Step):
            outputs[event.lane] += event.emitted
    return outputs


# qwen2 has biases, and qwen3 has norms of queries and keys; the other families have neither.
@pytest.mark.parametrize("name", ["qwen2", "qwen3"])
def test_dropping_the_modules_weights_does_not_change_a_race(name: str) -> None:
    """Frees the weights of linear layers, even if other weights share their storage, as in a memory-mapped file."""
    target = tiny_target(name)
    with torch.no_grad():
        embedding, layer = target.model.get_input_embeddings(), target.model.model.layers[0].mlp.up_proj
        joined = torch.cat([embedding.weight, layer.weight])
        embedding.weight.data, layer.weight.data = joined.split([len(embedding.weight), len(layer.weight)])
    storage = StorageWeakRef(joined.untyped_storage())
    del joined, embedding, layer
    capture_replay(target, packed=True)
    prompt, spec = random_prompt(random.Random(3)), RaceSpec(("vanilla", "trie"), max_new_tokens=24)
    before, about, num_bytes = race_outputs(target, prompt, spec), target.describe(), weight_bytes(target.model)
    drop_layers(target)
    gc.collect()
    assert storage.expired()
    assert race_outputs(target, prompt, spec) == before
    assert target.describe() == about and weight_bytes(target.model) == num_bytes
    with pytest.raises(RuntimeError, match="layers were dropped"):
        target.plain_logits(prompt)


def test_a_prompt_of_one_token_needs_no_modules() -> None:
    """Such a prompt writes nothing to the cache, but the first step must not run the modules without weights."""
    target, spec = tiny_target("llama"), RaceSpec(("vanilla", "trie"), max_new_tokens=12)
    capture_replay(target, packed=True)
    drop_layers(target)
    assert race_outputs(target, (5,), spec) == race_outputs(eager_target("llama"), (5,), spec)


@pytest.mark.parametrize("compiled", [False, True])
def test_weights_that_the_forward_uses_in_place_are_not_dropped(compiled: bool) -> None:
    target = tiny_target("llama", **COMPILABLE)
    capture_replay(target, packed=False, compiled=compiled, vector_width=8)
    weights = [parameter.data_ptr() for parameter in target.model.parameters()]
    drop_layers(target)
    assert [parameter.data_ptr() for parameter in target.model.parameters()] == weights


def test_plain_products_share_the_models_weights() -> None:
    model = tiny_model("llama")
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    forward = FusedForward(model, PlainProduct, "")
    layer = model.model.layers[0]
    gate, up = (projection.weight.untyped_storage() for projection in (layer.mlp.gate_proj, layer.mlp.up_proj))
    assert gate.data_ptr() == up.data_ptr()
    # Sharing changes no weight, and the model can still be trained.
    assert forward._decoder is not None
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())
    model(input_ids=torch.tensor([[1, 2]]), labels=torch.tensor([[1, 2]])).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_cache_gap_is_relative_to_each_tokens_size() -> None:
    expected = torch.randn(2, 2, 1, 3, 5, 8)
    expected[..., 0, 0] = 500.0
    cache = expected.clone()
    cache[..., 0, 0] += 1.0
    assert capture_module._cache_gap(cache, expected) < 0.01
    cache[1, 0, :, :, 4] *= -1.0
    assert capture_module._cache_gap(cache, expected) == pytest.approx(2.0, rel=1e-3)
    assert math.isnan(capture_module._cache_gap(expected * torch.nan, expected))
