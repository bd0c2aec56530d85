"""Masks: mask tokens below a tree's nodes stand for tokens not known yet, so that a model guesses several tokens ahead.

Mask number i of a model with V tokens has the id V + i. Its embedding is not in the vocabulary's table, and the output
layer has no row for it, so a mask can be an input but never an output. The embedding is learned, and enters the first
layer unchanged: the factor by which some models scale their tokens' embeddings is not applied to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from specrace.core.tree import TokenTree
from specrace.model.forward.chains import replaced
from specrace.model.forward.tree_inputs import TreeTensors

# A captured forward over trees with masks: (tree, data) -> logits [N, V].
MaskedForward = Callable[[TreeTensors, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Masks:
    """The embeddings [k, d] of k masks, on the device of the model's own; `first` is the id of the first mask."""

    embeddings: Tensor
    first: int

    def __len__(self) -> int:
        return len(self.embeddings)

    def embed(self, ids: Tensor, embed: Callable[[Tensor], Tensor]) -> Tensor:
        """Embeddings [..., d] of `ids`: a mask's own, and those of tokens from `embed`. Uses tensor operations only."""
        is_mask = ids >= self.first
        rows = embed(ids.masked_fill(is_mask, 0))
        masks = self.embeddings.to(rows.dtype)[(ids - self.first).clamp_min(0)]
        return torch.where(is_mask[..., None], masks, rows)

    @contextmanager
    def beside(self, model: Any) -> Iterator[None]:
        """Inside the `with` block, the model's own modules accept the masks' ids."""
        module = model.get_input_embeddings()
        forward = module.forward
        with replaced(module, lambda ids: self.embed(ids, forward)):
            yield

    def below(self, tree: TokenTree, count: int) -> TokenTree:
        """The tree with a chain of the first `count` masks below each of its N nodes.

        The masks come after all nodes: those of node n are the rows from N + n * count on.
        """
        if not count:
            return tree
        size, ids = len(tree), range(self.first, self.first + count)
        # A chain's first mask is below the node, every other one below the mask before it.
        parents = [
            parent
            for node in range(size)
            for parent in (node, *range(size + node * count, size + (node + 1) * count - 1))
        ]
        return TokenTree((*tree.tokens, *(tuple(ids) * size)), (*tree.parents, *parents))


@runtime_checkable
class MaskReader(Protocol):
    """Reads the logits of masks: the session of a head that consists of masks."""

    @property
    def masks(self) -> Masks:
        """The masks."""

    @property
    def num_masks(self) -> int:
        """How many masks the next tree has below each of its nodes."""

    def read_masks(self, logits: Tensor, tokens: Sequence[int]) -> None:
        """Take the logits [m, V] of the masks below the last of the `tokens` that a step has committed."""


def masks_of(head_session: object) -> Masks | None:
    """The masks of a head's session; None if it reads hidden states, or there is no head."""
    return head_session.masks if isinstance(head_session, MaskReader) else None
