"""Pictures drawn with Matplotlib, as SVG and PNG: on white, to be read from the last row of a room.

Matplotlib, of the extra `pictures`, is loaded when something is drawn. No display and no network is needed.
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
from specrace.core.files import explained, write_whole
from specrace.lab.plots.dots import draw_dots, draw_ranks
from specrace.lab.plots.heat import draw_heat
from specrace.lab.plots.lines import draw_lines
from specrace.lab.plots.panels import draw_bars, draw_multiples
from specrace.lab.plots.plot import Kind, Picture
from specrace.lab.plots.style import GREY, INK, MAX_ROWS, clean

# Inches, and points an inch of the PNG: 1920 pixels wide.
WIDTH, HEIGHT, DPI = 12.8, 7.2, 150
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
    # A category may hold dollar signs.
    "text.parse_math": False,
    "axes.unicode_minus": False,
    # Text that can be searched and edited, and files that are the same in every run.
    "svg.fonttype": "none",
    "svg.hashsalt": "specrace",
}


def write_pictures(folder: Path, pictures: Sequence[Picture], hues: Mapping[str, str]) -> list[Path]:
    """NAME.csv, NAME.svg and NAME.png of each picture; `hues`: lane -> colour. Raises InputError."""
    written = []
    for picture in pictures:
        files = {"csv": picture.as_csv().encode(), **draw(picture, hues)}
        for kind, content in files.items():
            written.append(folder / f"{picture.name}.{kind}")
            with explained(written[-1], "folder"):
                write_whole(written[-1], content)
    return written


def require_matplotlib() -> None:
    """Raises InputError where it is not installed."""
    try:
        importlib.import_module("matplotlib")
    except ImportError as error:
        raise InputError("Pictures need Matplotlib: run pip install 'specrace[pictures]'.") from error


def draw(picture: Picture, hues: Mapping[str, str]) -> dict[str, bytes]:
    """The picture as "svg" and "png"."""
    require_matplotlib()
    matplotlib = importlib.import_module("matplotlib")
    figures: Any = importlib.import_module("matplotlib.figure")
    with ExitStack() as stack:
        stack.enter_context(matplotlib.rc_context(STYLE))
        stack.enter_context(warnings.catch_warnings())
        # Scripts that its font lacks are boxes in the PNG; the SVG has the text.
        warnings.filterwarnings("ignore", message=r"Glyph \d+")
        figure = figures.Figure(figsize=(WIDTH, _height(picture)), layout="constrained", facecolor="white")
        _DRAW[picture.kind](figure, replace(picture, colours={**hues, **picture.colours}))
        _head(figure, picture)
        # Once for both files: most of the time goes into it.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return {"svg": _saved(figure, "svg", metadata={"Date": None}), "png": _saved(figure, "png", dpi=DPI)}


def _saved(figure: Any, kind: str, **how: Any) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, **how)
    return stream.getvalue()


def _height(picture: Picture) -> float:
    """Taller than a slide only where rows would be too narrow to read."""
    rows = min(len(picture.series), MAX_ROWS) if len(picture.panels) < 3 else 0
    return max(HEIGHT, 2.6 + ROW_HEIGHT.get(picture.kind, 0.0) * rows)


def _head(figure: Any, picture: Picture) -> None:
    """Title and subtitle, above the panels."""
    height = figure.get_figheight()
    lines = [line for text in picture.subtitle.split("\n") for line in _wrapped(text, 116)]
    top = 0.72 + 0.28 * len(lines)
    figure.get_layout_engine().set(rect=(0.015, 0.02, 0.97, 1 - top / height - 0.03), w_pad=0.12, h_pad=0.1)
    figure.text(0.02, 1 - 0.2 / height, clean(picture.title, 80), size=24, weight="bold", va="top")
    text = "\n".join(lines)
    figure.text(0.02, 1 - 0.68 / height, text, size=14, color=GREY, va="top", linespacing=1.35)


def _wrapped(text: str, most: int) -> list[str]:
    lines = [""]
    for word in clean(text, 600).split(" "):
        if len(lines[-1]) + len(word) > most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


_DRAW: dict[Kind, Callable[[Any, Picture], None]] = {
    Kind.DOTS: draw_dots,
    Kind.HEAT: draw_heat,
    Kind.LINES: draw_lines,
    Kind.BARS: draw_bars,
    Kind.MULTIPLES: draw_multiples,
    Kind.RANKS: draw_ranks,
}
