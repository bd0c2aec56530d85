"""`python -m specrace calibrate`: the cost of verifying k rows on this machine, and the resulting draft sizes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.table import Table

from specrace.cli.arguments import add_model_arguments
from specrace.cli.models import fetched
from specrace.cli.terminal import clean, console, print_json, quiet_model_library
from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.cost_curve import CostCurve, pad_rows
from specrace.core.errors import InputError
from specrace.core.files import as_input_error, check_destination
from specrace.drafters import METHODS
from specrace.engine.spec import RaceSpec, plan_lane
from specrace.lab.calibrate import MAX_ROUNDS, ROUNDS, cache_file, calibrate


def add_parser(commands: Any) -> None:
    """Add `calibrate` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("calibrate", help="measure the cost of verifying k rows; sets the lanes' draft sizes")
    add_model_arguments(parser)
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="measurements of each number of rows; default %(default)s"
    )
    parser.add_argument("--refresh", action="store_true", help="measure again even if the curve is cached")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="also write the curve to this file, for score")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(options: argparse.Namespace) -> int:
    """Measure the curve, or read it from the cache, and show it. Raises InputError."""
    if not 1 <= options.rounds <= MAX_ROUNDS:
        raise InputError(f"--rounds is {options.rounds}; give 1 to {MAX_ROUNDS}.")
    if options.out is not None:
        check_destination(options.out)
    notes = console(stderr=True)
    notes.quiet = options.json
    quiet_model_library()
    from specrace.model.loading import load_target

    model = fetched(options.model, quiet=options.json) or BUNDLED_MODEL
    target = load_target(
        model, device=options.device, dtype=options.dtype, followers=options.followers, adapter=options.adapter
    )

    def show_progress(message: str) -> None:
        notes.print(f"{message} ...", style="dim")

    curve = calibrate(target, refresh=options.refresh, rounds=options.rounds, on_progress=show_progress)
    if options.out is not None:
        with as_input_error(options.out):
            curve.save(options.out)
    result = report(curve, target.device_type)
    if options.json:
        print_json(result)
    else:
        _show(curve, result)
    return 0


def report(curve: CostCurve, device: str) -> dict[str, Any]:
    """The curve, its cache file, and the draft size that each lane takes from it."""
    file = cache_file(curve.about)
    spec = RaceSpec(tuple(METHODS))
    budgets = {
        name: {at.context: plan_lane(spec, name, device, curve.near(at.context)).num_draft for at in curve.contexts}
        for name in METHODS
    }
    kept = str(file) if file is not None and file.is_file() else None
    return {**curve.as_json(), "num_draft": budgets, "file": kept}


def _show(curve: CostCurve, result: dict[str, Any]) -> None:
    """A table of ratios, and below it the draft sizes."""
    out = console()
    about = curve.about
    out.print(
        f"{clean(str(about.get('model')))}, {about.get('dtype')}, {clean(str(about.get('device')))}, "
        f"{about.get('threads')} threads, measured {about.get('date')}"
    )
    table = Table("rows", *(f"{each.context} tokens before" for each in curve.contexts), "padded to")
    for number, rows in enumerate(curve.rows):
        padded = pad_rows(curve, rows)
        ratios = (f"{each.ratio[number]:.2f}×" for each in curve.contexts)
        table.add_row(str(rows), *ratios, str(padded) if padded != rows else "")
    out.print(table)
    for each in curve.contexts:
        out.print(f"One row after {each.context} tokens takes {each.row_ms:.2f} ms.")
    sizes = {lane: " or ".join(map(str, dict.fromkeys(found.values()))) for lane, found in result["num_draft"].items()}
    out.print(f"Draft tokens a step: {', '.join(f'{lane} {size}' for lane, size in sizes.items())}.")
    kept = result["file"]
    out.print(f"Saved in {kept}." if kept else "Not saved: the cache folder is not writable.")
