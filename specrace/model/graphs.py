"""Forwards that are captured once and replayed: CUDA graphs, in buckets of rows and of cache columns.

Launching a small model's kernels takes the host longer than running them takes the GPU; a replay is one launch. Its
shapes and addresses are fixed: a tree is padded to the next row count, attention reads the cache up to a multiple of
`COLUMN_STEP`, and stores with their graphs are pooled: sessions use them one after another. A session names its row
counts; graphs that its store lacks are captured when it is opened: before a race's clocks start. The captured
function is the eager one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from specrace.core.tree import TokenTree
from specrace.model.kv import KVStore
from specrace.model.tree_inputs import TreeInputs

COLUMN_STEP = 512
_WARM_UP_RUNS = 2
# A graph holds the logits of its rows. Beside its session's graphs a store keeps those of the latest sessions, of so
# many rows in all.
SPARE_ROWS = 512

Forward = Callable[[KVStore, TreeInputs, int], Tensor]
# (rows, columns that attention reads)
Bucket = tuple[int, int]


class Capturer(Protocol):
    """Turns a function of fixed tensors, without arguments, into its replay."""

    def capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Run `work` and return its replay, which returns the output tensor."""


class CudaCapturer:
    """Captures CUDA graphs in one memory pool: replays never overlap, and each output is read at once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Warm up on a side stream, as capture requires, then capture. Raises RuntimeError where that fails."""
        # Of this device, which need not be torch's current one: what is queued there must be done before `work` reads.
        current = torch.cuda.current_stream(self._device)
        graph = torch.cuda.CUDAGraph()
        # A capture that fails leaves its own stream the current one; the outer context brings this one back.
        with torch.cuda.device(self._device), torch.cuda.stream(current):
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):
                for _ in range(_WARM_UP_RUNS):
                    work()
            current.wait_stream(self._stream)
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                output = work()

        def replay() -> Tensor:
            graph.replay()
            return output

        return replay


class GraphPool:
    """Stores with their graphs, reused by session after session."""

    def __init__(self, forward: Forward, capturer: Capturer, device: torch.device, dtype: torch.dtype) -> None:
        self.forward, self.capturer = forward, capturer
        self._device, self._dtype = device, dtype
        # They live as long as a graph that reads them.
        self._inputs: WeakValueDictionary[int, TreeInputs] = WeakValueDictionary()
        self._free: list[GraphedStore] = []
        self.num_stores = 0

    @torch.inference_mode()
    def acquire(self, prefix: KVStore, room: int, rows: Sequence[int]) -> GraphedStore:
        """A store that holds `prefix` and has room for `room` more tokens, with every graph they may need.

        Of the free stores the one that lacks the fewest graphs is taken, of equals the smallest, so that each comes
        to serve one lane and no graph is captured in all of them. Where all are too small they are dropped with their
        graphs: longer races would never use them again, and the device's memory would fill with them.
        """
        rows = sorted(set(rows))
        longest = prefix.length + room
        needed = longest + rows[-1]
        buckets = _buckets(rows, prefix.length, longest)
        fitting = [each for each in self._free if each.store.capacity >= needed]
        if fitting:
            pooled = min(fitting, key=lambda each: (len(each.missing(buckets)), each.store.capacity))
            self._free.remove(pooled)
        else:
            too_small, self._free = self._free, []
            pooled = GraphedStore(self, KVStore(prefix.num_layers, _round_up(needed)))
            self.num_stores += 1 - len(too_small)
        pooled.rows = rows
        try:
            pooled.store.restore(prefix)
            pooled.capture(buckets)
        except BaseException:
            self.num_stores -= 1
            raise
        return pooled

    def inputs(self, rows: int) -> TreeInputs:
        """The buffers of all stores' graphs with so many rows, filled right before a replay."""
        found = self._inputs.get(rows)
        if found is None:
            found = self._inputs[rows] = TreeInputs(rows, self._device, self._dtype)
        return found

    def reclaim(self, pooled: GraphedStore) -> None:
        """Take back the store of a session that is over."""
        self._free.append(pooled)


class GraphedStore:
    """A store and its captured forwards; `rows` are its session's row counts, in order."""

    def __init__(self, pool: GraphPool, store: KVStore) -> None:
        self.pool, self.store = pool, store
        self.rows: Sequence[int] = ()
        # Those of the latest sessions last.
        self._replays: dict[Bucket, tuple[TreeInputs, Callable[[], Tensor]]] = {}

    @property
    def buckets(self) -> Iterable[Bucket]:
        """The captured buckets."""
        return self._replays.keys()

    def missing(self, buckets: Iterable[Bucket]) -> list[Bucket]:
        """Those of `buckets` that are not captured."""
        return [each for each in buckets if each not in self._replays]

    def capture(self, buckets: Sequence[Bucket]) -> None:
        """Capture the missing ones of `buckets`, largest first: the others then share its memory for what lies between.

        Then drop the oldest others beyond SPARE_ROWS; not before, because a memory pool without a graph cannot be
        captured into again.
        """
        for rows, end in sorted(self.missing(buckets), reverse=True):
            inputs = self.pool.inputs(rows)
            inputs.fill(TokenTree.chain(0), self.store.length)
            self._replays[rows, end] = inputs, self.pool.capturer.capture(self._work(inputs, end))
        for bucket in buckets:
            self._replays[bucket] = self._replays.pop(bucket)
        spare, wanted = SPARE_ROWS, set(buckets)
        for rows, end in [each for each in reversed(self._replays) if each not in wanted]:
            spare -= rows
            if spare < 0:
                del self._replays[rows, end]

    def _work(self, inputs: TreeInputs, end: int) -> Callable[[], Tensor]:
        return lambda: self.pool.forward(self.store, inputs, end)

    @torch.inference_mode()
    def logits(self, tree: TokenTree) -> Tensor | None:
        """[N, V] by a replay, valid until the next one; None for a tree that fits no bucket of this session.

        Buckets of earlier sessions do not count: a step's time must not depend on them.
        """
        place = bisect_left(self.rows, len(tree))
        if place == len(self.rows):
            return None
        rows = self.rows[place]
        found = self._replays.get((rows, _round_up(self.store.length + rows)))
        if found is None:
            return None
        inputs, replay = found
        inputs.fill(tree, self.store.length)
        return replay()[: len(tree)]

    def release(self) -> None:
        """Return it to the pool."""
        self.pool.reclaim(self)


def _buckets(rows: Iterable[int], base: int, longest: int) -> list[Bucket]:
    """The buckets of trees of these rows after `base` to `longest` committed tokens."""
    return [
        (count, end)
        for count in rows
        for end in range(_round_up(base + count), _round_up(longest + count) + 1, COLUMN_STEP)
    ]


def _round_up(columns: int) -> int:
    return -(-columns // COLUMN_STEP) * COLUMN_STEP
