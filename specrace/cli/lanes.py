"""`python -m specrace lanes`: what can be raced, and every option with its bounds."""

from __future__ import annotations

import argparse
import json
from typing import Any

from specrace.drafters import METHODS
from specrace.drafters.base import Flag


def add_parser(commands: Any) -> None:
    """Add `lanes` and its arguments to the subparsers `commands`."""
    lanes = commands.add_parser("lanes", help="list the lanes and their options")
    lanes.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(options: argparse.Namespace) -> int:
    """List what can be raced."""
    rows: list[dict[str, Any]] = []
    for method in METHODS.values():
        entries: list[dict[str, Any]] = []
        for option in method.options:
            entry: dict[str, Any] = {
                "name": f"{method.name}.{option.name}",
                "default": option.default,
                "help": option.bounds.help,
            }
            if not isinstance(option.bounds, Flag):
                entry |= {"low": option.bounds.low, "high": option.bounds.high}
            entries.append(entry)
        rows.append({"lane": method.name, "title": method.title, "summary": method.summary, "options": entries})
    if options.json:
        print(json.dumps({"lanes": rows}))
        return 0
    for row in rows:
        print(f"{row['lane']:14} {row['summary']}")
        for entry in row["options"]:
            bounds = f"{entry['low']} to {entry['high']}" if "low" in entry else "true or false"
            print(f"    {entry['name']:28} {entry['help']} ({bounds}; default {entry['default']})")
    return 0
