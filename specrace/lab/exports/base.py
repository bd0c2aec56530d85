"""What every engine's export takes and returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specrace.core.cost_curve import CostCurve


@dataclass(frozen=True)
class Choice:
    """A lane to export: its settings and its measured acceptance.

    `num_draft`: the largest number of draft tokens in a step, without the root. `mean`: tokens per step, with the bonus
    token. `rates[i]`: the share of steps that accept more than i draft tokens.
    """

    lane: str
    options: Mapping[str, Any]
    num_draft: int
    mean: float
    rates: tuple[float, ...]

    def rates_of(self, count: int) -> list[float]:
        """The rates of the first `count` positions; 0 for a position that no step reached."""
        return [round(rate, 4) for rate in (*self.rates, *[0.0] * count)[:count]]

    @property
    def length(self) -> float:
        """The mean accepted length, rounded for a setting."""
        return round(self.mean, 3)


@dataclass(frozen=True)
class Export:
    """What to paste into an engine.

    `settings`: those of the lane. `synthetic`: settings that simulate the measured acceptance, for load tests.
    `files`: name -> content of each file that the settings name. `notes`: what a reader must know.
    """

    settings: str
    synthetic: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Engine:
    """An engine to which lanes can be exported.

    `prefix`: the names of its twins begin with it. `nearest`: our lanes that are most like its drafters. `version`: the
    version whose source has these option names. `plug_ins`: lane -> a function that gives the settings that load our
    drafter into the engine, where it drafts chains by a cost curve.
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
