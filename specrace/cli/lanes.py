"""`python -m specrace lanes`: lists every lane and its options, with their bounds."""

from __future__ import annotations

import argparse
import json
from typing import Any

from specrace.cli.shared.arguments import add_json_argument
from specrace.drafters import METHODS
from specrace.drafters.base import Flag, Option


def add_parser(commands: Any) -> None:
    """Add `lanes` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("lanes", help="list the lanes and their options")
    add_json_argument(parser)


def run(options: argparse.Namespace) -> int:
    """List the lanes."""
    rows: list[dict[str, Any]] = [
        {
            "lane": method.name,
            "title": method.title,
            "summary": method.summary,
            "options": [_describe(method.name, option) for option in method.options],
        }
        for method in METHODS.values()
    ]
    if options.json:
        print(json.dumps({"lanes": rows}))
        return 0
    for row in rows:
        print(f"{row['lane']:14} {row['summary']}")
        for entry in row["options"]:
            bounds = f"{entry['low']} to {entry['high']}" if "low" in entry else "true or false"
            print(f"    {entry['name']:28} {entry['help']} ({bounds}; default {entry['default']})")
    return 0


def _describe(lane: str, option: Option) -> dict[str, Any]:
    bounds = option.bounds
    limits = {} if isinstance(bounds, Flag) else {"low": bounds.low, "high": bounds.high}
    return {"name": f"{lane}.{option.name}", "default": option.default, "help": bounds.help, **limits}
