"""Forwards that are captured once and replayed: CUDA graphs, in buckets of rows and of cache columns.

The host takes longer to launch a small model's kernels than the GPU takes to run them; a replay is one launch. Its
shapes and addresses are fixed, so a tree is padded to the next row count, and attention reads the cache up to a
multiple of `COLUMN_STEP`. Stores and their graphs are pooled, and later sessions reuse them. A session names its row
counts. When it is opened, before a race's clocks start, the graphs that its store lacks are captured from the eager
forward.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from specrace.core.tree import TokenTree
from specrace.model.forward.kv import KVStore
from specrace.model.forward.masked import Masks
from specrace.model.forward.tapped import Levels
from specrace.model.forward.tree_inputs import TreeInputs

# Columns of the cache by which one graph's attention reads more than the next smaller one's. A larger step makes steps
# slower, a smaller one makes more graphs; the number is not tuned.
COLUMN_STEP = 512
# How often a forward runs before it is captured, because the first runs allocate memory and choose kernels (not tuned).
_WARM_UP_RUNS = 2
# A store keeps the graphs of its session and those of the latest earlier sessions, the latter up to this many rows in
# total, because a graph holds the logits of its rows: 512 rows of 150,000 float32 take 0.3 GB.
SPARE_ROWS = 512

Forward = Callable[[KVStore, TreeInputs, int], Tensor]
# The forward that returns logits and features at some levels, and the one over trees with masks.
LevelsForward = Callable[[KVStore, TreeInputs, int, Levels], tuple[Tensor, Tensor]]
MasksForward = Callable[[KVStore, TreeInputs, int, Masks], Tensor]
# What a forward does beyond plain logits: the levels that it taps, perhaps none, or the masks that it takes.
Extra = Levels | Masks
# (rows, columns that attention reads, extra)
Bucket = tuple[int, int, Extra]


class Capturer(Protocol):
    """Captures a function without arguments, whose tensors are fixed, as a replay."""

    def capture(self, work: Callable[[], Any]) -> Callable[[], Any]:
        """Run `work`; returns a function that replays it and returns its output, a tensor or several."""


class CudaCapturer:
    """Captures CUDA graphs in one memory pool: replays never overlap, and outputs are read before the next replay."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, work: Callable[[], Any]) -> Callable[[], Any]:
        """Warm up on a side stream, as capture requires, then capture. Raises RuntimeError if that fails."""
        # The device need not be torch's current one, and what is queued on it must be done before `work` reads.
        current = torch.cuda.current_stream(self._device)
        graph = torch.cuda.CUDAGraph()
        # A failed capture leaves the capture's stream as the current one; the outer context restores `current`.
        with torch.cuda.device(self._device), torch.cuda.stream(current):
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):
                for _ in range(_WARM_UP_RUNS):
                    work()
            current.wait_stream(self._stream)
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                output = work()

        def replay() -> Any:
            graph.replay()
            return output

        return replay


class GraphPool:
    """Stores (KV caches) and their graphs, which one session after another reuses."""

    def __init__(
        self,
        forward: Forward,
        capturer: Capturer,
        device: torch.device,
        dtype: torch.dtype,
        tapped: LevelsForward | None = None,
        masked: MasksForward | None = None,
    ) -> None:
        self.forward, self.tapped, self.masked, self.capturer = forward, tapped, masked, capturer
        self._device, self._dtype = device, dtype
        # Buffers live as long as a graph that reads them.
        self._inputs: WeakValueDictionary[int, TreeInputs] = WeakValueDictionary()
        self._free: list[GraphedStore] = []
        self.num_stores = 0

    @torch.inference_mode()
    def acquire(self, prefix: KVStore, room: int, rows: Sequence[int], extra: Extra = ()) -> GraphedStore:
        """A store that holds `prefix` and has room for `room` more tokens, with every graph that the session may need.

        With levels as its `extra`, its graphs also return features; with masks, they take trees with masks.

        Reuses the free store that lacks the fewest graphs; of several, the smallest. So in later races each store
        serves the same lane again, and no graph is captured once per store. If every free store is too small, all are
        dropped with their graphs: longer races would never use them again, and they would fill the device's memory.
        """
        rows = sorted(set(rows))
        longest = prefix.length + room
        needed = longest + rows[-1]
        buckets = _buckets(rows, prefix.length, longest, extra)
        fitting = [pooled for pooled in self._free if pooled.store.capacity >= needed]
        if fitting:
            pooled = min(fitting, key=lambda candidate: (len(candidate.missing(buckets)), candidate.store.capacity))
            self._free.remove(pooled)
        else:
            too_small, self._free = self._free, []
            pooled = GraphedStore(self, KVStore(prefix.num_layers, _round_up(needed)))
            self.num_stores += 1 - len(too_small)
        pooled.rows, pooled.extra = rows, extra
        try:
            pooled.store.restore(prefix)
            pooled.capture(buckets)
        except BaseException:
            self.num_stores -= 1
            raise
        return pooled

    def inputs(self, rows: int) -> TreeInputs:
        """The input buffers that all graphs of `rows` rows share; they are filled right before a replay."""
        inputs = self._inputs.get(rows)
        if inputs is None:
            inputs = self._inputs[rows] = TreeInputs(rows, self._device, self._dtype)
        return inputs

    def reclaim(self, pooled: GraphedStore) -> None:
        """Make the store of a finished session free."""
        self._free.append(pooled)


class GraphedStore:
    """A store and its captured forwards.

    `rows` are the row counts of its session, in ascending order; `extra` is that of its forwards.
    """

    def __init__(self, pool: GraphPool, store: KVStore) -> None:
        self.pool, self.store = pool, store
        self.rows: Sequence[int] = ()
        self.extra: Extra = ()
        # The captured graphs in order of use: those of the latest session come last.
        self._replays: dict[Bucket, tuple[TreeInputs, Callable[[], Any]]] = {}

    @property
    def buckets(self) -> Iterable[Bucket]:
        """The captured buckets."""
        return self._replays.keys()

    def missing(self, buckets: Iterable[Bucket]) -> list[Bucket]:
        """The buckets among `buckets` that are not captured yet."""
        return [bucket for bucket in buckets if bucket not in self._replays]

    def capture(self, buckets: Sequence[Bucket]) -> None:
        """Capture the `buckets` that are missing, the largest first, so that the others reuse its intermediate memory.

        Then drop the oldest other graphs beyond SPARE_ROWS. This comes last: a memory pool that has lost all its graphs
        cannot be captured into again.
        """
        for bucket in sorted(self.missing(buckets), key=lambda bucket: bucket[:2], reverse=True):
            inputs = self.pool.inputs(bucket[0])
            inputs.fill(TokenTree.chain(0), self.store.length)
            self._replays[bucket] = inputs, self.pool.capturer.capture(self._work(inputs, *bucket[1:]))
        for bucket in buckets:
            self._replays[bucket] = self._replays.pop(bucket)
        spare_rows, wanted = SPARE_ROWS, set(buckets)
        for bucket in [bucket for bucket in reversed(self._replays) if bucket not in wanted]:
            spare_rows -= bucket[0]
            if spare_rows < 0:
                del self._replays[bucket]

    def _work(self, inputs: TreeInputs, end: int, extra: Extra) -> Callable[[], Any]:
        pool, store = self.pool, self.store
        if isinstance(extra, Masks):
            masked = pool.masked
            assert masked is not None, "a pool whose sessions have masks is made with a forward that takes them"
            return lambda: masked(store, inputs, end, extra)
        if not extra:
            return lambda: pool.forward(store, inputs, end)
        tapped = pool.tapped
        assert tapped is not None, "a pool whose sessions tap levels is made with a tapped forward"
        return lambda: tapped(store, inputs, end, extra)

    def logits(self, tree: TokenTree) -> Tensor | None:
        """Logits [N, V] by a replay, valid until the next replay; None if the tree fits no bucket of this session."""
        replayed: Tensor | None = self._replay(tree)
        return None if replayed is None else replayed[: len(tree)]

    def tapped(self, tree: TokenTree) -> tuple[Tensor, Tensor] | None:
        """Like `logits`, for a session with levels: logits [N, V] and features [N, levels * d]."""
        replayed = self._replay(tree)
        return None if replayed is None else (replayed[0][: len(tree)], replayed[1][: len(tree)])

    @torch.inference_mode()
    def _replay(self, tree: TokenTree) -> Any:
        """The output of a replay, with padding rows; None if the tree fits no bucket of this session.

        Graphs of earlier sessions are not used: a step's time must not depend on what ran before.
        """
        index = bisect_left(self.rows, len(tree))
        if index == len(self.rows):
            return None
        rows = self.rows[index]
        captured = self._replays.get((rows, _round_up(self.store.length + rows), self.extra))
        if captured is None:
            return None
        inputs, replay = captured
        inputs.fill(tree, self.store.length)
        return replay()

    def release(self) -> None:
        """Return the store to the pool."""
        self.pool.reclaim(self)


def _buckets(rows: Iterable[int], base: int, longest: int, extra: Extra) -> list[Bucket]:
    """The buckets for trees with these row counts after `base` to `longest` committed tokens."""
    return [
        (count, end, extra)
        for count in rows
        for end in range(_round_up(base + count), _round_up(longest + count) + 1, COLUMN_STEP)
    ]


def _round_up(columns: int) -> int:
    """The next multiple of COLUMN_STEP."""
    return -(-columns // COLUMN_STEP) * COLUMN_STEP
