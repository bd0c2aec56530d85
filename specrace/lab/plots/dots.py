"""Plots with a row for each series: a dot with its interval in every panel, or a bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specrace.lab.plots.plot import Mark, Plot
from specrace.lab.plots.style import (
    FAINT,
    GREY,
    INK,
    MAX_ROWS,
    OTHERS,
    clean,
    format_interval,
    format_number,
    line_styles,
    show_percentages,
)


def draw_dots(figure: Any, plot: Plot) -> None:
    """Draw a row for each series, its values in a column beside each panel, where no dot covers them."""
    names = plot.series[:MAX_ROWS]
    # The first series is the topmost row.
    rows = {name: row for row, name in zip(reversed(range(len(names))), names, strict=True)}
    styles = line_styles(names, plot)
    panels = figure.subplots(1, len(plot.panels), sharey=True, squeeze=False)[0]
    # The font size in points, small enough for a name and its note to fit into a row.
    size = min(17.0, 37 * (figure.get_figheight() - 2.4) / max(len(names), 1))
    for axes, panel in zip(panels, plot.panels, strict=True):
        for name, row in rows.items():
            _row(axes, plot, plot.marks_of(panel, name), row, styles[name][0], size)
        axes.set_xlabel(clean(panel, 70), size=16)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_ylim(-0.7, len(names) - 0.3)
        axes.margins(x=0.08)
        _mark_break_even(axes, plot)
    for name, row in rows.items():
        _name_row(panels[0], name, plot.notes.get(name, ""), row, size)


def _name_row(axes: Any, name: str, note: str, row: float, size: float) -> None:
    """Write a name left of its row, with a note below it."""
    point = (0.0, row)
    style = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "ha": "right", "va": "center"}
    offset = 0.35 * size if note else 0.0
    axes.annotate(clean(name), point, xytext=(-10, offset), size=size, annotation_clip=False, **style)
    axes.annotate(clean(note, 44), point, xytext=(-10, -0.62 * size), size=0.66 * size, color=GREY, **style)


def _row(axes: Any, plot: Plot, marks: Sequence[Mark], row: float, hue: str, size: float) -> None:
    """Draw a series' marks in one row: a large dot with its interval and number, a small dot without an interval."""
    axes.axhline(row, color=FAINT, linewidth=0.8, zorder=0)
    for mark in marks:
        if mark.low is None:
            # Below the line of the row, where no interval covers it.
            axes.plot(mark.y, row - 0.27, "o", markersize=4.5, color=hue, alpha=0.5, markeredgewidth=0)
            continue
        axes.plot([mark.low, mark.high], [row, row], color=hue, linewidth=4, solid_capstyle="butt", zorder=3)
        axes.plot(mark.y, row, "o", markersize=11, color=hue, markeredgecolor="white", zorder=4)
        _write_right(axes, format_number(plot, mark.y), row, size, offset=(6, 0), weight="bold")
        _write_right(axes, format_interval(plot, mark), row, size * 0.72, offset=(6 + 3.0 * size, 0), color=GREY)


def _write_right(axes: Any, text: str, row: float, size: float, offset: Any, **style: Any) -> None:
    """Write `text` right of the panel, at the height of a row."""
    axes.annotate(
        text,
        (1.0, row),
        xytext=offset,
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        va="center",
        size=size,
        annotation_clip=False,
        **style,
    )


def _mark_break_even(axes: Any, plot: Plot) -> None:
    """Draw the break-even line across all rows, and label it vanilla."""
    if plot.break_even is None:
        return
    axes.axvline(plot.break_even, color=INK, linewidth=1.4, zorder=1)
    style = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points", "size": 13}
    axes.annotate("vanilla", (plot.break_even, 1.0), xytext=(0, 4), ha="center", va="bottom", **style)


def draw_ranks(figure: Any, plot: Plot) -> None:
    """Draw a bar for each series, its value at the end."""
    axes = figure.subplots()
    names = plot.series[:MAX_ROWS]
    size = min(17.0, 330 / max(len(names), 1))
    longest = max(mark.high or mark.y for mark in plot.marks)
    for index, mark in enumerate(plot.marks[:MAX_ROWS]):
        row = len(names) - 1 - index
        # A light blue, on which the line of the interval can be seen.
        axes.barh(row, mark.y, height=0.62, color=OTHERS[4])
        if mark.low is not None:
            axes.plot([mark.low, mark.high], [row, row], color=INK, linewidth=2)
        value = f"{format_number(plot, mark.y)}  "
        axes.text((mark.high or mark.y) + longest / 80, row, value, size=size, va="center", weight="bold")
    axes.set_yticks(range(len(names)), [clean(name) for name in reversed(names)], size=size)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, longest * 1.12)
    if plot.percent:
        show_percentages(axes.xaxis)
    axes.set_xlabel(clean(plot.x, 70), size=16)
