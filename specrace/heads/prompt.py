"""A prompt's features, as a head wants them."""

from __future__ import annotations

import torch
from torch import Tensor

from specrace.core.errors import InputError
from specrace.model.forward.kv import Prefix
from specrace.model.forward.tapped import Levels


def features_at(prefix: Prefix, levels: Levels) -> Tensor:
    """The features of a prompt at `levels`, [P - 1, levels * d]; the prompt may have been read with more levels.

    Raises InputError if it was read without one of `levels`.
    """
    features = prefix.features
    if features is None or not set(levels) <= set(prefix.levels):
        raise InputError("The prompt was read without the hidden states that the head needs; read it with its levels.")
    if prefix.levels == levels:
        return features
    parts = features.chunk(len(prefix.levels), dim=-1)
    return torch.cat([parts[prefix.levels.index(level)] for level in levels], dim=-1)
