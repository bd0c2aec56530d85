"""The tables of the n-gram trie's paper have its rows and columns, and their numbers are those of the sweep."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specrace.core.cost_curve import ASSUMED_GPU, ContextCost, CostCurve
from specrace.lab.advice.forecast import forecast_sweep
from specrace.lab.plots import paper, paper_plots
from specrace.lab.plots.paper import NUM_DRAFTS, PREFIX, Table, make_tables, swept_lanes
from specrace.lab.scoring.cells import run_sweep
from specrace.lab.scoring.score import ALL
from specrace.lab.scoring.sweep import Sweep
from tests.lab.parts import mostly_copying, transcript

# Three requests copy, one does not, and the output of the last one loops.
TRANSCRIPTS = [*mostly_copying(4), transcript([1, 2, 3], [7, 8] * 30)]


def sweep_and_tables(name: str) -> tuple[Sweep, list[Table]]:
    """The finished sweep for a table or figure of the paper, and the tables made from it."""
    sweep = Sweep.of(swept_lanes(name), TRANSCRIPTS, ASSUMED_GPU)
    run_sweep(sweep, TRANSCRIPTS)
    return sweep, make_tables(name, sweep, TRANSCRIPTS, ASSUMED_GPU)


@pytest.fixture
def two_depths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the tables for two values of n only."""
    monkeypatch.setattr(paper, "N", range(8, 10))


def test_table_1_has_the_lanes_and_every_category_without_loops() -> None:
    sweep, (table,) = sweep_and_tables("table1")
    assert [row[0] for row in table.rows] == ["all", "copy", "fresh", "mean of the categories"]
    assert table.columns[-2:] == ("trie 32 speedup", "trie 32 tokens/step")
    not_looping = forecast_sweep(sweep, ASSUMED_GPU)[0].for_requests(range(4))
    assert table.rows[0][-2:] == (pytest.approx(not_looping.speedup[-1]), pytest.approx(not_looping.tau[-1]))
    assert sweep.lanes[-1].options == {"n": 13, "prefix": 3, "static": True}
    # Three requests copy and one does not, so the mean over the categories is not the pooled figure.
    _, copy, fresh, mean = (row[1:] for row in table.rows)
    assert mean == pytest.approx(tuple((a + b) / 2 for a, b in zip(copy, fresh, strict=True)))
    assert mean[-1] != pytest.approx(table.rows[0][-1])


def test_a_category_may_be_called_all() -> None:
    named = [replace(request, category="all") for request in TRANSCRIPTS]
    sweep = Sweep.of(swept_lanes("table3"), named, ASSUMED_GPU)
    run_sweep(sweep, named)
    (table,) = make_tables("table3", sweep, named, ASSUMED_GPU)
    assert [row[0] for row in table.rows] == ["all", "all (category)"] and table.rows[0][1:] == table.rows[1][1:]


@pytest.mark.usefixtures("two_depths")
def test_tables_2_5_and_6_are_grids_of_n_and_the_prefix() -> None:
    for name, titles in (
        ("table2", ["all"]),
        ("table5", ["copy", "fresh"]),
        ("table6", ["ms to build", "forwards over"]),
    ):
        _, tables = sweep_and_tables(name)
        assert len(tables) == len(titles)
        for table, title in zip(tables, titles, strict=True):
            assert title in table.title and table.columns[1:] == tuple(map(str, PREFIX))
            assert [row[0] for row in table.rows] == ["8", "9"] and all(
                cell > 0 for row in table.rows for cell in row[1:]
            )


def test_table_3_has_the_papers_draft_sizes() -> None:
    _, (table,) = sweep_and_tables("table3")
    assert table.columns[1:] == tuple(f"trie {number}" for number in NUM_DRAFTS)


def test_figure_4_has_shares_that_sum_to_one() -> None:
    _, (table,) = sweep_and_tables("figure4")
    assert [row[0] for row in table.rows] == ["all", "copy", "fresh"]
    for _, *shares in table.rows:
        assert sum(shares) == pytest.approx(1.0)
    # Column 1 is the share of steps that accept no draft token. No token of a fresh output is in its prompt.
    assert table.rows[-1][1] == 1.0


def test_figure_5_has_the_parts_of_the_drafting_time() -> None:
    _, (table,) = sweep_and_tables("figure5")
    assert sum(row[-1] for row in table.rows) == pytest.approx(1.0)
    assert all(row[1] >= 0 for row in table.rows)
    times = {name: ms for name, ms, *_ in table.rows}
    assert list(times) == ["build the trie", "search", "draft the best nodes", "mask and positions", "add the output"]
    assert min(times["search"], times["draft the best nodes"], times["mask and positions"]) > 0.0


@pytest.mark.usefixtures("two_depths")
def test_table_6_has_the_time_to_decode_a_request() -> None:
    """It is the mean forecast cost of the requests that do not loop, times the duration of a forward over one row."""
    curve = CostCurve((1, 33), (1.0, 1.5), (ContextCost(50, 2.0, (1.0, 1.5)),))
    sweep = Sweep.of(swept_lanes("table6"), TRANSCRIPTS, curve)
    run_sweep(sweep, TRANSCRIPTS)
    _, table = make_tables("table6", sweep, TRANSCRIPTS, curve)
    assert table.title == "Table 6: ms to decode a request, forecast"
    # A forward takes 2 ms after these prompts, and the first trie is lane 1.
    cost = forecast_sweep(sweep, curve)[0].for_requests(range(4)).cost
    assert table.rows[0][1] == pytest.approx(2.0 * cost[1].mean())


@pytest.mark.usefixtures("two_depths")
def test_no_table_counts_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    num_counted: list[int] = []
    monkeypatch.setattr(paper, "_times", lambda _lane, counted, _curve: num_counted.append(len(counted)))
    sweep_and_tables("figure5")
    assert num_counted == [len(TRANSCRIPTS) - 1]
    # Lane 1 is the first trie, whose time to build is the first cell.
    sweep, (table, _) = sweep_and_tables("table6")
    build_times = [score.build_ms for number, score in sweep.scores(1) if number < len(TRANSCRIPTS) - 1]
    assert table.rows[0][1] == pytest.approx(sum(build_times) / len(build_times))


def test_the_categories_drawn_are_counted_without_the_panel_of_all() -> None:
    names = [f"category {number}" for number in range(10)]
    assert paper_plots._which_categories(names) == "the 9 largest of 10 categories"
    assert paper_plots._which_categories([ALL, *names]) == "the 8 largest of 10 categories"
    assert paper_plots._which_categories([ALL, *names[:8]]) == ""
