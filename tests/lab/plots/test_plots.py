"""Plots: their numbers are the sweep's, and any names in a log can be drawn."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from specrace.core.cost_curve import ASSUMED_CPU
from specrace.lab.advice.forecast import RESAMPLES, median_interval, ratio_interval, resamples
from specrace.lab.advice.recommend import Recommender
from specrace.lab.plots import steps, sweeps
from specrace.lab.plots.paper_plots import paper_plot
from specrace.lab.plots.plot import Kind, Mark, Plot
from specrace.lab.plots.sweeps import MAX_LENGTH, SPEEDUP, TAU, SweepView, sweep_plots
from specrace.lab.scoring.cells import run_sweep
from specrace.lab.scoring.sweep import Sweep, grid_lanes
from tests.lab.parts import mostly_copying, transcript

# The prompts' first halves are documents; the output of the last transcript loops.
TRANSCRIPTS = [replace(request, documents=((0, 20, "a.md"), (20, 30, "b.md"))) for request in mostly_copying(12)]
TRANSCRIPTS.append(transcript([1, 2, 3], [7, 8] * 30))
GRID = {"trie": {"n": ("4", "13"), "prefix": ("2", "3")}, "prompt-lookup": {"longest": ("2", "5")}}


@pytest.fixture(scope="module")
def view() -> SweepView:
    """A finished sweep over `GRID`."""
    sweep = Sweep.of(grid_lanes(tuple(GRID), GRID, (4, 8)), TRANSCRIPTS, ASSUMED_CPU)
    run_sweep(sweep, TRANSCRIPTS)
    return SweepView(Recommender(sweep, ASSUMED_CPU), "a curve, which was assumed")


@pytest.fixture(scope="module")
def plots(view: SweepView) -> dict[str, Plot]:
    """The plots of the sweep, by name."""
    return {plot.name: plot for plot in sweep_plots(view)}


def test_a_sweep_has_every_plot_that_its_data_allow(plots: dict[str, Plot]) -> None:
    assert set(plots) == {
        *("lanes", "accepted-lengths", "acceptance", "categories", "num-draft", "trie-time"),
        *("settings-trie", "settings-prompt-lookup"),
    }


def test_a_sweep_of_one_setting_has_no_curves() -> None:
    sweep = Sweep.of(grid_lanes(["trie"], {}, ()), TRANSCRIPTS[:3], ASSUMED_CPU)
    run_sweep(sweep, TRANSCRIPTS[:3])
    plots = sweep_plots(SweepView(Recommender(sweep, ASSUMED_CPU), ""))
    assert [plot.name for plot in plots] == ["lanes", "accepted-lengths", "acceptance"]


def test_each_lane_is_shown_with_its_recommended_settings(view: SweepView, plots: dict[str, Plot]) -> None:
    recommender = view.recommender
    # Two panels; the best settings of each of two lanes have an interval in both.
    marks = [mark for mark in plots["lanes"].marks if mark.low is not None]
    assert len(plots["lanes"].marks) == 2 * (len(view.sweep.lanes) - 1) and len(marks) == 4
    for mark in marks:
        row = recommender.recommendation(recommender.best_among([mark.series]))
        name = {TAU: "tau", SPEEDUP: "speedup"}[mark.panel]
        assert (mark.y, mark.low, mark.high) == (row[name], row[f"{name}_low"], row[f"{name}_high"])
        assert f"num_draft={row['num_draft']}" in mark.x


def test_curves_vary_one_setting_and_keep_the_others(view: SweepView, plots: dict[str, Plot]) -> None:
    speedup = {(lane.name, *lane.options.values(), lane.num_draft): view.recommender.forecast.speedup[number]
               for number, lane in enumerate(view.sweep.lanes)}  # fmt: skip
    best = {lane.name: lane for lane in (view.sweep.lanes[number] for number in view.best_lanes)}
    for mark in plots["num-draft"].marks_of(SPEEDUP):
        assert mark.y == speedup[mark.series, *best[mark.series].options.values(), mark.x]
    table = plots["settings-trie"]
    assert [(mark.series, mark.x) for mark in table.marks] == [("4", 2), ("4", 3), ("13", 2), ("13", 3)]
    for mark in table.marks:
        # The trie's options are n, prefix and static.
        assert mark.y == speedup["trie", int(mark.series), mark.x, False, best["trie"].num_draft]
    assert [mark.x for mark in plots["settings-prompt-lookup"].marks] == [2, 5]


def test_shares_of_steps_are_the_recommended_profile(view: SweepView, plots: dict[str, Plot]) -> None:
    for number in view.best_lanes:
        name, profile = view.sweep.lanes[number].name, view.recommender.profile(number)
        lengths, positions = (plots[plot_name].marks_of(name) for plot_name in ("accepted-lengths", "acceptance"))
        assert sum(mark.y for mark in lengths) == pytest.approx(1.0)
        assert sum(length * mark.y for length, mark in enumerate(lengths, 1)) == pytest.approx(
            profile["mean_accept_length"]
        )
        rates = profile["marginal_accept_rates"]
        assert [mark.y for mark in positions] == pytest.approx([*rates, *[0.0] * (MAX_LENGTH - len(rates))])
        assert all(0 <= mark.low <= mark.high <= 1 for mark in (*lengths, *positions))  # type: ignore[operator]


def test_a_category_of_one_request_has_no_interval(view: SweepView) -> None:
    requests = (replace(view.sweep.requests[0], category="one"), *view.sweep.requests[1:])
    sweep = replace(view.sweep, requests=requests)
    marks = sweeps.categories(SweepView(Recommender(sweep, ASSUMED_CPU), "")).marks
    assert {mark.series for mark in marks if mark.low is None} == {"one (1)"}
    # "copy" and "fresh" are left; the only request of "none" loops.
    assert len({mark.series for mark in marks}) == 3


def test_accepted_tokens_are_counted_by_source(view: SweepView) -> None:
    sources, failures = steps.step_plots(view, TRANSCRIPTS)
    share = {mark.series: mark.y for mark in sources.marks}
    assert sum(share.values()) == pytest.approx(1.0) and min(share["a.md"], share["b.md"], share[steps.REST]) > 0
    assert view.sweep.lanes[view.best_lanes[0]].name in sources.subtitle
    parts: dict[float, float] = {}
    for mark in failures.marks:
        parts[mark.x] = parts.get(mark.x, 0.0) + mark.y
    assert list(parts.values()) == pytest.approx([1.0] * len(parts)) and list(parts)[-1] == 100


@pytest.mark.parametrize(
    ("position", "words"), [(-1, steps.UNKNOWN), (0, "a.md"), (25, "b.md"), (30, steps.REST), (60, steps.ANSWER)]
)
def test_copied_from_names_the_text_at_a_position(position: int, words: str) -> None:
    assert steps.copied_from(TRANSCRIPTS[0], position) == words
    log = replace(TRANSCRIPTS[0], documents=())
    assert steps.copied_from(log, 14) == steps.QUARTERS[0] and steps.copied_from(log, 59) == steps.QUARTERS[3]


def test_intervals_hold_the_value_and_narrow_with_requests() -> None:
    chance = np.random.default_rng(3)
    widths = []
    for count in (20, 2000):
        numerators, denominators = chance.random(count), 1 + chance.random(count)
        draws = resamples(count, 0)
        assert draws.shape == (RESAMPLES, count) and (draws.sum(axis=1) == count).all()
        low, high = ratio_interval(draws, numerators, denominators)
        assert low < numerators.sum() / denominators.sum() < high
        median_low, median_high = median_interval(draws, numerators)
        assert median_low <= np.median(numerators) <= median_high
        widths.append((high - low, median_high - median_low))
    # With a hundred times as many requests, an interval is about a tenth as wide.
    assert widths[0][0] > 3 * widths[1][0] and widths[0][1] > 3 * widths[1][1]


def test_a_csv_has_no_formulas_and_only_named_columns() -> None:
    # The plot names four of the columns panel, series, x, y, low and high "", which leaves them out.
    plot = Plot("p", Kind.RANKS, "", "", "", "", ("", "name", "", "value", "", ""), (Mark("x", "=1+1", 0, 0.5),))
    assert list(csv.reader(io.StringIO(plot.as_csv()))) == [["name", "value"], ["'=1+1", "0.5"]]


def test_long_drafts_count_as_the_last_length(view: SweepView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "MAX_LENGTH", 2)
    plot = sweeps.accepted_lengths(view)
    assert [mark.x for mark in plot.marks_of(plot.panels[0])] == ["1", "2+"] and MAX_LENGTH > 2
    assert sum(mark.y for mark in plot.marks_of(plot.panels[0])) == pytest.approx(1.0)


@pytest.mark.slow
def test_paper_plots_have_the_numbers_of_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    from specrace.lab.plots import paper
    from specrace.lab.plots import paper_plots as papers

    for module in (paper, papers):
        monkeypatch.setattr(module, "N", range(8, 10))
    for name in ("table1", "table2", "table3", "table5", "table6", "figure4", "figure5"):
        sweep = Sweep.of(paper.swept_lanes(name), TRANSCRIPTS, ASSUMED_CPU)
        run_sweep(sweep, TRANSCRIPTS)
        tables = paper.make_tables(name, sweep, TRANSCRIPTS, ASSUMED_CPU)
        plot = paper_plot(name, SweepView(Recommender(sweep, ASSUMED_CPU), ""), tables)
        assert plot.name == name
        plotted = sorted(round(mark.y, 9) for mark in plot.marks)
        cells = sorted(round(cell, 9) for table in tables for row in table.rows for cell in row[1:])
        if name in ("table2", "table3", "table5", "figure4"):
            assert plotted == cells
        else:
            assert len(plotted) > 2 and (name == "table6" or set(plotted) <= set(cells))
