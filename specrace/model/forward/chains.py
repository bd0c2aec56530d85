"""Forwards over a chain of tokens, for models with layers that keep a state (`specrace.model.forward.states`).

A layer that attends computes all rows of a chain at once. A layer that keeps a state computes them one after another,
because its state must be known at every row. The layer's own code for several rows would not give these states: some
kinds take several rows only at the start of a text, and others pad the rows to a chunk of 64. Most weights are still
read only once: linear layers that read the rows, or compute the result, run for all rows together.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import Cache

from specrace.core.errors import InputError
from specrace.core.tree import TokenTree
from specrace.model.forward.kv import KVStore
from specrace.model.forward.states import StateKey, StateStore, keeps_state
from specrace.model.forward.tapped import Levels, features_of

# The names under which a model's forward takes its cache.
CACHE_NAMES = ("past_key_values", "cache_params")


# Why a model with layers that keep a state has no captured forward.
ROW_BY_ROW = "layers with a state, row by row"


def chain_forward(model: Any, config: Any, name: str, devices: Sequence[torch.device]) -> ChainForward | None:
    """The forward over chains, if the text model's `config` has layers that keep a state.

    Raises InputError for such a model on several `devices`.
    """
    if not keeps_state(config):
        return None
    if devices:
        raise InputError(
            f"{name} has layers that keep a state, and such a model races on one device only; "
            "choose one (--device cuda:0)."
        )
    return ChainForward(model, config, name)


@dataclass
class StateModule:
    """A module that reads and writes states, and the linear layer whose output it returns, if any.

    `state_keys`: which states, as (number of the layer, number of one of its states).
    """

    module: nn.Module
    state_keys: list[StateKey] = field(default_factory=list)
    last: nn.Linear | None = None


class ChainForward:
    """The forward of a model with layers that keep a state, over one chain at a time.

    `num_states`: the number of states of such a layer. The first call of `new_store` finds the modules that keep the
    states; it raises ValueError if the model keeps a state elsewhere than in its cache.
    """

    def __init__(self, model: Any, config: Any, name: str) -> None:
        self.model, self.config, self.name = model, config, name
        self.num_states = int(getattr(config, "number_of_conv_states", None) or 1)
        accepted = inspect.signature(model.forward).parameters
        self._cache_name = next((name for name in CACHE_NAMES if name in accepted), CACHE_NAMES[0])
        self._takes_positions = "position_ids" in accepted
        self._modules: list[StateModule] | None = None
        # Whether the model's code writes into a state instead of replacing it; assumed until it is known.
        self._writes_into_states = True

    def new_store(self, capacity: int) -> StateStore:
        """An empty store with room for `capacity` tokens."""
        if self._modules is None:
            self._modules = self._find_modules()
        return StateStore(self.config.layer_types, capacity, self.num_states, copies=self._writes_into_states)

    def read(self, store: KVStore, ids: Tensor, levels: Levels = (), **more: int) -> Tensor | None:
        """Run the model over `ids` [1, N] after `store`, without a commit; `more`: further arguments of the model.

        Returns the tokens' features [N, levels * d], or None without `levels`.
        """
        states = {"output_hidden_states": True} if levels else {}
        output = self._call(store.cache, ids, store.length, **more, **states)
        return features_of(output, levels, ids.device) if levels else None

    def run(self, store: KVStore, tree: TokenTree, levels: Levels = ()) -> tuple[Tensor, Tensor]:
        """Logits [N, V] of a chain after `store`, and features [N, levels * d]; none without `levels`.

        Raises ValueError for a tree with branches, and if the chain does not fit.
        """
        assert isinstance(store, StateStore)
        if not tree.is_chain:
            raise ValueError(f"{self.name} scores chains only")
        store.check_room(len(tree))
        store.return_to_committed()
        device = self.model.get_input_embeddings().weight.device
        ids = torch.tensor([tree.tokens], dtype=torch.int64, device=device)
        states = {"output_hidden_states": True} if levels else {}
        assert self._modules is not None
        with ExitStack() as stack:
            if len(tree) == 1:
                store.note(store.state_keys)
            else:
                for state_module in self._modules:
                    stack.enter_context(_row_by_row(state_module, store))
            output = self._call(store.cache, ids, store.length, **states)
        logits: Tensor = output.logits[0]
        return logits, features_of(output, levels, device) if levels else logits[:, :0]

    def _call(self, cache: Cache, ids: Tensor, first: int, **more: Any) -> Any:
        """The model's output for the tokens `ids` [1, N], the first of which has position `first`."""
        arguments: dict[str, Any] = {"input_ids": ids, self._cache_name: cache, "use_cache": True, **more}
        if self._takes_positions:
            arguments["position_ids"] = torch.arange(first, first + ids.shape[1], device=ids.device)[None]
        return self.model(**arguments)

    @torch.inference_mode()
    def decode(self, prompt: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """Logits [N, V] after each of `tokens`, read one by one after `prompt` with transformers' own cache.

        This is the reference that chains are checked against. A single forward would not do: in forwards over several
        rows, some kinds of layers clamp a value that they do not clamp in forwards over one.
        """
        device = self.model.get_input_embeddings().weight.device
        cache = DynamicCache(config=self.model.config)
        ids = torch.tensor([[*prompt, *tokens]], device=device)
        self._call(cache, ids[:, : len(prompt)], 0)
        numbers = range(len(prompt), ids.shape[1])
        return torch.cat([self._call(cache, ids[:, number : number + 1], number).logits[0] for number in numbers])

    @torch.inference_mode()
    def _find_modules(self) -> list[StateModule]:
        """The outermost modules that change states, found by reading a few tokens; also learns how they change them."""
        store = StateStore(self.config.layer_types, 8, self.num_states)
        device = self.model.get_input_embeddings().weight.device
        ids = torch.zeros((1, 3), dtype=torch.int64, device=device)
        watch = _Watch(self.model, store)
        with watch.watching():
            self.read(store, ids)
            store.commit(3)
            # The first read sets all states; only a later one shows whether it replaces them or writes into them.
            watch.replaced.clear()
            self.read(store, ids[:, :1])
        missing = [key for key in store.state_keys if store.layer(key).has_previous_state[key[1]] is False]
        if missing or not watch.parts:
            raise ValueError("it keeps its state outside of its cache")
        with_recurrent = {key for key in store.state_keys if store.layer(key).recurrent_states[key[1]] is not None}
        self._writes_into_states = not with_recurrent <= watch.replaced
        return watch.parts


class _Watch:
    """Watches a forward: which modules change which states (`parts`), and which recurrent states are `replaced`."""

    def __init__(self, model: nn.Module, store: StateStore) -> None:
        self._model, self._store = model, store
        # The modules whose forward has begun and not ended, the innermost last.
        self._running: list[nn.Module] = []
        self._changed: dict[nn.Module, list[StateKey]] = {}
        # Module -> the linear layer inside it whose output it returns unchanged.
        self._ends: dict[nn.Module, nn.Linear] = {}
        # The id of an output -> its linear layer, and the output, kept alive so that no other tensor gets its id.
        self._linear_outputs: dict[int, tuple[nn.Linear, Tensor]] = {}
        self.replaced: set[StateKey] = set()

    @property
    def parts(self) -> list[StateModule]:
        """The outermost modules that changed states."""
        inner = {child for module in self._changed for child in module.modules() if child is not module}
        outermost = [module for module in self._changed if module not in inner]
        return [
            StateModule(
                module,
                [key for child in module.modules() for key in self._changed.get(child, ())],
                self._ends.get(module),
            )
            for module in outermost
        ]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the model's forwards inside the `with` block."""
        hooks = []
        for module in self._model.modules():
            hooks.append(module.register_forward_pre_hook(self._begin))
            hooks.append(module.register_forward_hook(self._end))
        layers = {index: self._store.layer((index, number)) for index, number in self._store.state_keys}
        for index, layer in layers.items():
            layer.__dict__["update_conv_state"] = self._changing(index, layer.update_conv_state)
            layer.__dict__["update_recurrent_state"] = self._changing(index, layer.update_recurrent_state)
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            for layer in layers.values():
                del layer.__dict__["update_conv_state"], layer.__dict__["update_recurrent_state"]

    def _begin(self, module: nn.Module, *_: object) -> None:
        self._running.append(module)

    def _end(self, module: nn.Module, _: object, output: Any) -> None:
        self._running.pop()
        if isinstance(output, Tensor):
            linear, _kept = self._linear_outputs.get(id(output), (None, None))
            if linear is not None:
                self._ends[module] = linear
            if isinstance(module, nn.Linear):
                self._linear_outputs[id(output)] = module, output

    def _changing(self, index: int, update: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Wrap a cache layer's `update`, to record which module changes which state."""
        is_recurrent = "recurrent" in update.__name__

        def recorded(states: Tensor, state_idx: int = 0, **more: Any) -> Tensor:
            state_keys = self._changed.setdefault(self._running[-1], [])
            key = (index, state_idx)
            if key not in state_keys:
                state_keys.append(key)
            layer = self._store.layer(key)
            if is_recurrent and states is not layer.recurrent_states[state_idx]:
                self.replaced.add(key)
            return update(states, state_idx, **more)

        return recorded


@contextmanager
def _row_by_row(state_module: StateModule, store: StateStore) -> Iterator[None]:
    """Inside the `with` block, a module computes its rows one by one, and `store` notes the states before each row."""
    rows = _Rows(state_module, store)
    linears = [module for module in state_module.module.modules() if isinstance(module, nn.Linear)]
    with ExitStack() as stack:
        for linear in linears:
            stack.enter_context(replaced(linear, rows.project(linear)))
        stack.enter_context(replaced(state_module.module, rows))
        yield


@contextmanager
def replaced(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Give a module another forward inside the `with` block."""
    previous = module.__dict__.get("forward")
    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        if previous is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = previous


class _Rows:
    """A module's forward over several rows, one after another."""

    def __init__(self, state_module: StateModule, store: StateStore) -> None:
        self._state_module, self._store = state_module, store
        self._forward = state_module.module.forward
        self._last_forward = None if state_module.last is None else state_module.last.forward
        self._row = 0
        # The id of an argument for the current row -> (the argument, the tensor of all rows that it was cut from).
        self._wholes: dict[int, tuple[Tensor, Tensor]] = {}
        # (linear layer, id of its inputs for all rows) -> its outputs for all rows.
        self._projected: dict[tuple[nn.Linear, int], Tensor] = {}

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Compute all rows; their number is the second size of the first tensor among the arguments."""
        count = next(value.shape[1] for value in (*arguments, *named.values()) if isinstance(value, Tensor))
        outputs = []
        self._projected = {}
        for row in range(count):
            # The former arguments are freed, so their ids may return.
            self._row, self._wholes = row, {}
            self._store.note(self._state_module.state_keys)
            outputs.append(
                self._forward(
                    *(self._cut(value, count) for value in arguments),
                    **{name: self._cut(value, count) for name, value in named.items()},
                )
            )
        joined = _joined(outputs)
        return joined if self._last_forward is None else self._last_forward(joined)

    def _cut(self, value: Any, count: int) -> Any:
        """The current row of an argument that has `count` rows, [1, N, ...]; any other argument as it is."""
        if isinstance(value, tuple):
            return tuple(self._cut(part, count) for part in value)
        if not isinstance(value, Tensor) or value.ndim < 2 or value.shape[1] != count:
            return value
        row = value[:, self._row : self._row + 1]
        self._wholes[id(row)] = row, value
        return row

    def project(self, linear: nn.Linear) -> Callable[[Tensor], Tensor]:
        """A linear layer's new forward, which if possible computes all rows at once, and returns the current one."""
        forward = linear.forward

        def forward_of_row(row: Tensor) -> Tensor:
            if linear is self._state_module.last:
                return row  # computed for all rows at the end
            _, whole = self._wholes.get(id(row), (None, None))
            if whole is None:
                return forward(row)
            key = linear, id(whole)
            if key not in self._projected:
                self._projected[key] = forward(whole)
            return self._projected[key][:, self._row : self._row + 1]

        return forward_of_row


def _joined(outputs: Sequence[Any]) -> Any:
    """Outputs of single rows, tensors [1, 1, ...] or tuples of them, as one output for all rows."""
    first = outputs[0]
    if isinstance(first, tuple):
        return tuple(_joined(parts) for parts in zip(*outputs, strict=True))
    return torch.cat(list(outputs), dim=1) if isinstance(first, Tensor) else first
