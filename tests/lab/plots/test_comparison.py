"""The plots of a comparison of servers: their numbers are its figures."""

from __future__ import annotations

from typing import Any

import pytest

from specrace.lab.compare.samples import Question
from specrace.lab.compare.summary import Comparison, summarise
from specrace.lab.plots.comparison import comparison_plots
from specrace.lab.plots.drawing import draw
from specrace.lab.plots.plot import Plot
from tests.lab.compare.parts import sample

QUESTIONS = [Question(str(number), "none", (1, 2)) for number in range(4)]


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    """The summary of a comparison of two servers, at one and at four requests at a time."""
    samples = [
        sample(server, number, sizes, concurrency=concurrency)
        for server, sizes in (("plain", [1] * 9), ("spec", [1, 3, 2, 2, 1]))
        for concurrency in (1, 4)
        for number in range(4)
    ]
    about = {name: {"software": "vLLM 0.32.0"} for name in ("plain", "spec")}
    return summarise(Comparison(["plain", "spec"], [1, 4], 1, QUESTIONS, samples, {}, about), None, seed=0)


@pytest.fixture(scope="module")
def plots(summary: dict[str, Any]) -> dict[str, Plot]:
    """The plots of the comparison, by name."""
    return {plot.name: plot for plot in comparison_plots(summary)}


def test_a_comparison_has_a_plot_for_each_kind_of_figure(plots: dict[str, Plot], summary: dict[str, Any]) -> None:
    assert set(plots) == {"rates", "speedup", "tokens-per-step", "acceptance"}
    spec = summary["rows"][1]
    (mark,) = [mark for mark in plots["speedup"].marks if mark.x == 1]
    assert (mark.y, mark.low, mark.high) == tuple(spec["speedup"][key] for key in ("speedup", "low", "high"))
    assert [mark.y for mark in plots["acceptance"].marks[:2]] == spec["rates"]
    assert {mark.series for mark in plots["rates"].marks} == {"plain", "spec"}


def test_forecasts_are_drawn_beside_what_was_measured(summary: dict[str, Any]) -> None:
    forecast = {"tau": 1.8, "speedup": 1.7, "low": 1.6, "high": 1.8, "rates": [0.9, 0.5]}
    rows = [row | {"forecast": forecast if row["server"] == "spec" else None} for row in summary["rows"]]
    plots = {plot.name: plot for plot in comparison_plots(summary | {"rows": rows})}
    for name in ("speedup", "tokens-per-step", "acceptance"):
        assert "spec, forecast" in plots[name].series


def test_a_server_without_drafts_has_only_the_plot_of_rates(summary: dict[str, Any]) -> None:
    rows = [row for row in summary["rows"] if row["server"] == "plain"]
    assert [plot.name for plot in comparison_plots(summary | {"rows": rows})] == ["rates"]


def test_a_plot_is_drawn(plots: dict[str, Plot]) -> None:
    files = draw(plots["rates"], {})
    assert files["png"].startswith(b"\x89PNG") and b"Tokens per second" in files["svg"]
