"""`python -m specrace calibrate`: measures what verifying k rows costs on this machine, to choose the draft sizes."""

from __future__ import annotations

import argparse
from typing import Any

from rich.table import Table

from specrace.cli.shared.arguments import add_json_argument, add_model_arguments
from specrace.cli.shared.opening import read_model_choice
from specrace.cli.shared.outputs import add_output
from specrace.cli.shared.terminal import clean, console, print_json, quiet_model_library
from specrace.core.cost_curve import CostCurve, pad_rows
from specrace.core.errors import InputError
from specrace.core.files import as_input_error
from specrace.drafters import METHODS
from specrace.engine.spec import RaceSpec, plan_lane
from specrace.lab.bench.calibrate import MAX_ROUNDS, ROUNDS, cache_file, calibrate


def add_parser(commands: Any) -> None:
    """Add `calibrate` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("calibrate", help="measure the cost of verifying k rows, to choose draft sizes")
    add_model_arguments(parser)
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="how often each number of rows is measured; default %(default)s"
    )
    parser.add_argument("--refresh", action="store_true", help="measure again even if the curve is cached")
    add_output(parser, "--out", metavar="FILE.json", help="also write the curve to this file, for score")
    add_json_argument(parser)
    # `read_model_choice` reads `draft_model`. Nothing is raced, so no lane needs one.
    parser.set_defaults(draft_model=None)


def run(options: argparse.Namespace) -> int:
    """Measure the curve, or read it from the cache, and show it. Raises InputError."""
    if not 1 <= options.rounds <= MAX_ROUNDS:
        raise InputError(f"--rounds is {options.rounds}; give 1 to {MAX_ROUNDS}.")
    stderr = console(stderr=True)
    stderr.quiet = options.json
    quiet_model_library()
    from specrace.model.loading import load_choice

    target = load_choice(read_model_choice(options), followers=options.followers)

    def show_progress(message: str) -> None:
        stderr.print(f"{message} ...", style="dim")

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
    """What `--json` prints: the curve, its cache file, and each lane's draft size by the length of the context."""
    file = cache_file(curve.about)
    spec = RaceSpec(tuple(METHODS))
    draft_sizes = {
        name: {
            entry.context: plan_lane(spec, name, device, curve.near(entry.context)).num_draft
            for entry in curve.contexts
        }
        for name in METHODS
    }
    cached = str(file) if file is not None and file.is_file() else None
    return {**curve.as_json(), "num_draft": draft_sizes, "file": cached}


def _show(curve: CostCurve, result: dict[str, Any]) -> None:
    """Print a table of ratios, and below it the draft sizes."""
    out = console()
    about = curve.about
    out.print(
        f"{clean(str(about.get('model')))}, {about.get('dtype')}, {clean(str(about.get('device')))}, "
        f"{about.get('threads')} threads, measured {about.get('date')}"
    )
    table = Table("rows", *(f"after {entry.context} tokens" for entry in curve.contexts), "padded to")
    for index, rows in enumerate(curve.rows):
        # A draft is filled up to a larger number of rows where that is cheaper.
        padded = pad_rows(curve, rows)
        ratios = (f"{entry.ratio[index]:.2f}×" for entry in curve.contexts)
        table.add_row(str(rows), *ratios, str(padded) if padded != rows else "")
    out.print(table)
    for entry in curve.contexts:
        out.print(f"One row after {entry.context} tokens takes {entry.row_ms:.2f} ms.")
    # A lane's draft size may depend on the context.
    sizes = {
        lane: " or ".join(map(str, dict.fromkeys(by_context.values())))
        for lane, by_context in result["num_draft"].items()
    }
    out.print(f"Draft tokens a step: {', '.join(f'{lane} {size}' for lane, size in sizes.items())}.")
    cached = result["file"]
    out.print(f"Saved in {cached}." if cached else "Not saved: the cache folder is not writable.")
