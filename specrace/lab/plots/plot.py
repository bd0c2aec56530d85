"""The numbers of a plot: what is drawn, and what its CSV holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from specrace.core.csv_text import csv_text


class Kind(Enum):
    """How a plot is drawn."""

    DOTS = "a row for each series, with a dot and its interval in every panel"
    HEAT = "rows of series, columns of x"
    LINES = "a line for each series over a numeric x axis, with its interval as a band"
    BARS = "a panel of bars over x"
    RANKS = "a horizontal bar for each series"
    MULTIPLES = "a panel for each line, with the others in grey"


@dataclass(frozen=True)
class Mark:
    """One value: `y` of a `series` at `x` in a `panel`, with its interval if it has one."""

    panel: str
    series: str
    x: Any
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Plot:
    """Everything that is needed to draw one plot and to write its CSV.

    `name`: the stem of its files. `columns`: the CSV's names of panel, series, x, y, low and high; "" leaves one out.
    `x` and `y`: titles of the axes, with units. `break_even`: the value at which nothing is gained, such as a speedup
    of 1. `notes`: panel or series -> words beside its name. `colours`: series that is not a lane -> its colour.
    """

    name: str
    kind: Kind
    title: str
    subtitle: str
    x: str
    y: str
    columns: tuple[str, str, str, str, str, str]
    marks: tuple[Mark, ...]
    break_even: float | None = None
    logarithmic: bool = False
    percent: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)
    colours: Mapping[str, str] = field(default_factory=dict)

    @property
    def panels(self) -> list[str]:
        """The names of the panels, in order."""
        return list(dict.fromkeys(mark.panel for mark in self.marks))

    @property
    def series(self) -> list[str]:
        """The names of the series, in order."""
        return list(dict.fromkeys(mark.series for mark in self.marks))

    def marks_of(self, panel: str, series: str | None = None) -> list[Mark]:
        """The marks of a panel, or of one series in it."""
        return [mark for mark in self.marks if mark.panel == panel and series in (None, mark.series)]

    def as_csv(self) -> str:
        """The CSV: a header, and a row for each mark."""
        rows = [self.columns, *((mark.panel, mark.series, mark.x, mark.y, mark.low, mark.high) for mark in self.marks)]
        return csv_text([value for name, value in zip(self.columns, row, strict=True) if name] for row in rows)
