"""A trace of a model's own modules over a tree, as TorchScript; `scripted` has the alternative."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from specrace.model.forward.kv import KVStore
from specrace.model.forward.masked import MaskedForward, Masks
from specrace.model.forward.products import PackedProduct
from specrace.model.forward.reach import Reach
from specrace.model.forward.tapped import Levels, TappedForward, features_of
from specrace.model.forward.tree_inputs import TreeTensors, call_on_tree

# The trace for several rows is recorded with this many; it then runs for any number above 1.
_ROWS = 3


class TracedForward:
    """`run_tree` as two TorchScript functions, for one row and for several rows, which use different attention kernels.

    `store` gives the shape of the cache and is written to. With `packed`, linear layers use reordered copies of their
    weights. Raises whatever the model raises if it cannot be traced, and ValueError if its operations depend on the
    tokens.
    """

    reader = None
    version = ""
    own_threads = False
    keeps_float32 = False

    def __init__(
        self,
        model: nn.Module,
        store: KVStore,
        dtype: torch.dtype,
        reaches: Mapping[str, Reach],
        name: str,
        *,
        packed: bool,
    ) -> None:
        self.name, self._dtype, self._reaches = name, dtype, reaches
        if store.data is None:
            raise ValueError("its layers' keys and values differ in shape")
        traced = self._model = copy_modules(model)
        self._layers = pack_linears(traced) if packed else []
        self._weights = [layer.weight for layer in self._layers]
        self._record = partial(self._trace, store)
        self._one_row = self._record(range(1))
        self._several_rows = self._record(range(_ROWS))
        # A model that branches on values is detected by tracing it with other tokens.
        other = self._record(range(_ROWS, 2 * _ROWS))
        if str(other.graph) != str(self._several_rows.graph):
            raise ValueError("the model's operations depend on its tokens")

    def __call__(self, tree: TreeTensors, data: Tensor) -> Tensor:
        """Logits [N, V] of a tree; `data` [L, 2, 1, H, end, D] is the cache up to the tree's last column."""
        step = self._one_row if tree.ids.shape[1] == 1 else self._several_rows
        logits: Tensor = step(tree.base, tree.ids, tree.depths, tree.masked, data, *self._weights)
        return logits

    def tapped(self, levels: Levels) -> TappedForward:
        """A forward like this one, with features at `levels` as its second output: two more traces."""
        traces: TappedForward = self._traces(levels)
        return traces

    def masked(self, masks: Masks) -> MaskedForward:
        """A forward like this one over trees with masks: two more traces."""
        with masks.beside(self._model):
            traces: MaskedForward = self._traces()
        return traces

    def _traces(self, levels: Levels = ()) -> Any:
        """The traces for one row and for several as one function of (tree, data)."""
        one_row, several_rows = self._record(range(1), levels), self._record(range(_ROWS), levels)

        def run(tree: TreeTensors, data: Tensor) -> Any:
            step = one_row if tree.ids.shape[1] == 1 else several_rows
            return step(tree.base, tree.ids, tree.depths, tree.masked, data, *self._weights)

        return run

    def _trace(self, store: KVStore, tokens: Sequence[int], levels: Levels = ()) -> Any:
        """Trace the model over a chain of `tokens` after the store's; returns a function of the tree's tensors.

        With `levels`, the function returns logits and features.
        """

        def step(base: Tensor, ids: Tensor, depths: Tensor, masked: Tensor, data: Tensor, *weights: Tensor) -> Any:
            # Packed weights are opaque and cannot be constants of a trace, so they become arguments.
            for layer, weight in zip(self._layers, weights, strict=True):
                layer.weight = weight
            tree = TreeTensors(base, ids, depths, masked, self._dtype)
            arguments = (self._model, KVStore.over(data), tree, data.shape[4], self._reaches)
            if not levels:
                return call_on_tree(*arguments).logits[0]
            output = call_on_tree(*arguments, output_hidden_states=True)
            return output.logits[0], features_of(output, levels, data.device)

        assert store.data is not None, "checked by the constructor"
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
            # Values get no names; the trace is strict; operations in place stay in place.
            graph, _ = torch._C._create_graph_by_tracing(step, inputs, lambda _: "", True, False)
            return torch._C._create_function_from_graph("step", graph)


def copy_modules(model: nn.Module) -> nn.Module:
    """A copy of a model's modules that shares its weights, so that layers of the copy can be replaced."""
    shared: dict[int, Any] = {id(buffer): buffer for buffer in model.buffers()}
    # A trace must not contain tensors that require gradients.
    for parameter in model.parameters():
        shared[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
    return copy.deepcopy(model, shared)


def pack_linears(model: nn.Module) -> list[PackedProduct]:
    """Replace every plain linear layer of `model`; returns the new ones. Raises RuntimeError like `PackedProduct`."""
    packed = []
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is nn.Linear:
                packed.append(PackedProduct(layer.weight, layer.bias))
                setattr(parent, name, packed[-1])
    return packed
