"""A tree as the model's inputs: token ids, positions, cache columns and mask, in buffers that are made once.

Tensor operations compute them from one small block of integers, so a forward over them can be captured once (a CUDA
graph) and replayed after any prefix, for any tree that fits into the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specrace.core.tree import TokenTree
from specrace.model.forward.kv import KVStore
from specrace.model.forward.reach import ALL_LAYERS, EVERYTHING, Reach


@dataclass(frozen=True)
class TreeTensors:
    """A tree's integers on the device, int64, and the inputs computed from them.

    `base` [1]: the number of committed tokens; `ids` [1, N]; `depths` [1, N]; `masked` [N, N]: 1 where a row must not
    see a column's node; `dtype`: the model's dtype.
    """

    base: Tensor
    ids: Tensor
    depths: Tensor
    masked: Tensor
    dtype: torch.dtype

    def positions(self) -> Tensor:
        """The positions, base + depth, int64 [1, N]."""
        return self.depths + self.base

    def slots(self) -> Tensor:
        """The cache columns of the rows, int64 [N]: they follow the committed columns."""
        return torch.arange(self.ids.shape[1], device=self.ids.device) + self.base

    def mask(self, end: int, slots: Tensor, reach: Reach = EVERYTHING) -> Tensor:
        """The additive mask over the cache's first `end` columns, [1, 1, N, end], for layers with this reach.

        It has the model's dtype, because eager attention would add a bool mask to its scores as 0 and 1.
        """
        lowest = torch.finfo(self.dtype).min
        columns = torch.arange(end, device=slots.device)
        hidden, masked = columns >= self.base, self.masked
        if reach.is_limited:
            # A committed column's number is its position; a node's position is base + depth.
            rows = self.positions().view(-1, 1)
            hidden = hidden | reach.hides(rows, columns)
            masked = masked.bool() | reach.hides(rows, rows.view(1, -1))
        mask = torch.where(hidden, lowest, 0.0).to(self.dtype)
        mask = mask.expand(self.masked.shape[0], -1).contiguous()
        mask.index_copy_(1, slots, masked.to(self.dtype) * lowest)
        return mask[None, None]

    def masks(self, end: int, slots: Tensor, reaches: Mapping[str, Reach]) -> Tensor | dict[str, Tensor]:
        """What the model's forward takes: a mask for all layers, or one for each kind of layer (`layer_reaches`)."""
        if ALL_LAYERS in reaches:
            return self.mask(end, slots, reaches[ALL_LAYERS])
        return {kind: self.mask(end, slots, reach) for kind, reach in reaches.items()}


class TreeInputs:
    """Buffers for trees of up to N = `rows` nodes; padding rows have no effect, because no other row sees them.

    A padding row holds token 0 at the root's position and sees itself and the committed tokens. Its logits are dropped,
    and the next step overwrites its keys and values.
    """

    def __init__(self, rows: int, device: torch.device, dtype: torch.dtype) -> None:
        self.rows = rows
        pinned = device.type == "cuda"
        # One block: `base`, N ids, N depths, and the N x N of `masked`.
        packed = torch.zeros(1 + rows * (2 + rows), dtype=torch.int64, pin_memory=pinned)
        self._host = packed
        self._numbers: np.ndarray = packed.numpy()
        self._masked = self._numbers[1 + 2 * rows :].reshape(rows, rows)
        # On a CPU the model reads the host's block directly.
        self._device = packed if device.type == "cpu" else torch.zeros_like(packed, device=device)
        self.tensors = TreeTensors(
            base=self._device[:1],
            ids=self._device[1 : 1 + rows].view(1, rows),
            depths=self._device[1 + rows : 1 + 2 * rows].view(1, rows),
            masked=self._device[1 + 2 * rows :].view(rows, rows),
            dtype=dtype,
        )
        self.ids = self.tensors.ids
        # What is masked in a chain, and in a padding row.
        self._chain = ~np.tri(rows, dtype=bool)
        self._only_itself = ~np.eye(rows, dtype=bool)

    def fill(self, tree: TokenTree, base: int) -> None:
        """Fill in a tree of at most N nodes after `base` committed tokens, with one copy to the device."""
        size, rows, numbers = len(tree), self.rows, self._numbers
        numbers[0] = base
        numbers[1 : 1 + size] = tree.tokens
        numbers[1 + rows : 1 + rows + size] = tree.depths
        if size < rows:
            numbers[1 + size : 1 + rows] = 0
            numbers[1 + rows + size : 1 + 2 * rows] = 0
            self._masked[:] = self._only_itself
        if rows > 1:
            self._masked[:size, :size] = self._chain[:size, :size] if tree.is_chain else ~tree.ancestor_mask()
        if self._device is not self._host:
            self._device.copy_(self._host, non_blocking=True)


def run_tree(model: Any, store: KVStore, tree: TreeTensors, end: int, reaches: Mapping[str, Reach]) -> Tensor:
    """Logits [N, V] of a tree that sees the first `end` columns of `store`, as far as its layers' `reaches` go.

    Uses tensor operations only.
    """
    logits: Tensor = call_on_tree(model, store, tree, end, reaches).logits[0]
    return logits


def call_on_tree(
    model: Any, store: KVStore, tree: TreeTensors, end: int, reaches: Mapping[str, Reach], **outputs: bool
) -> Any:
    """The model's whole output for a tree; `outputs` are arguments that ask for more than logits."""
    slots = tree.slots()
    store.set_slots(slots, end)
    try:
        return model(
            input_ids=tree.ids,
            position_ids=tree.positions(),
            attention_mask=tree.masks(end, slots, reaches),
            past_key_values=store.cache,
            use_cache=True,
            **outputs,
        )
    finally:
        store.set_slots(None)
