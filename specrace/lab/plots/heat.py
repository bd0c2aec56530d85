"""Heat maps: tables whose cells are shaded by their values."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

from specrace.lab.plots.plot import Mark, Plot
from specrace.lab.plots.style import (
    INK,
    MAX_COLUMNS,
    MAX_PANELS,
    MAX_ROWS,
    clean,
    format_interval,
    format_number,
    subplots,
)

# Up to this many letters, the title of the vertical axis is written horizontally.
MAX_HORIZONTAL_LETTERS = 3
# Red, green and blue of the strongest shades.
BLUE, ORANGE = (0.0, 0.30, 0.55), (0.75, 0.30, 0.0)


def draw_heat(figure: Any, plot: Plot) -> None:
    """Draw series as rows and x as columns, each cell with its value: blue above `break_even`, orange below it."""
    panels = plot.panels[:MAX_PANELS]
    grid = subplots(figure, len(panels))
    low = min(mark.y for mark in plot.marks)
    high = max(mark.y for mark in plot.marks)
    for axes, panel in zip(grid, panels, strict=True):
        marks = plot.marks_of(panel)
        rows = list(dict.fromkeys(mark.series for mark in marks))[:MAX_ROWS]
        columns = list(dict.fromkeys(mark.x for mark in marks))[:MAX_COLUMNS]
        # The panels form a grid that is about as high as wide.
        panels_per_side = math.ceil(len(grid) ** 0.5)
        # The font size in points is as large as the rows' height and the columns' width allow. Only a single panel has
        # room for a second line in each cell, and so gets a smaller size.
        scale = 22 if len(grid) == 1 else 29
        size = min(
            20.0,
            scale * figure.get_figheight() / (len(rows) * panels_per_side),
            200 / (len(columns) * panels_per_side),
        )
        for mark in marks:
            if mark.series in rows and mark.x in columns:
                column = columns.index(mark.x)
                row = rows.index(mark.series)
                colour, ink = _shade(plot, mark.y, low, high)
                axes.add_patch(_rectangle(column, row, colour))
                _write_cell(axes, plot, mark, (column, row), size, ink, with_interval=len(grid) == 1)
        _label_table(axes, rows, columns, min(15.0, max(size, 9.0)))
        if panel:
            axes.set_title(clean(panel), size=16 if len(grid) <= 4 else 13, weight="bold", loc="left")
    figure.supxlabel(clean(plot.x, 70), size=16)
    figure.supylabel(clean(plot.y, 70), size=16, rotation=0 if len(plot.y) <= MAX_HORIZONTAL_LETTERS else 90)


def _label_table(axes: Any, rows: Sequence[str], columns: Sequence[Any], size: float) -> None:
    """Label the rows and columns, and hide the axes."""
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    style = {"rotation": 30, "ha": "left", "rotation_mode": "anchor"} if len(columns) > 7 else {}
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(columns)), [clean(str(column), 18) for column in columns], size=size, **style)
    axes.set_yticks(range(len(rows)), [clean(row) for row in rows], size=size)
    axes.tick_params(length=0, labeltop=True)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _rectangle(column: int, row: int, colour: Any) -> Any:
    patches: Any = importlib.import_module("matplotlib.patches")
    return patches.Rectangle((column - 0.48, row - 0.48), 0.96, 0.96, facecolor=colour, edgecolor="none")


def _write_cell(
    axes: Any, plot: Plot, mark: Mark, cell: tuple[int, int], size: float, ink: str, *, with_interval: bool
) -> None:
    interval = format_interval(plot, mark) if with_interval and size >= 9 else ""
    style = {"textcoords": "offset points", "color": ink, "ha": "center", "va": "center"}
    offset = 0.42 * size if interval else 0
    axes.annotate(format_number(plot, mark.y), cell, xytext=(0, offset), size=size, **style)
    axes.annotate(interval, cell, xytext=(0, -0.62 * size), size=0.62 * size, **style)


def _shade(plot: Plot, value: float, low: float, high: float) -> tuple[tuple[float, ...], str]:
    """(fill, ink) of a cell: the fill between white and blue, or orange below `break_even`; the ink readable on it."""
    strongest = BLUE
    if plot.break_even is None:
        strength = (value - low) / (high - low) if high > low else 0.5
        strength = 0.08 + 0.92 * strength
    else:
        furthest = max(abs(high - plot.break_even), abs(plot.break_even - low), 1e-9)
        strength = abs(value - plot.break_even) / furthest
        strongest = BLUE if value >= plot.break_even else ORANGE
    colour = tuple(1 - strength * (1 - channel) for channel in strongest)
    return colour, "white" if strength > 0.6 else INK
