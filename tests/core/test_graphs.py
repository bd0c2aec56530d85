"""Recorded forwards, with the recording replaced by a double that runs the function again: buckets, padding, reuse."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from specrace.drafters import METHODS
from specrace.events import Finished
from specrace.graphs import COLUMN_STEP, ROWS
from specrace.inputs import TreeInputs
from specrace.kv import KVStore
from specrace.loading import record_graphs
from specrace.race import RaceSpec, race
from specrace.target import GraphedSession, Target
from specrace.tree import TokenTree
from tests.core.parts import ARCHITECTURES, random_prompt, random_tree, tiny_target


class Double:
    """Records nothing: a replay runs the Python function on the same buffers, as a graph would run its kernels."""

    def __init__(self) -> None:
        self.recorded = 0
        self.replayed = 0

    def record(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.recorded += 1
        output = work().clone()

        def replay() -> Tensor:
            self.replayed += 1
            return output.copy_(work())

        return replay


def graphed(name: str, **changes: object) -> tuple[Target, Double]:
    """A small target whose sessions replay."""
    target, double = tiny_target(name, **changes), Double()
    record_graphs(target, double)
    assert target.graphs is not None and target.describe()["graphs"]
    return target, double


def session_of(target: Target, prompt: list[int], room: int = 200) -> GraphedSession:
    session = target.session(target.prefill(prompt), room)
    assert isinstance(session, GraphedSession)
    return session


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_replayed_trees_are_scored_as_eager_ones(name: str) -> None:
    """Random trees of any size, kept paths, step after step: the same logits but for rounding, the same tokens."""
    target, double = graphed(name)
    chance = random.Random(name)
    text = list(random_prompt(chance))
    session, store = session_of(target, text), target.prefill(text).store.clone(300)
    before = (double.recorded, double.replayed)
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
    assert (double.recorded, double.replayed) == (before[0], before[1] + 12)


def test_what_stands_in_padding_and_behind_it_changes_nothing() -> None:
    """Rows that the tree does not fill, and columns that it does not reach, may hold anything."""
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
        found = target.forward(store, inputs, COLUMN_STEP)[:3]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


def test_a_tree_takes_the_next_bucket_and_a_larger_one_runs_eagerly() -> None:
    target, double = graphed("llama")
    session = session_of(target, [3, 4, 5])
    for size in (1, 2, 8, 9, 16, 17, 33, 64):
        before = double.replayed
        session.score(TokenTree.chain(5, [7] * (size - 1)))
        assert double.replayed == before + 1
        assert min(rows for rows in ROWS if rows >= size) in {rows for rows, _ in session._lent.buckets}
    before = double.replayed
    assert len(session.score(TokenTree.chain(5, [7] * 64)).targets) == 65
    assert double.replayed == before


def test_buckets_cover_what_a_session_may_reach_and_no_more() -> None:
    target, _ = graphed("llama", max_position_embeddings=4096)
    session = session_of(target, [3] * (COLUMN_STEP - 100), room=200)
    ends = {rows: sorted(end for each, end in session._lent.buckets if each == rows) for rows in ROWS}
    assert ends == {rows: [COLUMN_STEP, 2 * COLUMN_STEP] for rows in ROWS}
    store = session.store
    while store.length < COLUMN_STEP + 50:
        assert session._lent.logits(TokenTree.chain(3, [4] * 7)) is not None
        session.keep(tuple(range(8)))


def test_stores_and_their_graphs_are_lent_again_and_never_made_anew() -> None:
    target, double = graphed("llama")
    first = session_of(target, [3, 4, 5])
    data, recorded = first.store.data, double.recorded
    assert data is not None and recorded > 0
    address = data.data_ptr()
    first.score(TokenTree.chain(5, [6, 7]))
    first.keep((0, 1, 2))
    del first
    gc.collect()
    # The check at load had lent it, too: a store is ever recorded once.
    assert target.graphs is not None and target.graphs.num_stores == 1
    second = session_of(target, [8, 9, 10, 11])
    assert second.store.data is not None and second.store.data.data_ptr() == address
    assert second.store.length == 3 and double.recorded == recorded
    tree = TokenTree.chain(11, [12, 13])
    plain = target.logits(target.prefill([8, 9, 10, 11]).store.clone(20), tree)
    torch.testing.assert_close(second.logits(tree), plain, rtol=1e-4, atol=1e-3)
    third = session_of(target, [8, 9, 10, 11])
    assert target.graphs.num_stores == 2
    assert third.store is not second.store and double.recorded == 2 * recorded


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_race_on_graphs_prints_what_an_eager_one_prints(temperature: float) -> None:
    spec = RaceSpec(tuple(METHODS), max_new_tokens=24, temperature=temperature, seed=5)
    target, double = graphed("llama")
    eager = tiny_target("llama")
    for number in range(2):
        prompt = random_prompt(random.Random(number))
        outcomes = []
        for each in (target, eager):
            steps: dict[str, list[int]] = {name: [] for name in METHODS}
            for event in race(each, prompt, spec):
                if isinstance(event, Finished):
                    assert all(lane.identical for lane in event.lanes)
                elif hasattr(event, "emitted"):
                    steps[event.lane] += event.emitted
            outcomes.append(steps)
        assert outcomes[0] == outcomes[1]
    assert double.replayed > 100


def test_no_graph_is_recorded_once_the_race_has_started() -> None:
    target, double = graphed("llama")
    events = race(target, (3, 4, 5, 3, 4, 5), RaceSpec(("trie", "lookahead"), max_new_tokens=60))
    next(events)
    recorded = double.recorded
    list(events)
    assert double.recorded == recorded


def test_a_write_may_be_aimed() -> None:
    store = KVStore(1, 8)
    block = torch.arange(3.0)[None, None, :, None].expand(1, 2, 3, 4)
    store.aim(torch.tensor([5, 1, 2]), 6)
    keys, values = store.write(0, block, block + 10)
    assert keys.shape == values.shape == (1, 2, 6, 4)
    assert keys[0, 0, :, 0].tolist() == [0, 1, 2, 0, 0, 0] and values[0, 1, 5, 3] == 10
    store.aim(None)
    assert store.end_of(2) == 2


def test_a_model_that_cannot_be_recorded_stays_eager() -> None:
    class Refusing(Double):
        def record(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
            raise RuntimeError("operation not permitted when stream is capturing")

    class Wrong(Double):
        def record(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
            replay = super().record(work)
            return lambda: -replay()

    for double in (Refusing(), Wrong()):
        target = tiny_target("llama")
        record_graphs(target, double)
        assert target.graphs is None and target.describe()["graphs"] is False
        assert target.engine.startswith("eager (no graphs: ")
        assert len(target.session(target.prefill([3, 4]), 9).score(TokenTree.chain(4, [5])).targets) == 2
