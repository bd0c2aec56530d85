"""The pictures of a finished sweep: lanes, categories, settings, and what their steps accepted.

Of each lane the settings are shown that `recommend` would choose for it. Requests whose output loops are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from specrace.lab.forecast import LEVEL, median_interval, ratio_interval, resamples
from specrace.lab.plots.plot import Kind, Mark, Picture
from specrace.lab.plots.style import MAX_COLUMNS, MAX_PANELS
from specrace.lab.recommend import Recommender
from specrace.lab.score import ScoredLane, group_name
from specrace.lab.sweep import SIZES, Sweep

# Accepted lengths and positions; what is longer counts as the last length.
LENGTHS = 12
SPEEDUP, TAU = "Speedup over vanilla", "Tokens per step"
INTERVALS = f"{LEVEL:.0%} intervals over requests"


@dataclass(frozen=True)
class Shown:
    """A sweep as pictures show it; `costs` says where the cost curve comes from."""

    found: Recommender
    costs: str

    @property
    def sweep(self) -> Sweep:
        """The sweep."""
        return self.found.sweep

    @cached_property
    def best(self) -> list[int]:
        """The number of each lane's best settings, the fastest first."""
        names = dict.fromkeys(lane.name for lane in self.sweep.lanes[1:])
        numbers = [number for number in map(self.found.best_of, ([name] for name in names)) if number is not None]
        return sorted(numbers, key=lambda number: -self.found.forecast.speedup[number])

    @cached_property
    def categories(self) -> dict[str, list[int]]:
        """The places in `found.counted` of each category's requests, the largest category first."""
        found: dict[str, list[int]] = {}
        for place, number in enumerate(self.found.counted):
            found.setdefault(group_name(self.sweep.requests[number].category), []).append(place)
        return dict(sorted(found.items(), key=lambda pair: -len(pair[1])))

    @cached_property
    def draws(self) -> np.ndarray:
        """The bootstrap's draws of the requests that count."""
        return resamples(len(self.found.counted), self.found.seed)

    def subtitle(self, *words: str, costs: bool = True) -> str:
        """`words`, the number of requests and, where a speedup is shown, the cost curve."""
        parts = [*words, f"{len(self.found.counted)} requests"]
        text = "; ".join(filter(None, parts))
        return f"{text[:1].upper()}{text[1:]}" + (f"\nCosts: {self.costs.partition(':')[0]}" if costs else "")

    def drawn(self, most: int) -> str:
        """Which lanes a picture with room for `most` draws, where there are more."""
        return f"the {most} fastest of {len(self.best)} lanes" if len(self.best) > most else ""

    def words(self, lane: int) -> str:
        """A lane's settings that differ among its own, the draft size once."""
        own, words = self.sweep.lanes[lane], self.sweep.words(lane).split()
        return " ".join(words[:-1] if any(name in SIZES for name in own.options) and len(words) > 1 else words)

    def counts(self, lane: int, column: Callable[[int, int], Iterable[int]], size: int) -> np.ndarray:
        """Steps of a lane by request and column [requests that count, size].

        `column` gives the columns of a step from its numbers of draft and of accepted tokens.
        """
        places = {number: place for place, number in enumerate(self.found.counted)}
        counts = np.zeros((len(places), size))
        for number, score in self.sweep.scores(lane):
            if number in places:
                for drafted, accepted, count in score.steps:
                    for each in column(drafted, accepted):
                        counts[places[number], each] += count
        return counts


def sweep_pictures(shown: Shown) -> list[Picture]:
    """All that a sweep has figures for."""
    found = [lanes(shown), accepted_lengths(shown), acceptance(shown)]
    if len(shown.categories) > 1:
        found.append(categories(shown))
    curves = num_draft(shown)
    times = trie_times(shown)
    return [*found, *filter(None, (curves, times)), *settings(shown)]


def lanes(shown: Shown) -> Picture:
    """Tokens per step and speedup of every lane: its best settings with intervals, the others as small dots."""
    best, whole = shown.best, shown.found.forecast
    rank = {shown.sweep.lanes[number].name: place for place, number in enumerate(best)}
    order = sorted(range(1, len(shown.sweep.lanes)), key=lambda number: rank[shown.sweep.lanes[number].name])
    marks, notes = [], {}
    for panel, values, name in ((TAU, whole.tau, "tau"), (SPEEDUP, whole.speedup, "speedup")):
        for number in order:
            lane, words = shown.sweep.lanes[number], shown.words(number)
            interval = whole.intervals(number, shown.found.seed)[name] if number in best else (None, None)
            marks.append(Mark(panel, lane.name, words, float(values[number]), *interval))
            if number in best:
                notes[lane.name] = words
    others = "small dots: its other settings" if len(order) > len(best) else ""
    return Picture(
        "lanes",
        Kind.DOTS,
        "What drafting yields, by lane",
        shown.subtitle(f"Each lane's best settings with {INTERVALS}", others),
        "",
        "",
        ("figure", "lane", "settings", "value", "low", "high"),
        tuple(marks),
        even=1.0,
        notes=notes,
    )


def categories(
    shown: Shown, name: str = "categories", title: str = "Where drafting pays: speedup by category"
) -> Picture:
    """The speedup of each lane's best settings in every category."""
    marks = []
    for category, places in list(shown.categories.items()):
        own = shown.found.forecast.of_requests(places)
        row = f"{category} ({len(places)})"
        for number in shown.best:
            interval = own.intervals(number, shown.found.seed)["speedup"] if len(places) > 1 else (None, None)
            marks.append(Mark("", row, shown.sweep.lanes[number].name, float(own.speedup[number]), *interval))
    return Picture(
        name,
        Kind.HEAT,
        title,
        shown.subtitle(shown.drawn(MAX_COLUMNS), "in brackets: requests", f"with {INTERVALS}"),
        "",
        "",
        ("", "category", "lane", "speedup", "low", "high"),
        tuple(marks),
        even=1.0,
    )


def num_draft(shown: Shown) -> Picture | None:
    """Tokens per step and speedup against the draft size; None where none was varied."""
    whole, marks = shown.found.forecast, list[Mark]()
    for panel, values, name in ((TAU, whole.tau, "tau"), (SPEEDUP, whole.speedup, "speedup")):
        for best in shown.best:
            same = [number for number in others_of(shown.sweep, best) if _fixed(shown.sweep, number, best)]
            sizes = sorted({shown.sweep.lanes[number].num_draft: number for number in same}.items())
            for size, number in sizes if len(sizes) > 1 else ():
                interval = whole.intervals(number, shown.found.seed)[name]
                marks.append(Mark(panel, shown.sweep.lanes[best].name, size, float(values[number]), *interval))
    if not marks:
        return None
    return Picture(
        "num-draft",
        Kind.LINES,
        "How many draft tokens pay",
        shown.subtitle(f"With {INTERVALS}"),
        "Draft tokens a step, at most",
        "",
        ("figure", "lane", "num_draft", "value", "low", "high"),
        tuple(marks),
        even=1.0,
        logarithmic=True,
    )


def others_of(sweep: Sweep, number: int) -> list[int]:
    """The lanes of the same name."""
    return [place for place, lane in enumerate(sweep.lanes) if lane.name == sweep.lanes[number].name]


def _fixed(sweep: Sweep, one: int, other: int, *free: str) -> bool:
    """Whether two lanes of one name have the same options, those named `free` and those of the draft size aside."""
    return all(
        value == sweep.lanes[other].options[name]
        for name, value in sweep.lanes[one].options.items()
        if name not in SIZES and name not in free
    )


def settings(shown: Shown) -> list[Picture]:
    """For each lane whose options were varied: its speedup over one of them as a line, or over two as a table."""
    found = []
    for best in shown.best:
        lane, same = shown.sweep.lanes[best], others_of(shown.sweep, best)
        values = {name: {shown.sweep.lanes[number].options[name] for number in same} for name in lane.options}
        varied = [name for name, each in values.items() if name not in SIZES and len(each) > 1 and _numbers(each)][:2]
        if varied:
            numbers = [
                number
                for number in same
                if shown.sweep.lanes[number].num_draft == lane.num_draft and _fixed(shown.sweep, number, best, *varied)
            ]
            found.append(_grid(shown, lane, numbers, varied))
    return found


def _numbers(values: Iterable[Any]) -> bool:
    return all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)


def _grid(shown: Shown, lane: ScoredLane, numbers: Sequence[int], varied: Sequence[str]) -> Picture:
    """A lane's speedup over its options `varied`, one or two."""
    whole, marks = shown.found.forecast, []
    numbers = sorted(numbers, key=lambda number: [shown.sweep.lanes[number].options[name] for name in varied])
    for number in numbers:
        options, interval = shown.sweep.lanes[number].options, whole.intervals(number, shown.found.seed)["speedup"]
        first, last = options[varied[0]], options[varied[-1]]
        series, x = (str(first), last) if len(varied) > 1 else (lane.name, last)
        marks.append(Mark("", series, x, float(whole.speedup[number]), *interval))
    heat = len(varied) > 1
    kept = [f"{name} = {value}" for name, value in lane.options.items() if name not in (*varied, *SIZES) and value]
    return Picture(
        f"settings-{lane.name}",
        Kind.HEAT if heat else Kind.LINES,
        f"{lane.name}: speedup over {' and '.join(map(symbol, varied))}",
        shown.subtitle(f"with {INTERVALS}", ", ".join([*kept, f"{lane.num_draft} draft tokens"])),
        symbol(varied[-1]),
        symbol(varied[0]) if heat else SPEEDUP,
        ("", varied[0] if heat else "lane", varied[-1], "speedup", "low", "high"),
        tuple(marks),
        even=None if heat else 1.0,
    )


def symbol(option: str) -> str:
    """An option as the paper writes it."""
    return {"prefix": "L_p"}.get(option, option)


def trie_times(shown: Shown, name: str = "trie-time", title: str = "Time to build a trie") -> Picture | None:
    """The time to build a trie against n, for each L_p; None where these were not varied."""
    best = next((number for number in shown.best if shown.sweep.lanes[number].name == "trie"), None)
    if best is None:
        return None
    lanes = {number: shown.sweep.lanes[number] for number in others_of(shown.sweep, best)}
    chosen = {
        (lane.options["prefix"], lane.options["n"]): number
        for number, lane in lanes.items()
        if lane.num_draft == lanes[best].num_draft and _fixed(shown.sweep, number, best, "n", "prefix")
    }
    if len({n for _, n in chosen}) < 2:
        return None
    places, marks = set(shown.found.counted), []
    for (prefix, n), number in sorted(chosen.items()):
        build = np.array([score.build_ms for place, score in shown.sweep.scores(number) if place in places])
        marks.append(Mark("", f"L_p = {prefix}", n, float(np.median(build)), *median_interval(shown.draws, build)))
    return Picture(
        name,
        Kind.LINES,
        title,
        shown.subtitle(f"Of a prompt, median with {INTERVALS}", costs=False),
        "n, tokens",
        "ms a request",
        ("", "L_p", "n", "build_ms", "low", "high"),
        tuple(marks),
    )


def accepted_lengths(shown: Shown) -> Picture:
    """The share of steps by tokens emitted, of each lane's best settings."""
    groups = {shown.sweep.lanes[number].name: (number, None) for number in shown.best}
    tau = {shown.sweep.lanes[number].name: f"{shown.found.forecast.tau[number]:.2f} a step" for number in shown.best}
    return length_shares(
        shown, "accepted-lengths", "Accepted length of the steps", groups, tau, "lane", shown.drawn(MAX_PANELS)
    )


def length_shares(
    shown: Shown,
    name: str,
    title: str,
    groups: Mapping[str, tuple[int, Sequence[int] | None]],
    notes: Mapping[str, str],
    column: str,
    drawn: str,
) -> Picture:
    """The share of steps by tokens emitted: panel -> (lane, places of its requests, None for all).

    `drawn`: which panels there is room for, in words.
    """
    labels, marks = [*map(str, range(1, LENGTHS)), f"{LENGTHS}+"], list[Mark]()
    for panel, (number, places) in groups.items():
        counts = shown.counts(number, lambda _, accepted: [min(accepted, LENGTHS - 1)], LENGTHS)
        counts = counts if places is None else counts[places]
        draws, steps = resamples(len(counts), shown.found.seed), counts.sum(axis=1)
        for place, label in enumerate(labels):
            share = float(counts[:, place].sum() / steps.sum())
            marks.append(Mark(panel, panel, label, share, *ratio_interval(draws, counts[:, place], steps)))
    return Picture(
        name,
        Kind.BARS,
        title,
        shown.subtitle(drawn, f"with {INTERVALS}", costs=False),
        "Accepted draft tokens and the bonus token",
        "Share of steps",
        (column, "", "tokens", "share", "low", "high"),
        tuple(marks),
        percent=True,
        notes=notes,
    )


def acceptance(shown: Shown) -> Picture:
    """The share of steps that accept so many draft tokens or more, of each lane's best settings."""
    marks, notes = list[Mark](), {}
    for number in shown.best:
        name = shown.sweep.lanes[number].name
        counts = shown.counts(number, lambda _, accepted: range(1 + min(accepted, LENGTHS)), LENGTHS + 1)
        for position in range(1, LENGTHS + 1):
            share = float(counts[:, position].sum() / counts[:, 0].sum())
            interval = ratio_interval(shown.draws, counts[:, position], counts[:, 0])
            marks.append(Mark(name, name, position, share, *interval))
        notes[name] = f"first token {counts[:, 1].sum() / counts[:, 0].sum():.0%}"
    return Picture(
        "acceptance",
        Kind.MULTIPLES,
        "Acceptance by draft position",
        shown.subtitle(
            shown.drawn(MAX_PANELS), "of all steps, also those without a draft", f"with {INTERVALS}", costs=False
        ),
        "Position in the draft",
        "Accepted up to here",
        ("lane", "", "position", "share", "low", "high"),
        tuple(marks),
        percent=True,
        notes=notes,
    )
