"""The fused forward of the Llama family, with each kind of product: it scores like transformers' modules."""

from __future__ import annotations

import gc
import math
import random
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from specrace.core.bundled import BUNDLED_DRAFT_MODEL, BUNDLED_MODEL
from specrace.core.events import Finished, Step
from specrace.core.tree import TokenTree
from specrace.drafters import native_methods
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.model import capture as replays
from specrace.model.capture import drop_layers, trace_forwards
from specrace.model.forward.products import PackedProduct, PlainProduct, WidenedProduct, plain_product
from specrace.model.forward.scripted import FusedForward
from specrace.model.loading import load_target, make_ready
from specrace.model.machine.roofline import weight_bytes
from specrace.model.target import Target
from tests.models import WIDE, assert_same_scores, tiny_model, tiny_target
from tests.parts import VOCAB, random_prompt

KINDS = {"plain": "fused TorchScript", "packed": "fused TorchScript, packed weights"}


@cache
def fused_target(name: str, kind: str = "plain") -> Target:
    """A small target that runs the fused forward."""
    target = Target(tiny_model(name), name=name)
    trace_forwards(target, packed=kind == "packed")
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
    spec = RaceSpec(lanes, max_new_tokens=24, temperature=temperature, seed=5)
    events = list(race(fused_target(name, kind), random_prompt(random.Random(3)), spec))
    assert isinstance(events[-1], Finished) and all(lane.identical for lane in events[-1].lanes)


@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_a_prompt_fills_the_cache_as_transformers_modules_do(count: int) -> None:
    prompt = [random.Random(count).randrange(VOCAB) for _ in range(count + 1)]
    targets = (fused_target("qwen2", "packed"), eager_target("qwen2"))
    store, expected = (target.prefill(prompt).store for target in targets)
    assert store.length == expected.length == count and store.data is not None and expected.data is not None
    torch.testing.assert_close(store.data, expected.data, rtol=1e-4, atol=1e-4)


def test_make_ready_also_captures_the_draft_model() -> None:
    target = load_target(BUNDLED_MODEL, draft_model=BUNDLED_DRAFT_MODEL, ready=False)
    make_ready(target)
    eager = load_target(BUNDLED_MODEL, graphs=False)
    engines = []
    for loaded in (target, eager):
        drafting = loaded.draft_model()
        assert drafting is not None and isinstance(drafting.model, Target)
        engines.append(drafting.model.forward_kind)
    assert engines == [target.forward_kind, "eager"] and target.forward_kind.startswith("fused TorchScript")


@pytest.mark.parametrize("changes", [{"hidden_act": "gelu"}, {"layer_types": ["full_attention", "sliding_attention"]}])
def test_a_model_with_other_layers_is_refused(changes: dict[str, Any]) -> None:
    model = tiny_model("llama")
    for name, value in changes.items():
        setattr(model.config, name, value)
    with pytest.raises(ValueError, match="not those of the Llama family"):
        FusedForward(model, PlainProduct, "")


def test_a_dropped_target_frees_its_weights() -> None:
    target = tiny_target("llama")
    trace_forwards(target, packed=False)
    target.session(target.prefill([3, 4]), 9).score(TokenTree.chain(4, [5]))
    weights = [StorageWeakRef(parameter.untyped_storage()) for parameter in target.model.parameters()]
    assert not any(storage.expired() for storage in weights)
    del target
    gc.collect()
    assert all(storage.expired() for storage in weights)


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
    trace_forwards(target, packed=True)
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
    trace_forwards(target, packed=True)
    drop_layers(target)
    assert race_outputs(target, (5,), spec) == race_outputs(eager_target("llama"), (5,), spec)


@pytest.mark.parametrize("compiled", [False, True])
def test_weights_that_the_forward_uses_in_place_are_not_dropped(compiled: bool) -> None:
    target = tiny_target("llama", **WIDE)
    trace_forwards(target, packed=False, compiled=compiled, vector_width=8)
    weights = [parameter.data_ptr() for parameter in target.model.parameters()]
    drop_layers(target)
    assert [parameter.data_ptr() for parameter in target.model.parameters()] == weights


# Products.


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", [PlainProduct, PackedProduct])
def test_a_product_equals_the_linear_layer(kind: Any, bias: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(48, 80, bias=bias)
    product = torch.jit.script(kind(layer.weight, layer.bias))
    for rows in (1, 2, 3, 16, 33, 70):
        # Rows of different magnitudes, and one value far above the others, as in language models.
        inputs = torch.randn(rows, 48) * 10.0 ** torch.randint(-3, 4, (rows, 1))
        inputs[0, 7] *= 500.0
        with torch.inference_mode():
            outputs, expected = product(inputs), layer(inputs)
        scale = inputs.abs().amax(1, keepdim=True)
        torch.testing.assert_close(outputs / scale, expected / scale, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("rows", [1, 12, 13, 40])
def test_widened_products_equal_16_bit_products_up_to_rounding(rows: int) -> None:
    torch.manual_seed(0)
    layer, inputs = nn.Linear(48, 80).to(torch.bfloat16), torch.randn(rows, 48).to(torch.bfloat16)
    with torch.inference_mode():
        outputs, expected = WidenedProduct(layer.weight, layer.bias)(inputs), layer(inputs)
    assert outputs.dtype == torch.bfloat16
    torch.testing.assert_close(outputs, expected, rtol=2e-2, atol=2e-2)


def test_plain_product_depends_on_the_dtype_and_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    assert plain_product(torch.bfloat16) is PlainProduct
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    assert plain_product(torch.bfloat16) is WidenedProduct and plain_product(torch.float32) is PlainProduct


def test_plain_products_share_the_models_weights() -> None:
    model = tiny_model("llama")
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    forward = FusedForward(model, PlainProduct, "")
    layer = model.model.layers[0]
    gate, up = (projection.weight.untyped_storage() for projection in (layer.mlp.gate_proj, layer.mlp.up_proj))
    assert gate.data_ptr() == up.data_ptr()
    assert forward._decoder is not None
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())
    model(input_ids=torch.tensor([[1, 2]]), labels=torch.tensor([[1, 2]])).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_cache_gap_is_relative_to_each_tokens_size() -> None:
    expected = torch.randn(2, 2, 1, 3, 5, 8)
    expected[..., 0, 0] = 500.0
    cache = expected.clone()
    cache[..., 0, 0] += 1.0
    assert replays._cache_gap(cache, expected) < 0.01
    cache[1, 0, :, :, 4] *= -1.0
    assert replays._cache_gap(cache, expected) == pytest.approx(2.0, rel=1e-3)
    assert math.isnan(replays._cache_gap(expected * torch.nan, expected))
