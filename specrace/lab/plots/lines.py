"""Lines over numbers, named at their ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specrace.lab.plots.plot import Mark, Picture
from specrace.lab.plots.style import FAINT, INK, clean, line_styles, percent

# More series have bars for their intervals, not bands.
MAX_BANDS = 3
VANILLA = "vanilla"


def draw_lines(figure: Any, picture: Picture) -> None:
    """A line for each series, named at its end."""
    styles = line_styles(picture.series, picture)
    grid = figure.subplots(1, len(picture.panels), squeeze=False)[0]
    for axes, panel in zip(grid, picture.panels, strict=True):
        names = list(dict.fromkeys(mark.series for mark in picture.of(panel)))
        for place, name in enumerate(names):
            # Bands of many series cover each other: they have bars, side by side.
            aside = place - (len(names) - 1) / 2 if len(names) > MAX_BANDS else None
            draw_line(axes, _aside(picture, picture.of(panel, name), aside or 0.0), *styles[name], band=aside is None)
        _scales(axes, picture, sorted({mark.x for mark in picture.of(panel)}))
        axes.set_title(clean(panel, 70), size=17, weight="bold", loc="left")
        ends = {name: picture.of(panel, name)[-1].y for name in names}
        if picture.even is not None:
            axes.axhline(picture.even, color=INK, linewidth=1.4, zorder=1)
            ends[VANILLA] = picture.even
        _name_ends(figure, axes, ends, styles | {VANILLA: (INK, "-")})
    figure.supxlabel(clean(picture.x, 70), size=16)
    grid[0].set_ylabel(clean(picture.y, 70), size=16)


def _aside(picture: Picture, marks: Sequence[Mark], steps: float) -> list[Mark]:
    """The marks so many small steps to the right."""
    every = sorted({mark.x for mark in picture.marks})
    step = 0.006 * (every[-1] - every[0])
    return [replace(mark, x=mark.x * 1.02**steps if picture.logarithmic else mark.x + step * steps) for mark in marks]


def draw_line(axes: Any, marks: Sequence[Mark], hue: str, dash: str, *, band: bool = True) -> None:
    x, low, high = [mark.x for mark in marks], [mark.low for mark in marks], [mark.high for mark in marks]
    if None not in low and band:
        axes.fill_between(x, low, high, color=hue, alpha=0.16, linewidth=0)
    elif None not in low:
        axes.vlines(x, low, high, color=hue, linewidth=2, alpha=0.6)
    axes.plot(x, [mark.y for mark in marks], dash, color=hue, linewidth=3, marker="o", markersize=7)


def _scales(axes: Any, picture: Picture, places: Sequence[float]) -> None:
    """Ticks where there are figures; from 0 on, but for speedups."""
    if picture.logarithmic:
        axes.set_xscale("log", base=2)
    axes.minorticks_off()
    shown = places if len(places) <= 12 else places[:: math.ceil(len(places) / 12)]
    axes.set_xticks(shown, [f"{each:g}" for each in shown])
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.03)
    if picture.even is not None:
        axes.set_ylim(bottom=min(axes.get_ylim()[0], picture.even - 0.05))
    else:
        axes.set_ylim(bottom=0)
    if picture.percent:
        percent(axes.yaxis)


def _name_ends(figure: Any, axes: Any, ends: Mapping[str, float], styles: Mapping[str, tuple[str, str]]) -> None:
    """The names of the lines, right of the panel, moved apart where they would cover each other."""
    size = min(15.0, 260 / max(len(ends), 1))
    low, high = axes.get_ylim()
    apart = 1.35 * size / 72 / (figure.get_figheight() * 0.66) * (high - low)
    for name, place in _spread(ends, apart, low, high).items():
        end, (hue, dash) = ends[name], styles[name]
        how = {"transform": axes.get_yaxis_transform(), "clip_on": False, "color": hue}
        axes.plot([1.0, 1.025], [end, place], linewidth=1, **how)
        axes.plot([1.025, 1.06], [place, place], dash, linewidth=3, **how)
        axes.text(1.075, place, clean(name, 24), size=size, va="center", transform=axes.get_yaxis_transform())


def _spread(ends: Mapping[str, float], apart: float, low: float, high: float) -> dict[str, float]:
    """Heights as near to `ends` as they can be, `apart` from each other, from `low` to `high`."""
    order = sorted(ends, key=lambda name: ends[name])
    found: dict[str, float] = {}
    last = low - apart / 2
    for name in order:
        found[name] = last = max(ends[name], last + apart)
    last = max(high + apart / 2, low + apart * len(order))
    for name in reversed(order):
        found[name] = last = min(found[name], last - apart)
    return found
