"""Replays: a target's forward captured once and run without Python, checked against the eager one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from specrace.core.cost_curve import row_counts
from specrace.core.errors import shorten
from specrace.core.memory import return_memory
from specrace.core.tree import TokenTree
from specrace.model.fused import FusedForward
from specrace.model.graphs import Capturer, CudaCapturer, GraphPool
from specrace.model.kv import KVStore
from specrace.model.machine import release_threads
from specrace.model.packed import fits_twice
from specrace.model.products import PackedProduct, plain_product
from specrace.model.scorer import Replay
from specrace.model.target import Target
from specrace.model.traced import TracedForward, run_tree

# Far above rounding in any dtype, far below what a wrong mask or position does to the logits of a real model.
TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 0.35, torch.float16: 0.1}
# For a replay that keeps float32 between the layers: it differs by the eager forward's rounding. A wrong mask or
# position makes 1.7.
_WIDE_TOLERANCE = {torch.bfloat16: 0.6}
_LONGEST_REASON = 80
# Parameters: a smaller model's steps are too short to earn the ten seconds that a machine's first compilation takes.
_MIN_COMPILED = 50_000_000
_NOT_COMPILED = "not compiled"
_log = logging.getLogger(__name__)


def capture(target: Target) -> None:
    """Let the target replay captured forwards, if it can: CUDA graphs on a GPU; on a CPU the compiled decoder or
    TorchScript.

    Neither follows a model from one device to the next, so on several it stays eager.
    """
    if target.layer_devices:
        return
    if target.device.type == "cuda":
        capture_graphs(target, CudaCapturer(target.device))
    else:
        trace_forwards(target)
        return_memory()
        release_threads()


def capture_graphs(target: Target, capturer: Capturer) -> None:
    """Let the target's sessions replay captured forwards; leave it eager, and say why, where the model cannot be
    captured, or where a replay does not score as the eager forward does.
    """
    pool = GraphPool(target.forward, capturer, target.device, target.dtype)
    tree = TokenTree((0, 1 % target.vocab_size, 2 % target.vocab_size), (-1, 0, 0))
    try:
        pooled = pool.acquire(target.prefill([0, 0]).store, len(tree), row_counts(9))
        for each in (TokenTree.chain(0), tree):
            replayed = pooled.logits(each)
            eager = target.logits(target.prefill([0, 0]).store.clone(8), each).float()
            _check_gap(float("nan") if replayed is None else gap(replayed, eager), target.dtype)
    except (RuntimeError, ValueError) as error:
        _stay_eager(target, "no graphs", error)
        return
    pooled.release()
    target.graphs = pool


@torch.inference_mode()
def trace_forwards(
    target: Target,
    *,
    compiled: bool | None = None,
    packed: bool | None = None,
    fused: bool = True,
    lanes: int | None = None,
) -> None:
    """Let the target replay its forward: in the compiled decoder where its family is known and it is large enough
    (`compiled` None), or as TorchScript: in few operations where its family is known and `fused` is true, and with
    weights packed for a few rows where there is memory for that (`packed` None). Weights of 8 bits run in the compiled
    decoder or not at all. The decoder's vectors hold `lanes` float32: 16, 8, 0 for no decoder, None for what this
    processor takes.

    The first way that scores as the model does eagerly is taken; with none the target stays eager, and says why. What
    kept the compiled decoder from running is said, too.
    """
    not_compiled = ""
    store = target.prefill(_check_tokens(target, 9)).store.clone(64)
    for what, make in _ways(target, store, compiled, packed, fused, lanes):
        try:
            replayed = _checked(target, make, store)
        # Tracing runs any model's own Python on stand-ins, so it may raise anything; then the model stays as it is.
        except Exception as error:
            _stay_eager(target, what, error)
            if what == _NOT_COMPILED:
                not_compiled = f" ({target.eager_because})"
        else:
            replayed.name += not_compiled
            target.traced, target.eager_because = replayed, ""
            if replayed.reader is not None:
                target.min_rows = 1
            return


def _checked(target: Target, make: Callable[[], Replay], store: KVStore) -> Replay:
    """A replay that scores as the model does eagerly. Raises ValueError where it does not."""
    replayed = make()
    _check_gap(_replay_gap(target, replayed, store), target.dtype, wide=replayed.own_threads)
    return replayed


def drop_layers(target: Target) -> None:
    """Free the weights of the model's own linear layers where the captured forward has copies and reads prompts, too.

    bfloat16 and float32 weights are then held once instead of twice, and the model itself raises RuntimeError.
    """
    if not (isinstance(target.traced, FusedForward) and target.traced.copies_weights):
        return
    embedding = target.model.get_input_embeddings().weight
    for layer in target.model.modules():
        if type(layer) is nn.Linear and layer.weight is not embedding:
            # Of the same size, which `describe` and the roofline tell.
            layer.weight = nn.Parameter(torch.empty_like(layer.weight, device="meta"), requires_grad=False)
    for kept in target.model.parameters():
        if not kept.is_meta:
            # A part of a mapped file would keep the whole.
            kept.data = kept.data.clone()
    # A product with weights that are not there would read what happens to lie in memory.
    target.model.forward = _refuse_to_run
    return_memory()


def _refuse_to_run(*_: object, **__: object) -> None:
    raise RuntimeError("the model's layers were dropped once its forward was captured: load it without `lean`")


def _ways(
    target: Target, store: KVStore, compiled: bool | None, packed: bool | None, fused: bool, lanes: int | None
) -> Iterator[tuple[str, Callable[[], Replay]]]:
    """Ways to replay a forward, the best first, each with what it is not where it fails."""
    model = target.model
    large = sum(each.numel() for each in model.parameters()) >= _MIN_COMPILED
    if target.int8 or compiled or (compiled is None and large):
        yield _NOT_COMPILED, partial(_compiled, model, target.int8, lanes)
    if target.int8:
        return
    pack = (True, False) if packed is None and fits_twice(model) else (bool(packed),)
    for way in pack if fused else ():
        product, name = (PackedProduct, ", packed weights") if way else (plain_product(target.dtype), "")
        yield "not fused", partial(FusedForward, model, product, f"fused TorchScript{name}")
    for way in pack:
        what = "not packed" if way else "not traced"
        yield what, partial(TracedForward, model, store, target.dtype, packed=way)


def _compiled(model: Any, int8: bool, lanes: int | None) -> Replay:
    """The compiled decoder. Raises ImportError without numba."""
    # It takes half a second, which small models do without.
    from specrace.model.compiled.forward import CompiledForward
    from specrace.model.compiled.processor import host_lanes

    return CompiledForward(model, host_lanes() if lanes is None else lanes, int8=int8)


def _stay_eager(target: Target, what: str, error: Exception) -> None:
    """Keep the reason in one short line: what is shown is no place for a library's whole message."""
    lines = str(error).strip().splitlines()
    reason = f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__
    target.eager_because = f"{what}: {shorten(reason, _LONGEST_REASON)}"
    # No warning: a handler that nobody set up would print it, and `engine` tells.
    _log.info("%s: %s", target.name, target.eager_because)


def _check_gap(found: float, dtype: torch.dtype, *, wide: bool = False) -> None:
    """Raises ValueError where a replay is further from the eager forward than rounding explains."""
    if not found <= (_WIDE_TOLERANCE if wide else TOLERANCE).get(dtype, TOLERANCE[dtype]):
        raise ValueError(f"a replay differs from the eager forward by {found:.2g}")


def _replay_gap(target: Target, traced: Replay, store: KVStore) -> float:
    """How far logits and cache are from the eager ones at most, for trees of several sizes behind several prefixes."""
    tokens = _check_tokens(target, 12)
    gaps = []
    for rows, length in ((1, 8), (1, 3), (2, 7), (12, 5)):
        tree = TokenTree(tuple(tokens[:rows]), (-1, *(max(0, node - 2) for node in range(1, rows))))
        eager, replayed = store.clone(64), store.clone(64)
        eager.length = replayed.length = length
        inputs = target.inputs(rows)
        inputs.fill(tree, length)
        assert eager.data is not None and replayed.data is not None
        expected = run_tree(target.model, eager, inputs.tensors, length + rows)
        found = traced(inputs.tensors, replayed.data[..., : length + rows, :])
        gaps += [gap(found, expected.float()), _cache_gap(replayed.data, eager.data)]
    # Unlike Python's own maximum it is not a number where one of them is not.
    return float(torch.tensor(gaps).max())


def _check_tokens(target: Target, count: int) -> list[int]:
    """Tokens to try a model on, without a repetition if it has so many: equal siblings make no tree."""
    order = torch.randperm(target.vocab_size, generator=torch.Generator().manual_seed(0)).tolist()
    tokens: list[int] = (order * count)[:count]
    return tokens


def gap(logits: Tensor, expected: Tensor) -> float:
    """Largest difference of logits, relative to the spread of the expected logits."""
    return float((logits.float() - expected).abs().max() / expected.std().clamp_min(1e-6))


def _cache_gap(cache: Tensor, expected: Tensor) -> float:
    """Largest difference of a token's keys or values in a layer, [L, 2, 1, H, T, D], relative to their size.

    Not of single numbers: the few that are far larger than the rest are rounded to more than the rest's spread.
    """
    difference, size = (
        (each.square().mean((2, 3, 5))).sqrt() for each in (cache.float() - expected.float(), expected.float())
    )
    return float((difference / size.clamp_min(1e-6)).max())
