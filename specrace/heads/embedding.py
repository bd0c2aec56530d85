"""The embeddings that a head reads: the target's, or the head's own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import embedding

from specrace.model.target import Target


def embed_tokens(target: Target, own: Tensor | None, tokens: Sequence[int]) -> Tensor:
    """Embeddings [N, d] of the tokens, from the head's `own` table [V, d]; None: from the target's."""
    ids = torch.tensor(list(tokens), dtype=torch.int64, device=target.device)
    if own is not None:
        return embedding(ids, own)
    rows: Tensor = target.model.get_input_embeddings()(ids)
    return rows
