"""What all plots share: colours, number formats and the grid of panels."""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from specrace.lab.plots.plot import Mark, Plot

INK, GREY, FAINT = "#1f1f1f", "#5f5f5f", "#d9d9d9"
# Colours of series that are not lanes (Okabe-Ito without yellow, which is too light for lines on white).
OTHERS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#767676", "#a3a13a")
DASHES = ("-", "--", ":", "-.")
# Names come from logs and documents; longer ones are cut.
MAX_CHARACTERS = 34
# Limits of what is drawn; the CSV has everything.
MAX_ROWS, MAX_COLUMNS, MAX_PANELS = 40, 10, 9


def clean(text: str, max_characters: int = MAX_CHARACTERS) -> str:
    """Text from a log or document on one line: unprintable characters become spaces, and a long text is cut."""
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= max_characters else f"{line[: max_characters - 1]}…"


def line_styles(names: Sequence[str], plot: Plot) -> dict[str, tuple[str, str]]:
    """(colour, dash) of each series: its own colour, else the next of `OTHERS`; a colour used again is dashed."""
    styles: dict[str, tuple[str, str]] = {}
    uses = Counter[str]()
    for index, name in enumerate(names):
        hue = plot.colours.get(name) or OTHERS[index % len(OTHERS)]
        styles[name] = hue, DASHES[uses[hue] % len(DASHES)]
        uses[hue] += 1
    return styles


def format_interval(plot: Plot, mark: Mark) -> str:
    """A mark's interval as text; "" if it has none."""
    if mark.low is None or mark.high is None:
        return ""
    return f"{format_number(plot, mark.low)}–{format_number(plot, mark.high)}"


def format_number(plot: Plot, value: float) -> str:
    """A value as text: a percentage where the plot has shares."""
    digits = 1 if 0 < value < 0.01 else 0
    return f"{value:.{digits}%}" if plot.percent else f"{value:.2f}"


def show_percentages(axis: Any) -> None:
    """Label an axis of shares in percent."""
    ticker: Any = importlib.import_module("matplotlib.ticker")
    axis.set_major_formatter(ticker.PercentFormatter(1, decimals=0))


def subplots(figure: Any, count: int) -> list[Any]:
    """`count` panels in a grid, with shared axes."""
    columns = max(1, math.ceil(math.sqrt(count)))
    rows = math.ceil(count / columns)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    cells = [axes for row in grid for axes in row]
    for axes in cells[count:]:
        axes.set_visible(False)
    return cells[:count]
