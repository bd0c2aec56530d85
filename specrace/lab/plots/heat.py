"""Tables whose cells are shaded by their figures."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

from specrace.lab.plots.plot import Mark, Picture
from specrace.lab.plots.style import INK, MAX_COLUMNS, MAX_PANELS, MAX_ROWS, clean, interval, number, subplots

# Axis titles of so few letters stand upright.
SHORT = 3


def draw_heat(figure: Any, picture: Picture) -> None:
    """Rows of series, columns of x, with the figures in the cells; around `even` blue gains and orange loses."""
    panels = picture.panels[:MAX_PANELS]
    grid = subplots(figure, len(panels))
    limits = min(mark.y for mark in picture.marks), max(mark.y for mark in picture.marks)
    for axes, panel in zip(grid, panels, strict=True):
        marks = picture.of(panel)
        rows, columns = (list(dict.fromkeys(found)) for found in zip(*((m.series, m.x) for m in marks), strict=True))
        rows, columns = rows[:MAX_ROWS], columns[:MAX_COLUMNS]
        down, across = len(rows) * math.ceil(len(grid) ** 0.5), len(columns) * math.ceil(len(grid) ** 0.5)
        # Two lines a cell, or one.
        size = min(20.0, (22 if len(grid) == 1 else 29) * figure.get_figheight() / down, 200 / across)
        for mark in marks:
            if mark.series in rows and mark.x in columns:
                place = columns.index(mark.x), rows.index(mark.series)
                colour, ink = _shade(picture, mark.y, *limits)
                axes.add_patch(_rectangle(*place, colour))
                _cell(axes, picture, mark, place, size, ink, ranges=len(grid) == 1)
        _table_edges(axes, rows, columns, min(15.0, max(size, 9.0)))
        if panel:
            axes.set_title(clean(panel), size=16 if len(grid) <= 4 else 13, weight="bold", loc="left")
    figure.supxlabel(clean(picture.x, 70), size=16)
    figure.supylabel(clean(picture.y, 70), size=16, rotation=0 if len(picture.y) <= SHORT else 90)


def _table_edges(axes: Any, rows: Sequence[str], columns: Sequence[Any], size: float) -> None:
    """The names of rows and columns, and no lines."""
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    turned = {"rotation": 30, "ha": "left", "rotation_mode": "anchor"} if len(columns) > 7 else {}
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(columns)), [clean(str(each), 18) for each in columns], size=size, **turned)
    axes.set_yticks(range(len(rows)), [clean(each) for each in rows], size=size)
    axes.tick_params(length=0, labeltop=True)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _rectangle(column: int, row: int, colour: Any) -> Any:
    patches: Any = importlib.import_module("matplotlib.patches")
    return patches.Rectangle((column - 0.48, row - 0.48), 0.96, 0.96, facecolor=colour, edgecolor="none")


def _cell(
    axes: Any, picture: Picture, mark: Mark, place: tuple[int, int], size: float, ink: str, *, ranges: bool
) -> None:
    words = interval(picture, mark) if ranges and size >= 9 else ""
    how = {"textcoords": "offset points", "color": ink, "ha": "center", "va": "center"}
    up = (0, 0.42 * size if words else 0)
    axes.annotate(number(picture, mark.y), place, xytext=up, size=size, **how)
    axes.annotate(words, place, xytext=(0, -0.62 * size), size=0.62 * size, **how)


def _shade(picture: Picture, value: float, low: float, high: float) -> tuple[tuple[float, ...], str]:
    """(colour, the ink that reads on it) of a value: from white to blue, and below `even` to orange."""
    if picture.even is None:
        share, full = (value - low) / (high - low) if high > low else 0.5, (0.0, 0.30, 0.55)
        share = 0.08 + 0.92 * share
    else:
        furthest = max(abs(high - picture.even), abs(picture.even - low), 1e-9)
        share = abs(value - picture.even) / furthest
        full = (0.0, 0.30, 0.55) if value >= picture.even else (0.75, 0.30, 0.0)
    colour = tuple(1 - share * (1 - part) for part in full)
    return colour, "white" if share > 0.6 else INK
