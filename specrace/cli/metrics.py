"""`python -m specrace metrics`: how many draft tokens a running server accepts, from its Prometheus page.

It shows the tokens per step, and the speedup that shorter drafts would have. It sends no prompt.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from specrace.cli.shared.arguments import add_json_argument
from specrace.cli.shared.terminal import console, print_json
from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError, shorten
from specrace.lab.advice.presets import NAMES, describe_curve, find_curve
from specrace.servers.address import KEY_VARIABLE, ServerAddress, check_url

# The cost curve without --cost-curve.
DEFAULT_CURVE = "assumed-gpu"
# A row is a number of draft tokens; its acceptance rate is that of the last of them.
COLUMNS = ("draft tokens", "accepted\nat this position", "tokens per step\nwith a draft", "speedup of\nsuch a step")
# Such as 60s, 1.5m or 1h.
_DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(s|m|h)")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
# A day.
MAX_S = 86_400.0


def add_parser(commands: Any) -> None:
    """Add `metrics` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("metrics", help="what a running server's drafts bring, from its metrics page")
    parser.add_argument(
        "url", metavar="URL", help=f"vLLM or llama.cpp, as http://127.0.0.1:8000; a key in {KEY_VARIABLE}"
    )
    parser.add_argument(
        "--for",
        dest="duration",
        metavar="60s",
        help="watch the server for this long (s, m or h); default: since its start",
    )
    parser.add_argument(
        "--cost-curve", default=DEFAULT_CURVE, metavar="NAME|FILE", help=f"{NAMES}, or a file; default: {DEFAULT_CURVE}"
    )
    add_json_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Read the counters once, or twice with a pause, and print what they mean. Raises InputError."""
    # Imported here, because other commands need no HTTP.
    from specrace.servers.connection import Connection
    from specrace.servers.metrics import read_counts

    seconds = None if options.duration is None else read_duration(options.duration)
    curve = find_curve(options.cost_curve)
    address = ServerAddress(options.url, check_url(options.url), os.environ.get(KEY_VARIABLE, ""))
    with Connection(address) as connection:
        counts = read_counts(connection)
        if seconds is not None:
            before = counts
            time.sleep(seconds)
            counts = read_counts(connection).since(before)
    summary = summarise(counts, curve, seconds)
    if options.json:
        print_json(summary)
    else:
        show(summary)
    return 0


def read_duration(text: str) -> float:
    """Seconds from "60s", "5m" or "1h". Raises InputError."""
    match = _DURATION.fullmatch(text)
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < seconds <= MAX_S:
        raise InputError(f"--for is {shorten(text)!r}; give a time such as 60s or 5m, at most 24h.")
    return seconds


def summarise(counts: Any, curve: CostCurve, seconds: float | None) -> dict[str, Any]:
    """The counts and the numbers computed from them, as JSON; a number that cannot be computed is None."""
    from specrace.servers.metrics import best_draft, shorter_drafts

    choices = shorter_drafts(counts.rates, curve) if counts.rates else []
    return {
        **asdict(counts),
        "seconds": seconds,
        "tokens_per_step": counts.tokens_per_step,
        "tokens_per_draft": counts.tokens_per_draft,
        "acceptance_rate": counts.acceptance_rate,
        "marginal_accept_rates": list(counts.rates),
        "cost_curve": describe_curve(curve),
        "shorter_drafts": [asdict(choice) for choice in choices],
        "best_num_draft": best_draft(choices).num_draft if choices else None,
    }


def show(summary: dict[str, Any]) -> None:
    """Print the summary."""
    out = console()
    period = "since its start" if summary["seconds"] is None else f"in {summary['seconds']:g} s"
    if not summary["drafts"]:
        out.print(Text(f"{summary['engine']} drafted nothing {period}; it printed {summary['tokens']} tokens."))
        return
    tau = summary["tokens_per_step"]
    steps = "" if tau is None else f"{tau:.2f} tokens per step over all {summary['tokens']} tokens; "
    out.print(
        Text(
            f"{summary['engine']}, {period}: {summary['drafts']} steps with a draft, {summary['accepted']} of "
            f"{summary['drafted']} draft tokens accepted ({summary['acceptance_rate']:.0%}). {steps}"
            f"{summary['tokens_per_draft']:.2f} per step with a draft."
        )
    )
    if not summary["shorter_drafts"]:
        out.print(Text(f"{summary['engine']} does not count accepted tokens by position.", style="dim"))
        return
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for choice in summary["shorter_drafts"]:
        size = choice["num_draft"]
        rate = f"{summary['marginal_accept_rates'][size - 1]:.0%}" if size else ""
        best = size == summary["best_num_draft"]
        row = (str(size), rate, f"{choice['tokens_per_draft']:.2f}", f"{choice['speedup']:.2f}×")
        table.add_row(*row, style="bold" if best else "")
    out.print(table)
    out.print(
        Text(
            f"One request at a time, on {summary['cost_curve']}: drafts of {summary['best_num_draft']} tokens pay best."
            " The server also counts accepted tokens past the end of an answer.",
            style="dim",
        )
    )
