"""`python -m specrace replay`: play a recorded race, without a model."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from specrace.cli.terminal import show
from specrace.core.errors import InputError
from specrace.core.events import Event, Step


def add_parser(commands: Any) -> None:
    """Add `replay` and its arguments to the subparsers `commands`."""
    replay = commands.add_parser("replay", help="play a recorded race; needs no model")
    replay.add_argument("file", type=Path, help="what race --save or the page wrote")
    replay.add_argument("--speed", type=float, default=1.0, help="1 is race time, 2 twice as fast")
    replay.add_argument("--json", action="store_true", help="print the result at once, as JSON")


def run(options: argparse.Namespace) -> int:
    """Play a recording at race time times `speed`. Raises InputError."""
    if not 0 < options.speed <= 1000:
        raise InputError(f"--speed is {options.speed}; give a number above 0 and at most 1000.")
    try:
        from specrace.views.recording_check import TERMINAL, read_recording
    except ModuleNotFoundError as error:
        raise InputError(f"replay needs {error.name}, which is not installed; install it.") from error
    events = read_recording(options.file, TERMINAL)
    show(events if options.json else paced(events, options.speed), as_json=options.json)
    return 0


def paced(events: Iterable[Event], speed: float) -> Iterator[Event]:
    """The events at the times at which they happened, divided by `speed`."""
    began = time.monotonic()
    for event in events:
        if isinstance(event, Step):
            time.sleep(max(0.0, began + event.at_ms / 1000 / speed - time.monotonic()))
        yield event
