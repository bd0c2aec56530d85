"""One forward of a model over a tree: eagerly, or replayed as TorchScript.

On a CPU a small model's forward spends about as long in the library's Python as in arithmetic. A trace runs the same
operations without Python, as a CUDA graph does on a GPU, but for any shape.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from specrace.model.kv import KVStore
from specrace.model.packed import pack_linears
from specrace.model.tree_inputs import TreeTensors

# The rows with which the trace for several rows is made.
_ROWS = 3


def run_tree(model: Any, store: KVStore, tree: TreeTensors, end: int) -> Tensor:
    """The model over a tree that sees the first `end` columns of `store`: [N, V]. Tensor operations only."""
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
    """`run_tree` as two TorchScript functions, for one row and for more, because models choose kernels by that.

    `store` gives the shape of the cache and is written to. With `packed` linear layers run on reordered copies of their
    weights. Raises whatever the model raises where it cannot be traced, and ValueError where its operations depend on
    the tokens.
    """

    reader, own_threads = None, False

    def __init__(self, model: nn.Module, store: KVStore, dtype: torch.dtype, *, packed: bool = False) -> None:
        self.name = "TorchScript, packed weights" if packed else "TorchScript"
        self._dtype = dtype
        own = twin(model)
        self._layers = pack_linears(own) if packed else []
        self._weights = [layer.weight for layer in self._layers]
        self._one, self._more = self._record(own, store, range(1)), self._record(own, store, range(_ROWS))
        # A model that branches on values gives another trace for other tokens.
        other = self._record(own, store, range(_ROWS, 2 * _ROWS))
        if str(other.graph) != str(self._more.graph):
            raise ValueError("what the model does depends on its tokens")

    def __call__(self, tree: TreeTensors, data: Tensor) -> Tensor:
        """[N, V] from a tree and the cache columns up to its own, [L, 2, 1, H, end, D]."""
        step = self._one if tree.ids.shape[1] == 1 else self._more
        logits: Tensor = step(tree.base, tree.ids, tree.depths, tree.masked, data, *self._weights)
        return logits

    def _record(self, model: nn.Module, store: KVStore, tokens: Sequence[int]) -> Any:
        """The model over a chain of `tokens` after the store's, as a function of its tensors."""

        def step(base: Tensor, ids: Tensor, depths: Tensor, masked: Tensor, data: Tensor, *weights: Tensor) -> Tensor:
            # Packed weights are opaque and cannot be constants of a trace, so they are arguments.
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
            # It warns of every value that becomes a Python number: right for shapes; others fail the check of replays.
            warnings.simplefilter("ignore")
            # `torch.jit.trace` would keep the weights until exit, in the compilation unit of the process.
            inputs = (base, ids, depths, masked, data, *self._weights)
            graph, _ = torch._C._create_graph_by_tracing(step, inputs, lambda _: "", True, False)
            return torch._C._create_function_from_graph("step", graph)


def twin(model: nn.Module) -> nn.Module:
    """A copy of a model's modules on the same weights, so that its layers can be replaced."""
    shared: dict[int, Any] = {id(each): each for each in model.buffers()}
    # A trace may hold no tensors that require gradients.
    shared |= {id(each): nn.Parameter(each.detach(), requires_grad=False) for each in model.parameters()}
    return copy.deepcopy(model, shared)
