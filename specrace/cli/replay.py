"""`python -m specrace replay`: plays a recorded race, without a model."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from specrace.cli.shared.terminal import show
from specrace.core.errors import InputError
from specrace.core.events import Event, Step


def add_parser(commands: Any) -> None:
    """Add `replay` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("replay", help="play a recorded race; needs no model")
    parser.add_argument("file", type=Path, help="a recording that race --save or the page wrote")
    parser.add_argument("--speed", type=float, default=1.0, help="1 (the default) is race time, 2 twice as fast")
    parser.add_argument("--json", action="store_true", help="print only the result, as JSON")


def run(options: argparse.Namespace) -> int:
    """Play a recording. Raises InputError."""
    if not 0 < options.speed <= 1000:
        raise InputError(f"--speed is {options.speed}; give a number above 0 and at most 1000.")
    try:
        from specrace.views.recording_check import TERMINAL_LIMITS, read_recording
    except ModuleNotFoundError as error:
        raise InputError(f"replay needs {error.name}, which is not installed; install it.") from error
    events = read_recording(options.file, TERMINAL_LIMITS)
    show(events if options.json else pace(events, options.speed), as_json=options.json)
    return 0


def pace(events: Iterable[Event], speed: float) -> Iterator[Event]:
    """Yield each event when it is due: at its race time divided by `speed`."""
    start = time.monotonic()
    for event in events:
        if isinstance(event, Step):
            time.sleep(max(0.0, start + event.at_ms / 1000 / speed - time.monotonic()))
        yield event
