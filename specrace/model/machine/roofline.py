"""How fast a step could be: the bytes that it must move, divided by the bandwidth at which this device copies.

A decoding step of one sequence reads every weight once and the keys and values of all tokens so far; compared with
that, arithmetic is free (the roofline model; Williams et al. 2009). Any time beyond it is overhead.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from specrace.core.clock import since_ms, thread_ms
from specrace.core.errors import lacks_memory

# The size of the block that is copied, by kind of device, and the smallest one: larger than a processor's caches.
_COPY_BYTES = {"cpu": 1 << 27, "cuda": 1 << 30}
_MIN_COPY_BYTES = 1 << 26
# How many copies are timed; an odd number, so that one of them is the median.
_ROUNDS = 7


@dataclass(frozen=True)
class Roofline:
    """The bytes of a step and the bandwidth in bytes/s: `weight_bytes` per step, `token_bytes` per cached token."""

    weight_bytes: int
    token_bytes: int
    bandwidth: float

    def step_bytes(self, columns: float, rows: float = 1.0) -> float:
        """Bytes moved by a step of `rows` rows after `columns` cached tokens: weights, KV read, KV written."""
        return self.weight_bytes + self.token_bytes * (columns + rows)

    def limit_ms(self, columns: float, rows: float = 1.0) -> float:
        """The shortest time of the step: how long the device takes to copy `step_bytes`."""
        return 1000.0 * self.step_bytes(columns, rows) / self.bandwidth

    def as_json(self, columns: float) -> dict[str, float]:
        """Bytes, bandwidth and shortest time of a one-row step after `columns` tokens, and the resulting tokens/s."""
        limit = self.limit_ms(columns)
        return {
            "weight_bytes": self.weight_bytes,
            "kv_bytes": self.token_bytes * columns,
            "copy_gb_per_s": self.bandwidth / 1e9,
            "limit_ms_per_step": limit,
            "limit_tokens_per_s": 1000.0 / limit,
        }


def weight_bytes(model: Any) -> int:
    """Bytes of the parameters that a step reads completely: all but an input embedding that is not tied to the output.

    For a mixture of experts this is an upper bound, because a step runs only some experts. For a model that is split
    over processes it counts this process's part.
    """
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = head is not None and head.weight is embedding.weight
    unread = 0 if tied else _local_bytes(embedding.weight)
    return sum(_local_bytes(parameter) for parameter in model.parameters()) - unread


def _local_bytes(parameter: Any) -> int:
    """Bytes of a parameter in this process."""
    # A DTensor counts all processes. It is recognised by a method, because importing its module takes a second.
    local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    return int(local.numel() * local.element_size())


def copy_bandwidth(device: torch.device) -> float:
    """Bytes per second that a large copy on the device reads and writes: the median of several copies.

    The fastest copy would be unfair: on a shared machine, a lane's typical step would be compared with the memory's
    best moment.
    """
    source, copy = _two_blocks(device)
    times = []
    for _ in range(_ROUNDS):
        _synchronize(device)
        # Steps are timed with the same clock.
        began = thread_ms()
        copy.copy_(source)
        _synchronize(device)
        times.append(since_ms(began))
    return 2 * len(source) / (median(times) / 1000.0)


def _two_blocks(device: torch.device) -> tuple[Tensor, Tensor]:
    """Two blocks of memory to copy between, smaller ones if memory is short. Raises torch's error if none fit."""
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
