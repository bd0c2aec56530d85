"""Draws plots with Matplotlib, as SVG and PNG: on white, in type that can be read from the back of a room.

Matplotlib comes with the extra `plots` and is imported when something is drawn. It needs no display and no network.
"""

from __future__ import annotations

import importlib
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError
from specrace.core.files import as_input_error, write_atomically
from specrace.lab.plots.dots import draw_dots, draw_ranks
from specrace.lab.plots.heat import draw_heat
from specrace.lab.plots.lines import draw_lines
from specrace.lab.plots.panels import draw_bars, draw_multiples
from specrace.lab.plots.plot import Kind, Plot
from specrace.lab.plots.style import GREY, INK, MAX_ROWS, clean

# Inches, and dots per inch: the PNG is 1920 pixels wide.
WIDTH, HEIGHT, DPI = 12.8, 7.2, 150
# The longest line of a subtitle that fits the width.
_SUBTITLE_CHARACTERS = 116
# The height of a row by kind of plot, in inches.
ROW_HEIGHT = {Kind.DOTS: 0.42, Kind.HEAT: 0.42, Kind.RANKS: 0.33}
STYLE = {
    "font.family": ["DejaVu Sans"],
    "font.size": 15,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 16,
    "xtick.color": INK,
    "ytick.color": INK,
    # A category may contain dollar signs.
    "text.parse_math": False,
    "axes.unicode_minus": False,
    # SVG text stays text, which can be searched and edited, and every run writes the same bytes.
    "svg.fonttype": "none",
    "svg.hashsalt": "specrace",
}


def write_plots(folder: Path, plots: Sequence[Plot], hues: Mapping[str, str]) -> list[Path]:
    """Write NAME.csv, NAME.svg and NAME.png of each plot, and return their paths.

    `hues`: lane -> colour. Raises InputError where a file cannot be written.
    """
    written = []
    for plot in plots:
        files = {"csv": plot.as_csv().encode(), **draw(plot, hues)}
        for kind, content in files.items():
            file = folder / f"{plot.name}.{kind}"
            with as_input_error(file, "folder"):
                write_atomically(file, content)
            written.append(file)
    return written


def require_matplotlib() -> None:
    """Raises InputError where Matplotlib is not installed."""
    try:
        importlib.import_module("matplotlib")
    except ImportError as error:
        raise InputError("Plots need Matplotlib: run pip install 'specrace[plots]'.") from error


def draw(plot: Plot, hues: Mapping[str, str]) -> dict[str, bytes]:
    """The plot's files by kind, "svg" and "png"; `hues`: lane -> colour."""
    require_matplotlib()
    matplotlib = importlib.import_module("matplotlib")
    figures: Any = importlib.import_module("matplotlib.figure")
    with ExitStack() as stack:
        stack.enter_context(matplotlib.rc_context(STYLE))
        stack.enter_context(warnings.catch_warnings())
        # Characters that the font lacks become boxes in the PNG; the SVG has the text.
        warnings.filterwarnings("ignore", message=r"Glyph \d+")
        figure = figures.Figure(figsize=(WIDTH, _height(plot)), layout="constrained", facecolor="white")
        _DRAW[plot.kind](figure, replace(plot, colours={**hues, **plot.colours}))
        _write_title(figure, plot)
        # The layout takes most of the time, so it is computed once for both files.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return {"svg": _render(figure, "svg", metadata={"Date": None}), "png": _render(figure, "png", dpi=DPI)}


def _render(figure: Any, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, **options)
    return stream.getvalue()


def _height(plot: Plot) -> float:
    """The height in inches: a slide's, or more if the rows would be too low to read."""
    # Three panels or more form a grid, whose type shrinks instead.
    rows = min(len(plot.series), MAX_ROWS) if len(plot.panels) < 3 else 0
    # 2.6 inches hold the title and the axes.
    return max(HEIGHT, 2.6 + ROW_HEIGHT.get(plot.kind, 0.0) * rows)


def _write_title(figure: Any, plot: Plot) -> None:
    """Write title and subtitle above the panels; positions are fractions of the figure, computed from inches."""
    height = figure.get_figheight()
    lines = [line for text in plot.subtitle.split("\n") for line in _wrap(text, _SUBTITLE_CHARACTERS)]
    top = 0.72 + 0.28 * len(lines)
    figure.get_layout_engine().set(rect=(0.015, 0.02, 0.97, 1 - top / height - 0.03), w_pad=0.12, h_pad=0.1)
    figure.text(0.02, 1 - 0.2 / height, clean(plot.title, 80), size=24, weight="bold", va="top")
    text = "\n".join(lines)
    figure.text(0.02, 1 - 0.68 / height, text, size=14, color=GREY, va="top", linespacing=1.35)


def _wrap(text: str, max_characters: int) -> list[str]:
    """The text in lines of at most `max_characters`, broken at spaces."""
    lines = [""]
    for word in clean(text, 600).split(" "):
        if len(lines[-1]) + len(word) > max_characters:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


_DRAW: dict[Kind, Callable[[Any, Plot], None]] = {
    Kind.DOTS: draw_dots,
    Kind.HEAT: draw_heat,
    Kind.LINES: draw_lines,
    Kind.BARS: draw_bars,
    Kind.MULTIPLES: draw_multiples,
    Kind.RANKS: draw_ranks,
}
