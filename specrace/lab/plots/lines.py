"""Line plots, with each line named at its end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specrace.lab.plots.plot import Mark, Plot
from specrace.lab.plots.style import FAINT, INK, clean, line_styles, show_percentages

# With more series, intervals are drawn as bars, because bands would cover each other.
MAX_BANDS = 3
# Names the break-even line: decoding without drafts.
VANILLA = "vanilla"


def draw_lines(figure: Any, plot: Plot) -> None:
    """Draw a line for each series, named at its end."""
    styles = line_styles(plot.series, plot)
    grid = figure.subplots(1, len(plot.panels), squeeze=False)[0]
    for axes, panel in zip(grid, plot.panels, strict=True):
        names = list(dict.fromkeys(mark.series for mark in plot.marks_of(panel)))
        band = len(names) <= MAX_BANDS
        for index, name in enumerate(names):
            # The intervals' bars stand side by side.
            places = 0.0 if band else index - (len(names) - 1) / 2
            draw_line(axes, _shift(plot, plot.marks_of(panel, name), places), *styles[name], band=band)
        _set_scales(axes, plot, sorted({mark.x for mark in plot.marks_of(panel)}))
        axes.set_title(clean(panel, 70), size=17, weight="bold", loc="left")
        ends = {name: plot.marks_of(panel, name)[-1].y for name in names}
        if plot.break_even is not None:
            axes.axhline(plot.break_even, color=INK, linewidth=1.4, zorder=1)
            ends[VANILLA] = plot.break_even
        _name_ends(figure, axes, ends, styles | {VANILLA: (INK, "-")})
    figure.supxlabel(clean(plot.x, 70), size=16)
    grid[0].set_ylabel(clean(plot.y, 70), size=16)


def _shift(plot: Plot, marks: Sequence[Mark], places: float) -> list[Mark]:
    """The marks, moved right by `places`; a place is 0.6 % of the x axis or, on a logarithmic axis, 2 % of x."""
    positions = sorted({mark.x for mark in plot.marks})
    width = 0.006 * (positions[-1] - positions[0])
    return [replace(mark, x=mark.x * 1.02**places if plot.logarithmic else mark.x + width * places) for mark in marks]


def draw_line(axes: Any, marks: Sequence[Mark], hue: str, dash: str, *, band: bool = True) -> None:
    """Draw one series with its intervals, as a `band` or else as bars."""
    x = [mark.x for mark in marks]
    low = [mark.low for mark in marks]
    high = [mark.high for mark in marks]
    if None not in low and band:
        axes.fill_between(x, low, high, color=hue, alpha=0.16, linewidth=0)
    elif None not in low:
        axes.vlines(x, low, high, color=hue, linewidth=2, alpha=0.6)
    axes.plot(x, [mark.y for mark in marks], dash, color=hue, linewidth=3, marker="o", markersize=7)


def _set_scales(axes: Any, plot: Plot, positions: Sequence[float]) -> None:
    """Put ticks at the values, and start the vertical axis at 0, except for speedups."""
    if plot.logarithmic:
        axes.set_xscale("log", base=2)
    axes.minorticks_off()
    # At most 12 ticks, so that their labels do not overlap.
    ticks = positions if len(positions) <= 12 else positions[:: math.ceil(len(positions) / 12)]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.03)
    if plot.break_even is not None:
        axes.set_ylim(bottom=min(axes.get_ylim()[0], plot.break_even - 0.05))
    else:
        axes.set_ylim(bottom=0)
    if plot.percent:
        show_percentages(axes.yaxis)


def _name_ends(figure: Any, axes: Any, ends: Mapping[str, float], styles: Mapping[str, tuple[str, str]]) -> None:
    """Name the lines to the right of the panel, moving names apart where they would overlap."""
    # In points: small enough for all names to fit below one another.
    size = min(15.0, 260 / max(len(ends), 1))
    low, high = axes.get_ylim()
    # The height of a name in units of the y axis; the panel takes about 66 % of the figure's height.
    gap = 1.35 * size / 72 / (figure.get_figheight() * 0.66) * (high - low)
    for name, height in _spread(ends, gap, low, high).items():
        hue, dash = styles[name]
        style = {"transform": axes.get_yaxis_transform(), "clip_on": False, "color": hue}
        # The x positions are fractions of the panel's width.
        axes.plot([1.0, 1.025], [ends[name], height], linewidth=1, **style)
        axes.plot([1.025, 1.06], [height, height], dash, linewidth=3, **style)
        axes.text(1.075, height, clean(name, 24), size=size, va="center", transform=axes.get_yaxis_transform())


def _spread(ends: Mapping[str, float], gap: float, low: float, high: float) -> dict[str, float]:
    """Heights close to `ends`, between `low` and `high`, with at least `gap` between any two."""
    order = sorted(ends, key=lambda name: ends[name])
    heights: dict[str, float] = {}
    # Push names up where they overlap, then, from the top down, back into the panel.
    last = low - gap / 2
    for name in order:
        heights[name] = last = max(ends[name], last + gap)
    last = max(high + gap / 2, low + gap * len(order))
    for name in reversed(order):
        heights[name] = last = min(heights[name], last - gap)
    return heights
