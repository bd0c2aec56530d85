"""The target's sampling parameters."""

from __future__ import annotations

from dataclasses import dataclass, fields

from specrace.core.settings import SETTINGS


@dataclass(frozen=True)
class SamplingParams:
    """`temperature` 0 is greedy; `top_k` 0 and `top_p` 1 are off. Raises InputError for values out of bounds."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, SETTINGS[field.name].check(getattr(self, field.name)))
