"""Plots with a panel for each series: bars, or a line in front of the others in grey."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from specrace.lab.plots.lines import draw_line
from specrace.lab.plots.plot import Plot
from specrace.lab.plots.style import FAINT, GREY, INK, MAX_PANELS, clean, line_styles, show_percentages, subplots

# Bars of smaller shares, whose percentage rounds to 0, have no number above them.
MIN_NAMED = 0.005


def draw_bars(figure: Any, plot: Plot) -> None:
    """Draw a panel of bars for each series, with the intervals as lines on them."""
    panels = plot.panels[:MAX_PANELS]
    grid, styles = subplots(figure, len(panels)), line_styles(panels, plot)
    for axes, panel in zip(grid, panels, strict=True):
        marks = plot.marks_of(panel)
        axes.bar([mark.x for mark in marks], [mark.y for mark in marks], color=styles[panel][0], width=0.8)
        # The x values are labels, so the bars stand at 0, 1, 2, ...
        for index, mark in enumerate(marks):
            axes.plot([index, index], [mark.low, mark.high], color=INK, linewidth=1.4)
            percentage = f"{100 * mark.y:.0f}" if mark.y >= MIN_NAMED else ""
            style = {"textcoords": "offset points", "ha": "center", "size": 13 if len(panels) <= 4 else 10}
            axes.annotate(percentage, (index, mark.high or mark.y), xytext=(0, 3), **style)
        _panel_title(axes, plot, panel, len(panels))
    # Room for the number above the highest bar.
    grid[0].set_ylim(0, 1.15 * max(mark.high or mark.y for mark in plot.marks))
    _title_axes(figure, plot, grid)


def draw_multiples(figure: Any, plot: Plot) -> None:
    """Draw a panel for each line, with the others in grey behind it."""
    panels = plot.panels[:MAX_PANELS]
    grid, styles = subplots(figure, len(panels)), line_styles(panels, plot)
    for axes, panel in zip(grid, panels, strict=True):
        for other in panels:
            marks = plot.marks_of(other)
            axes.plot([mark.x for mark in marks], [mark.y for mark in marks], color=FAINT, linewidth=1.6, zorder=0)
        draw_line(axes, plot.marks_of(panel), styles[panel][0], "-")
        _panel_title(axes, plot, panel, len(panels))
        axes.set_ylim(bottom=0)
    _title_axes(figure, plot, grid)


def _panel_title(axes: Any, plot: Plot, panel: str, num_panels: int) -> None:
    """Write a panel's name and note, and ticks small enough for the number of panels."""
    size = 17 if num_panels <= 4 else 14
    axes.set_title(clean(panel, 24), size=size, weight="bold", loc="left")
    axes.set_title(clean(plot.notes.get(panel, ""), 24), size=size - 3, color=GREY, loc="right")
    marks = plot.marks_of(panel)
    axes.set_xticks([mark.x for mark in marks])
    axes.tick_params(labelsize=13 if num_panels <= 4 else 10)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)


def _title_axes(figure: Any, plot: Plot, grid: Sequence[Any]) -> None:
    """Write the titles of the shared axes, the vertical one beside the middle row of panels."""
    show_percentages(grid[0].yaxis)
    figure.supxlabel(clean(plot.x, 70), size=16)
    columns = math.ceil(math.sqrt(len(grid)))
    rows = math.ceil(len(grid) / columns)
    grid[columns * ((rows - 1) // 2)].set_ylabel(clean(plot.y, 70), size=16)
