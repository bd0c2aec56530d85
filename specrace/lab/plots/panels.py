"""A panel for each series: bars, or a line with the others in grey behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from specrace.lab.plots.lines import draw_line
from specrace.lab.plots.plot import Picture
from specrace.lab.plots.style import FAINT, GREY, INK, MAX_PANELS, clean, line_styles, percent, subplots

# Smaller shares have no figure above their bar.
MIN_NAMED = 0.005


def draw_bars(figure: Any, picture: Picture) -> None:
    """A panel of bars for each series, with the intervals as lines on them."""
    panels = picture.panels[:MAX_PANELS]
    grid, styles = subplots(figure, len(panels)), line_styles(panels, picture)
    for axes, panel in zip(grid, panels, strict=True):
        marks = picture.of(panel)
        axes.bar([mark.x for mark in marks], [mark.y for mark in marks], color=styles[panel][0], width=0.8)
        for place, mark in enumerate(marks):
            axes.plot([place, place], [mark.low, mark.high], color=INK, linewidth=1.4)
            words = f"{100 * mark.y:.0f}" if mark.y >= MIN_NAMED else ""
            how = {"textcoords": "offset points", "ha": "center", "size": 13 if len(panels) <= 4 else 10}
            axes.annotate(words, (place, mark.high or mark.y), xytext=(0, 3), **how)
        _panel_title(axes, picture, panel, len(panels))
    # Room for the figure above the highest bar.
    grid[0].set_ylim(0, 1.15 * max(mark.high or mark.y for mark in picture.marks))
    _outer(figure, picture, grid)


def draw_multiples(figure: Any, picture: Picture) -> None:
    """A panel for each line, the others in grey behind it."""
    panels = picture.panels[:MAX_PANELS]
    grid, styles = subplots(figure, len(panels)), line_styles(panels, picture)
    for axes, panel in zip(grid, panels, strict=True):
        for other in panels:
            marks = picture.of(other)
            axes.plot([mark.x for mark in marks], [mark.y for mark in marks], color=FAINT, linewidth=1.6, zorder=0)
        draw_line(axes, picture.of(panel), styles[panel][0], "-")
        _panel_title(axes, picture, panel, len(panels))
        axes.set_ylim(bottom=0)
    _outer(figure, picture, grid)


def _panel_title(axes: Any, picture: Picture, panel: str, count: int) -> None:
    """Name and note; ticks small enough for so many panels."""
    size = 17 if count <= 4 else 14
    axes.set_title(clean(panel, 24), size=size, weight="bold", loc="left")
    axes.set_title(clean(picture.notes.get(panel, ""), 24), size=size - 3, color=GREY, loc="right")
    marks = picture.of(panel)
    axes.set_xticks([mark.x for mark in marks])
    axes.tick_params(labelsize=13 if count <= 4 else 10)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)


def _outer(figure: Any, picture: Picture, grid: Sequence[Any]) -> None:
    percent(grid[0].yaxis)
    figure.supxlabel(clean(picture.x, 70), size=16)
    columns = math.ceil(math.sqrt(len(grid)))
    grid[columns * ((math.ceil(len(grid) / columns) - 1) // 2)].set_ylabel(clean(picture.y, 70), size=16)
