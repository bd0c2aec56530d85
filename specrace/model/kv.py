"""The KV cache that we own: one storage for all layers of a lane, so that keeping a path is one gather.

The model writes through transformers' own `Cache` interface and reads back views of the used part. A prompt is
appended; a tree is written to the columns in a tensor, so that a captured forward can write elsewhere. With a model on
several devices there is one storage for each run of layers on one device.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class KVStore:
    """Keys and values of one lane: `blocks` of layers, each [l, 2, 1, H, T, D]; the first `length` of T are committed.

    The storage is made at the first write, in the shape of its keys, which every layer must share. `devices` are the
    layers' in order; empty: that of the first write.
    """

    def __init__(self, num_layers: int, capacity: int, devices: Sequence[torch.device] = ()) -> None:
        self.num_layers = num_layers
        self.capacity = capacity
        self.devices = tuple(devices)
        self.length = 0
        self._blocks: list[Tensor] = []
        self._layers: list[tuple[Tensor, Tensor]] = []
        self._slots: Tensor | None = None
        self._placed_slots: dict[torch.device, Tensor] = {}
        self._end = 0
        self.cache = Cache(layers=[_Layer(self, number) for number in range(num_layers)])

    @classmethod
    def over(cls, data: Tensor) -> KVStore:
        """A store on given storage, [L, 2, 1, H, T, D], for writes to set slots."""
        store = cls(data.shape[0], data.shape[4])
        store.blocks = [data]
        return store

    @property
    def blocks(self) -> list[Tensor]:
        """The storage, one for each run of layers on one device; empty before the first write."""
        return self._blocks

    @blocks.setter
    def blocks(self, blocks: list[Tensor]) -> None:
        self._blocks = blocks
        self._layers = [(layer[0], layer[1]) for block in blocks for layer in block]

    @property
    def data(self) -> Tensor | None:
        """The storage of all layers, [L, 2, 1, H, T, D]; None before the first write, and where it is not one."""
        return self._blocks[0] if len(self._blocks) == 1 else None

    def set_slots(self, slots: Tensor | None, end: int = 0) -> None:
        """Let the next writes go to the columns `slots` [N] and read back the first `end`; None: append."""
        self._slots, self._end = slots, end
        # Once a forward for each device, not once a layer.
        self._placed_slots = {} if slots is None else {device: slots.to(device) for device in set(self.devices)}

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write [1, H, N, D] to the set slots, else after the committed part; returns all up to there, [1, H, end, D].

        Raises ValueError where shapes or devices of layers differ from the storage's, and where the cache is full.
        """
        if not self._blocks:
            self._make(keys)
        own_keys, own_values = self._layers[layer]
        shape = keys.shape
        if values.shape != shape or shape[1::2] != own_keys.shape[1::2] or keys.device != own_keys.device:
            raise ValueError("the model's layers do not keep keys and values of one shape, each on its own device")
        if self._slots is not None:
            slots = self._placed_slots.get(keys.device, self._slots)
            own_keys.index_copy_(2, slots, keys)
            own_values.index_copy_(2, slots, values)
            return own_keys[:, :, : self._end], own_values[:, :, : self._end]
        end = self.length + shape[2]
        self.check_room(shape[2])
        own_keys[:, :, self.length : end] = keys
        own_values[:, :, self.length : end] = values
        return own_keys[:, :, :end], own_values[:, :, :end]

    def _make(self, keys: Tensor) -> None:
        """The storage for keys and values like the first, [1, H, N, D]."""
        shape = (2, 1, keys.shape[1], self.capacity, keys.shape[3])
        devices = self.devices or (keys.device,) * self.num_layers
        self.blocks = [
            torch.zeros((len(list(run)), *shape), dtype=keys.dtype, device=device) for device, run in groupby(devices)
        ]

    def check_room(self, count: int) -> None:
        """Raises ValueError unless `count` tokens more fit."""
        if self.length + count > self.capacity:
            raise ValueError(f"the cache holds {self.capacity} tokens, {self.length + count} are needed")

    def end_of(self, count: int) -> int:
        """How many columns a write of `count` tokens reads back."""
        return self.length + count if self._slots is None else self._end

    def commit(self, count: int) -> None:
        """The first `count` tokens written since the last call stay where they are."""
        self.length += count

    def rewind(self, count: int) -> None:
        """Keep only the first `count` committed tokens."""
        self.length = min(self.length, count)

    def keep(self, path: Sequence[int]) -> None:
        """Of the tokens written last, keep those at `path` (increasing, starting at 0), in that order."""
        if path[-1] != len(path) - 1:
            self.move(path)
        self.length += len(path)

    @torch.inference_mode()
    def move(self, path: Sequence[int]) -> None:
        """Move the KV at `path` to right after the committed tokens: one gather for each block."""
        for block in self._blocks:
            index = torch.tensor(path[1:], device=block.device) + self.length
            block[..., self.length + 1 : self.length + len(path), :] = block.index_select(4, index)

    def clone(self, capacity: int) -> KVStore:
        """A copy of the committed part with room for `capacity` tokens. Raises ValueError if that is too little."""
        if capacity < self.length:
            raise ValueError(f"{self.length} tokens do not fit into {capacity}")
        copy = self.empty(capacity)
        copy.restore(self)
        return copy

    def empty(self, capacity: int) -> KVStore:
        """Another store for the same model, with nothing in it."""
        return KVStore(self.num_layers, capacity, self.devices)

    def restore(self, source: KVStore) -> None:
        """Hold what `source` has committed, and nothing else; the storage keeps its address."""
        self.length = source.length
        if source.blocks and not self._blocks:
            self._make(source.blocks[0][0, 0])
        for own, other in zip(self._blocks, source.blocks, strict=False):
            own[..., : self.length, :] = other[..., : self.length, :]


@dataclass(frozen=True)
class Prefix:
    """A prompt's KV without its last token, computed once (`ms`) and cloned into every lane."""

    store: KVStore
    ms: float


class _Layer(CacheLayerMixin):
    """One layer's view of the store. Unlike a DynamicLayer it never concatenates and is never cropped."""

    def __init__(self, store: KVStore, number: int) -> None:
        super().__init__()
        # Weakly, or a store and its cache would wait for the garbage collector, with all their memory.
        self.store: KVStore = weakref.proxy(store)
        self.number = number
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing: the store makes its storage at the first write."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Called by the model's attention with [1, H, N, D]."""
        return self.store.write(self.number, key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(length of keys, offset)."""
        return self.store.end_of(int(query_length)), 0

    def get_seq_length(self, *args: object) -> int:
        """Committed tokens."""
        return self.store.length

    def get_max_length(self) -> int:
        """Capacity of the store."""
        return self.store.capacity

    def get_max_cache_shape(self) -> int:
        """The same under the name that transformers before 5.20 uses."""
        return self.store.capacity
