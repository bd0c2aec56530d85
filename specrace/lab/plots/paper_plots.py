"""The n-gram trie paper's tables and figures (see `paper`) as plots, with intervals, which the paper does not have.

n is the depth of the trie; L_p, the option `prefix`, is the largest number of tokens that it matches.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from specrace.lab.plots.paper import PREFIX, N, Table
from specrace.lab.plots.plot import Kind, Mark, Plot
from specrace.lab.plots.style import MAX_PANELS
from specrace.lab.plots.sweeps import (
    INTERVALS,
    SPEEDUP,
    TAU,
    SweepView,
    categories,
    length_shares,
    trie_times,
)
from specrace.lab.scoring.score import ALL


def paper_plot(name: str, view: SweepView, tables: Sequence[Table]) -> Plot:
    """The plot of one of the paper's tables or figures, from its sweep; figure 5 takes its times from `tables`."""
    if name == "table1":
        return categories(view, name, "Table 1: speedup by category")
    if name in ("table2", "table5"):
        return _grids(name, view)
    if name == "table3":
        return _draft_sizes(view)
    if name == "table4":
        return _noise(view)
    if name == "table6":
        plot = trie_times(view, name, "Table 6: time to build a trie")
        assert plot is not None
        return plot
    return _lengths(view) if name == "figure4" else _times(view, tables)


def _groups(view: SweepView) -> dict[str, list[int]]:
    """Indices into `included`, the requests that do not loop: all, and each category if there is more than one."""
    groups = {ALL: list(range(len(view.recommender.included)))}
    return groups | view.categories if len(view.categories) > 1 else groups


def _which_categories(groups: Collection[str]) -> str:
    """Which categories are drawn, beside ALL if it is a group; "" if there is room for all."""
    num_all = int(ALL in groups)
    shown = f"the {MAX_PANELS - num_all} largest of {len(groups) - num_all} categories"
    return shown if len(groups) > MAX_PANELS else ""


def _grids(name: str, view: SweepView) -> Plot:
    """Speedup over n and L_p: of all requests (table 2) or by category (table 5)."""
    groups = {"": list(range(len(view.recommender.included)))} if name == "table2" else view.categories
    numbers = {
        (lane.options["n"], lane.options["prefix"]): number for number, lane in enumerate(view.sweep.lanes) if number
    }
    marks = []
    for group, indices in groups.items():
        forecast = view.recommender.forecast.for_requests(indices)
        for n in N:
            for prefix in PREFIX:
                number = numbers[n, prefix]
                interval = forecast.intervals(number, view.recommender.seed)["speedup"]
                marks.append(Mark(group, str(n), prefix, float(forecast.speedup[number]), *interval))
    note = f"with {INTERVALS}" if name == "table2" else _which_categories(groups)
    return Plot(
        name=name,
        kind=Kind.HEAT,
        title=f"Table {name[-1]}: the trie's speedup over n and L_p",
        subtitle=view.subtitle("Static, 32 draft tokens", note),
        x="L_p, most tokens matched",
        y="n, depth of the trie",
        columns=("category" if name == "table5" else "", "n", "L_p", "speedup", "low", "high"),
        marks=tuple(marks),
    )


def _draft_sizes(view: SweepView) -> Plot:
    """Speedup over the draft size, by category."""
    marks = []
    for group, indices in _groups(view).items():
        forecast = view.recommender.forecast.for_requests(indices)
        for number, lane in list(enumerate(view.sweep.lanes))[1:]:
            interval = forecast.intervals(number, view.recommender.seed)["speedup"]
            marks.append(Mark("", group, lane.num_draft, float(forecast.speedup[number]), *interval))
    return Plot(
        name="table3",
        kind=Kind.LINES,
        title="Table 3: the trie's speedup over its draft size",
        subtitle=view.subtitle("Static, n = 13, L_p = 3", f"with {INTERVALS}"),
        x="Draft tokens a step, at most",
        y=SPEEDUP,
        columns=("", "category", "num_draft", "speedup", "low", "high"),
        marks=tuple(marks),
        break_even=1.0,
        logarithmic=True,
    )


def _noise(view: SweepView) -> Plot:
    """Tokens per step and speedup with clean and with noisy retrieval."""
    marks = []
    for panel, name in ((TAU, "tau"), (SPEEDUP, "speedup")):
        for group, indices in view.categories.items():
            forecast = view.recommender.forecast.for_requests(indices)
            # Lane 0 is vanilla, lane 1 the trie.
            value = forecast.tau[1] if name == "tau" else forecast.speedup[1]
            interval = forecast.intervals(1, view.recommender.seed)[name]
            marks.append(Mark(panel, group, "", float(value), *interval))
    return Plot(
        name="table4",
        kind=Kind.DOTS,
        title="Table 4: the trie with clean and with noisy retrieval",
        subtitle=view.subtitle("Noisy: half of the passages are irrelevant", f"with {INTERVALS}"),
        x="",
        y="",
        columns=("figure", "retrieval", "", "value", "low", "high"),
        marks=tuple(marks),
        break_even=1.0,
    )


def _lengths(view: SweepView) -> Plot:
    """The trie's accepted lengths, of all requests and by category."""
    groups = _groups(view)
    forecast = view.recommender.forecast
    # Lane 1 is the trie.
    notes = {group: f"{forecast.for_requests(indices).tau[1]:.2f} a step" for group, indices in groups.items()}
    panels = {group: (1, indices) for group, indices in groups.items()}
    title = "Figure 4: the trie's accepted lengths"
    return length_shares(view, "figure4", title, panels, notes, "category", _which_categories(groups))


def _times(view: SweepView, tables: Sequence[Table]) -> Plot:
    """The parts of a request's drafting time."""
    marks = tuple(Mark("", name, "", ms) for name, ms, *_ in tables[0].rows)
    return Plot(
        name="figure5",
        kind=Kind.RANKS,
        title="Figure 5: the trie's drafting time",
        subtitle=view.subtitle("Static, n = 13, L_p = 3, 32 draft tokens", costs=False),
        x="ms a request",
        y="",
        columns=("", "part", "", "ms", "", ""),
        marks=marks,
    )
