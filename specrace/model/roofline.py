"""How fast a step could be: the bytes that it must move over the bandwidth at which this device copies.

A decoding step of one sequence reads every weight once and the keys and values of all tokens so far; arithmetic is
free beside that (the roofline model; Williams et al. 2009). What a step takes above this is overhead.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from specrace.core.clock import own_ms, since_ms
from specrace.core.errors import lacks_memory

_COPY_BYTES = {"cpu": 1 << 27, "cuda": 1 << 30}
# More than a processor's own caches.
_MIN_COPY_BYTES = 1 << 26
_ROUNDS = 7


@dataclass(frozen=True)
class Roofline:
    """Bytes of a step and bytes a second. `weight_bytes` are read once a step, `token_bytes` once a cached token."""

    weight_bytes: int
    token_bytes: int
    bandwidth: float

    def step_bytes(self, columns: float, rows: float = 1.0) -> float:
        """Bytes that a step of `rows` rows after `columns` cached tokens moves: weights, KV read, KV written."""
        return self.weight_bytes + self.token_bytes * (columns + rows)

    def limit_ms(self, columns: float, rows: float = 1.0) -> float:
        """The time in which they could be copied."""
        return 1000.0 * self.step_bytes(columns, rows) / self.bandwidth

    def as_json(self, columns: float) -> dict[str, float]:
        """The bytes, bandwidth and least time of one row after `columns` tokens, and the most tokens a second."""
        limit = self.limit_ms(columns)
        return {
            "weight_bytes": self.weight_bytes,
            "kv_bytes": self.token_bytes * columns,
            "copy_gb_per_s": self.bandwidth / 1e9,
            "limit_ms_per_step": limit,
            "limit_tokens_per_s": 1000.0 / limit,
        }


def weight_bytes(model: Any) -> int:
    """Bytes of the parameters that a step reads whole: all but an input embedding that is not the output's, too.

    For a mixture of experts it is an upper bound, because a step runs only some of them; for a model split over
    processes, this one's part.
    """
    tables, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = head is not None and head.weight is tables.weight
    looked_up = 0 if tied else _own_bytes(tables.weight)
    return sum(_own_bytes(each) for each in model.parameters()) - looked_up


def _own_bytes(parameter: Any) -> int:
    """Bytes in this process: a DTensor's own count is of all processes, and its module takes a second to import."""
    own = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    return int(own.numel() * own.element_size())


def token_bytes(config: Any, itemsize: int) -> int:
    """Bytes of the keys and values of one token in all layers."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * size * itemsize)


def copy_bandwidth(device: torch.device) -> float:
    """Bytes a second, read and written, of a large copy on the device: the median of several.

    Not the best: on a shared machine that would compare a lane's usual step with the memory's luckiest moment.
    """
    source, copy = _two_blocks(device)
    times = []
    for _ in range(_ROUNDS):
        _synchronize(device)
        # A step's clock.
        began = own_ms()
        copy.copy_(source)
        _synchronize(device)
        times.append(since_ms(began))
    return 2 * len(source) / (median(times) / 1000.0)


def _two_blocks(device: torch.device) -> tuple[Tensor, Tensor]:
    """Two blocks of memory to copy between; smaller ones where a model leaves no room. Raises torch's error then."""
    size = _COPY_BYTES[device.type]
    while True:
        try:
            source = torch.ones(size, dtype=torch.uint8, device=device)
            return source, source.clone()
        except RuntimeError as error:
            if not lacks_memory(error) or size <= _MIN_COPY_BYTES:
                raise
            size //= 2


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
