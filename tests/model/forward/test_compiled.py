"""The compiled decoder: it scores like transformers' modules, and no bit of a row depends on the other rows.

`vector_width`: how many float32 one of the processor's vectors holds. `TokenTree.chain(5, [6])` is the pending token 5
and the draft token 6; `keep` commits nodes of the tree that was scored last; `clone(90)` has room for 90 tokens.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import platform
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import torch
from llvmlite.binding import get_host_cpu_features
from transformers.activations import ACT2FN

from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.errors import InputError
from specrace.core.events import Finished, Started
from specrace.core.processors import processor_name
from specrace.core.tree import TokenTree
from specrace.drafters import native_methods
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.model import capture as capture_module
from specrace.model import placement
from specrace.model.capture import capture_replay
from specrace.model.forward.compiled import decoder, jit, processor
from specrace.model.forward.compiled.ahead import compile_decoder
from specrace.model.forward.compiled.decoder import compile_ahead, compiled_step
from specrace.model.forward.compiled.forward import CompiledForward
from specrace.model.forward.compiled.numbers import GELU, SILU, exp, gate, softmax, store
from specrace.model.forward.compiled.vectors import BFLOAT16
from specrace.model.forward.products import quantized, round_weights
from specrace.model.forward.tree_inputs import TreeInputs
from specrace.model.loading import load_target, make_ready
from specrace.model.machine.roofline import weight_bytes
from specrace.model.placement import resolve_device
from specrace.model.target import Target
from tests.models import COMPILABLE, assert_same_scores, give_heads, tiny_model
from tests.parts import VOCAB, random_prompt, random_tree

# Pairwise coverage of model, kind of weights, threads and vector width: any two values occur together in some case.
CASES = [
    ("llama", "float32", 1, 8),
    ("llama", "bfloat16", 2, 16),
    ("llama", "int8", 5, 16),
    ("qwen2", "float32", 2, 8),
    ("qwen2", "bfloat16", 5, 8),
    ("qwen2", "int8", 1, 16),
    ("qwen3", "float32", 5, 8),
    ("qwen3", "bfloat16", 1, 8),
    ("qwen3", "int8", 2, 16),
    ("mistral", "float32", 1, 16),
    ("mistral", "bfloat16", 2, 8),
    ("mistral", "int8", 5, 8),
    ("gemma3", "float32", 2, 8),
    ("gemma3", "float32", 1, 16),
    ("gemma3", "bfloat16", 5, 16),
    ("gemma3", "int8", 1, 8),
]
# Mistral's first version has a window in every layer.
CHANGES: dict[str, dict[str, Any]] = {"mistral": {"sliding_window": 9}}
# Features of three processors: 16 float32 in a vector, 8, and none on which the decoder runs.
AVX512, AVX2, SSE = {"avx512f": True, "avx2": True, "fma": True}, {"avx2": True, "fma": True}, {"sse4.2": True}


@pytest.fixture(autouse=True)
def set_processor(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, dict[str, bool]], None]:
    """Returns a function that simulates a machine and its processor's features; by default x86 with AVX2."""

    def change(machine: str, features: dict[str, bool]) -> None:
        monkeypatch.setattr(processor, "host", lambda: (machine, features))

    change("x86_64", AVX2)
    return change


def make_model(name: str, kind: str) -> Any:
    model = tiny_model(name, **COMPILABLE, **CHANGES.get(name, {}))
    if name == "gemma3":
        for layer in (layer for layer in model.modules() if type(layer).__name__ == "Gemma3RMSNorm"):
            # If all norms were alike, taking one for another would go unnoticed.
            layer.weight.data += 0.2 * torch.randn_like(layer.weight)
    if kind == "int8":
        round_weights(model)
    return model.to(torch.bfloat16) if kind == "bfloat16" else model


@cache
def compiled_target(name: str, kind: str = "float32", vector_width: int = 8) -> Target:
    target = Target(make_model(name, kind), name=name, int8=kind == "int8")
    capture_replay(target, compiled=True, vector_width=vector_width)
    assert target.forward_kind == "compiled decoder" + (", int8 weights" if kind == "int8" else "")
    return target


@cache
def eager_target(name: str, kind: str = "float32") -> Target:
    """A target with the weights of `compiled_target`, run by transformers' modules."""
    return Target(make_model(name, kind), name=name)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("name", "kind", "vector_width"),
    [(name, kind, vector_width) for name, kind, _, vector_width in CASES if kind != "bfloat16"],
)
def test_trees_are_scored_as_by_transformers_modules(name: str, kind: str, vector_width: int) -> None:
    assert_same_scores(compiled_target(name, kind, vector_width), eager_target(name, kind), name, atol=5e-3)


@pytest.mark.parametrize(("name", "kind", "threads", "vector_width"), CASES)
def test_a_row_in_a_tree_is_bit_identical_to_the_row_alone(
    name: str, kind: str, threads: int, vector_width: int
) -> None:
    """Scores paths of random trees and the same tokens one at a time: logits, keys and values are equal."""
    target, rng = compiled_target(name, kind, vector_width), random.Random(name)
    text = list(random_prompt(rng))
    with torch_threads(threads):
        tree_store, chain_store = (target.prefill(text).store.clone(400) for _ in range(2))
        for size in (1, 9, 2, 30):
            tree = random_tree(rng, text[-1], size)
            logits = target.logits(tree_store, tree)
            path = tree.path_to(rng.randrange(len(tree)))
            for node in path:
                single = target.logits(chain_store, TokenTree.chain(tree.tokens[node]))
                assert torch.equal(logits[node], single[0])
                chain_store.keep((0,))
            tree_store.keep(path)
            assert tree_store.data is not None and chain_store.data is not None
            assert torch.equal(
                tree_store.data[..., : tree_store.length, :], chain_store.data[..., : chain_store.length, :]
            )
            text += [tree.tokens[node] for node in path[1:]] + [rng.randrange(VOCAB)]


def test_the_number_of_threads_changes_no_bit() -> None:
    target, tree = compiled_target("llama"), random_tree(random.Random(3), 5, 20)
    outputs = []
    for count in (1, 2, 7):
        with torch_threads(count):
            outputs.append(target.logits(target.prefill([3, 4, 5]).store.clone(90), tree))
    assert torch.equal(outputs[0], outputs[1]) and torch.equal(outputs[0], outputs[2])


def test_bfloat16_scores_are_closer_to_float32_than_those_of_transformers() -> None:
    exact = Target(make_model("llama", "bfloat16").float())
    text = list(random_prompt(random.Random(1)))
    tree = random_tree(random.Random(2), text[-1], 20)
    expected, compiled, modules = (
        target.logits(target.prefill(text).store.clone(400), tree)
        for target in (exact, compiled_target("llama", "bfloat16"), eager_target("llama", "bfloat16"))
    )
    assert capture_module.gap(compiled, expected) < max(0.02, capture_module.gap(modules, expected))


@pytest.mark.parametrize(
    ("name", "kind", "vector_width", "temperature"),
    [
        ("llama", "float32", 16, 0.8),
        ("qwen3", "bfloat16", 8, 0.0),
        ("llama", "int8", 16, 0.0),
        ("gemma3", "float32", 8, 0.8),
    ],
)
def test_every_lane_prints_vanillas_text(name: str, kind: str, vector_width: int, temperature: float) -> None:
    lanes = tuple(lane for lane, method in native_methods().items() if not method.needs_draft_model)
    spec = RaceSpec(lanes, max_new_tokens=12, temperature=temperature, seed=5)
    target = compiled_target(name, kind, vector_width)
    give_heads(target)
    events = list(race(target, random_prompt(random.Random(3)), spec))
    assert isinstance(events[-1], Finished) and all(lane.identical for lane in events[-1].lanes)


def test_an_empty_prompt_and_one_within_the_window_are_decoded_alike() -> None:
    """The first token has no committed tokens before it, and the window begins to move in the middle of the text."""
    target, eager = compiled_target("gemma3"), eager_target("gemma3")
    for prompt in ([5], [5, 6, 7]):
        store, expected = (scorer.prefill(prompt).store.clone(90) for scorer in (target, eager))
        for token in range(20):
            chain = TokenTree.chain(token)
            torch.testing.assert_close(target.logits(store, chain), eager.logits(expected, chain), rtol=1e-4, atol=5e-3)
            store.keep((0,))
            expected.keep((0,))


def test_a_wrong_window_is_noticed_however_long_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    # The decoder then ignores windows: how far back a layer sees.
    monkeypatch.setattr(CompiledForward, "use_reaches", lambda *_: None)
    target = Target(tiny_model("gemma3", **COMPILABLE, sliding_window=400))
    capture_replay(target, compiled=True, vector_width=8)
    assert "not compiled: ValueError: a replay differs from the eager forward" in target.forward_kind


@pytest.mark.parametrize("changes", [{"use_bidirectional_attention": True}, {"final_logit_softcapping": 30.0}])
def test_a_gemma_with_other_layers_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not those of the Llama family or of Gemma 3"):
        CompiledForward(tiny_model("gemma3", **COMPILABLE, **changes), 8)


@pytest.mark.parametrize(
    ("changes", "vector_width"),
    # The decoder computes four outputs of a product together; a vocabulary of 39 leaves three.
    [({"num_key_value_heads": 4}, 8), ({"vocab_size": 39}, 16), ({"tie_word_embeddings": True}, 8)],
)
def test_models_of_other_shapes_are_scored(changes: dict[str, Any], vector_width: int) -> None:
    model = tiny_model("llama", **COMPILABLE, **changes)
    target, tree = Target(model), random_tree(random.Random(3), 5, 20)
    capture_replay(target, compiled=True, vector_width=vector_width)
    assert target.forward_kind == "compiled decoder"
    logits, expected = (
        scorer.logits(scorer.prefill([3, 4, 5]).store.clone(90), tree) for scorer in (target, Target(model))
    )
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=5e-3)


def test_torchs_default_dtype_changes_nothing() -> None:
    """transformers sets torch's default dtype while it loads a model, for all threads."""
    target, tree = compiled_target("llama"), random_tree(random.Random(3), 5, 20)
    stores = [target.prefill([3, 4, 5]).store.clone(90) for _ in range(2)]
    expected, before = target.logits(stores[0], tree), torch.get_default_dtype()
    fresh = Target(make_model("llama", "float32"))
    torch.set_default_dtype(torch.bfloat16)
    try:
        capture_replay(fresh, compiled=True)
        logits = fresh.logits(fresh.prefill([3, 4, 5]).store.clone(90), tree)
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(logits, expected) and torch.equal(target.logits(stores[1], tree), expected)


def test_a_step_that_runs_out_of_memory_does_not_affect_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(make_model("llama", "float32"))
    capture_replay(target, compiled=True)
    store = target.prefill([3, 4, 5]).store.clone(300)
    small, large = TokenTree.chain(5, [6]), TokenTree.chain(5, [6] * 200)
    expected, reference = target.logits(store, small), compiled_target("llama")

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(torch, "zeros", fail)
    with pytest.raises(RuntimeError, match="no memory"):
        target.logits(store, large)
    assert torch.equal(target.logits(store, small), expected)
    monkeypatch.undo()
    expected = reference.logits(reference.prefill([3, 4, 5]).store.clone(300), large)
    assert torch.equal(target.logits(store, large), expected)


def test_simultaneous_forwards_of_two_threads_do_not_affect_each_other() -> None:
    target, before = compiled_target("llama"), torch.get_num_threads()
    trees = [random_tree(random.Random(size), 5, size) for size in (3, 30)]
    forward = target.replay
    assert forward is not None

    def score(tree: TokenTree) -> torch.Tensor:
        inputs = TreeInputs(len(tree), torch.device("cpu"), torch.float32)
        # Layers, keys and values, batch, heads, columns, width of a head.
        data = torch.zeros(2, 2, 1, 2, 40, 16)
        inputs.fill(tree, 0)
        torch.set_num_threads(2)
        return forward(inputs.tensors, data[..., : len(tree), :])

    expected = [score(tree) for tree in trees]
    with ThreadPoolExecutor(2) as pool:
        outputs = list(pool.map(score, trees * 50))
    torch.set_num_threads(before)
    assert all(torch.equal(output, expected[index % 2]) for index, output in enumerate(outputs))


# Arithmetic.


def test_exponentials_are_exact_to_two_units_in_the_last_place() -> None:
    values = np.linspace(-87.0, 88.0, 20_001, dtype=np.float32)
    results = np.array([exp(value) for value in values], np.float64)
    assert np.abs(results / np.exp(values.astype(np.float64)) - 1.0).max() < 2 * np.finfo(np.float32).eps


@pytest.mark.parametrize(("activation", "name"), [(SILU, "silu"), (GELU, "gelu_pytorch_tanh")])
def test_activations_are_those_of_the_models(activation: int, name: str) -> None:
    gates, ups = torch.linspace(-60.0, 60.0, 4001), torch.randn(4001)
    expected, buffer = ACT2FN[name](gates.double()) * ups, gates.clone().numpy()
    gate(buffer, ups.numpy(), 0, len(buffer), activation)
    torch.testing.assert_close(torch.from_numpy(buffer).double(), expected, rtol=2e-6, atol=1e-14)


@pytest.mark.parametrize("count", [1, 3, 4, 61])
def test_softmax_changes_only_the_first_scores(count: int) -> None:
    scores = torch.randn(64) * 30.0
    expected, buffer = torch.softmax(scores[:count] * 0.25, 0), scores.clone().numpy()
    softmax(buffer, count, np.float32(0.25))
    torch.testing.assert_close(torch.from_numpy(buffer[:count]), expected)
    assert np.array_equal(buffer[count:], scores[count:].numpy())


def test_numbers_are_rounded_to_16_bits_as_torch_rounds_them() -> None:
    values = torch.cat(
        [torch.randn(4000) * 10.0 ** torch.randint(-6, 7, (4000,)), torch.tensor([0.0, -0.0, 1.00390625])]
    )
    rounded = torch.empty(len(values), dtype=torch.bfloat16)
    store(rounded.data_ptr(), values.data_ptr(), len(values), BFLOAT16)
    assert torch.equal(rounded, values.to(torch.bfloat16))


def test_weights_are_rounded_with_a_scale_for_each_row_and_tied_weights_only_once() -> None:
    model = tiny_model("llama", tie_word_embeddings=True)
    before = model.model.embed_tokens.weight.detach().clone()
    round_weights(model)
    after = model.lm_head.weight
    assert after is model.model.embed_tokens.weight
    scales, steps = quantized(after)
    assert steps.abs().max() <= 127 and torch.allclose(scales * steps, after, rtol=1e-6)
    assert (after - before).abs().max() <= before.abs().amax(1).max() / 127


# Threads.


def num_helper_threads() -> int:
    return sum(thread.name == "compiled-decoder" for thread in threading.enumerate())


@pytest.fixture
def ignored_signal() -> Iterator[None]:
    """SIGUSR1 does nothing except interrupt a system call."""
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("ignored_signal")
def test_a_dropped_forward_ends_its_threads() -> None:
    before, target = torch.get_num_threads(), Target(tiny_model("llama", **COMPILABLE))
    torch.set_num_threads(3)
    num_before = num_helper_threads()
    capture_replay(target, compiled=True)
    torch.set_num_threads(before)
    workers = [thread for thread in threading.enumerate() if thread.name == "compiled-decoder"][num_before:]
    assert len(workers) == 2
    for worker in workers:
        # The thread must continue to wait after the signal.
        signal.pthread_kill(worker.ident, signal.SIGUSR1)  # type: ignore[arg-type]
    target.logits(target.prefill([3]).store.clone(9), TokenTree.chain(3))
    assert all(worker.is_alive() for worker in workers)
    del target
    gc.collect()
    for worker in workers:
        worker.join(300)
    assert not any(worker.is_alive() for worker in workers)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_starts_its_own_threads() -> None:
    before, fork = torch.get_num_threads(), multiprocessing.get_context("fork")
    torch.set_num_threads(2)
    target, tree = compiled_target("llama"), TokenTree.chain(5, [6, 7])
    # The prompts are read before the fork, because a forked process cannot use torch's threads.
    stores = [target.prefill([3, 4, 5]).store.clone(90) for _ in range(2)]
    expected = target.logits(stores[0], tree)
    receiver, sender = fork.Pipe()

    def score() -> None:
        sender.send_bytes(target.logits(stores[1], tree).numpy().tobytes())

    process = fork.Process(target=score)
    process.start()
    torch.set_num_threads(before)
    assert receiver.poll(300) and receiver.recv_bytes() == expected.numpy().tobytes()
    process.join(300)
    assert process.exitcode == 0


def test_between_forwards_torch_is_limited_to_one_thread() -> None:
    before, target = torch.get_num_threads(), compiled_target("llama")
    torch.set_num_threads(2)
    with target.between_forwards():
        assert torch.get_num_threads() == 1
    with pytest.raises(KeyError), target.between_forwards():
        raise KeyError
    with eager_target("llama").between_forwards():
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


# Compilation.


def test_a_forward_runs_the_code_that_was_compiled_ahead(set_processor: Callable[[str, dict[str, bool]], None]) -> None:
    set_processor("x86_64", AVX512)
    compile_ahead()
    signatures = list(compiled_step(16).signatures)
    assert len(signatures) == 1
    target = compiled_target("llama", vector_width=16)
    target.logits(target.prefill([3, 4, 5]).store.clone(90), TokenTree.chain(5))
    assert list(compiled_step(16).signatures) == signatures
    set_processor("x86_64", SSE)
    compile_ahead()


def test_code_for_each_vector_width_is_cached_under_its_own_name() -> None:
    names = [compiled_step(vector_width).py_func.__qualname__ for vector_width in (8, 16)]
    assert names[0].removesuffix("8_wide") == names[1].removesuffix("16_wide")


def test_a_change_in_any_file_changes_the_name_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numba checks the function's own file only; the name in its cache covers the other files."""
    monkeypatch.setattr(jit, "__file__", str(tmp_path / "jit.py"))

    def name() -> str:
        def work() -> int:
            return 1

        return str(jit.cached(work).py_func.__qualname__)

    (tmp_path / "vectors.py").write_text("a = 1")
    first = name()
    assert name() == first
    (tmp_path / "vectors.py").write_text("a = 2")
    assert name() != first


def test_code_is_compiled_even_if_it_cannot_be_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(function: Any, cache: bool = False) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return function

    monkeypatch.setattr(jit, "compiled", refuse)

    def work() -> int:
        return 1

    assert jit.cached(work) is work


def test_a_full_disk_does_not_fail_a_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """numba compiles, and then raises because it cannot store the result."""

    def refuse(*_: Any) -> bool:
        raise OSError(28, "No space left on device")

    # A signature shows that numba has compiled the function.
    refuse.signatures = ["compiled"]  # type: ignore[attr-defined]
    monkeypatch.setattr(decoder, "compiled_step", lambda _: refuse)
    compile_ahead()
    refuse.signatures = []  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="No space"):
        compile_ahead()
    stages: list[str] = []
    compile_decoder(lambda stage, *_: stages.append(stage))
    assert stages == ["compiling"]


# Which models and machines run the compiled decoder.


@pytest.mark.parametrize(
    ("machine", "features", "vector_width"),
    [
        ("x86_64", AVX512, 16),
        ("AMD64", AVX512, 16),
        ("x86_64", AVX2, 8),
        ("x86_64", SSE, 0),
        ("x86_64", {}, 0),
        ("aarch64", {"neon": True}, 8),
        ("arm64", {}, 8),
        ("riscv64", {"v": True}, 0),
        ("i686", AVX2, 0),
    ],
)
def test_the_processor_determines_the_vector_width(
    machine: str, features: dict[str, bool], vector_width: int, set_processor: Callable[[str, dict[str, bool]], None]
) -> None:
    set_processor(machine, features)
    assert processor.host_vector_width() == vector_width


def test_the_vector_width_of_this_processor_is_valid() -> None:
    assert processor.choose_vector_width(platform.machine(), get_host_cpu_features()) in (0, 8, 16)


@pytest.mark.parametrize(
    ("name", "changes", "vector_width", "reason"),
    [
        ("gpt2", {}, 16, "not those of the Llama family"),
        # The heads of the small models have 8 numbers, those of COMPILABLE ones 16.
        ("llama", {}, 16, "widths that 16 does not divide"),
        ("llama", {**COMPILABLE, "head_dim": 8}, 16, "widths that 16 does not divide"),
        ("llama", {**COMPILABLE, "head_dim": 4}, 8, "widths that 8 does not divide"),
        ("llama", {**COMPILABLE, "hidden_act": "gelu"}, 8, "not those of the Llama family"),
        ("llama", COMPILABLE, 0, "needs AVX with FMA, or NEON"),
    ],
)
def test_unsupported_models_and_processors_run_torchscript(
    name: str, changes: dict[str, Any], vector_width: int, reason: str
) -> None:
    target = Target(tiny_model(name, **changes))
    capture_replay(target, compiled=True, vector_width=vector_width)
    assert "TorchScript" in target.forward_kind and "(not compiled: ValueError: " in target.forward_kind
    assert reason in target.forward_kind


def test_widths_that_8_divides_run_in_vectors_of_8() -> None:
    target = Target(tiny_model("llama"))
    capture_replay(target, compiled=True, vector_width=8)
    assert target.forward_kind == "compiled decoder"


def test_small_models_and_machines_without_numba_run_torchscript(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward_kind() -> str:
        target = Target(tiny_model("llama", **COMPILABLE))
        capture_replay(target, packed=False)
        return target.forward_kind

    assert forward_kind() == "fused TorchScript"
    monkeypatch.setattr(capture_module, "_MIN_COMPILED_PARAMETERS", 1000)
    assert forward_kind() == "compiled decoder"
    monkeypatch.setitem(sys.modules, "specrace.model.forward.compiled.forward", None)
    assert forward_kind().startswith("fused TorchScript (not compiled: ModuleNotFoundError: ")


@pytest.mark.parametrize("change", ["dtype", "shape", "kind"])
def test_weights_of_an_unexpected_dtype_shape_or_class_are_refused(change: str) -> None:
    """The decoder reads weights by address, without further checks."""
    model = tiny_model("llama", **COMPILABLE)
    mlp = model.model.layers[1].mlp
    if change == "dtype":
        mlp.down_proj.to(torch.bfloat16)
    elif change == "shape":
        mlp.gate_proj = torch.nn.Linear(64, 80, bias=False)
    else:
        mlp.up_proj = torch.nn.Sequential(mlp.up_proj)
        mlp.up_proj.weight, mlp.up_proj.bias = mlp.up_proj[0].weight, None
    with pytest.raises(ValueError, match="kind or shape differs"):
        CompiledForward(model, 8)


def test_a_head_may_have_fewer_rows_than_the_embedding() -> None:
    model = tiny_model("llama", **COMPILABLE)
    model.lm_head = torch.nn.Linear(64, VOCAB - 6, bias=False)
    target, tree = Target(model), random_tree(random.Random(3), 5, 9)
    expected = target.logits(target.prefill([3, 4, 5]).store.clone(90), tree)
    target.replay = CompiledForward(model, 8)
    logits = target.logits(target.prefill([3, 4, 5]).store.clone(90), tree)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=5e-3)


def test_float16_has_no_compiled_decoder() -> None:
    with pytest.raises(ValueError, match="no compiled decoder for float16"):
        CompiledForward(tiny_model("llama", **COMPILABLE).to(torch.float16), 8)


def test_the_description_names_the_decoders_version() -> None:
    """A cost curve that was measured with another version is not read."""
    narrow, wide = (compiled_target("llama", "float32", width).describe() for width in (8, 16))
    assert numba.__version__ in narrow["versions"]["decoder"]
    assert narrow["versions"]["decoder"] != wide["versions"]["decoder"]
    assert "decoder" not in eager_target("llama").describe()["versions"]
    assert narrow["processor"] == processor_name()


# int8.


@cache
def bundled_weight_bytes() -> int:
    return weight_bytes(load_target(BUNDLED_MODEL, graphs=False).model)


@pytest.mark.parametrize("features", [AVX512, AVX2])
def test_the_bundled_model_in_int8_races_losslessly(
    features: dict[str, bool], set_processor: Callable[[str, dict[str, bool]], None]
) -> None:
    set_processor("x86_64", features)
    target = load_target(BUNDLED_MODEL, dtype="int8")
    about = target.describe()
    assert (about["dtype"], about["engine"]) == ("int8", "compiled decoder, int8 weights")
    assert target.roofline.weight_bytes * 4 <= bundled_weight_bytes()
    prompt = target.tokenizer("What is a trie, and what is a trie built from?")["input_ids"]
    events = list(race(target, prompt, RaceSpec(("trie", "lookahead", "fusion"), max_new_tokens=20)))
    assert isinstance(events[-1], Finished) and all(lane.identical for lane in events[-1].lanes)


def test_a_processor_without_avx_runs_torchscript_and_refuses_int8(
    monkeypatch: pytest.MonkeyPatch, set_processor: Callable[[str, dict[str, bool]], None]
) -> None:
    set_processor("x86_64", SSE)
    # The bundled model counts as large, so only the processor prevents the compiled decoder.
    monkeypatch.setattr(capture_module, "_MIN_COMPILED_PARAMETERS", 1000)
    reason = "not compiled: ValueError: no compiled decoder here: it needs AVX with FMA, or NEON, and POSIX"
    target = load_target(BUNDLED_MODEL)
    started, *_, finished = race(target, [3, 4, 5, 3, 4], RaceSpec(("trie", "fusion"), max_new_tokens=12))
    assert isinstance(started, Started) and isinstance(finished, Finished)
    assert started.about["engine"].startswith("fused TorchScript") and started.about["engine"].endswith(f" ({reason})")
    assert all(lane.identical for lane in finished.lanes)
    with pytest.raises(InputError, match="cannot run in int8") as refused:
        load_target(BUNDLED_MODEL, dtype="int8")
    assert f"({reason}); use --dtype float32" in str(refused.value)


def test_int8_is_refused_for_models_and_devices_without_the_decoder(tmp_path: Path) -> None:
    tiny_model("gpt2").save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"cannot run in int8 .*Llama family.*use --dtype float32"):
        load_target(tmp_path, dtype="int8")
    with pytest.raises(InputError, match="int8 weights are for one CPU"):
        load_target(BUNDLED_MODEL, dtype="int8", device="cuda")


def test_int8_with_device_auto_is_refused_on_a_machine_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_device("auto", "int8")
    monkeypatch.setattr(placement, "count_accelerators", lambda: 1)
    with pytest.raises(InputError, match="int8 weights are for one CPU"):
        resolve_device("auto", "int8")


def test_an_int8_target_loaded_with_ready_false_is_checked_by_make_ready(tmp_path: Path) -> None:
    target = load_target(BUNDLED_MODEL, dtype="int8", ready=False)
    assert target.replay is None
    make_ready(target)
    assert target.forward_kind == "compiled decoder, int8 weights"
    tiny_model("gpt2").save_pretrained(tmp_path)
    target = load_target(tmp_path, dtype="int8", ready=False)
    with pytest.raises(InputError, match=r"cannot run in int8 .*Llama family"):
        make_ready(target)
