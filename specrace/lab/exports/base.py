"""What every engine's export takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specrace.core.cost_curve import CostCurve


@dataclass(frozen=True)
class Choice:
    """A lane to export with its settings, and what was measured of it.

    `num_draft`: the most draft tokens of a step, the root not counted. `mean`: tokens per step with the bonus token.
    `rates[i]`: the share of steps that accept more than i draft tokens.
    """

    lane: str
    options: Mapping[str, Any]
    num_draft: int
    mean: float
    rates: tuple[float, ...]

    def rates_of(self, count: int) -> list[float]:
        """The rates of `count` positions; those that no step reached are 0."""
        return [round(rate, 4) for rate in (*self.rates, *[0.0] * count)[:count]]

    @property
    def length(self) -> float:
        """The mean accepted length, as far as a setting for it needs."""
        return round(self.mean, 3)


@dataclass(frozen=True)
class Export:
    """What to paste. `settings`: the lane; `synthetic`: the same acceptance without it, for load tests.

    `files`: name -> content, of those that the settings name. `notes`: what a reader must know.
    """

    settings: str
    synthetic: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Engine:
    """An engine. Its own drafters are the lanes whose names begin with `prefix`; `nearest` are lanes like them.

    `version`: the one whose source the names were read in. `plug_ins`: lane -> the settings that load our drafter into
    the engine, where it drafts chains by a cost curve.
    """

    name: str
    prefix: str
    nearest: tuple[str, ...]
    version: str
    export: Callable[[Choice], Export]
    plug_ins: Mapping[str, Callable[[Choice, CostCurve], str]] = field(default_factory=dict)

    def has(self, lane: str) -> bool:
        """Whether a lane can be exported."""
        return lane in self.nearest or (self.prefix != "" and lane.startswith(self.prefix))
