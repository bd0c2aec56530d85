"""How a captured forward reads prompts: by itself, or by the model's own modules."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from specrace.model.forward.kv import KVStore
from specrace.model.forward.tapped import Levels, features_of


class Reader(Protocol):
    """Reads prompts, for a captured forward that scores trees."""

    def read(self, ids: Tensor, store: KVStore, levels: Levels = ()) -> Tensor | None:
        """Write the keys and values of a prompt, int64 [1, N], to an empty store; nothing is committed.

        For an empty prompt it only allocates the storage, to which the first step writes. Returns the prompt's features
        [N, levels * d], or None without `levels`.
        """


class ModelReader:
    """Reads prompts by a model's own modules; all layers must have `heads` heads of keys and of values, `size` wide."""

    def __init__(self, model: Any, heads: int, size: int) -> None:
        self._model, self._heads, self._size = model, heads, size

    def read(self, ids: Tensor, store: KVStore, levels: Levels = ()) -> Tensor | None:
        """See `Reader.read`."""
        count = ids.shape[1]
        if not count:
            shape = (store.num_layers, 2, 1, self._heads, store.capacity, self._size)
            store.blocks = [torch.zeros(shape, dtype=self._model.dtype)]
            width = len(levels) * self._model.config.hidden_size
            return torch.zeros(0, width, dtype=self._model.dtype) if levels else None
        states = {"output_hidden_states": True} if levels else {}
        output = self._model(
            input_ids=ids,
            position_ids=torch.arange(count)[None],
            past_key_values=store.cache,
            use_cache=True,
            logits_to_keep=1,
            **states,
        )
        return features_of(output, levels, ids.device) if levels else None
