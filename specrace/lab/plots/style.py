"""What all pictures share: colours, words and panels."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

from specrace.lab.plots.plot import Mark, Picture

INK, GREY, FAINT = "#1f1f1f", "#5f5f5f", "#d9d9d9"
# What is no lane has these in turn (Okabe-Ito without yellow, which is too light for lines on white).
OTHERS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#767676", "#a3a13a")
DASHES = ("-", "--", ":", "-.")
# Longer names are cut; they come from logs and documents.
MAX_CHARACTERS = 34
# More are only in the CSV.
MAX_ROWS, MAX_COLUMNS, MAX_PANELS = 40, 10, 9


def clean(text: str, most: int = MAX_CHARACTERS) -> str:
    """A name of the user's on one line, without what cannot be printed, and not too long."""
    found = "".join(each if each.isprintable() else " " for each in text)
    return found if len(found) <= most else f"{found[: most - 1]}…"


def line_styles(names: Sequence[str], picture: Picture) -> dict[str, tuple[str, str]]:
    """(colour, dash) of each series: its own colour, else one in turn; the second of a colour is dashed."""
    found: dict[str, tuple[str, str]] = {}
    used: dict[str, int] = {}
    for place, name in enumerate(names):
        hue = picture.colours.get(name) or OTHERS[place % len(OTHERS)]
        found[name] = hue, DASHES[used.get(hue, 0) % len(DASHES)]
        used[hue] = used.get(hue, 0) + 1
    return found


def interval(picture: Picture, mark: Mark) -> str:
    """A figure's interval in words."""
    if mark.low is None or mark.high is None:
        return ""
    return f"{number(picture, mark.low)}–{number(picture, mark.high)}"


def number(picture: Picture, value: float) -> str:
    digits = 1 if 0 < value < 0.01 else 0
    return f"{value:.{digits}%}" if picture.percent else f"{value:.2f}"


def percent(axis: Any) -> None:
    ticker: Any = importlib.import_module("matplotlib.ticker")
    axis.set_major_formatter(ticker.PercentFormatter(1, decimals=0))


def subplots(figure: Any, count: int) -> list[Any]:
    """So many panels in rows, with the same axes."""
    columns = max(1, math.ceil(math.sqrt(count)))
    rows = math.ceil(count / columns)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    cells = [axes for line in grid for axes in line]
    for axes in cells[count:]:
        axes.set_visible(False)
    return cells[:count]
