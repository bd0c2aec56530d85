"""The fused forward of the Llama family, with each kind of product: it scores as the model's own modules do."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from specrace.core.bundled import BUNDLED_DRAFT_MODEL, BUNDLED_MODEL
from specrace.core.errors import InputError
from specrace.core.events import Finished, Step
from specrace.core.tree import TokenTree
from specrace.drafters import own_methods
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.model import device_map, kernels, replays
from specrace.model.fused import FusedForward
from specrace.model.kernels import Kernels, fastest_products
from specrace.model.loading import check_device, load_target, make_ready
from specrace.model.products import (
    BlocksProduct,
    HalfProduct,
    Int8Product,
    MklProduct,
    PackedProduct,
    PlainProduct,
    RowsProduct,
    WidenedProduct,
    quantized,
    round_weights,
)
from specrace.model.replays import drop_layers, trace_forwards
from specrace.model.roofline import weight_bytes
from specrace.model.target import Target
from tests.parts import VOCAB, random_prompt, random_tree, tiny_model, tiny_target

FAMILY = ("llama", "qwen2", "qwen3", "mistral")
KINDS = {
    "plain": "fused TorchScript",
    "packed": "fused TorchScript, packed weights",
    "int8": "fused TorchScript, int8 weights",
}


@cache
def fused(name: str, kind: str = "plain") -> Target:
    """A small target that runs the fused forward."""
    model = tiny_model(name)
    if kind == "int8":
        round_weights(model)
    target = Target(model, name=name, int8=kind == "int8")
    trace_forwards(target, packed=kind == "packed")
    assert target.engine == KINDS[kind]
    return target


@cache
def eager(name: str, kind: str = "plain") -> Target:
    """The same weights, run by the library's modules."""
    model = tiny_model(name)
    if kind == "int8":
        round_weights(model)
    return Target(model, name=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FAMILY)
def test_trees_are_scored_as_by_the_librarys_modules(name: str, kind: str) -> None:
    """Prompts, random trees of any size, kept paths, step after step: the same logits but for rounding, and cache."""
    target, plain = fused(name, kind), eager(name, kind)
    chance = random.Random(name)
    text = list(random_prompt(chance))
    own, theirs = target.prefill(text).store.clone(400), plain.prefill(text).store.clone(400)
    for step in range(12):
        tree = random_tree(chance, text[-1], (0, 1, 6, 2, 0, 15, 20, 40)[step % 8])
        found, expected = target.logits(own, tree), plain.logits(theirs, tree)
        assert found.shape == expected.shape == (len(tree), VOCAB)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-3)
        path = tree.path_to(chance.randrange(len(tree)))
        own.keep(path)
        theirs.keep(path)
        assert own.data is not None and theirs.data is not None
        caches = (own.data[..., : own.length, :], theirs.data[..., : theirs.length, :])
        torch.testing.assert_close(*caches, rtol=1e-4, atol=2e-3)
        text += [tree.tokens[node] for node in path[1:]] + [chance.randrange(VOCAB)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("kind", KINDS)
def test_every_lane_prints_vanillas_text(kind: str, temperature: float) -> None:
    lanes = tuple(name for name, method in own_methods().items() if not method.needs_draft_model)
    spec = RaceSpec(lanes, max_new_tokens=24, temperature=temperature, seed=5)
    for name in ("llama", "qwen3"):
        events = list(race(fused(name, kind), random_prompt(random.Random(3)), spec))
        assert isinstance(events[-1], Finished) and all(lane.identical for lane in events[-1].lanes)


@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_a_prompt_fills_the_cache_as_the_librarys_modules_do(count: int) -> None:
    prompt = [random.Random(count).randrange(VOCAB) for _ in range(count + 1)]
    found, expected = (target.prefill(prompt).store for target in (fused("qwen2"), eager("qwen2")))
    assert found.length == expected.length == count and found.data is not None and expected.data is not None
    torch.testing.assert_close(found.data, expected.data, rtol=1e-4, atol=1e-4)


def test_the_bundled_model_in_int8_races_with_its_own_text() -> None:
    target = load_target(BUNDLED_MODEL, dtype="int8")
    about = target.describe()
    assert (about["dtype"], about["engine"]) == ("int8", KINDS["int8"])
    assert target.roofline.weight_bytes * 4 <= load_target(BUNDLED_MODEL).roofline.weight_bytes
    prompt = target.tokenizer("What is a trie, and what is a trie built from?")["input_ids"]
    events = list(race(target, prompt, RaceSpec(("trie", "lookahead", "fusion"), max_new_tokens=60)))
    assert isinstance(events[-1], Finished) and all(lane.identical for lane in events[-1].lanes)


def test_int8_is_refused_where_no_kernel_follows_the_model(tmp_path: Path) -> None:
    tiny_model("gpt2").save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"cannot run in int8 .*Llama family.*use --dtype float32"):
        load_target(tmp_path, dtype="int8")
    with pytest.raises(InputError, match="int8 weights are for one CPU"):
        load_target(BUNDLED_MODEL, dtype="int8", device="cuda")


def test_int8_runs_where_auto_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    check_device("auto", "int8")
    monkeypatch.setattr(device_map, "count_accelerators", lambda: 1)
    with pytest.raises(InputError, match="int8 weights are for one CPU"):
        check_device("auto", "int8")


def test_int8_may_wait_until_the_device_is_there(tmp_path: Path) -> None:
    """A target is loaded without being ready; what cannot run in int8 is refused when it is made so."""
    target = load_target(BUNDLED_MODEL, dtype="int8", ready=False)
    assert target.traced is None
    make_ready(target)
    assert target.engine == KINDS["int8"]
    tiny_model("gpt2").save_pretrained(tmp_path)
    target = load_target(tmp_path, dtype="int8", ready=False)
    with pytest.raises(InputError, match=r"cannot run in int8 .*Llama family"):
        make_ready(target)


def test_a_draft_model_is_made_ready_and_captured_as_its_target_is() -> None:
    target = load_target(BUNDLED_MODEL, draft_model=BUNDLED_DRAFT_MODEL, ready=False)
    make_ready(target)
    eager = load_target(BUNDLED_MODEL, graphs=False)
    engines = []
    for each in (target, eager):
        drafting = each.draft_model()
        assert drafting is not None and isinstance(drafting.model, Target)
        engines.append(drafting.model.engine)
    # Each model's products are timed on its own weights: two libraries may be chosen.
    assert engines[0].startswith("fused TorchScript") and target.engine.startswith("fused TorchScript")
    assert engines[1] == "eager"


@pytest.mark.parametrize("changes", [{"hidden_act": "gelu"}, {"layer_types": ["full_attention", "sliding_attention"]}])
def test_a_model_with_other_layers_is_left_to_the_trace(changes: dict[str, Any]) -> None:
    model = tiny_model("llama")
    for name, value in changes.items():
        setattr(model.config, name, value)
    with pytest.raises(ValueError, match="not those of the Llama family"):
        FusedForward(model, PlainProduct, "")


def test_a_dropped_target_frees_its_weights() -> None:
    target = tiny_target("llama")
    trace_forwards(target, packed=False)
    target.session(target.prefill([3, 4]), 9).score(TokenTree.chain(4, [5]))
    weights = [StorageWeakRef(each.untyped_storage()) for each in target.model.parameters()]
    assert not any(each.expired() for each in weights)
    del target
    gc.collect()
    assert all(each.expired() for each in weights)


def printed(target: Target, prompt: tuple[int, ...], spec: RaceSpec) -> dict[str, list[int]]:
    """The tokens of each lane."""
    found: dict[str, list[int]] = {name: [] for name in spec.lanes}
    for event in race(target, prompt, spec):
        if isinstance(event, Step):
            found[event.lane] += event.emitted
    return found


@pytest.mark.parametrize("name", FAMILY)
def test_a_target_races_on_without_its_modules_weights(name: str) -> None:
    """Those of linear layers are freed, though in one storage with others as in a mapped file."""
    target = tiny_target(name)
    with torch.no_grad():
        embedding, layer = target.model.get_input_embeddings(), target.model.model.layers[0].mlp.up_proj
        both = torch.cat([embedding.weight, layer.weight])
        embedding.weight.data, layer.weight.data = both.split([len(embedding.weight), len(layer.weight)])
    freed = StorageWeakRef(both.untyped_storage())
    del both, embedding, layer
    trace_forwards(target, packed=True)
    prompt, spec = random_prompt(random.Random(3)), RaceSpec(("vanilla", "trie"), max_new_tokens=24)
    before, about, moved = printed(target, prompt, spec), target.describe(), weight_bytes(target.model)
    drop_layers(target)
    gc.collect()
    assert freed.expired()
    assert printed(target, prompt, spec) == before
    assert target.describe() == about and weight_bytes(target.model) == moved
    with pytest.raises(RuntimeError, match="layers were dropped"):
        target.plain_logits(prompt)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
def test_an_embedding_that_is_the_heads_weight_is_held_once(
    tied: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one row's product has it in one block, which is of a thread."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    target, spec = tiny_target("llama", tie_word_embeddings=tied), RaceSpec(("vanilla", "trie"), max_new_tokens=12)
    target.traced = FusedForward(target.model, Kernels(BlocksProduct, PackedProduct).make, "fused")
    prompt, moved = random_prompt(random.Random(3)), weight_bytes(target.model)
    before, embedding = printed(target, prompt, spec), target.model.get_input_embeddings().weight
    drop_layers(target)
    shared = target.traced.head_weight()
    assert (shared is None) == (threads == 2)
    assert (shared is not None and shared.data_ptr() == embedding.data_ptr()) == (tied and threads == 1)
    assert printed(target, prompt, spec) == before and weight_bytes(target.model) == moved


def test_a_prompt_of_one_token_needs_no_modules() -> None:
    """It fills no cache, and its first step must not run in them."""
    target, spec = tiny_target("llama"), RaceSpec(("vanilla", "trie"), max_new_tokens=12)
    trace_forwards(target, packed=True)
    drop_layers(target)
    assert printed(target, (5,), spec) == printed(eager("llama"), (5,), spec)


@pytest.mark.parametrize("kind", ["plain", "int8"])
def test_a_forward_that_reads_with_the_modules_keeps_their_weights(kind: str) -> None:
    target = Target(tiny_model("llama"), int8=kind == "int8")
    trace_forwards(target, packed=False)
    weights = [each.data_ptr() for each in target.model.parameters()]
    drop_layers(target)
    assert [each.data_ptr() for each in target.model.parameters()] == weights


# Products.


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", [PlainProduct, PackedProduct, MklProduct, BlocksProduct, Int8Product])
def test_a_product_is_the_linear_layer(kind: Any, bias: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(48, 80, bias=bias)
    round_weights(layer)
    if kind is MklProduct and not torch.backends.mkl.is_available():
        pytest.skip("torch was built without MKL")
    own = torch.jit.script(kind(layer.weight, layer.bias))
    for rows in (1, 2, 3, 16, 33, 70):
        # Rows of any size, and one with a value far above the others, as language models have.
        given = torch.randn(rows, 48) * 10.0 ** torch.randint(-3, 4, (rows, 1))
        given[0, 7] *= 500.0
        with torch.inference_mode():
            found, expected = own(given), layer(given)
        scale = given.abs().amax(1, keepdim=True)
        torch.testing.assert_close(found / scale, expected / scale, rtol=1e-5, atol=2e-5)


def test_no_row_of_an_int8_product_depends_on_the_others() -> None:
    torch.manual_seed(0)
    own, given = Int8Product(torch.randn(70, 48), None), torch.randn(40, 48)
    given[5] *= 1000.0
    with torch.inference_mode():
        together, alone = own(given), torch.cat([own(row[None]) for row in given])
    assert torch.equal(together, alone)


def test_zero_rows_and_zero_channels_stay_zero_in_int8() -> None:
    weight = torch.randn(8, 16)
    weight[3] = 0.0
    with torch.inference_mode():
        found = Int8Product(weight, None)(torch.zeros(2, 16)), Int8Product(weight, None)(torch.ones(2, 16))
    assert not found[0].any() and not found[1][:, 3].any() and found[1].isfinite().all()


@pytest.mark.parametrize("rows", [1, 12, 13, 40])
def test_wide_products_of_16_bit_weights_are_theirs_but_for_rounding(rows: int) -> None:
    torch.manual_seed(0)
    layer, given = nn.Linear(48, 80).to(torch.bfloat16), torch.randn(rows, 48).to(torch.bfloat16)
    with torch.inference_mode():
        found, expected = WidenedProduct(layer.weight, layer.bias)(given), layer(given)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)


@pytest.fixture
def half() -> Any:
    """FBGEMM's product, on processors that torch says it knows: where it fails there, tests fail."""
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("FBGEMM has no kernels for this processor")
    return HalfProduct


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("bias", [False, True])
def test_a_float16_product_is_exact_but_for_the_last_rounding(half: Any, dtype: torch.dtype, bias: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(600, 80, bias=bias).to(torch.bfloat16)
    own = torch.jit.script(half(layer.weight, layer.bias))
    layer.double()
    with torch.inference_mode():
        for rows in (1, 2, 16, 33):
            given = torch.randn(rows, 600).to(dtype)
            expected = nn.functional.linear(
                given.double(), layer.weight.double(), layer.bias.double() if bias else None
            )
            found = own(given)
            assert found.dtype == dtype
            torch.testing.assert_close(found.double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-5)


def test_rows_of_a_float16_product_change_one_another_by_float32_rounding_at_most(half: Any) -> None:
    torch.manual_seed(0)
    own, given = half(torch.randn(130, 1200), None), torch.randn(40, 1200)
    with torch.inference_mode():
        found, alone = own(given), torch.cat([own(row[None]) for row in given])
    # Where FBGEMM has AVX2 alone, it adds one or two rows up in another order. Sums are of size 35.
    torch.testing.assert_close(found, alone, rtol=0, atol=5e-4)


def test_a_weight_beyond_float16_is_refused(half: Any) -> None:
    for value in (1e5, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="does not fit into float16"):
            half(torch.tensor([[1.0, value]]), None)


@pytest.mark.parametrize("name", FAMILY)
def test_a_wide_forward_of_a_16_bit_model_is_nearer_to_float32_than_its_modules(half: Any, name: str) -> None:
    model = tiny_model(name).to(torch.bfloat16)
    target, exact = Target(model, name=name), Target(tiny_model(name).to(torch.bfloat16).float(), name=name)
    text = list(random_prompt(random.Random(name)))
    tree = random_tree(random.Random(name), text[-1], 20)
    expected = exact.logits(exact.prefill(text).store.clone(400), tree)
    modules = target.logits(target.prefill(text).store.clone(400), tree)
    target.traced = FusedForward(model, half, "", wide=True)
    found = target.logits(target.prefill(text).store.clone(400), tree)
    assert replays.gap(found, expected) < max(0.02, replays.gap(modules, expected))


# The choice among products.


@pytest.mark.usefixtures("half")
@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="torch was built without MKL")
@pytest.mark.parametrize(
    ("dtype", "seconds", "one", "more"),
    [
        (torch.float32, (1.0, 2.0, 3.0, 1.5), PlainProduct, PackedProduct),
        (torch.float32, (2.0, 1.0, 3.0, 2.0), PackedProduct, PackedProduct),
        (torch.float32, (0.99, 1.0, 3.0, 0.98), PackedProduct, PackedProduct),
        (torch.float32, (2.0, 3.0, 1.0, 2.0), MklProduct, MklProduct),
        (torch.float32, (2.0, 3.0, 4.0, 1.0), BlocksProduct, PackedProduct),
        (torch.bfloat16, (1.0, 3.0, 2.0, 0.5), HalfProduct, HalfProduct),
    ],
)
def test_the_fastest_products_are_chosen(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, seconds: tuple[float, ...], one: Any, more: Any
) -> None:
    """Seconds of the plain product, the packed one, MKL's or FBGEMM's, and that of blocks."""
    other = MklProduct if dtype == torch.float32 else HalfProduct
    times = dict(zip((PlainProduct, PackedProduct, other, BlocksProduct), seconds, strict=True))
    # On a processor without kernels for bfloat16 there is one candidate less, and the choice is the same.
    monkeypatch.setattr(kernels, "_times", lambda made, *_: {kind: times[kind] for kind in made})
    chosen = fastest_products(tiny_model("llama").to(dtype))
    assert (chosen.one, chosen.more) == (one, more)
    assert chosen.name.endswith((" from two rows on", " for one row")) == (one is not more)


def test_times_are_measured_with_rows_of_the_weights_own_width() -> None:
    weights = [torch.randn(8, 16), torch.randn(16, 8)]
    seen: list[tuple[int, ...]] = []

    class Watched(nn.Module):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            seen.append(tuple(rows.shape))
            return rows

    times = kernels._times({PlainProduct: [Watched(), Watched()]}, weights, 3)
    assert set(seen) == {(3, 16), (3, 8)} and 0.0 < times[PlainProduct] < float("inf")


def test_a_disturbance_of_many_rounds_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product that is faster takes three times as long at first, for ten rounds."""
    now = 0.0
    monkeypatch.setattr(kernels, "time", SimpleNamespace(perf_counter=lambda: now))
    calls = {"fast": 0, "slow": 0}

    def work(kind: str, seconds: Callable[[int], float]) -> Callable[[torch.Tensor], torch.Tensor]:
        def run(rows: torch.Tensor) -> torch.Tensor:
            nonlocal now
            now += seconds(calls[kind])
            calls[kind] += 1
            return rows

        return run

    # It becomes less, as another program ends.
    fast = work("fast", lambda count: 1.0 + 2.0 * max(0.0, 1.0 - count / 10))
    made: dict[Any, Any] = {PackedProduct: [fast], MklProduct: [work("slow", lambda _: 2.0)]}
    times = kernels._times(made, [torch.zeros(8, 16)], 1)
    assert times == {PackedProduct: pytest.approx(1.0), MklProduct: pytest.approx(2.0)}
    assert 10 < calls["fast"] < 20


def test_one_row_has_its_own_product() -> None:
    torch.manual_seed(0)
    made = Kernels(PlainProduct, PackedProduct).make(torch.randn(8, 16), None)
    assert isinstance(made, RowsProduct) and isinstance(
        Kernels(PlainProduct, PlainProduct).make(made.one.weight, None), PlainProduct
    )
    made.one.weight = made.one.weight * 2.0
    given = torch.randn(2, 16)
    with torch.inference_mode():
        torch.testing.assert_close(made(given[:1]), 2.0 * made(given)[:1])


def test_plain_weights_are_kept_once_and_stay_the_models() -> None:
    model = tiny_model("llama")
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    made = FusedForward(model, Kernels(PlainProduct, PackedProduct).make, "")
    layer = model.model.layers[0]
    assert len({each.weight.untyped_storage().data_ptr() for each in (layer.mlp.gate_proj, layer.mlp.up_proj)}) == 1
    assert made._decoder is not None
    assert all(torch.equal(before[name], each) for name, each in model.named_parameters())
    model(input_ids=torch.tensor([[1, 2]]), labels=torch.tensor([[1, 2]])).loss.backward()
    assert all(each.grad is not None for each in model.parameters())


def test_a_cache_gap_is_relative_to_each_tokens_size() -> None:
    expected = torch.randn(2, 2, 1, 3, 5, 8)
    expected[..., 0, 0] = 500.0
    found = expected.clone()
    found[..., 0, 0] += 1.0
    assert replays._cache_gap(found, expected) < 0.01
    found[1, 0, :, :, 4] *= -1.0
    assert replays._cache_gap(found, expected) == pytest.approx(2.0, rel=1e-3)
    assert replays._cache_gap(expected * torch.nan, expected) != replays._cache_gap(expected, expected)


def test_weights_are_rounded_to_their_own_scales_and_tied_ones_once() -> None:
    model = tiny_model("llama", tie_word_embeddings=True)
    before = model.model.embed_tokens.weight.detach().clone()
    round_weights(model)
    after = model.lm_head.weight
    assert after is model.model.embed_tokens.weight
    scales, steps = quantized(after)
    assert steps.abs().max() <= 127 and torch.allclose(scales * steps, after, rtol=1e-6)
    assert (after - before).abs().max() <= before.abs().amax(1).max() / 127
