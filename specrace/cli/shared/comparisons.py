"""A comparison of servers in the terminal: a live table while they are measured, and the tables of the results."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.live import Live
from rich.table import Table

from specrace.cli.shared.terminal import clean, console
from specrace.lab.compare.samples import Block, Sample

# The live table is drawn at most this often: drawing takes processor time while the streams are timed.
REFRESH_S = 1.0
# The width of the tables in a file or a pipe, in characters.
WIDTH = 160
# Title -> (a row's key, number format).
COLUMNS = {
    "tokens/s\nof one": ("tokens_per_s", ".1f"),
    "tokens/s\nof all": ("total_tokens_per_s", ".1f"),
    "first\nms": ("first_ms", ".0f"),
    "between\nms": ("between_ms", ".1f"),
    "p99": ("between_ms_p99", ".1f"),
    "tokens\nper step": ("tau", ".3f"),
}
Row = Mapping[str, Any]


@dataclass
class _Sums:
    """Sums over the requests that a server has answered at one concurrency."""

    requests: int = 0
    decode_tokens: int = 0
    decode_ms: float = 0.0
    first_ms: float = 0.0

    def add(self, sample: Sample) -> None:
        self.requests += 1
        self.decode_tokens += sample.decode_tokens
        self.decode_ms += sample.decode_ms
        self.first_ms += sample.times_ms[0]


@contextmanager
def live_table(total: int, finished: Sequence[Sample], *, quiet: bool) -> Iterator[Callable[[Sample], None]]:
    """A live table of the requests so far, if standard error is a terminal; yields a function that adds a request."""
    stderr = console(stderr=True)
    stderr.quiet = quiet or not stderr.is_terminal
    sums: defaultdict[tuple[str, int], _Sums] = defaultdict(_Sums)
    for sample in finished:
        sums[sample.block.server, sample.block.concurrency].add(sample)
    next_drawing_s = 0.0
    with Live(console=stderr, auto_refresh=False, transient=True) as live:

        def add(sample: Sample) -> None:
            nonlocal next_drawing_s
            sums[sample.block.server, sample.block.concurrency].add(sample)
            if not stderr.quiet and time.monotonic() >= next_drawing_s:
                live.update(_progress(sums, sample.block, total), refresh=True)
                next_drawing_s = time.monotonic() + REFRESH_S

        yield add


def _progress(sums: Mapping[tuple[str, int], _Sums], block: Block, total: int) -> Table:
    """The live table: a row for each server and concurrency; `total`: the number of requests in all."""
    table = Table("server", "at once", "requests", "tokens/s of one", "first ms", box=None, header_style="bold")
    for (server, concurrency), server_sums in sums.items():
        decode_ms, requests = server_sums.decode_ms, server_sums.requests
        per_s = 1000.0 * server_sums.decode_tokens / decode_ms if decode_ms else 0.0
        first_ms = server_sums.first_ms / requests
        table.add_row(server, str(concurrency), str(requests), f"{per_s:.1f}", f"{first_ms:.0f}")
    finished = sum(server_sums.requests for server_sums in sums.values())
    table.caption = f"{finished} of {total} requests; {block.server}, repetition {block.repetition + 1}"
    return table


def show_comparison(result: Mapping[str, Any]) -> None:
    """Print the tables, the verdict and the notes."""
    out = console()
    if not out.is_terminal:
        out.width = WIDTH
    for server in result["servers"]:
        out.print(clean(f"{server['server']}: {', '.join(value for key, value in server.items() if key != 'server')}"))
    out.print(_table(result["rows"]))
    if any(row["rates"] for row in result["rows"]):
        out.print(_acceptance(result["rows"]))
    if result["categories"]:
        out.print(_table(result["categories"], by_category=True))
    if result["load_tests"]:
        show_load_tests(result["load_tests"])
    if result["verdict"]:
        out.print(clean(result["verdict"]), style="bold")
    for note in result["notes"]:
        out.print(clean(note))


def _new_table(*titles: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for title in titles:
        is_name = title in ("server", "category", "load test", "tool")
        table.add_column(title, justify="left" if is_name else "right", no_wrap=not is_name)
    return table


def _table(rows: Sequence[Row], *, by_category: bool = False) -> Table:
    """The main table; by category, without the total rate and the comparison of texts."""
    columns = {title: column for title, column in COLUMNS.items() if not by_category or column[0] in rows[0]}
    names = ("server", "at\nonce", *(["category"] if by_category else []), "requests")
    texts = () if by_category else ("texts\nequal",)
    table = _new_table(*names, *columns, "forecast\nper step", "speedup", "forecast\nspeedup", *texts)
    for row in rows:
        forecast = row["forecast"]
        table.add_row(
            row["server"],
            str(row["concurrency"]),
            *([clean(row["category"])] if by_category else []),
            str(row["requests"]),
            *(_number(row[key], form) for key, form in columns.values()),
            _number(forecast and forecast["tau"], ".3f"),
            format_speedup_interval(row["speedup"]),
            "–" if forecast is None else f"{forecast['speedup']:.2f}x",
            *([_texts(row)] if texts else []),
        )
    return table


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def format_speedup_interval(speedup: Mapping[str, Any] | None) -> str:
    """A measured speedup with its interval."""
    return "–" if speedup is None else f"{speedup['speedup']:.2f}x ({speedup['low']:.2f}-{speedup['high']:.2f})"


def _texts(row: Row) -> str:
    return "–" if row["compared_texts"] is None else f"{row['same_texts']} of {row['compared_texts']}"


def show_load_tests(rows: Sequence[Row]) -> None:
    """Print what load generators measured."""
    out = console()
    if not out.is_terminal:
        out.width = WIDTH
    columns = {title: column for title, column in COLUMNS.items() if column[0] in rows[0]}
    titles = (
        "load test",
        "tool",
        "at\nonce",
        "requests",
        "failed",
        *columns,
        "acceptance\nlength",
        "tokens/s of all\nvs. the first",
    )
    table = _new_table(*titles)
    for row in rows:
        table.add_row(
            clean(row["name"]),
            row["tool"],
            _number(row["concurrency"], "d"),
            str(row["requests"]),
            str(row["failed"]),
            *(_number(row[key], form) for key, form in columns.values()),
            _number(row["accept_length"], ".3f"),
            "–" if row["of_all_ratio"] is None else f"{row['of_all_ratio']:.2f}x",
        )
    out.print(table)
    out.print(
        "The acceptance length is the engine's own figure, which counts only steps with a draft. The last column "
        "divides by the first load test with as many requests at once.",
        style="dim",
    )


# The table of acceptance has this many positions at most; --json has all of them.
MAX_POSITIONS = 8


def _acceptance(rows: Sequence[Row]) -> Table:
    """The share of steps with a draft that accepted the token at each position, measured and forecast."""
    width = min(MAX_POSITIONS, max(len(row["rates"]) for row in rows))
    table = _new_table("server", "at\nonce", "accepted at", *(str(position) for position in range(1, width + 1)))
    for row in rows:
        lines = {"measured": row["rates"], "forecast": row["forecast"] and row["forecast"]["rates"]}
        for words, rates in lines.items():
            if rates:
                # No draft was longer than `rates`, so later positions accepted nothing.
                padded_rates = (*rates, *[0.0] * width)[:width]
                table.add_row(row["server"], str(row["concurrency"]), words, *(f"{rate:.0%}" for rate in padded_rates))
    return table
