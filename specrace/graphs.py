"""Forwards that are recorded once and replayed: CUDA graphs, in buckets of rows and of cache columns.

A forward of a small model costs a GPU less than the launches of its kernels cost the host; a replay is one launch. It
has fixed shapes and addresses: a tree is padded to the next number of rows, attention reads the cache up to the next
multiple of columns, and a store with its graphs is lent to one session after another, reset and never made anew.
Recording happens when a session begins, outside every clock. The function that is recorded is the eager one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import torch
from torch import Tensor

from specrace.inputs import TreeInputs
from specrace.kv import KVStore
from specrace.tree import TokenTree

ROWS = (1, 8, 16, 32, 64)
COLUMN_STEP = 512
_WARM_UP_RUNS = 2

Forward = Callable[[KVStore, TreeInputs, int], Tensor]


class Recorder(Protocol):
    """Turns a function without arguments, which works on fixed tensors, into one that does the same again."""

    def record(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Run `work` and return its replay, which returns the tensor that the last run wrote."""


class CudaRecorder:
    """Records CUDA graphs that share one memory pool: their replays never overlap, and each output is read at once."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Warm up on a side stream, as capture asks for, then capture. Raises RuntimeError for what cannot be."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(_WARM_UP_RUNS):
                work()
        torch.cuda.current_stream().wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            output = work()

        def replay() -> Tensor:
            graph.replay()
            return output

        return replay


class GraphPool:
    """Stores with their graphs, lent to sessions."""

    def __init__(self, forward: Forward, recorder: Recorder, device: torch.device, dtype: torch.dtype) -> None:
        self.forward, self.recorder = forward, recorder
        self._inputs = {rows: TreeInputs(rows, device, dtype) for rows in ROWS}
        self._free: list[GraphedStore] = []
        self.num_stores = 0

    @torch.inference_mode()
    def lend(self, prefix: KVStore, room: int) -> GraphedStore:
        """A store that holds `prefix` and has room for `room` tokens more, with every graph that they may need."""
        needed = prefix.length + room + ROWS[-1]
        fitting = [each for each in self._free if each.store.capacity >= needed]
        if fitting:
            lent = min(fitting, key=lambda each: each.store.capacity)
            self._free.remove(lent)
        else:
            lent = GraphedStore(self, KVStore(prefix.num_layers, _round_up(needed)), self._inputs)
            self.num_stores += 1
        lent.store.restore(prefix)
        lent.record(prefix.length + room)
        return lent

    def take_back(self, lent: GraphedStore) -> None:
        """The session is over; its store waits for the next."""
        self._free.append(lent)


class GraphedStore:
    """A store and the recorded forwards over it."""

    def __init__(self, pool: GraphPool, store: KVStore, inputs: dict[int, TreeInputs]) -> None:
        self.pool, self.store, self._inputs = pool, store, inputs
        self._replays: dict[tuple[int, int], Callable[[], Tensor]] = {}

    @property
    def buckets(self) -> Iterable[tuple[int, int]]:
        """(rows, columns) of what has been recorded."""
        return self._replays.keys()

    def record(self, longest: int) -> None:
        """Record every bucket that trees behind the settled tokens, up to `longest` columns, may fall into."""
        base = self.store.length
        for rows, inputs in reversed(self._inputs.items()):
            for end in range(_round_up(base + rows), _round_up(longest + rows) + 1, COLUMN_STEP):
                if (rows, end) not in self._replays and end <= self.store.capacity:
                    inputs.fill(TokenTree.chain(0), base)
                    self._replays[rows, end] = self.pool.recorder.record(self._work(inputs, end))

    def _work(self, inputs: TreeInputs, end: int) -> Callable[[], Tensor]:
        return lambda: self.pool.forward(self.store, inputs, end)

    @torch.inference_mode()
    def logits(self, tree: TokenTree) -> Tensor | None:
        """[N, V] by a replay, which hold until the next one; None for a tree that fits no recorded bucket."""
        rows = next((rows for rows in ROWS if rows >= len(tree)), 0)
        end = _round_up(self.store.length + rows)
        replay = self._replays.get((rows, end))
        if replay is None:
            return None
        self._inputs[rows].fill(tree, self.store.length)
        return replay()[: len(tree)]

    def give_back(self) -> None:
        """Let another session have it."""
        self.pool.take_back(self)


def _round_up(columns: int) -> int:
    return -(-columns // COLUMN_STEP) * COLUMN_STEP
