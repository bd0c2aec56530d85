"""The plots of a finished sweep: lanes, categories, settings, and what their steps accepted.

Each lane, a drafting method, is shown with the settings that `recommend` would choose for it. Requests with a looping
output are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from specrace.lab.advice.forecast import CONFIDENCE, median_interval, ratio_interval, resamples
from specrace.lab.advice.recommend import Recommender
from specrace.lab.plots.plot import Kind, Mark, Plot
from specrace.lab.plots.style import MAX_COLUMNS, MAX_PANELS
from specrace.lab.scoring.score import ScoredLane, group_name
from specrace.lab.scoring.sweep import DRAFT_SIZE_OPTIONS, Sweep

# The largest accepted length, and the last draft position, that is drawn. Longer lengths count as the largest.
MAX_LENGTH = 12
SPEEDUP, TAU = "Speedup over vanilla", "Tokens per step"
INTERVALS = f"{CONFIDENCE:.0%} intervals over requests"


@dataclass(frozen=True)
class SweepView:
    """What the plots need to know about a sweep. A lane's number is its index in `sweep.lanes`; 0 is vanilla.

    `recommender`: chooses each lane's best settings. `costs`: where the cost curve comes from; details follow a colon.
    """

    recommender: Recommender
    costs: str

    @property
    def sweep(self) -> Sweep:
        """The sweep that is plotted."""
        return self.recommender.sweep

    @cached_property
    def best_lanes(self) -> list[int]:
        """The number of each lane's best settings, the fastest first."""
        names = dict.fromkeys(lane.name for lane in self.sweep.lanes[1:])
        best = [self.recommender.best_among([name]) for name in names]
        speedup = self.recommender.forecast.speedup
        return sorted((number for number in best if number is not None), key=lambda number: -speedup[number])

    @cached_property
    def categories(self) -> dict[str, list[int]]:
        """Each category's requests, as indices into `recommender.included`, the largest category first."""
        by_category: dict[str, list[int]] = {}
        for index, number in enumerate(self.recommender.included):
            by_category.setdefault(group_name(self.sweep.requests[number].category), []).append(index)
        return dict(sorted(by_category.items(), key=lambda item: -len(item[1])))

    @cached_property
    def draws(self) -> np.ndarray:
        """Bootstrap draws of the included requests, as in `resamples`."""
        return resamples(len(self.recommender.included), self.recommender.seed)

    def subtitle(self, *words: str, costs: bool = True) -> str:
        """`words`, the number of requests and, with `costs`, where the cost curve comes from."""
        parts = [*words, f"{len(self.recommender.included)} requests"]
        text = "; ".join(filter(None, parts))
        return f"{text[:1].upper()}{text[1:]}" + (f"\nCosts: {self.costs.partition(':')[0]}" if costs else "")

    def which_lanes(self, max_lanes: int) -> str:
        """Which lanes a plot with room for `max_lanes` draws; "" if it draws all."""
        num_lanes = len(self.best_lanes)
        return f"the {max_lanes} fastest of {num_lanes} lanes" if num_lanes > max_lanes else ""

    def varied_settings(self, number: int) -> str:
        """The settings of a lane that its sweep varied. A draft size that is also an option is named only once."""
        words = self.sweep.varied_settings(number).split()
        is_named_twice = any(name in DRAFT_SIZE_OPTIONS for name in self.sweep.lanes[number].options) and len(words) > 1
        # The last word is the draft size.
        return " ".join(words[:-1] if is_named_twice else words)

    def count_steps(self, lane: int, columns_of: Callable[[int, int], Iterable[int]], num_columns: int) -> np.ndarray:
        """A lane's steps by included request and column [requests, num_columns].

        `columns_of` gives the columns in which a step counts, from its numbers of draft tokens and accepted tokens.
        """
        indices = {number: index for index, number in enumerate(self.recommender.included)}
        counts = np.zeros((len(indices), num_columns))
        for number, score in self.sweep.scores(lane):
            if number in indices:
                for drafted, accepted, count in score.steps:
                    for column in columns_of(drafted, accepted):
                        counts[indices[number], column] += count
        return counts


def sweep_plots(view: SweepView) -> list[Plot]:
    """All plots for which the sweep has data."""
    plots = [lanes(view), accepted_lengths(view), acceptance(view)]
    if len(view.categories) > 1:
        plots.append(categories(view))
    curves = num_draft(view)
    times = trie_times(view)
    return [*plots, *filter(None, (curves, times)), *settings(view)]


def lanes(view: SweepView) -> Plot:
    """Tokens per step and speedup of every lane: its best settings with intervals, the others as small dots."""
    best = view.best_lanes
    forecast = view.recommender.forecast
    rank = {view.sweep.lanes[number].name: index for index, number in enumerate(best)}
    order = sorted(range(1, len(view.sweep.lanes)), key=lambda number: rank[view.sweep.lanes[number].name])
    marks, notes = [], {}
    for panel, values, name in ((TAU, forecast.tau, "tau"), (SPEEDUP, forecast.speedup, "speedup")):
        for number in order:
            lane = view.sweep.lanes[number]
            varied = view.varied_settings(number)
            interval = forecast.intervals(number, view.recommender.seed)[name] if number in best else (None, None)
            marks.append(Mark(panel, lane.name, varied, float(values[number]), *interval))
            if number in best:
                notes[lane.name] = varied
    others = "small dots: its other settings" if len(order) > len(best) else ""
    return Plot(
        name="lanes",
        kind=Kind.DOTS,
        title="What drafting yields, by lane",
        subtitle=view.subtitle(f"Each lane's best settings with {INTERVALS}", others),
        x="",
        y="",
        columns=("figure", "lane", "settings", "value", "low", "high"),
        marks=tuple(marks),
        break_even=1.0,
        notes=notes,
    )


def categories(
    view: SweepView, name: str = "categories", title: str = "Where drafting pays: speedup by category"
) -> Plot:
    """The speedup of each lane's best settings in every category."""
    marks = []
    for category, indices in view.categories.items():
        forecast = view.recommender.forecast.for_requests(indices)
        row = f"{category} ({len(indices)})"
        for number in view.best_lanes:
            interval = (
                forecast.intervals(number, view.recommender.seed)["speedup"] if len(indices) > 1 else (None, None)
            )
            marks.append(Mark("", row, view.sweep.lanes[number].name, float(forecast.speedup[number]), *interval))
    return Plot(
        name=name,
        kind=Kind.HEAT,
        title=title,
        subtitle=view.subtitle(view.which_lanes(MAX_COLUMNS), "in brackets: requests", f"with {INTERVALS}"),
        x="",
        y="",
        columns=("", "category", "lane", "speedup", "low", "high"),
        marks=tuple(marks),
        break_even=1.0,
    )


def num_draft(view: SweepView) -> Plot | None:
    """Tokens per step and speedup against the draft size; None if no lane's draft size was varied."""
    forecast = view.recommender.forecast
    marks = list[Mark]()
    for panel, values, name in ((TAU, forecast.tau, "tau"), (SPEEDUP, forecast.speedup, "speedup")):
        for best in view.best_lanes:
            variants = [number for number in same_lane(view.sweep, best) if _same_options(view.sweep, number, best)]
            sizes = sorted({view.sweep.lanes[number].num_draft: number for number in variants}.items())
            for size, number in sizes if len(sizes) > 1 else ():
                interval = forecast.intervals(number, view.recommender.seed)[name]
                marks.append(Mark(panel, view.sweep.lanes[best].name, size, float(values[number]), *interval))
    if not marks:
        return None
    return Plot(
        name="num-draft",
        kind=Kind.LINES,
        title="How many draft tokens pay",
        subtitle=view.subtitle(f"With {INTERVALS}"),
        x="Draft tokens a step, at most",
        y="",
        columns=("figure", "lane", "num_draft", "value", "low", "high"),
        marks=tuple(marks),
        break_even=1.0,
        logarithmic=True,
    )


def same_lane(sweep: Sweep, number: int) -> list[int]:
    """The numbers of all lanes that have the name of lane `number`."""
    return [index for index, lane in enumerate(sweep.lanes) if lane.name == sweep.lanes[number].name]


def _same_options(sweep: Sweep, one: int, other: int, *ignored: str) -> bool:
    """Whether two lanes of one name have the same options, except for the draft size and the `ignored` ones."""
    return all(
        value == sweep.lanes[other].options[name]
        for name, value in sweep.lanes[one].options.items()
        if name not in DRAFT_SIZE_OPTIONS and name not in ignored
    )


def settings(view: SweepView) -> list[Plot]:
    """For each lane whose options were varied: its speedup over one option as a line, or over two as a heat map."""
    plots = []
    for best in view.best_lanes:
        lane = view.sweep.lanes[best]
        variants = same_lane(view.sweep, best)
        values = {name: {view.sweep.lanes[number].options[name] for number in variants} for name in lane.options}
        varied = [
            name
            for name, tried in values.items()
            if name not in DRAFT_SIZE_OPTIONS and len(tried) > 1 and _all_numbers(tried)
        ]
        if varied:
            axes = varied[:2]
            numbers = [
                number
                for number in variants
                if view.sweep.lanes[number].num_draft == lane.num_draft
                and _same_options(view.sweep, number, best, *axes)
            ]
            plots.append(_settings_plot(view, lane, numbers, axes))
    return plots


def _all_numbers(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _settings_plot(view: SweepView, lane: ScoredLane, numbers: Sequence[int], varied: Sequence[str]) -> Plot:
    """A lane's speedup over its one or two options `varied`; `numbers` are the lanes that vary only in these."""
    forecast = view.recommender.forecast
    is_heat = len(varied) > 1
    marks = []
    for number in sorted(numbers, key=lambda number: [view.sweep.lanes[number].options[name] for name in varied]):
        options = view.sweep.lanes[number].options
        interval = forecast.intervals(number, view.recommender.seed)["speedup"]
        series = str(options[varied[0]]) if is_heat else lane.name
        marks.append(Mark("", series, options[varied[-1]], float(forecast.speedup[number]), *interval))
    fixed = [
        f"{name} = {value}"
        for name, value in lane.options.items()
        if name not in (*varied, *DRAFT_SIZE_OPTIONS) and value
    ]
    return Plot(
        name=f"settings-{lane.name}",
        kind=Kind.HEAT if is_heat else Kind.LINES,
        title=f"{lane.name}: speedup over {' and '.join(map(symbol, varied))}",
        subtitle=view.subtitle(f"with {INTERVALS}", ", ".join([*fixed, f"{lane.num_draft} draft tokens"])),
        x=symbol(varied[-1]),
        y=symbol(varied[0]) if is_heat else SPEEDUP,
        columns=("", varied[0] if is_heat else "lane", varied[-1], "speedup", "low", "high"),
        marks=tuple(marks),
        break_even=None if is_heat else 1.0,
    )


def symbol(option: str) -> str:
    """An option's name as the n-gram trie paper writes it."""
    return {"prefix": "L_p"}.get(option, option)


def trie_times(view: SweepView, name: str = "trie-time", title: str = "Time to build a trie") -> Plot | None:
    """The time to build a trie against n, its depth, with a line for each L_p; None if the sweep did not vary n.

    L_p, the option `prefix`, is the largest number of tokens that the trie matches.
    """
    best = next((number for number in view.best_lanes if view.sweep.lanes[number].name == "trie"), None)
    if best is None:
        return None
    trie_lanes = {number: view.sweep.lanes[number] for number in same_lane(view.sweep, best)}
    chosen = {
        (lane.options["prefix"], lane.options["n"]): number
        for number, lane in trie_lanes.items()
        if lane.num_draft == trie_lanes[best].num_draft and _same_options(view.sweep, number, best, "n", "prefix")
    }
    if len({n for _, n in chosen}) < 2:
        return None
    included = set(view.recommender.included)
    marks = []
    for (prefix, n), number in sorted(chosen.items()):
        build = np.array([score.build_ms for request, score in view.sweep.scores(number) if request in included])
        marks.append(Mark("", f"L_p = {prefix}", n, float(np.median(build)), *median_interval(view.draws, build)))
    return Plot(
        name=name,
        kind=Kind.LINES,
        title=title,
        subtitle=view.subtitle(f"Of a prompt, median with {INTERVALS}", costs=False),
        x="n, tokens",
        y="ms a request",
        columns=("", "L_p", "n", "build_ms", "low", "high"),
        marks=tuple(marks),
    )


def accepted_lengths(view: SweepView) -> Plot:
    """The share of steps by tokens emitted, for each lane's best settings."""
    groups = {view.sweep.lanes[number].name: (number, None) for number in view.best_lanes}
    tau = {
        view.sweep.lanes[number].name: f"{view.recommender.forecast.tau[number]:.2f} a step"
        for number in view.best_lanes
    }
    return length_shares(
        view, "accepted-lengths", "Accepted length of the steps", groups, tau, "lane", view.which_lanes(MAX_PANELS)
    )


def length_shares(
    view: SweepView,
    name: str,
    title: str,
    groups: Mapping[str, tuple[int, Sequence[int] | None]],
    notes: Mapping[str, str],
    column: str,
    drawn: str,
) -> Plot:
    """The share of steps by tokens emitted, a panel for each group.

    `groups`: panel -> (lane, its requests as indices into `included`, None for all). `notes`: panel -> its note.
    `column`: the CSV's name of the panels. `drawn`: a phrase that says which panels are drawn.
    """
    labels = [*map(str, range(1, MAX_LENGTH)), f"{MAX_LENGTH}+"]
    marks = list[Mark]()
    for panel, (number, indices) in groups.items():
        # Column i has the steps that accepted i draft tokens, and so emitted i + 1.
        counts = view.count_steps(number, lambda _, accepted: [min(accepted, MAX_LENGTH - 1)], MAX_LENGTH)
        counts = counts if indices is None else counts[indices]
        draws = resamples(len(counts), view.recommender.seed)
        steps = counts.sum(axis=1)
        for index, label in enumerate(labels):
            share = float(counts[:, index].sum() / steps.sum())
            marks.append(Mark(panel, panel, label, share, *ratio_interval(draws, counts[:, index], steps)))
    return Plot(
        name=name,
        kind=Kind.BARS,
        title=title,
        subtitle=view.subtitle(drawn, f"with {INTERVALS}", costs=False),
        x="Accepted draft tokens and the bonus token",
        y="Share of steps",
        columns=(column, "", "tokens", "share", "low", "high"),
        marks=tuple(marks),
        percent=True,
        notes=notes,
    )


def acceptance(view: SweepView) -> Plot:
    """The share of steps that accept at least 1, 2, ... draft tokens, for each lane's best settings."""
    marks, notes = list[Mark](), {}
    for number in view.best_lanes:
        name = view.sweep.lanes[number].name
        # Column 0 has all steps, column i those that accepted at least i draft tokens.
        counts = view.count_steps(number, lambda _, accepted: range(1 + min(accepted, MAX_LENGTH)), MAX_LENGTH + 1)
        for position in range(1, MAX_LENGTH + 1):
            share = float(counts[:, position].sum() / counts[:, 0].sum())
            interval = ratio_interval(view.draws, counts[:, position], counts[:, 0])
            marks.append(Mark(name, name, position, share, *interval))
        notes[name] = f"first token {counts[:, 1].sum() / counts[:, 0].sum():.0%}"
    return Plot(
        name="acceptance",
        kind=Kind.MULTIPLES,
        title="Acceptance by draft position",
        subtitle=view.subtitle(
            view.which_lanes(MAX_PANELS), "of all steps, also those without a draft", f"with {INTERVALS}", costs=False
        ),
        x="Position in the draft",
        y="Accepted up to here",
        columns=("lane", "", "position", "share", "low", "high"),
        marks=tuple(marks),
        percent=True,
        notes=notes,
    )
