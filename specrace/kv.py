"""The KV cache that we own: one storage for all layers of a lane, so that keeping a path is one gather.

The model writes through transformers' own `Cache` interface; what it reads back are views of the used part.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class KVStore:
    """Keys and values of one lane: `data` is [L, 2, 1, H, T, D], of which the first `length` of T are settled.

    The storage is made at the first write, when the model's shapes are known; every layer must have the same.
    """

    def __init__(self, num_layers: int, capacity: int) -> None:
        self.num_layers = num_layers
        self.capacity = capacity
        self.length = 0
        self.data: Tensor | None = None
        self.cache = Cache(layers=[_Layer(self, number) for number in range(num_layers)])

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Put [1, H, N, D] behind the settled part; returns the settled part and these, [1, H, length + N, D].

        Raises ValueError where the model is not of one shape throughout, or the cache is full.
        """
        if self.data is None:
            shape = (self.num_layers, 2, 1, keys.shape[1], self.capacity, keys.shape[3])
            self.data = torch.zeros(shape, dtype=keys.dtype, device=keys.device)
        end = self.length + keys.shape[2]
        if end > self.capacity:
            raise ValueError(f"the cache holds {self.capacity} tokens, {end} are needed")
        storage = self.data[layer]
        if values.shape != keys.shape or keys.shape[1::2] != storage.shape[2::2] or keys.device != storage.device:
            raise ValueError("the model's layers do not keep keys and values of one shape on one device")
        storage[0, :, :, self.length : end] = keys
        storage[1, :, :, self.length : end] = values
        return storage[0, :, :, :end], storage[1, :, :, :end]

    def settle(self, count: int) -> None:
        """The first `count` tokens written since the last call stay where they are."""
        self.length += count

    def rewind(self, count: int) -> None:
        """Of the settled tokens only the first `count` stay; what comes next is written over the others."""
        self.length = min(self.length, count)

    def keep(self, path: Sequence[int]) -> None:
        """Of the tokens written last, keep those at `path` (increasing, starting at 0), in that order."""
        if path[-1] != len(path) - 1 and self.data is not None:
            index = torch.tensor(path[1:], device=self.data.device) + self.length
            self.data[..., self.length + 1 : self.length + len(path), :] = self.data.index_select(4, index)
        self.length += len(path)

    def clone(self, capacity: int) -> KVStore:
        """A copy of the settled part with room for `capacity` tokens. Raises ValueError if that is too little."""
        if capacity < self.length:
            raise ValueError(f"{self.length} tokens do not fit into {capacity}")
        copy = KVStore(self.num_layers, capacity)
        copy.length = self.length
        if self.data is not None:
            shape = (*self.data.shape[:4], capacity, self.data.shape[5])
            copy.data = torch.zeros(shape, dtype=self.data.dtype, device=self.data.device)
            copy.data[..., : self.length, :] = self.data[..., : self.length, :]
        return copy


class _Layer(CacheLayerMixin):
    """One layer's window on the store. Unlike a DynamicLayer it never concatenates and is never cropped."""

    def __init__(self, store: KVStore, number: int) -> None:
        super().__init__()
        self.store, self.number = store, number
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
        return self.store.length + int(query_length), 0

    def get_seq_length(self, *args: object) -> int:
        """Settled tokens."""
        return self.store.length

    def get_max_length(self) -> int:
        """Capacity of the store."""
        return self.store.capacity

    def get_max_cache_shape(self) -> int:
        """The same under the name that transformers before 5.20 uses."""
        return self.store.capacity
