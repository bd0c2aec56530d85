"""A prompt's features, as a head wants them."""

from __future__ import annotations

from torch import Tensor

from specrace.model.forward.kv import Prefix
from specrace.model.forward.tapped import Levels


def features_at(prefix: Prefix, levels: Levels) -> Tensor:
    """See `Prefix.features_at`."""
    return prefix.features_at(levels)
