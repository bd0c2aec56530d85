"""The n-gram trie paper's tables and figures as pictures, with what the paper does not have: intervals."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from specrace.lab.paper import PREFIX, N, Table
from specrace.lab.plots.plot import Kind, Mark, Picture
from specrace.lab.plots.style import MAX_PANELS
from specrace.lab.plots.sweeps import (
    INTERVALS,
    SPEEDUP,
    TAU,
    Shown,
    categories,
    length_shares,
    trie_times,
)
from specrace.lab.score import ALL


def paper_picture(name: str, shown: Shown, tables: Sequence[Table]) -> Picture:
    """The picture of one of the paper's tables, from its sweep; figure 5 has its times from `tables`."""
    if name == "table1":
        return categories(shown, name, "Table 1: speedup by category")
    if name in ("table2", "table5"):
        return _grids(name, shown)
    if name == "table3":
        return _draft_sizes(shown)
    if name == "table4":
        return _noise(shown)
    if name == "table6":
        found = trie_times(shown, name, "Table 6: time to build a trie")
        assert found is not None
        return found
    return _lengths(shown) if name == "figure4" else _times(shown, tables)


def _places(shown: Shown) -> dict[str, list[int]]:
    """All requests, and those of each category where there is more than one."""
    every = {ALL: list(range(len(shown.found.counted)))}
    return every | shown.categories if len(shown.categories) > 1 else every


def _drawn(groups: Collection[str]) -> str:
    """Which categories are drawn, where there is no room for all."""
    return f"the {MAX_PANELS} largest of {len(groups)} categories" if len(groups) > MAX_PANELS else ""


def _grids(name: str, shown: Shown) -> Picture:
    """Speedup over n and L_p, over all or by category."""
    groups = {"": list(range(len(shown.found.counted)))} if name == "table2" else shown.categories
    numbers = {
        (lane.options["n"], lane.options["prefix"]): place for place, lane in enumerate(shown.sweep.lanes) if place
    }
    marks = []
    for group, places in groups.items():
        own = shown.found.forecast.of_requests(places)
        for n in N:
            for prefix in PREFIX:
                number = numbers[n, prefix]
                interval = own.intervals(number, shown.found.seed)["speedup"]
                marks.append(Mark(group, str(n), prefix, float(own.speedup[number]), *interval))
    more = _drawn(groups)
    return Picture(
        name,
        Kind.HEAT,
        f"Table {name[-1]}: the trie's speedup over n and L_p",
        shown.subtitle("Static, 32 draft tokens", f"with {INTERVALS}" if name == "table2" else more),
        "L_p, most tokens matched",
        "n, depth of the trie",
        ("category" if name == "table5" else "", "n", "L_p", "speedup", "low", "high"),
        tuple(marks),
    )


def _draft_sizes(shown: Shown) -> Picture:
    """Speedup over the draft size, by category."""
    marks = []
    for group, places in _places(shown).items():
        own = shown.found.forecast.of_requests(places)
        for number, lane in list(enumerate(shown.sweep.lanes))[1:]:
            interval = own.intervals(number, shown.found.seed)["speedup"]
            marks.append(Mark("", group, lane.num_draft, float(own.speedup[number]), *interval))
    return Picture(
        "table3",
        Kind.LINES,
        "Table 3: the trie's speedup over its draft size",
        shown.subtitle("Static, n = 13, L_p = 3", f"with {INTERVALS}"),
        "Draft tokens a step, at most",
        SPEEDUP,
        ("", "category", "num_draft", "speedup", "low", "high"),
        tuple(marks),
        even=1.0,
        logarithmic=True,
    )


def _noise(shown: Shown) -> Picture:
    """Tokens per step and speedup with clean and with noisy retrieval."""
    marks = []
    for panel, name in ((TAU, "tau"), (SPEEDUP, "speedup")):
        for group, places in shown.categories.items():
            own = shown.found.forecast.of_requests(places)
            interval = own.intervals(1, shown.found.seed)[name]
            marks.append(Mark(panel, group, "", float(getattr(own, name)[1]), *interval))
    return Picture(
        "table4",
        Kind.DOTS,
        "Table 4: the trie with clean and with noisy retrieval",
        shown.subtitle("Noisy: half of the passages are irrelevant", f"with {INTERVALS}"),
        "",
        "",
        ("figure", "retrieval", "", "value", "low", "high"),
        tuple(marks),
        even=1.0,
    )


def _lengths(shown: Shown) -> Picture:
    groups = {group: (1, places) for group, places in _places(shown).items()}
    tau = {
        group: f"{shown.found.forecast.of_requests(places).tau[1]:.2f} a step"
        for group, places in _places(shown).items()
    }
    return length_shares(
        shown, "figure4", "Figure 4: the trie's accepted lengths", groups, tau, "category", _drawn(groups)
    )


def _times(shown: Shown, tables: Sequence[Table]) -> Picture:
    """Where a request's drafting time goes."""
    marks = tuple(Mark("", part, "", ms) for part, ms, *_ in tables[0].rows)
    return Picture(
        "figure5",
        Kind.RANKS,
        "Figure 5: the trie's drafting time",
        shown.subtitle("Static, n = 13, L_p = 3, 32 draft tokens", costs=False),
        "ms a request",
        "",
        ("", "part", "", "ms", "", ""),
        marks,
    )
