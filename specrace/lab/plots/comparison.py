"""The plots of a comparison of servers, from what `compare --json` prints: rates, speedup, steps, acceptance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specrace.lab.plots.plot import Kind, Mark, Plot

MEASURED, FORECAST = "measured", "forecast"
CONCURRENCY = "Requests at a time"
# Positions of a draft that are drawn, as many as can be told apart; --json has all.
MAX_POSITIONS = 12


def comparison_plots(result: Mapping[str, Any]) -> Iterator[Plot]:
    """The plots for which there are figures."""
    rows = result["rows"]
    subtitle = f"{result['questions']} questions, {result['repetitions']} repetitions; {_software(result)}"
    yield from _rates(rows, subtitle)
    yield from _speedup(rows, result["baseline"], subtitle)
    yield from _steps(rows, subtitle)
    yield from _positions(rows, subtitle)


def _software(result: Mapping[str, Any]) -> str:
    names = (server.get("software", "") for server in result["servers"])
    return ", ".join(dict.fromkeys(filter(None, names)))


def _rates(rows: Sequence[Mapping[str, Any]], subtitle: str) -> Iterator[Plot]:
    """Tokens per second of one request and of all, with the range over repetitions."""
    keys = {
        "Of one request": ("tokens_per_s", "tokens_per_s_low", "tokens_per_s_high"),
        "Of all requests": ("total_tokens_per_s", "total_low", "total_high"),
    }
    marks = [
        Mark(panel, row["server"], row["concurrency"], row[value], row[low], row[high])
        for panel, (value, low, high) in keys.items()
        for row in rows
        if row[value] is not None
    ]
    if marks:
        yield Plot(
            name="rates",
            kind=Kind.LINES,
            title="Tokens per second",
            subtitle=f"{subtitle}\nRanges over repetitions",
            x=CONCURRENCY,
            y="Tokens per second",
            columns=("of", "server", "concurrency", "tokens_per_s", "low", "high"),
            marks=tuple(marks),
            logarithmic=len({mark.x for mark in marks}) > 1,
        )


def _speedup(rows: Sequence[Mapping[str, Any]], baseline: str, subtitle: str) -> Iterator[Plot]:
    """The speedup of each server over the baseline, measured and forecast."""
    marks = []
    for row in rows:
        for words, figures in ((MEASURED, row["speedup"]), (FORECAST, row["forecast"])):
            if figures is not None and row["server"] != baseline:
                value, low, high = figures["speedup"], figures["low"], figures["high"]
                marks.append(Mark("", f"{row['server']}, {words}", row["concurrency"], value, low, high))
    if marks:
        yield Plot(
            name="speedup",
            kind=Kind.LINES,
            title=f"Speedup of a request over {baseline}",
            subtitle=f"{subtitle}\n95% intervals: measured over questions and repetitions, forecast over questions",
            x=CONCURRENCY,
            y="Speedup",
            columns=("", "server", "concurrency", "speedup", "low", "high"),
            marks=tuple(marks),
            break_even=1.0,
            logarithmic=len({mark.x for mark in marks}) > 1,
        )


def _steps(rows: Sequence[Mapping[str, Any]], subtitle: str) -> Iterator[Plot]:
    """Tokens per step, measured and forecast."""
    marks = []
    for row in rows:
        for words, figures in ((MEASURED, row), (FORECAST, row["forecast"])):
            if figures is not None and figures["tau"] is not None:
                marks.append(Mark("", f"{row['server']}, {words}", row["concurrency"], figures["tau"]))
    if any(mark.y > 1.0 for mark in marks):
        yield Plot(
            name="tokens-per-step",
            kind=Kind.LINES,
            title="Tokens per step",
            subtitle=subtitle,
            x=CONCURRENCY,
            y="Tokens per step",
            columns=("", "server", "concurrency", "tokens_per_step", "", ""),
            marks=tuple(marks),
            logarithmic=len({mark.x for mark in marks}) > 1,
        )


def _positions(rows: Sequence[Mapping[str, Any]], subtitle: str) -> Iterator[Plot]:
    """The share of steps with a draft that accepted its token at each position, by concurrency."""
    marks = [
        Mark(f"{row['concurrency']} at a time", f"{row['server']}, {words}", position, rate)
        for row in rows
        for words, rates in ((MEASURED, row["rates"]), (FORECAST, (row["forecast"] or {}).get("rates", ())))
        for position, rate in enumerate(rates[:MAX_POSITIONS], 1)
    ]
    if marks:
        yield Plot(
            name="acceptance",
            kind=Kind.LINES,
            title="Acceptance by position",
            subtitle=f"{subtitle}\nOf the steps with a draft",
            x="Position in the draft",
            y="Accepted",
            columns=("concurrency", "server", "position", "share", "", ""),
            marks=tuple(marks),
            percent=True,
        )
