"""The store of a model with layers that keep a state: linear attention, state spaces, recurrences and convolutions.

Such a layer has no column for each token, but one state for all of them, so a rejected token cannot simply be
overwritten. The store therefore notes each layer's state before every row of a draft; `keep` returns to the state after
the last accepted row. Nothing has to be computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, LinearAttentionLayer

from specrace.model.forward.kv import ColumnLayer, KVStore

# Kinds of layers in a config's `layer_types`: with a state only, and with a state beside keys and values.
STATE_ONLY = frozenset({"linear_attention", "conv"})
STATE_AND_KEYS = frozenset({"hybrid", "hybrid_sliding"})
# Kinds without a cache.
WITHOUT_CACHE = frozenset({"mlp", "moe"})

# (number of a layer with states, number of one of its states)
StateKey = tuple[int, int]


def keeps_state(config: Any) -> bool:
    """Whether a text model's config has layers that keep a state."""
    return bool(set(getattr(config, "layer_types", None) or ()) & (STATE_ONLY | STATE_AND_KEYS))


@dataclass(frozen=True)
class State:
    """One state of a layer: the last inputs of its convolution, and its recurrent state; None for a part not set yet.

    `is_started` is what transformers calls `has_previous_state`.
    """

    conv: Tensor | None
    recurrent: Tensor | None
    is_started: bool


class StateLayer(LinearAttentionLayer):
    """A layer's states, as transformers' models read and write them, which can be noted and returned to.

    Unlike its base class, it keeps the new tensor of a recurrent state, instead of copying it into the old tensor. So
    an old state stays valid unless the model's own code writes into it (`ChainForward` finds out which models do).
    """

    def update_recurrent_state(self, recurrent_states: Tensor, state_idx: int = 0, **kwargs: object) -> Tensor:
        """Replace a recurrent state; the first one decides the dtype, as in the base class."""
        old = self.recurrent_states[state_idx]
        new = recurrent_states if old is None else recurrent_states.to(old.dtype)
        self.recurrent_states[state_idx] = new
        self.is_recurrent_states_initialized[state_idx] = True
        return new

    def note(self, number: int, *, copy: bool) -> State:
        """State `number`; with `copy`, its recurrent part is copied. The small convolutional part always is."""
        return State(
            _copied(self.conv_states[number]),
            _copied(self.recurrent_states[number]) if copy else self.recurrent_states[number],
            self.has_previous_state[number],
        )

    def return_to(self, number: int, state: State, *, copy: bool) -> None:
        """Set state number `number` to `state`; `copy` as in `note`."""
        self.conv_states[number] = _copied(state.conv)
        self.recurrent_states[number] = _copied(state.recurrent) if copy else state.recurrent
        self.is_conv_states_initialized[number] = state.conv is not None
        self.is_recurrent_states_initialized[number] = state.recurrent is not None
        self.has_previous_state[number] = state.is_started
        if state.conv is not None:
            self.conv_kernel_size[number] = state.conv.shape[-1]


def _copied(part: Tensor | None) -> Tensor | None:
    return None if part is None else part.clone()


class StateAndColumnLayer(StateLayer, ColumnLayer):
    """A layer with states, and with keys and values in the store's columns."""

    is_compileable = False

    def __init__(self, store: KVStore, number: int, number_of_states: int) -> None:
        ColumnLayer.__init__(self, store, number)
        LinearAttentionLayer.__init__(self, number_of_states=number_of_states)

    def lazy_initialization(self, *args: Tensor, **kwargs: Any) -> None:
        """Start a state; keys and values, which come as two positional arguments, need nothing."""
        if not args:
            StateLayer.lazy_initialization(self, **kwargs)

    def get_max_length(self) -> int:
        """The capacity of the store."""
        return ColumnLayer.get_max_length(self)


class StateStore(KVStore):
    """A store whose columns belong to the attending layers, with the states of all others.

    `kinds`: the kind of each layer. `num_states`: the number of states of each layer that has any. With `copies`, a
    state that is noted is copied, because the model's code writes into states.
    """

    def __init__(self, kinds: Sequence[str], capacity: int, num_states: int = 1, *, copies: bool = True) -> None:
        self.kinds, self.num_states, self.copies = tuple(kinds), num_states, copies
        # Only layers that attend have columns.
        super().__init__(sum(kind not in STATE_ONLY | WITHOUT_CACHE for kind in kinds), capacity)
        # The states before each row that was scored since the last commit; empty if none was.
        self._noted: dict[StateKey, list[State]] = {}
        # Committed length -> the states there, for `rewind`; filled by `mark` only.
        self._marks: dict[int, dict[StateKey, State]] = {}

    def make_cache(self) -> Cache:
        """A cache with one layer for each of `kinds`; the attending layers are numbered without gaps."""
        layers: list[CacheLayerMixin | LinearAttentionLayer] = []
        number = 0
        for kind in self.kinds:
            if kind in STATE_ONLY:
                layers.append(StateLayer(self.num_states))
            elif kind in STATE_AND_KEYS:
                layers.append(StateAndColumnLayer(self, number, self.num_states))
            else:
                layers.append(ColumnLayer(self, number))
            number += kind not in STATE_ONLY | WITHOUT_CACHE
        return Cache(layers=layers)

    def layer(self, key: StateKey) -> StateLayer:
        """The layer that keeps this state."""
        layer = self.cache.layers[key[0]]
        assert isinstance(layer, StateLayer)
        return layer

    @property
    def state_keys(self) -> list[StateKey]:
        """All states of all layers."""
        layers = enumerate(self.cache.layers)
        return [
            (index, number)
            for index, layer in layers
            if isinstance(layer, StateLayer)
            for number in range(self.num_states)
        ]

    def note(self, state_keys: Sequence[StateKey]) -> None:
        """Note what these states are now; called before each row that is scored."""
        for key in state_keys:
            state = self.layer(key).note(key[1], copy=self.copies)
            self._noted.setdefault(key, []).append(state)

    def return_to_committed(self) -> None:
        """Undo what was scored since the last commit."""
        self._return_to({key: states[0] for key, states in self._noted.items()})
        self._noted = {}

    def _return_to(self, states: dict[StateKey, State]) -> None:
        for key, state in states.items():
            self.layer(key).return_to(key[1], state, copy=self.copies)

    def committed(self) -> dict[StateKey, State]:
        """The states after the committed tokens."""
        return {
            key: self._noted[key][0] if key in self._noted else self.layer(key).note(key[1], copy=self.copies)
            for key in self.state_keys
        }

    def keep(self, path: Sequence[int]) -> None:
        """Commit the accepted rows of the chain scored last. Raises ValueError for a path with a gap."""
        if path[-1] != len(path) - 1:
            raise ValueError("only the beginning of a chain can be kept")
        self.commit(len(path))

    def commit(self, count: int) -> None:
        """Commit the first `count` of the rows that were scored, or read, after the committed ones."""
        # The state after the last scored row is the layer's current one, so it was not noted.
        self._return_to({key: states[count] for key, states in self._noted.items() if count < len(states)})
        self._noted = {}
        super().commit(count)

    def mark(self) -> None:
        """Remember the committed states, so that `rewind` can return to this length."""
        self._marks[self.length] = self.committed()

    def rewind(self, count: int) -> None:
        """Keep only the first `count` committed tokens; no later call may keep fewer, so shorter marks are dropped.

        Raises ValueError unless this length was marked.
        """
        self.return_to_committed()
        if count < self.length:
            if count not in self._marks:
                raise ValueError(f"the states after {count} tokens were not marked")
            self._return_to(self._marks[count])
        self._marks = {length: states for length, states in self._marks.items() if length == count}
        super().rewind(count)

    def empty(self, capacity: int) -> StateStore:
        """An empty store for the same model."""
        return StateStore(self.kinds, capacity, self.num_states, copies=self.copies)

    def restore(self, source: KVStore) -> None:
        """Replace the content by what `source` has committed, marks included."""
        assert isinstance(source, StateStore)
        super().restore(source)
        self._noted = {}
        self._marks = dict(source._marks)
        for key, state in source.committed().items():
            self.layer(key).return_to(key[1], state, copy=True)
