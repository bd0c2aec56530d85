"""How a token is chosen, as numbers only."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specrace.core.errors import InputError

MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class SamplingParams:
    """Temperature 0 is greedy; `top_k` 0 and `top_p` 1 keep everything. Raises InputError for values out of bounds."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and 0.0 <= self.temperature <= 10.0):
            raise InputError(f"The temperature is {self.temperature}; give a number from 0 to 10.")
        if not 0.0 < self.top_p <= 1.0:
            raise InputError(f"top-p is {self.top_p}; give a number above 0 and at most 1.")
        if self.top_k < 0:
            raise InputError(f"top-k is {self.top_k}; give 0 (off) or more.")
        if not 0 <= self.seed <= MAX_SEED:
            raise InputError(f"The seed is {self.seed}; give a whole number from 0 to {MAX_SEED}.")
