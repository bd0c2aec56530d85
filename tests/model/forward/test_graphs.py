"""Captured forwards: a graph for each bucket, padding, reuse. A fake graph runs the function again.

A bucket is (rows, columns of the cache that attention reads, extra): a tree runs in the smallest with enough rows. The
extra is the levels of hidden states that the forward also returns, or its masks; () for none. A store is a KV cache.
"""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from specrace.core.cost_curve import row_counts
from specrace.core.events import Step
from specrace.core.tree import TokenTree
from specrace.drafters import METHODS, DrafterInputs, head_lanes, native_methods
from specrace.drafters.draft_model import DraftModelDrafter
from specrace.engine.generate import generate
from specrace.engine.pace import PaceKeeper
from specrace.engine.race import race
from specrace.engine.setup import RaceSetup, read_prompt
from specrace.engine.spec import RaceSpec, plan_lane
from specrace.lab.bench.benchmark import Bench, BenchPrompt, LaneRun
from specrace.model.capture import capture_graphs
from specrace.model.draft_model import DraftModel
from specrace.model.forward import graphs
from specrace.model.forward.graphs import COLUMN_STEP, CudaCapturer
from specrace.model.forward.kv import KVStore
from specrace.model.forward.masked import Masks
from specrace.model.forward.tapped import Levels
from specrace.model.forward.tree_inputs import TreeInputs
from specrace.model.session import GraphedSession
from specrace.model.target import Target
from specrace.ngrams.sources import Sources
from specrace.ngrams.suffix_index import SuffixIndex
from tests.models import ARCHITECTURES, give_heads, tiny_model, tiny_target
from tests.parts import VOCAB, random_prompt, random_tree

# The rows of the largest tree that a lane proposes by default on a GPU.
LARGEST_BUCKETS = {"lookahead": 120, "recycling": 81, "draft-model": 9, "jacobi": 17}


class FakeCapturer:
    """A replay runs the Python function again on the same buffers, as a CUDA graph would run its kernels."""

    def __init__(self) -> None:
        self.captured = 0
        self.replayed = 0

    def capture(self, work: Callable[[], Any]) -> Callable[[], Any]:
        self.captured += 1
        output = tree_map(Tensor.clone, work())

        def replay() -> Any:
            self.replayed += 1
            return tree_map(Tensor.copy_, output, work())

        return replay


def graphed_target(name: str, **changes: object) -> tuple[Target, FakeCapturer]:
    """A small target whose sessions replay forwards, and its capturer."""
    target, capturer = tiny_target(name, **changes), FakeCapturer()
    capture_graphs(target, capturer)
    assert target.graphs is not None and target.describe()["graphs"]
    return target, capturer


def open_session(
    target: Target, prompt: list[int], room: int = 200, rows: tuple[int, ...] = row_counts(65)
) -> GraphedSession:
    session = target.session(target.prefill(prompt), room, rows=rows)
    assert isinstance(session, GraphedSession)
    return session


class FakeGpuTarget(Target):
    """Claims to be on a GPU; records each forward's rows, and whether it ran eagerly."""

    device_type = "cuda"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.forwards: list[tuple[int, bool]] = []
        self._eager = False

    def run(self, store: KVStore, tree: TokenTree) -> Tensor:
        self._eager = True
        try:
            return super().run(store, tree)
        finally:
            self._eager = False

    def run_tapped(self, store: KVStore, tree: TokenTree, levels: Levels) -> tuple[Tensor, Tensor]:
        self._eager = True
        try:
            return super().run_tapped(store, tree, levels)
        finally:
            self._eager = False

    def forward(self, store: KVStore, inputs: TreeInputs, end: int) -> Tensor:
        self.forwards.append((inputs.rows, self._eager))
        return super().forward(store, inputs, end)

    def run_masked(self, store: KVStore, tree: TokenTree, masks: Masks) -> Tensor:
        self._eager = True
        try:
            return super().run_masked(store, tree, masks)
        finally:
            self._eager = False

    def forward_masked(self, store: KVStore, inputs: TreeInputs, end: int, masks: Masks) -> Tensor:
        self.forwards.append((inputs.rows, self._eager))
        return super().forward_masked(store, inputs, end, masks)

    def forward_tapped(self, store: KVStore, inputs: TreeInputs, end: int, levels: Levels) -> tuple[Tensor, Tensor]:
        self.forwards.append((inputs.rows, self._eager))
        return super().forward_tapped(store, inputs, end, levels)


@cache
def shared_gpu_targets() -> tuple[FakeGpuTarget, FakeGpuTarget]:
    """A target and its draft model, for tests that change neither."""
    (target, _), (draft_target, _) = fake_gpu_target("llama"), fake_gpu_target("gpt2", seed=1)
    target.drafting = DraftModel(draft_target, VOCAB)
    return target, draft_target


def fake_gpu_target(name: str, seed: int = 0) -> tuple[FakeGpuTarget, FakeCapturer]:
    model = tiny_model(name, seed=seed, eos_token_id=None, max_position_embeddings=2048)
    target, capturer = FakeGpuTarget(model), FakeCapturer()
    give_heads(target)
    capture_graphs(target, capturer)
    assert target.graphs is not None
    return target, capturer


@pytest.mark.parametrize("max_rows", [1, 2, 5, 8, 9, 10, 17, 33, 65, 81, 120, 1025])
def test_row_counts_are_one_above_the_powers_of_two_and_the_maximum(max_rows: int) -> None:
    """A full draft of 8, 16 or 32 tokens needs no padding, nor does any lane's largest tree."""
    counts = row_counts(max_rows)
    assert counts[0] == 1 and counts[-1] == max_rows and list(counts) == sorted(set(counts))
    assert set(counts) - {1, max_rows} == {count for count in (9, 17, 33, 65, 129, 257, 513) if count < max_rows}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", native_methods())
def test_every_step_of_every_lane_is_replayed_with_a_gpus_defaults(name: str, temperature: float) -> None:
    """Each tree is replayed in the smallest bucket that fits; this includes the draft model's forwards."""
    target, draft_target = shared_gpu_targets()
    prompt, rng = (2, 3, 4, 5, 6) * 8, random.Random(1)
    index = SuffixIndex([[*prompt, *(rng.randrange(2, VOCAB) for _ in range(200))] for _ in range(9)])
    spec = RaceSpec((name,), max_new_tokens=32, temperature=temperature, seed=3)
    setup = RaceSetup(target, prompt, read_prompt(target, prompt, spec), spec, sources=Sources(corpus_index=index))
    lane, max_size = setup.make_lane(name), 0
    # A lane with masks has 1 + depth rows for each node of its tree.
    buckets = row_counts(
        (plan_lane(spec, name, "cuda").num_draft + 1) * (1 + (lane.masking.depth if lane.masking else 0))
    )
    draft_target.forwards.clear()
    while not lane.end:
        target.forwards.clear()
        size = len(lane.step().tree) * (1 + (lane.masking.num_masks if lane.masking else 0))
        expected = min(rows for rows in buckets if rows >= size)
        assert target.forwards == [(expected, False)]
        # Padding less than doubles a tree, except in the bucket of 9 rows.
        assert expected < max(2 * size, 10)
        max_size = max(max_size, size)
    if not temperature and name in LARGEST_BUCKETS:
        assert buckets[-1] == LARGEST_BUCKETS[name]
        # Lookahead's guesses share nodes, so its tree need not fill the largest bucket.
        min_size = buckets[-2] + 1 if name == "lookahead" else buckets[-1]
        assert max_size >= min_size
    # The lane draft-model reads its last draft token together with the bonus token, so a forward has one or two rows.
    assert name != "draft-model" or {rows for rows, _ in draft_target.forwards} <= {1, 2}
    assert not any(was_eager for _, was_eager in draft_target.forwards)
    assert (len(draft_target.forwards) > 12) == METHODS[name].needs_draft_model


def test_no_graph_is_captured_on_a_lanes_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft model's session is opened while its drafter is built, which is on the lane's clock."""
    (target, capturer), (draft_target, draft_capturer) = fake_gpu_target("llama"), fake_gpu_target("gpt2", seed=1)
    target.drafting = DraftModel(draft_target, VOCAB)
    captures: list[tuple[int, int]] = []

    class RecordingDrafter(DraftModelDrafter):
        def __init__(self, inputs: DrafterInputs, *, sampled: bool = False) -> None:
            before = draft_capturer.captured
            super().__init__(inputs, sampled=sampled)
            captures.append((before, draft_capturer.captured))

    monkeypatch.setitem(METHODS, "draft-model", replace(METHODS["draft-model"], build=RecordingDrafter))
    spec = RaceSpec(("lookahead", "draft-model", *head_lanes()), max_new_tokens=8)
    events = race(target, (3, 4, 5) * 9, spec)
    next(events)
    before, after = captures[-1]
    captured = capturer.captured
    # The draft model's graphs were captured before its drafter was built, and none while it was built.
    assert 0 < before == after
    list(events)
    assert (capturer.captured, draft_capturer.captured) == (captured, after)
    bench = Bench(target, replace(spec, lanes=("vanilla", "trie", "draft-model")), repetitions=1)
    # The second prompt has 507 tokens, so its steps need graphs of 512 and of 1,024 columns.
    prompts = [BenchPrompt(str(size), (3, 4, 5) * size, max_new_tokens=8) for size in (9, 169)]
    run_lane, was_warm = bench._run_lane, list[bool]()

    def run_and_record(name: str, prompt: BenchPrompt) -> LaneRun:
        before, is_warm = capturer.captured, bench._warm
        lane_run = run_lane(name, prompt)
        # Only the unmeasured runs, which come first, may capture graphs.
        assert not is_warm or capturer.captured == before
        was_warm.append(is_warm)
        return lane_run

    monkeypatch.setattr(bench, "_run_lane", run_and_record)
    for _ in bench.run(prompts):
        assert captures[-1][0] == captures[-1][1]
    # Two prompts with three lanes each.
    assert was_warm.count(True) == 6
    assert draft_capturer.captured > after and sum(after > before for before, after in captures) == 2


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_replayed_forwards_score_like_eager_forwards(name: str) -> None:
    """Over several steps with random trees, logits are equal up to rounding, and tokens are identical."""
    target, capturer = graphed_target(name)
    rng = random.Random(name)
    text = list(random_prompt(rng))
    session, store = open_session(target, text), target.prefill(text).store.clone(300)
    before = (capturer.captured, capturer.replayed)
    for step in range(12):
        tree = random_tree(rng, text[-1], (0, 1, 6, 7, 8, 15, 20, 40)[step % 8])
        replayed, eager = session.logits(tree), target.logits(store, tree)
        assert replayed.shape == eager.shape == (len(tree), target.vocab_size)
        torch.testing.assert_close(replayed, eager, rtol=1e-4, atol=1e-3)
        assert torch.equal(replayed.argmax(-1), eager.argmax(-1))
        path = tree.path_to(rng.randrange(len(tree)))
        session.keep(path)
        store.keep(path)
        text += [tree.tokens[node] for node in path[1:]] + [rng.randrange(VOCAB)]
    assert (capturer.captured, capturer.replayed) == (before[0], before[1] + 12)


def test_padding_rows_and_unused_columns_do_not_change_the_scores() -> None:
    """Rows beyond the tree and columns beyond its last token may hold any numbers."""
    target, _ = graphed_target("llama")
    prompt = [3, 4, 5, 6]
    tree = TokenTree((6, 7, 8), (-1, 0, 0))
    expected = open_session(target, prompt).logits(tree).clone()
    inputs = TreeInputs(8, target.device, target.dtype)
    store = target.prefill(prompt).store.clone(COLUMN_STEP)
    assert store.data is not None
    store.data[..., store.length :, :] = 1000.0
    with torch.inference_mode():
        inputs.fill(random_tree(random.Random(0), 9, 7), store.length)
        inputs.fill(tree, store.length)
        inputs.ids[0, 3:] = 31
        logits = target.forward(store, inputs, COLUMN_STEP)[:3]
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-3)


def test_a_tree_is_replayed_in_the_next_bucket_and_eager_beyond_the_largest() -> None:
    target, capturer = graphed_target("llama")
    session = open_session(target, [3, 4, 5])
    for size in (1, 2, 8, 9, 16, 17, 33, 34, 65):
        before = capturer.replayed
        session.score(TokenTree.chain(5, [7] * (size - 1)))
        assert capturer.replayed == before + 1
    assert {rows for rows, *_ in session._pooled.buckets} == {1, 9, 17, 33, 65}
    before = capturer.replayed
    assert len(session.score(TokenTree.chain(5, [7] * 65)).targets) == 66
    assert capturer.replayed == before


def test_a_reused_store_captures_only_the_graphs_it_lacks() -> None:
    target, capturer = graphed_target("llama")
    first = open_session(target, [3, 4, 5], rows=(1, 5))
    captured = capturer.captured
    assert {(1, COLUMN_STEP, ()), (5, COLUMN_STEP, ())} <= set(first._pooled.buckets)
    del first
    second = open_session(target, [3, 4, 5], rows=(1, 81))
    assert target.graphs is not None and target.graphs.num_stores == 1
    assert capturer.captured == captured + 1
    assert {(5, COLUMN_STEP, ()), (81, COLUMN_STEP, ())} <= set(second._pooled.buckets)
    # The graph of 5 rows belongs to an earlier session. It is not used, so that a step does not depend on history.
    before = capturer.replayed
    inputs = target.graphs.inputs(81)
    inputs.fill(TokenTree.chain(9), 0)
    second.score(TokenTree.chain(5, [6, 7]))
    assert capturer.replayed == before + 1 and inputs.tensors.ids[0, :3].tolist() == [5, 6, 7]


def test_a_store_drops_the_oldest_graphs_beyond_its_spare_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    target, capturer = graphed_target("llama")
    assert target.graphs is not None
    monkeypatch.setattr(graphs, "SPARE_ROWS", 100)
    max_rows = 30
    for rows in range(2, max_rows):
        session = open_session(target, [3, 4, 5], rows=(1, rows))
        del session
    gc.collect()
    (store,) = target.graphs._free
    kept_rows = [rows for rows, *_ in store.buckets]
    assert 1 in kept_rows and max_rows - 1 in kept_rows and 100 <= sum(kept_rows) <= 100 + max_rows
    assert set(target.graphs._inputs) == set(kept_rows)
    before = capturer.captured
    session = open_session(target, [3, 4, 5], rows=(1, max_rows - 2))
    assert capturer.captured == before
    del session
    # The first session's graph was dropped.
    open_session(target, [3, 4, 5], rows=(1, 2))
    assert capturer.captured == before + 1


def test_a_store_whose_capture_fails_is_no_longer_counted() -> None:
    target, capturer = graphed_target("llama")
    capture = capturer.capture

    def fail(_: Callable[[], Tensor]) -> Callable[[], Tensor]:
        raise torch.OutOfMemoryError("out of memory")

    capturer.capture = fail  # type: ignore[method-assign]
    with pytest.raises(torch.OutOfMemoryError):
        open_session(target, [3, 4, 5], rows=(1, 50))
    capturer.capture = capture  # type: ignore[method-assign]
    assert target.graphs is not None and target.graphs.num_stores == 0
    session = open_session(target, [3, 4, 5], rows=(1, 50))
    assert target.graphs.num_stores == 1 and session.score(TokenTree.chain(5)).targets


def test_a_capture_waits_for_the_current_stream_of_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The capture's device need not be torch's current device."""
    calls: list[Any] = []

    class Stream:
        def __init__(self, device: object = None) -> None:
            calls.append(device)

        def wait_stream(self, stream: object) -> None:
            calls.append(stream)

    current = Stream()
    calls.clear()

    def use_device(device: object) -> Any:
        calls.append(device)
        return nullcontext()

    def current_stream(device: object = None) -> Stream:
        calls.append(device)
        return current

    fakes: dict[str, Any] = {
        "Stream": Stream,
        "stream": nullcontext,
        "device": use_device,
        "graph": lambda *_, **__: nullcontext(),
        "CUDAGraph": object,
        "graph_pool_handle": lambda: None,
        "current_stream": current_stream,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    device = torch.device("cuda:1")
    capturer = CudaCapturer(device)
    capturer.capture(lambda: torch.zeros(1))
    assert [call for call in calls if not isinstance(call, Stream)] == [device] * 3
    assert [call for call in calls if isinstance(call, Stream)] == [current, capturer._stream]


def test_the_pace_probe_captures_a_single_graph() -> None:
    target, capturer = graphed_target("llama")
    captured, prefix = capturer.captured, target.prefill([3] * (COLUMN_STEP + 4))
    PaceKeeper.for_target(target, prefix, 4)
    assert capturer.captured == captured + 1


def test_the_free_store_that_lacks_the_fewest_graphs_is_reused() -> None:
    target, capturer = graphed_target("llama", max_position_embeddings=4096)
    row_sets = ((1, 33), (1, 81), (1, 121))
    sessions = [open_session(target, [3, 4, 5], rows=rows) for rows in row_sets]
    captured, stores = capturer.captured, [session.store for session in sessions]
    del sessions
    for number in (1, 0, 2, 1):
        assert open_session(target, [6, 7], rows=row_sets[number]).store is stores[number]
    longer_session = open_session(target, [3] * (COLUMN_STEP - 50), room=200, rows=(1, 33))
    assert longer_session.store not in stores and capturer.captured == captured + 4


def test_buckets_cover_exactly_the_columns_that_a_session_can_reach() -> None:
    target, _ = graphed_target("llama", max_position_embeddings=4096)
    rows = (1, 9, 17, 33)
    session = open_session(target, [3] * (COLUMN_STEP - 100), room=200, rows=rows)
    columns = {
        count: sorted(end for bucket_rows, end, _ in session._pooled.buckets if bucket_rows == count) for count in rows
    }
    assert columns == {count: [COLUMN_STEP, 2 * COLUMN_STEP] for count in rows}
    store = session.store
    while store.length < COLUMN_STEP + 50:
        assert session._pooled.logits(TokenTree.chain(3, [4] * 7)) is not None
        session.keep(tuple(range(8)))


def test_a_finished_sessions_store_and_graphs_are_reused() -> None:
    target, capturer = graphed_target("llama")
    first = open_session(target, [3, 4, 5])
    data, captured = first.store.data, capturer.captured
    assert data is not None and captured > 0
    address = data.data_ptr()
    first.score(TokenTree.chain(5, [6, 7]))
    first.keep((0, 1, 2))
    del first
    gc.collect()
    # The check in `capture_graphs` used the same store.
    assert target.graphs is not None and target.graphs.num_stores == 1
    second = open_session(target, [8, 9, 10, 11])
    assert second.store.data is not None and second.store.data.data_ptr() == address
    assert second.store.length == 3 and capturer.captured == captured
    tree = TokenTree.chain(11, [12, 13])
    eager_logits = target.logits(target.prefill([8, 9, 10, 11]).store.clone(20), tree)
    torch.testing.assert_close(second.logits(tree), eager_logits, rtol=1e-4, atol=1e-3)
    third = open_session(target, [8, 9, 10, 11])
    assert target.graphs.num_stores == 2
    assert third.store is not second.store and capturer.captured == 2 * captured


def test_stores_that_are_too_small_are_dropped_with_their_graphs() -> None:
    target, _ = graphed_target("llama", max_position_embeddings=4096)
    sessions = [open_session(target, [3, 4, 5], rows=(1, 9)) for _ in range(3)]
    references = [weakref.ref(session.store) for session in sessions]
    del sessions
    longer_session = open_session(target, [3] * COLUMN_STEP, rows=(1, 9))
    gc.collect()
    assert target.graphs is not None and target.graphs.num_stores == 1
    assert longer_session.store.capacity == 2 * COLUMN_STEP and not any(reference() for reference in references)
    del longer_session
    assert open_session(target, [3, 4, 5], rows=(1, 9)).store.capacity == 2 * COLUMN_STEP, "the larger store is reused"
    assert target.graphs.num_stores == 1


def test_a_race_on_graphs_prints_the_tokens_of_an_eager_race() -> None:
    target, capturer = graphed_target("llama")
    eager = tiny_target("llama")
    lanes = tuple(native_methods())
    # Half of the lanes race at each temperature.
    for number, temperature in enumerate((0.0, 0.8)):
        spec = RaceSpec(lanes[number::2], max_new_tokens=12, temperature=temperature, seed=5)
        prompt = random_prompt(random.Random(number))
        steps = generate(eager, "vanilla", prompt, max_new_tokens=12, temperature=temperature, seed=5)
        eager_text = tuple(token for step in steps for token in step.emitted)
        texts: dict[str, list[int]] = {name: [] for name in ("vanilla", *spec.lanes)}
        for event in race(target, prompt, spec):
            if isinstance(event, Step):
                texts[event.lane] += event.emitted
        assert set(map(tuple, texts.values())) == {eager_text}
    assert capturer.replayed > 50


def test_no_graph_is_captured_once_the_race_has_started() -> None:
    target, capturer = graphed_target("llama")
    events = race(target, (3, 4, 5, 3, 4, 5), RaceSpec(("trie", "lookahead"), max_new_tokens=60))
    next(events)
    captured = capturer.captured
    list(events)
    assert capturer.captured == captured


def test_a_write_goes_to_the_set_slots() -> None:
    store = KVStore(1, 8)
    block = torch.arange(3.0)[None, None, :, None].expand(1, 2, 3, 4)
    store.set_slots(torch.tensor([5, 1, 2]), 6)
    keys, values = store.write(0, block, block + 10)
    # Row 0 goes to column 5, row 1 to column 1, and row 2 to column 2.
    assert keys.shape == values.shape == (1, 2, 6, 4)
    assert keys[0, 0, :, 0].tolist() == [0, 1, 2, 0, 0, 0] and values[0, 1, 5, 3] == 10
    store.set_slots(None)
    # Without slots, a write of two rows to the empty store ends at column 2.
    assert store.end_of(2) == 2


def test_a_model_whose_capture_fails_or_differs_stays_eager() -> None:
    class RefusingCapturer(FakeCapturer):
        def capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
            raise RuntimeError("operation not permitted when stream is capturing")

    class WrongCapturer(FakeCapturer):
        def capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
            replay = super().capture(work)
            return lambda: -replay()

    for capturer in (RefusingCapturer(), WrongCapturer()):
        target = tiny_target("llama")
        capture_graphs(target, capturer)
        assert target.graphs is None and target.describe()["graphs"] is False
        assert target.forward_kind.startswith("eager (no graphs: ")
        # The target still scores both nodes of a tree.
        assert len(target.session(target.prefill([3, 4]), 9).score(TokenTree.chain(4, [5])).targets) == 2
