"""Plots drawn by matplotlib: hostile names in a log do no harm, and equal plots give equal files."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from specrace.lab.plots.drawing import draw
from specrace.lab.plots.plot import Kind, Mark, Plot

HOSTILE = "$\\frac{1}$ <b>&amp; \x00\ud800\u202e\n=1+1 文"


def hostile_plot(kind: Kind) -> Plot:
    """A plot with hostile names."""
    # A mark is (panel, series, x, y, low, high); a plot names these columns for its CSV, and "" leaves one out.
    marks = [
        Mark(panel, f"{HOSTILE}{series}", x, 1.0 + 0.1 * x * series, 1.0, 2.0)
        for panel in (HOSTILE, "b")
        for series in range(1, 3)
        for x in range(1, 4)
    ]
    columns = ("panel", "", "x", "value", "low", "high")
    return Plot("p", kind, HOSTILE, HOSTILE, HOSTILE, HOSTILE, columns, tuple(marks), break_even=1.0)


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_is_drawn_with_hostile_names(kind: Kind) -> None:
    # Bytes 16 to 19 of a PNG file are the picture's width in pixels. No lane has a colour of its own, hence `{}`.
    files = draw(hostile_plot(kind), {})
    assert files["png"][:8] == b"\x89PNG\r\n\x1a\n" and int.from_bytes(files["png"][16:20], "big") == 1920
    texts = "".join(ElementTree.fromstring(files["svg"]).itertext())
    assert "$\\frac{1}$ <b>&amp;" in texts and "\u202e" not in texts


def test_equal_plots_give_equal_files() -> None:
    assert draw(hostile_plot(Kind.LINES), {}) == draw(hostile_plot(Kind.LINES), {})
