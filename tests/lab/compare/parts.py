"""Samples for tests, of servers whose times and drafts are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specrace.lab.compare.samples import Block, Sample


def sample(
    server: str,
    number: int,
    sizes: Sequence[int],
    *,
    step_ms: float = 10.0,
    concurrency: int = 1,
    repetition: int = 0,
    session: int = 0,
    start_ms: float = 0.0,
    output: Sequence[int] | None = None,
    past_end: int = 0,
    drafted: int = 4,
) -> Sample:
    """An answer in steps of these sizes: the first chunk comes at 100 ms, and the others `step_ms` apart.

    A step of several tokens had a draft of `drafted` tokens; the last draft had `past_end` more accepted past the end.
    """
    times = tuple(100.0 + step_ms * index for index in range(len(sizes)))
    accepted = [size - 1 for size in sizes if size > 1]
    if past_end:
        accepted[-1] += past_end
    counts: dict[str, Any] = {
        "engine": "vLLM 0.32.0",
        "num_draft_tokens": drafted * len(accepted),
        "per_step_accepted": accepted,
        "per_step_drafted": [drafted] * len(accepted),
        "step_sizes": list(sizes),
    }
    tokens = tuple(range(sum(sizes))) if output is None else tuple(output)
    block = Block(server, concurrency, repetition)
    return Sample(block, number, session, start_ms, start_ms + times[-1], times, tuple(sizes), tokens, "length", counts)
