"""Our own KV cache: one storage for all layers of a lane, so that committing an accepted path is one gather.

The model writes through transformers' `Cache` interface and reads back views of the used part. A prompt is appended. A
tree is written to columns whose numbers are in a tensor, so that a captured forward can be replayed on other columns.
If a model is on several devices, there is one storage for each run of layers on one device.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from specrace.core.errors import InputError


class KVStore:
    """Keys and values of one lane: `blocks` of l layers, [l, 2, 1, H, T, D]; the first `length` columns are committed.

    H are the key-value heads, T the columns (one for each token), D the numbers in a head.

    The storage is allocated at the first write, in the shape of its keys: one block for each run of layers on one
    device. A layer whose keys or values have another shape gets two blocks of its own, [1, 1, 1, H, T, D]. `devices`
    are the devices of the layers in order; if empty, all layers are on the device of the first write.
    """

    def __init__(self, num_layers: int, capacity: int, devices: Sequence[torch.device] = ()) -> None:
        self.num_layers = num_layers
        self.capacity = capacity
        self.devices = tuple(devices)
        self.length = 0
        self._blocks: list[Tensor] = []
        # Where each layer's keys and values are, and views of them; None for a layer without storage.
        self._places: list[tuple[_Place, _Place] | None] = []
        self._layers: list[tuple[Tensor, Tensor] | None] = []
        # The columns of the next writes, here and copied to each device; None: after the committed ones (`set_slots`).
        self._slots: Tensor | None = None
        self._placed_slots: dict[torch.device, Tensor] = {}
        self._end = 0
        self.cache = self.make_cache()

    def make_cache(self) -> Cache:
        """The cache through which the model's layers write and read."""
        return Cache(layers=[ColumnLayer(self, number) for number in range(self.num_layers)])

    @classmethod
    def over(cls, data: Tensor) -> KVStore:
        """A store on the storage `data`, [L, 2, 1, H, T, D], to be written through `set_slots`."""
        store = cls(data.shape[0], data.shape[4])
        store.blocks = [data]
        return store

    @property
    def blocks(self) -> list[Tensor]:
        """The storage; empty before the first write."""
        return self._blocks

    @blocks.setter
    def blocks(self, blocks: list[Tensor]) -> None:
        """Use blocks that hold keys and values of all layers in order."""
        self._use(
            blocks,
            [
                (_Place(number, row, 0), _Place(number, row, 1))
                for number, block in enumerate(blocks)
                for row in range(len(block))
            ],
        )

    def _use(self, blocks: list[Tensor], places: list[tuple[_Place, _Place] | None]) -> None:
        self._blocks, self._places = blocks, places
        self._layers = [place and (place[0].view(blocks), place[1].view(blocks)) for place in places]

    @property
    def data(self) -> Tensor | None:
        """The storage of all layers, [L, 2, 1, H, T, D]; None before the first write or if there are several blocks."""
        return self._blocks[0] if len(self._blocks) == 1 else None

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's keys and values in all layers that have been written to."""
        parts = [part[:, :, 0] for stored in self._layers if stored is not None for part in stored]
        return sum(part.numel() * part.element_size() for part in parts)

    def set_slots(self, slots: Tensor | None, end: int = 0) -> None:
        """Let the next writes go to the columns `slots` [N] and read back the first `end` columns; None: append."""
        self._slots, self._end = slots, end
        # Copied to each device once per forward, not once per layer.
        self._placed_slots = {} if slots is None else {device: slots.to(device) for device in set(self.devices)}

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write keys and values, each [1, H, N, D], to the slots that are set, or after the committed part.

        Returns the keys and values up to and including them, [1, H, end, D]. Raises ValueError if the cache is full, if
        the layer wrote another shape before, or if the layer and its storage are on different devices.
        """
        if not self._layers:
            self._allocate(keys, values)
        stored = self._layers[layer]
        if stored is None or not _fits(stored[0], keys) or not _fits(stored[1], values):
            stored = self._allocate_layer(layer, keys, values)
        layer_keys, layer_values = stored
        if keys.device != layer_keys.device:
            raise ValueError("keys and values must be on the device of their layer")
        if self._slots is not None:
            slots = self._placed_slots.get(keys.device, self._slots)
            layer_keys.index_copy_(2, slots, keys)
            layer_values.index_copy_(2, slots, values)
            return layer_keys[:, :, : self._end], layer_values[:, :, : self._end]
        count = keys.shape[2]
        end = self.length + count
        self.check_room(count)
        layer_keys[:, :, self.length : end] = keys
        layer_values[:, :, self.length : end] = values
        return layer_keys[:, :, :end], layer_values[:, :, :end]

    def _allocate(self, keys: Tensor, values: Tensor) -> None:
        """Allocate the storage for keys and values of this shape, [1, H, N, D]; none yet if their shapes differ."""
        if keys.shape != values.shape:
            self._use([], [None] * self.num_layers)
            return
        shape = (2, 1, keys.shape[1], self.capacity, keys.shape[3])
        devices = self.devices or (keys.device,) * self.num_layers
        self.blocks = [
            torch.zeros((len(list(run)), *shape), dtype=keys.dtype, device=device) for device, run in groupby(devices)
        ]

    def _allocate_layer(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Give a layer blocks in the shapes of its own keys and values, [1, H, N, D]; returns its storage.

        Raises ValueError if anything is committed already, because the layer's other tokens would be lost.
        """
        if self.length:
            raise ValueError("a layer's keys and values must keep their shape")
        blocks, places = list(self._blocks), list(self._places)
        places[layer] = _Place(len(blocks), 0, 0), _Place(len(blocks) + 1, 0, 0)
        blocks += [
            torch.zeros((1, 1, 1, part.shape[1], self.capacity, part.shape[3]), dtype=part.dtype, device=part.device)
            for part in (keys, values)
        ]
        self._use(blocks, places)
        stored = self._layers[layer]
        assert stored is not None
        return stored

    def check_room(self, count: int) -> None:
        """Raises ValueError unless `count` more tokens fit."""
        if self.length + count > self.capacity:
            raise ValueError(f"the cache holds {self.capacity} tokens, {self.length + count} are needed")

    def end_of(self, count: int) -> int:
        """How many columns a write of `count` tokens reads back."""
        return self.length + count if self._slots is None else self._end

    def commit(self, count: int) -> None:
        """Commit the first `count` tokens that were written after the committed ones."""
        self.length += count

    def mark(self) -> None:
        """Make `rewind` able to return to this length. Columns need no mark; a `StateStore` notes its states here."""

    def rewind(self, count: int) -> None:
        """Keep only the first `count` committed tokens."""
        self.length = min(self.length, count)

    def keep(self, path: Sequence[int]) -> None:
        """Commit the accepted path of the tree written last; `path`: its nodes, in increasing order from the root 0."""
        if path[-1] != len(path) - 1:
            self.move(path)
        self.length += len(path)

    @torch.inference_mode()
    def move(self, path: Sequence[int]) -> None:
        """Move the keys and values of the nodes `path` directly after the committed tokens: one gather per block."""
        for block in self._blocks:
            # The root, the first node of every path, is in its place already.
            index = torch.tensor(path[1:], device=block.device) + self.length
            block[..., self.length + 1 : self.length + len(path), :] = block.index_select(4, index)

    def clone(self, capacity: int) -> KVStore:
        """A copy of the committed part with room for `capacity` tokens. Raises ValueError if the part does not fit."""
        if capacity < self.length:
            raise ValueError(f"{self.length} tokens do not fit into {capacity}")
        copy = self.empty(capacity)
        copy.restore(self)
        return copy

    def empty(self, capacity: int) -> KVStore:
        """An empty store for the same model."""
        return KVStore(self.num_layers, capacity, self.devices)

    def restore(self, source: KVStore) -> None:
        """Replace the content by what `source` has committed; the storage keeps its address."""
        self.length = source.length
        if source.blocks and not self._blocks:
            blocks = [block.new_zeros((*block.shape[:4], self.capacity, block.shape[5])) for block in source.blocks]
            self._use(blocks, source._places)
        for block, source_block in zip(self._blocks, source.blocks, strict=False):
            block[..., : self.length, :] = source_block[..., : self.length, :]


def _fits(storage: Tensor, tokens: Tensor) -> bool:
    """Whether the storage is for tokens of this shape: both are [1, H, N, D], and only N may differ."""
    return storage.shape[1::2] == tokens.shape[1::2]


@dataclass(frozen=True)
class _Place:
    """Where one layer's keys, or its values, are: `blocks[block][row, part]` of a store."""

    block: int
    row: int
    part: int

    def view(self, blocks: Sequence[Tensor]) -> Tensor:
        """The storage at this place, [1, H, T, D]."""
        return blocks[self.block][self.row, self.part]


@dataclass(frozen=True)
class Prefix:
    """The keys and values of a prompt without its last token, computed once, in `ms` ms, and cloned for every lane.

    `prompt`: its tokens, with the last one. `features` [P - 1, levels * d]: the hidden states of all but the last token
    at `levels`, if the prompt was read with levels.
    """

    store: KVStore
    ms: float
    prompt: tuple[int, ...] = ()
    levels: tuple[int, ...] = ()
    features: Tensor | None = None

    def features_at(self, levels: tuple[int, ...]) -> Tensor:
        """The features at `levels` only, [P - 1, levels * d]; the prompt may have been read with more levels.

        Raises InputError if it was read without one of `levels`.
        """
        if self.features is None or not set(levels) <= set(self.levels):
            raise InputError(
                "The prompt was read without the hidden states that the head needs; read it with its levels."
            )
        if self.levels == levels:
            return self.features
        parts = self.features.chunk(len(self.levels), dim=-1)
        return torch.cat([parts[self.levels.index(level)] for level in levels], dim=-1)


class ColumnLayer(CacheLayerMixin):
    """One layer's view of the store. Unlike a DynamicLayer, it never concatenates and is never cropped."""

    def __init__(self, store: KVStore, number: int) -> None:
        super().__init__()
        # A weak reference: otherwise a store and its cache would keep their memory until the garbage collector runs.
        self.store: KVStore = weakref.proxy(store)
        self.number = number
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: the store allocates its storage at the first write."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Write keys and values [1, H, N, D]; called by the model's attention."""
        return self.store.write(self.number, key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """The length of the keys, and their offset."""
        return self.store.end_of(int(query_length)), 0

    def get_seq_length(self, *args: object) -> int:
        """The number of committed tokens."""
        return self.store.length

    def get_max_length(self) -> int:
        """The capacity of the store."""
        return self.store.capacity

    def get_max_cache_shape(self) -> int:
        """The capacity of the store, under the name that transformers uses before 5.20."""
        return self.store.capacity
