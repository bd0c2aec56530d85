"""Captured forwards, captured by a double that runs the function again: buckets, padding, reuse."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from specrace.core.cost_curve import assumed_curve, row_counts
from specrace.core.events import Finished
from specrace.core.tree import TokenTree
from specrace.drafters import METHODS, DrafterInputs, native_methods
from specrace.drafters.draft_model import DraftModelDrafter
from specrace.engine.pace import PaceKeeper
from specrace.engine.race import race
from specrace.engine.setup import make_drafter_inputs, make_lane
from specrace.engine.spec import RaceSpec, plan_lane
from specrace.lab.bench import Bench, BenchPrompt, LaneRun
from specrace.model.draft_model import DraftModel
from specrace.model.graphs import COLUMN_STEP, SPARE_ROWS, CudaCapturer
from specrace.model.kv import KVStore
from specrace.model.replays import capture_graphs
from specrace.model.scorer import GraphedSession
from specrace.model.target import Target
from specrace.model.tree_inputs import TreeInputs
from specrace.ngrams.sources import Sources
from specrace.ngrams.suffix_index import SuffixIndex
from tests.models import ARCHITECTURES, tiny_model, tiny_target
from tests.parts import VOCAB, random_prompt, random_tree


class Double:
    """Records nothing: a replay runs the Python function on the same buffers, as a graph would run its kernels."""

    def __init__(self) -> None:
        self.captured = 0
        self.replayed = 0

    def capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.captured += 1
        output = work().clone()

        def replay() -> Tensor:
            self.replayed += 1
            return output.copy_(work())

        return replay


def graphed(name: str, **changes: object) -> tuple[Target, Double]:
    """A small target whose sessions replay."""
    target, double = tiny_target(name, **changes), Double()
    capture_graphs(target, double)
    assert target.graphs is not None and target.describe()["graphs"]
    return target, double


def session_of(
    target: Target, prompt: list[int], room: int = 200, rows: tuple[int, ...] = row_counts(65)
) -> GraphedSession:
    session = target.session(target.prefill(prompt), room, rows=rows)
    assert isinstance(session, GraphedSession)
    return session


class OnGpu(Target):
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

    def forward(self, store: KVStore, inputs: TreeInputs, end: int) -> Tensor:
        self.forwards.append((inputs.rows, self._eager))
        return super().forward(store, inputs, end)


def on_gpu(name: str, seed: int = 0) -> tuple[OnGpu, Double]:
    model = tiny_model(name, seed=seed, eos_token_id=None, max_position_embeddings=2048)
    target, double = OnGpu(model), Double()
    capture_graphs(target, double)
    assert target.graphs is not None
    return target, double


@pytest.mark.parametrize("max_rows", [1, 2, 5, 8, 9, 10, 17, 33, 65, 81, 120, 1025])
def test_row_counts_are_one_above_the_powers_of_two_and_the_maximum(max_rows: int) -> None:
    """A full draft of 8, 16 or 32 tokens needs no padding, nor does any lane's largest tree."""
    counts = row_counts(max_rows)
    assert counts[0] == 1 and counts[-1] == max_rows and list(counts) == sorted(set(counts))
    assert set(counts) - {1, max_rows} == {count for count in (9, 17, 33, 65, 129, 257, 513) if count < max_rows}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", native_methods())
def test_every_lane_replays_at_every_step_with_a_gpus_defaults(name: str, temperature: float) -> None:
    """The draft model's own forwards too; no graph has more rows than the next bucket, a full tree none too many."""
    (target, _), (small, _) = on_gpu("llama"), on_gpu("gpt2", seed=1)
    target.drafting = DraftModel(small, VOCAB)
    prompt, chance = (2, 3, 4, 5, 6) * 8, random.Random(1)
    index = SuffixIndex([[*prompt, *(chance.randrange(2, VOCAB) for _ in range(200))] for _ in range(9)])
    spec = RaceSpec((name,), max_new_tokens=70, temperature=temperature, seed=3)
    inputs = make_drafter_inputs(target, prompt, spec, assumed_curve("cuda"), Sources(corpus_index=index))
    lane, max_size = make_lane(target, name, target.prefill(prompt), inputs, spec), 0
    buckets = row_counts(plan_lane(spec, name, "cuda").num_draft + 1)
    small.forwards.clear()
    while not lane.end:
        target.forwards.clear()
        size = len(lane.step().tree)
        expected = min(rows for rows in buckets if rows >= size)
        assert target.forwards == [(expected, False)] and expected < max(2 * size, 10)
        max_size = max(max_size, size)
    if not temperature and name in (largest := {"lookahead": 120, "recycling": 81, "draft-model": 9, "jacobi": 17}):
        # Some of lookahead's guesses share their nodes.
        assert buckets[-1] == largest[name] and max_size > (buckets[-2] if name == "lookahead" else buckets[-1] - 1)
    assert {eager for _, eager in small.forwards} <= {False} and {rows for rows, _ in small.forwards} <= {1, 2}
    assert (len(small.forwards) > 30) == (name == "draft-model")


def test_no_graph_is_captured_on_a_lanes_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft model's session is opened while its drafter is built, which is on the lane's clock."""
    (target, double), (small, small_double) = on_gpu("llama"), on_gpu("gpt2", seed=1)
    target.drafting = DraftModel(small, VOCAB)
    captures: list[tuple[int, int]] = []

    class Watched(DraftModelDrafter):
        def __init__(self, inputs: DrafterInputs, *, sampled: bool = False) -> None:
            before = small_double.captured
            super().__init__(inputs, sampled=sampled)
            captures.append((before, small_double.captured))

    monkeypatch.setitem(METHODS, "draft-model", replace(METHODS["draft-model"], build=Watched))
    spec = RaceSpec(tuple(native_methods()), max_new_tokens=40)
    events = race(target, (3, 4, 5) * 9, spec)
    next(events)
    before, after = captures[-1]
    captured = double.captured
    assert 0 < before == after
    list(events)
    assert (double.captured, small_double.captured) == (captured, after)
    bench = Bench(target, replace(spec, lanes=("vanilla", "trie", "draft-model")), repetitions=1)
    prompts = [BenchPrompt(str(size), (3, 4, 5) * size, max_new_tokens=10) for size in (9, 165)]
    run_lane, warm = bench._run_lane, list[bool]()

    def watched(name: str, prompt: BenchPrompt) -> LaneRun:
        before, were_warm = double.captured, bench._warm
        lane_run = run_lane(name, prompt)
        # The first prompt's lanes are run once before they are measured.
        assert not were_warm or double.captured == before
        warm.append(were_warm)
        return lane_run

    monkeypatch.setattr(bench, "_run_lane", watched)
    for _ in bench.run(prompts):
        assert captures[-1][0] == captures[-1][1]
    assert warm.count(True) == 6
    assert small_double.captured > after and sum(after > before for before, after in captures) == 2


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_replayed_trees_are_scored_as_eager_ones(name: str) -> None:
    """Random trees of any size, kept paths, step after step: the same logits but for rounding, the same tokens."""
    target, double = graphed(name)
    chance = random.Random(name)
    text = list(random_prompt(chance))
    session, store = session_of(target, text), target.prefill(text).store.clone(300)
    before = (double.captured, double.replayed)
    for step in range(12):
        tree = random_tree(chance, text[-1], (0, 1, 6, 7, 8, 15, 20, 40)[step % 8])
        replayed, eager = session.logits(tree), target.logits(store, tree)
        assert replayed.shape == eager.shape == (len(tree), target.vocab_size)
        torch.testing.assert_close(replayed, eager, rtol=1e-4, atol=1e-3)
        assert torch.equal(replayed.argmax(-1), eager.argmax(-1))
        path = tree.path_to(chance.randrange(len(tree)))
        session.keep(path)
        store.keep(path)
        text += [tree.tokens[node] for node in path[1:]] + [chance.randrange(32)]
    assert (double.captured, double.replayed) == (before[0], before[1] + 12)


def test_what_stands_in_padding_and_behind_it_changes_nothing() -> None:
    """Rows that the tree does not fill and columns that it does not reach may hold anything."""
    target, _ = graphed("llama")
    prompt = [3, 4, 5, 6]
    tree = TokenTree((6, 7, 8), (-1, 0, 0))
    expected = session_of(target, prompt).logits(tree).clone()
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


def test_a_tree_takes_the_next_bucket_and_a_larger_one_runs_eagerly() -> None:
    target, double = graphed("llama")
    session = session_of(target, [3, 4, 5])
    for size in (1, 2, 8, 9, 16, 17, 33, 34, 65):
        before = double.replayed
        session.score(TokenTree.chain(5, [7] * (size - 1)))
        assert double.replayed == before + 1
    assert {rows for rows, _ in session._pooled.buckets} == {1, 9, 17, 33, 65}
    before = double.replayed
    assert len(session.score(TokenTree.chain(5, [7] * 65)).targets) == 66
    assert double.replayed == before


def test_a_store_records_what_is_asked_for_and_keeps_what_it_has() -> None:
    target, double = graphed("llama")
    first = session_of(target, [3, 4, 5], rows=(1, 5))
    captured = double.captured
    assert {(1, COLUMN_STEP), (5, COLUMN_STEP)} <= set(first._pooled.buckets)
    del first
    second = session_of(target, [3, 4, 5], rows=(1, 81))
    assert target.graphs is not None and target.graphs.num_stores == 1
    assert double.captured == captured + 1 and {(5, COLUMN_STEP), (81, COLUMN_STEP)} <= set(second._pooled.buckets)
    # It has a graph of 5 rows, but not for this session: what a step runs must not depend on earlier sessions.
    before = double.replayed
    inputs = target.graphs.inputs(81)
    inputs.fill(TokenTree.chain(9), 0)
    second.score(TokenTree.chain(5, [6, 7]))
    assert double.replayed == before + 1 and inputs.tensors.ids[0, :3].tolist() == [5, 6, 7]


def test_a_store_keeps_the_graphs_of_the_latest_sessions_up_to_a_number_of_rows() -> None:
    target, double = graphed("llama")
    assert target.graphs is not None
    max_rows = 130
    for rows in range(2, max_rows):
        session = session_of(target, [3, 4, 5], rows=(1, rows))
        del session
    gc.collect()
    (store,) = target.graphs._free
    kept_rows = [rows for rows, _ in store.buckets]
    assert 1 in kept_rows and max_rows - 1 in kept_rows and sum(kept_rows) <= SPARE_ROWS + max_rows
    assert set(target.graphs._inputs) == set(kept_rows)
    before = double.captured
    session = session_of(target, [3, 4, 5], rows=(1, max_rows - 2))
    assert double.captured == before
    del session
    session_of(target, [3, 4, 5], rows=(1, 40))
    assert double.captured == before + 1


def test_a_store_whose_capture_fails_is_no_longer_counted() -> None:
    target, double = graphed("llama")
    capture = double.capture

    def fail(_: Callable[[], Tensor]) -> Callable[[], Tensor]:
        raise torch.OutOfMemoryError("out of memory")

    double.capture = fail  # type: ignore[method-assign]
    with pytest.raises(torch.OutOfMemoryError):
        session_of(target, [3, 4, 5], rows=(1, 50))
    double.capture = capture  # type: ignore[method-assign]
    assert target.graphs is not None and target.graphs.num_stores == 0
    session = session_of(target, [3, 4, 5], rows=(1, 50))
    assert target.graphs.num_stores == 1 and session.score(TokenTree.chain(5)).targets


def test_a_capture_waits_for_its_own_device_s_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's current device may be another one: what is queued for this one must be done before it is read."""
    calls: list[Any] = []

    class Stream:
        def __init__(self, device: object = None) -> None:
            calls.append(device)

        def wait_stream(self, stream: object) -> None:
            calls.append(stream)

    current = Stream()
    calls.clear()
    for name, stand_in in {
        "Stream": Stream,
        "stream": lambda _: nullcontext(),
        "device": lambda device: calls.append(device) or nullcontext(),
        "graph": lambda *_, **__: nullcontext(),
        "CUDAGraph": object,
        "graph_pool_handle": lambda: None,
        "current_stream": lambda device=None: calls.append(device) or current,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    device = torch.device("cuda:1")
    capturer = CudaCapturer(device)
    capturer.capture(lambda: torch.zeros(1))
    assert [call for call in calls if not isinstance(call, Stream)] == [device] * 3
    assert [call for call in calls if isinstance(call, Stream)] == [current, capturer._stream]


def test_the_probe_of_the_pace_captures_one_row_only() -> None:
    target, double = graphed("llama")
    captured, prefix = double.captured, target.prefill([3] * (COLUMN_STEP + 4))
    PaceKeeper.on(target, prefix, 4)
    assert double.captured == captured + 1


def test_of_the_stores_that_are_free_the_one_with_most_of_the_graphs_is_reused() -> None:
    target, double = graphed("llama", max_position_embeddings=4096)
    row_sets = ((1, 33), (1, 81), (1, 121))
    sessions = [session_of(target, [3, 4, 5], rows=rows) for rows in row_sets]
    captured, stores = double.captured, [session.store for session in sessions]
    del sessions
    for number in (1, 0, 2, 1):
        assert session_of(target, [6, 7], rows=row_sets[number]).store is stores[number]
    longer = session_of(target, [3] * (COLUMN_STEP - 50), room=200, rows=(1, 33))
    assert longer.store not in stores and double.captured == captured + 4


def test_buckets_cover_what_a_session_may_reach_and_no_more() -> None:
    target, _ = graphed("llama", max_position_embeddings=4096)
    rows = (1, 9, 17, 33)
    session = session_of(target, [3] * (COLUMN_STEP - 100), room=200, rows=rows)
    columns = {
        count: sorted(end for bucket_rows, end in session._pooled.buckets if bucket_rows == count) for count in rows
    }
    assert columns == {count: [COLUMN_STEP, 2 * COLUMN_STEP] for count in rows}
    store = session.store
    while store.length < COLUMN_STEP + 50:
        assert session._pooled.logits(TokenTree.chain(3, [4] * 7)) is not None
        session.keep(tuple(range(8)))


def test_stores_and_their_graphs_are_pooled() -> None:
    target, double = graphed("llama")
    first = session_of(target, [3, 4, 5])
    data, captured = first.store.data, double.captured
    assert data is not None and captured > 0
    address = data.data_ptr()
    first.score(TokenTree.chain(5, [6, 7]))
    first.keep((0, 1, 2))
    del first
    gc.collect()
    # The check at load had borrowed it too: a store is captured only once.
    assert target.graphs is not None and target.graphs.num_stores == 1
    second = session_of(target, [8, 9, 10, 11])
    assert second.store.data is not None and second.store.data.data_ptr() == address
    assert second.store.length == 3 and double.captured == captured
    tree = TokenTree.chain(11, [12, 13])
    plain = target.logits(target.prefill([8, 9, 10, 11]).store.clone(20), tree)
    torch.testing.assert_close(second.logits(tree), plain, rtol=1e-4, atol=1e-3)
    third = session_of(target, [8, 9, 10, 11])
    assert target.graphs.num_stores == 2
    assert third.store is not second.store and double.captured == 2 * captured


def test_stores_that_are_too_small_are_dropped_with_their_graphs() -> None:
    target, _ = graphed("llama", max_position_embeddings=4096)
    sessions = [session_of(target, [3, 4, 5], rows=(1, 9)) for _ in range(3)]
    small = [weakref.ref(session.store) for session in sessions]
    del sessions
    longer = session_of(target, [3] * COLUMN_STEP, rows=(1, 9))
    gc.collect()
    assert target.graphs is not None and target.graphs.num_stores == 1
    assert longer.store.capacity == 2 * COLUMN_STEP and not any(reference() for reference in small)
    del longer
    assert session_of(target, [3, 4, 5], rows=(1, 9)).store.capacity == 2 * COLUMN_STEP, "a larger one stays"
    assert target.graphs.num_stores == 1


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_race_on_graphs_prints_what_an_eager_one_prints(temperature: float) -> None:
    spec = RaceSpec(tuple(native_methods()), max_new_tokens=24, temperature=temperature, seed=5)
    target, double = graphed("llama")
    eager = tiny_target("llama")
    for number in range(2):
        prompt = random_prompt(random.Random(number))
        outcomes = []
        for model in (target, eager):
            steps: dict[str, list[int]] = {name: [] for name in native_methods()}
            for event in race(model, prompt, spec):
                if isinstance(event, Finished):
                    assert all(lane.identical for lane in event.lanes)
                elif hasattr(event, "emitted"):
                    steps[event.lane] += event.emitted
            outcomes.append(steps)
        assert outcomes[0] == outcomes[1]
    assert double.replayed > 100


def test_no_graph_is_captured_once_the_race_has_started() -> None:
    target, double = graphed("llama")
    events = race(target, (3, 4, 5, 3, 4, 5), RaceSpec(("trie", "lookahead"), max_new_tokens=60))
    next(events)
    captured = double.captured
    list(events)
    assert double.captured == captured


def test_a_write_may_be_aimed() -> None:
    store = KVStore(1, 8)
    block = torch.arange(3.0)[None, None, :, None].expand(1, 2, 3, 4)
    store.set_slots(torch.tensor([5, 1, 2]), 6)
    keys, values = store.write(0, block, block + 10)
    assert keys.shape == values.shape == (1, 2, 6, 4)
    assert keys[0, 0, :, 0].tolist() == [0, 1, 2, 0, 0, 0] and values[0, 1, 5, 3] == 10
    store.set_slots(None)
    assert store.end_of(2) == 2


def test_a_model_that_cannot_be_recorded_stays_eager() -> None:
    class Refusing(Double):
        def capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
            raise RuntimeError("operation not permitted when stream is capturing")

    class Wrong(Double):
        def capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
            replay = super().capture(work)
            return lambda: -replay()

    for double in (Refusing(), Wrong()):
        target = tiny_target("llama")
        capture_graphs(target, double)
        assert target.graphs is None and target.describe()["graphs"] is False
        assert target.forward_kind.startswith("eager (no graphs: ")
        assert len(target.session(target.prefill([3, 4]), 9).score(TokenTree.chain(4, [5])).targets) == 2
