"""A short digest of a target's weights, the same in float32 and bfloat16, which says which target a head is for."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

# How many values of each weight are hashed: few, so that it takes no time for a large model.
_NUM_VALUES = 64


def fingerprint(model: Any) -> str:
    """A digest of a causal language model: of the names, shapes and first values of all weights, rounded to bfloat16.

    An adapter that was merged into the weights changes it; the dtype that the model was loaded in does not.
    """
    digest = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        values = weight.detach().flatten()[:_NUM_VALUES].to("cpu", torch.bfloat16).view(torch.int16)
        digest.update(f"{name} {tuple(weight.shape)}".encode())
        digest.update(values.numpy().tobytes())
    return digest.hexdigest()[:16]
