"""A model's forward over a tree: eager, or replayed as TorchScript.

On a CPU a small model's forward spends about as long in transformers' Python as in arithmetic. A trace runs the same
operations without Python, like a CUDA graph on a GPU, but for any shape.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from specrace.model.forward.kv import KVStore
from specrace.model.forward.packed import pack_linears
from specrace.model.forward.tree_inputs import TreeTensors

# How many rows the trace for several rows is recorded with.
_ROWS = 3


def run_tree(model: Any, store: KVStore, tree: TreeTensors, end: int) -> Tensor:
    """Logits [N, V] of a tree that sees the first `end` columns of `store`; uses tensor operations only."""
    slots = tree.slots()
    store.set_slots(slots, end)
    try:
        output = model(
            input_ids=tree.ids,
            position_ids=tree.positions(),
            attention_mask=tree.mask(end, slots),
            past_key_values=store.cache,
            use_cache=True,
        )
    finally:
        store.set_slots(None)
    logits: Tensor = output.logits[0]
    return logits


class TracedForward:
    """`run_tree` as two TorchScript functions, for one row and for several: attention chooses its kernel by the number.

    `store` gives the shape of the cache and is written to. With `packed`, linear layers use reordered copies of their
    weights (`PackedLinear`). Raises whatever the model raises if it cannot be traced, and ValueError if its operations
    depend on the tokens.
    """

    reader = None
    version = ""
    own_threads = False
    keeps_float32 = False

    def __init__(self, model: nn.Module, store: KVStore, dtype: torch.dtype, *, packed: bool = False) -> None:
        self.name = "TorchScript, packed weights" if packed else "TorchScript"
        self._dtype = dtype
        traced = copy_modules(model)
        self._layers = pack_linears(traced) if packed else []
        self._weights = [layer.weight for layer in self._layers]
        self._one_row = self._record(traced, store, range(1))
        self._several_rows = self._record(traced, store, range(_ROWS))
        # A model that branches on values is detected by tracing it with other tokens.
        other = self._record(traced, store, range(_ROWS, 2 * _ROWS))
        if str(other.graph) != str(self._several_rows.graph):
            raise ValueError("the model's operations depend on its tokens")

    def __call__(self, tree: TreeTensors, data: Tensor) -> Tensor:
        """Logits [N, V] of a tree; `data` [L, 2, 1, H, end, D] is the cache up to the tree's last column."""
        step = self._one_row if tree.ids.shape[1] == 1 else self._several_rows
        logits: Tensor = step(tree.base, tree.ids, tree.depths, tree.masked, data, *self._weights)
        return logits

    def _record(self, model: nn.Module, store: KVStore, tokens: Sequence[int]) -> Any:
        """Trace the model over a chain of `tokens` after the store's; returns a function of the tree's tensors."""

        def step(base: Tensor, ids: Tensor, depths: Tensor, masked: Tensor, data: Tensor, *weights: Tensor) -> Tensor:
            # Packed weights are opaque and cannot be constants of a trace, so they become arguments.
            for layer, weight in zip(self._layers, weights, strict=True):
                layer.weight = weight
            tree = TreeTensors(base, ids, depths, masked, self._dtype)
            return run_tree(model, KVStore.over(data), tree, data.shape[4])

        assert store.data is not None, "a store that was written to"
        rows = len(tokens)
        base, ids, depths = torch.tensor([store.length]), torch.tensor([list(tokens)]), torch.arange(rows)[None]
        masked = torch.ones(rows, rows, dtype=torch.int64).triu(1)
        data = store.data[..., : store.length + rows, :]
        with warnings.catch_warnings():
            # Tracing warns about every value that becomes a Python number. For shapes that is harmless; any other such
            # value makes the check against the eager forward fail.
            warnings.simplefilter("ignore")
            # `torch.jit.trace` would keep the weights in a compilation unit until the process exits.
            inputs = (base, ids, depths, masked, data, *self._weights)
            graph, _ = torch._C._create_graph_by_tracing(step, inputs, lambda _: "", True, False)
            return torch._C._create_function_from_graph("step", graph)


def copy_modules(model: nn.Module) -> nn.Module:
    """A copy of a model's modules that shares its weights, so that layers of the copy can be replaced."""
    shared: dict[int, Any] = {id(buffer): buffer for buffer in model.buffers()}
    # A trace must not contain tensors that require gradients.
    for parameter in model.parameters():
        shared[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
    return copy.deepcopy(model, shared)
