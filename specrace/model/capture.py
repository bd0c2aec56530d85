"""Captures a target's forward once, checks it against the eager forward, and lets the target replay it without Python.

"Eager" is the forward by the model's own modules in transformers. A store is a KV cache; its `clone(64)` is a copy with
room for 64 tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from specrace.core.cost_curve import row_counts
from specrace.core.errors import InputError, shorten
from specrace.core.memory import return_memory
from specrace.core.tree import TokenTree
from specrace.model.forward.graphs import Capturer, CudaCapturer, GraphPool
from specrace.model.forward.kv import KVStore
from specrace.model.forward.scripted import FusedForward, script_forward
from specrace.model.forward.tree_inputs import run_tree
from specrace.model.machine.memory import free_memory, release_threads
from specrace.model.scorer import Replay
from specrace.model.target import Target

# The largest accepted `gap`: far above rounding errors in each dtype, and far below the gap that a wrong mask or
# position causes in a real model.
TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 0.35, torch.float16: 0.1}
# The tolerance for replays that keep float32 between layers: they skip the eager forward's bfloat16 rounding, so their
# gap is larger. (With a wrong mask or position, the gap is 1.7.)
_LOOSE_TOLERANCE = {torch.bfloat16: 0.6}
# A longer reason is shortened, because it is shown in one line with the model's name.
_MAX_REASON_CHARACTERS = 80
# The steps of smaller models are too short to be worth the first compilation on a machine, which takes ten seconds.
_MIN_COMPILED_PARAMETERS = 50_000_000
_NOT_COMPILED = "not compiled"
_log = logging.getLogger(__name__)


def capture(target: Target) -> None:
    """Let the target replay captured forwards if possible: CUDA graphs on a GPU, compiled code or TorchScript on a CPU.

    A target on several devices stays eager, because a replay cannot move from one device to the next; so does one with
    layers that keep a state, because the replays have no such layers. Raises InputError for a target with 8-bit weights
    if no captured forward computes with them.
    """
    if not (target.layer_devices or target.chains_only):
        if target.device.type == "cuda":
            capture_graphs(target)
        else:
            capture_replay(target)
            return_memory()
            release_threads()
    if target.int8 and target.replay is None:
        raise InputError(f"{target.name} cannot run in int8 ({target.eager_because}); use --dtype float32.")


def capture_graphs(target: Target, capturer: Capturer | None = None) -> None:
    """Let the target's sessions replay CUDA graphs, which `capturer` captures; None captures on the target's GPU.

    If the model cannot be captured, or a replay gives other logits, the target stays eager and records why.
    """
    capturer = capturer or CudaCapturer(target.device)
    pool = GraphPool(
        target.forward, capturer, target.device, target.dtype, target.forward_tapped, target.forward_masked
    )
    # A root with two children, in a vocabulary that may have a single token.
    tree = TokenTree((0, 1 % target.vocab_size, 2 % target.vocab_size), (-1, 0, 0))
    try:
        # The smallest graphs only (1 and 9 rows); sessions capture what they need.
        pooled = pool.acquire(target.prefill([0, 0]).store, len(tree), row_counts(9))
        for sample in (TokenTree.chain(0), tree):
            replayed = pooled.logits(sample)
            eager = target.logits(target.prefill([0, 0]).store.clone(8), sample).float()
            _check_gap(float("nan") if replayed is None else gap(replayed, eager), target.dtype)
    except (RuntimeError, ValueError) as error:
        _stay_eager(target, "no graphs", error)
        return
    pooled.release()
    target.graphs = pool


@torch.inference_mode()
def capture_replay(
    target: Target,
    *,
    compiled: bool | None = None,
    packed: bool | None = None,
    fused: bool = True,
    vector_width: int | None = None,
) -> None:
    """Let the target replay its forward in the first of these ways that gives the eager forward's logits.

    - The compiled decoder, if it supports the family. `compiled`: whether to try it; None: only for a large model.
      `vector_width`: how many float32 its vectors hold, 8 or 16; 0 means no decoder, None the width that suits this
      processor. 8-bit weights need the decoder.
    - TorchScript (`script_forward`): our fused decoder, if it supports the family and `fused` is true, else a trace of
      the model's own modules. `packed`: whether to copy the weights into a layout for products of a few rows; None:
      only if memory allows it.

    If none works, the target stays eager and records why. It also records why the compiled decoder could not run.
    """
    not_compiled = ""
    # Eight committed tokens, and more room than any tree of the checks needs.
    store = target.prefill(_probe_tokens(target, 9)).store.clone(64)
    for failure, make in _replay_makers(target, store, compiled, packed, fused, vector_width):
        try:
            replayed = _make_checked(target, make, store)
        # Tracing runs the model's own Python code in ways that it was not written for, so it may raise anything.
        except Exception as error:
            _stay_eager(target, failure, error)
            if failure == _NOT_COMPILED:
                not_compiled = f" ({target.eager_because})"
        else:
            replayed.name += not_compiled
            target.replay, target.eager_because = replayed, ""
            if replayed.reader is not None:
                # Such a forward has an attention of its own, so single rows need no padding (see `Scorer.min_rows`).
                target.min_rows = 1
            return


def _make_checked(target: Target, make: Callable[[], Replay], store: KVStore) -> Replay:
    """Make a replay. Raises ValueError unless its logits and its cache are those of the eager forward."""
    replayed = make()
    _check_gap(_replay_gap(target, replayed, store), target.dtype, loose=replayed.keeps_float32)
    return replayed


def drop_layers(target: Target) -> None:
    """Free the weights of the model's own linear layers if the captured forward has copies of them and reads prompts.

    Afterwards memory holds the weights once instead of twice, and calling the model raises RuntimeError.
    """
    if not (isinstance(target.replay, FusedForward) and target.replay.copies_weights):
        return
    embedding = target.model.get_input_embeddings().weight
    for layer in target.model.modules():
        if type(layer) is nn.Linear and layer.weight is not embedding:
            # The size stays, because `describe` and the roofline report it.
            layer.weight = nn.Parameter(torch.empty_like(layer.weight, device="meta"), requires_grad=False)
    for parameter in target.model.parameters():
        if not parameter.is_meta:
            # A view of a memory-mapped file would keep the whole file in memory.
            parameter.data = parameter.data.clone()
    # Calling the model with freed weights would give nonsense instead of an error.
    target.model.forward = _refuse_to_run
    return_memory()


def _refuse_to_run(*_: object, **__: object) -> None:
    raise RuntimeError("the model's layers were dropped once its forward was captured: load it without `lean`")


def _replay_makers(
    target: Target, store: KVStore, compiled: bool | None, packed: bool | None, fused: bool, vector_width: int | None
) -> Iterator[tuple[str, Callable[[], Replay]]]:
    """Yields the kinds of replay to try, the fastest first: (what to report if it fails, a function that makes it)."""
    model = target.model
    is_large = sum(parameter.numel() for parameter in model.parameters()) >= _MIN_COMPILED_PARAMETERS
    if target.int8 or compiled or (compiled is None and is_large):
        yield _NOT_COMPILED, partial(_make_compiled, target, store, vector_width)
    if target.int8:
        return
    packings = ((True, False) if _fits_twice(model) else (False,)) if packed is None else (packed,)
    for fuse in (True, False) if fused else (False,):
        for pack in packings:
            failure = "not fused" if fuse else "not packed" if pack else "not traced"
            yield failure, partial(script_forward, model, store, target.dtype, target.reaches, fused=fuse, packed=pack)


def _fits_twice(model: nn.Module) -> bool:
    """Whether free memory has room for two more copies of the weights; False if it is not known how much is free."""
    free = free_memory()
    needed = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return free is not None and free > 2 * needed


def _make_compiled(target: Target, store: KVStore, vector_width: int | None) -> Replay:
    """Make the compiled decoder. Raises ImportError without numba, ValueError if it cannot run the model's layers."""
    # Imported here because the import takes half a second, which small models should not pay for.
    from specrace.model.forward.compiled.forward import CompiledForward
    from specrace.model.forward.compiled.processor import host_vector_width

    width = host_vector_width() if vector_width is None else vector_width
    forward = CompiledForward(target.model, width, int8=target.int8)
    if any(reach.is_limited for reach in target.reaches.values()):
        # The model's own windows are longer than the texts of the check.
        with target.with_reach(3):
            forward.use_reaches(target.reaches)
            _check_gap(_replay_gap(target, forward, store), target.dtype, loose=True)
        forward.use_reaches(target.reaches)
    return forward


def _stay_eager(target: Target, failure: str, error: Exception) -> None:
    """Record in one short line why the target stays eager; a library's whole message would be too long to show."""
    lines = str(error).strip().splitlines()
    reason = f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__
    target.eager_because = f"{failure}: {shorten(reason, _MAX_REASON_CHARACTERS)}"
    # Not logged as a warning, which Python would print if no handler is set up; `describe` reports the reason.
    _log.info("%s: %s", target.name, target.eager_because)


def _check_gap(difference: float, dtype: torch.dtype, *, loose: bool = False) -> None:
    """Raises ValueError if a replay differs from the eager forward by more than rounding explains."""
    tolerance = TOLERANCE[dtype]
    if loose:
        tolerance = _LOOSE_TOLERANCE.get(dtype, tolerance)
    # `difference > tolerance` would be false for NaN.
    if not difference <= tolerance:
        raise ValueError(f"a replay differs from the eager forward by {difference:.2g}")


def _replay_gap(target: Target, replay: Replay, store: KVStore) -> float:
    """The largest gap between replayed and eager results, logits and cache, for several trees and prefixes."""
    tokens = _probe_tokens(target, 12)
    gaps = []
    # A single row, which has code of its own, and several; of the eight committed tokens, the first `length` are used.
    for rows, length in ((1, 8), (1, 3), (2, 7), (12, 5)):
        # Nodes 1 and 2 follow the root, and node n follows node n - 2: two branches.
        tree = TokenTree(tuple(tokens[:rows]), (-1, *(max(0, node - 2) for node in range(1, rows))))
        eager_store, replay_store = store.clone(64), store.clone(64)
        eager_store.length = replay_store.length = length
        inputs = target.inputs(rows)
        inputs.fill(tree, length)
        assert eager_store.data is not None and replay_store.data is not None
        expected = run_tree(target.model, eager_store, inputs.tensors, length + rows, target.reaches)
        logits = replay(inputs.tensors, replay_store.data[..., : length + rows, :])
        gaps += [gap(logits, expected.float()), _cache_gap(replay_store.data, eager_store.data)]
    # Unlike Python's `max`, this is NaN if any gap is NaN.
    return float(torch.tensor(gaps).max())


def _probe_tokens(target: Target, count: int) -> list[int]:
    """Tokens for checking a model, all different if the vocabulary is large enough, because siblings must differ."""
    order = torch.randperm(target.vocab_size, generator=torch.Generator().manual_seed(0)).tolist()
    tokens: list[int] = (order * count)[:count]
    return tokens


def gap(logits: Tensor, expected: Tensor) -> float:
    """The largest difference between logits, in standard deviations of the expected logits."""
    return float((logits.float() - expected).abs().max() / expected.std().clamp_min(1e-6))


def _cache_gap(cache: Tensor, expected: Tensor) -> float:
    """The largest difference between a token's keys or values in any layer, relative to their size.

    Both caches are [L, 2, 1, H, T, D]. We compare root mean squares, not single elements: a few elements are so large
    that their rounding error alone exceeds the spread of all the others.
    """
    difference, size = (
        numbers.square().mean((2, 3, 5)).sqrt() for numbers in (cache.float() - expected.float(), expected.float())
    )
    return float((difference / size.clamp_min(1e-6)).max())
