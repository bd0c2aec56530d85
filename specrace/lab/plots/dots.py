"""Rows: a dot with its interval in every panel, or a bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specrace.lab.plots.plot import Mark, Picture
from specrace.lab.plots.style import (
    FAINT,
    GREY,
    INK,
    MAX_ROWS,
    OTHERS,
    clean,
    interval,
    line_styles,
    number,
    percent,
)


def draw_dots(figure: Any, picture: Picture) -> None:
    """A row for each series. The figures stand in a column beside each panel, where nothing covers them."""
    names = picture.series[:MAX_ROWS]
    styles = line_styles(names, picture)
    panels = figure.subplots(1, len(picture.panels), sharey=True, squeeze=False)[0]
    # A row takes a name and its note.
    size = min(17.0, 37 * (figure.get_figheight() - 2.4) / max(len(names), 1))
    for axes, panel in zip(panels, picture.panels, strict=True):
        for row, name in enumerate(names):
            _row(axes, picture, picture.of(panel, name), len(names) - 1 - row, styles[name][0], size)
        axes.set_xlabel(clean(panel, 70), size=16)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_ylim(-0.7, len(names) - 0.3)
        axes.margins(x=0.08)
        _even(axes, picture)
    for row, name in enumerate(names):
        _name_row(panels[0], name, picture.notes.get(name, ""), len(names) - 1 - row, size)


def _name_row(axes: Any, name: str, note: str, row: float, size: float) -> None:
    """A name left of its row, with a note below it."""
    place, how = (0.0, row), {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "ha": "right"}
    up = 0.35 * size if note else 0.0
    axes.annotate(clean(name), place, xytext=(-10, up), size=size, va="center", annotation_clip=False, **how)
    down = (-10, -0.62 * size)
    axes.annotate(clean(note, 44), place, xytext=down, size=0.66 * size, va="center", color=GREY, **how)


def _row(axes: Any, picture: Picture, marks: Sequence[Mark], row: float, hue: str, size: float) -> None:
    axes.axhline(row, color=FAINT, linewidth=0.8, zorder=0)
    for mark in marks:
        if mark.low is None:
            axes.plot(mark.y, row - 0.27, "o", markersize=4.5, color=hue, alpha=0.5, markeredgewidth=0)
            continue
        axes.plot([mark.low, mark.high], [row, row], color=hue, linewidth=4, solid_capstyle="butt", zorder=3)
        axes.plot(mark.y, row, "o", markersize=11, color=hue, markeredgecolor="white", zorder=4)
        place = (1.0, row)
        _beside(axes, number(picture, mark.y), place, size, offset=(6, 0), weight="bold")
        _beside(axes, interval(picture, mark), place, size * 0.72, offset=(6 + 3.0 * size, 0), color=GREY)


def _beside(axes: Any, text: str, place: tuple[float, float], size: float, offset: Any, **how: Any) -> None:
    """Words right of the panel, in the height of a value."""
    axes.annotate(
        text,
        place,
        xytext=offset,
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        va="center",
        size=size,
        annotation_clip=False,
        **how,
    )


def _even(axes: Any, picture: Picture) -> None:
    """The line where nothing is gained, across the rows: vanilla."""
    if picture.even is None:
        return
    axes.axvline(picture.even, color=INK, linewidth=1.4, zorder=1)
    how = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points", "size": 13}
    axes.annotate("vanilla", (picture.even, 1.0), xytext=(0, 4), ha="center", va="bottom", **how)


def draw_ranks(figure: Any, picture: Picture) -> None:
    """A bar for each series, its figure at the end."""
    axes, names = figure.subplots(), picture.series[:MAX_ROWS]
    size = min(17.0, 330 / max(len(names), 1))
    most = max(mark.high or mark.y for mark in picture.marks)
    for row, mark in enumerate(picture.marks[:MAX_ROWS]):
        place = len(names) - 1 - row
        axes.barh(place, mark.y, height=0.62, color=OTHERS[4])
        if mark.low is not None:
            axes.plot([mark.low, mark.high], [place, place], color=INK, linewidth=2)
        words = f"{number(picture, mark.y)}  "
        axes.text((mark.high or mark.y) + most / 80, place, words, size=size, va="center", weight="bold")
    axes.set_yticks(range(len(names)), [clean(name) for name in reversed(names)], size=size)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, most * 1.12)
    if picture.percent:
        percent(axes.xaxis)
    axes.set_xlabel(clean(picture.x, 70), size=16)
