"""`python -m specrace race`: ask a question, retrieve, race, show, save."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specrace.cli.arguments import add_race_arguments, open_workbench, race_spec
from specrace.cli.terminal import show
from specrace.core.errors import InputError
from specrace.core.events import Repeated
from specrace.core.files import check_destination
from specrace.core.settings import SETTINGS, Setting
from specrace.engine.repeats import RepeatUntilNarrow
from specrace.engine.spec import DEFAULT_LANES

AUTO_S = 20.0
REPEAT = Setting(
    "repeat", None, "--repeat", f"runs; auto: until every speedup's range is within 10 %, {AUTO_S:.0f} s at most", 1, 50
)


def add_parser(commands: Any) -> None:
    """Add `race` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("race", help="ask a question, retrieve, and race")
    parser.add_argument("question", help="in quotes")
    add_race_arguments(parser, DEFAULT_LANES)
    words = f"{REPEAT.help} ({REPEAT.range()}; default 1)"
    parser.add_argument("--repeat", default=1, metavar="N|auto", help=words.replace("%", "%%"))
    parser.add_argument("--save", type=Path, metavar="FILE.jsonl", help="record the race")


def run(options: argparse.Namespace) -> int:
    """Ask, race, show, save."""
    spec = race_spec(options)
    again = read_repeat(options.repeat)
    noise = SETTINGS["noise"].check(options.noise)
    if not options.question.strip():
        raise InputError("Type a question first, in quotes after 'race'.")
    if options.save is not None:
        check_recorder(options.save)
    workbench = open_workbench(options)
    stopping = threading.Event()
    events = workbench.ask(options.question, spec, top=options.passages, noise=noise, stop=stopping.is_set, again=again)
    seen = show(events, as_json=options.json)
    if options.save is not None:
        from specrace.engine.recording import save

        save(seen, options.save)
    return 0


def read_repeat(given: Any) -> Callable[[Repeated], bool]:
    """Whether to run again, for a number of runs or "auto". Raises InputError."""
    runs = REPEAT.check(given)
    if runs is None:
        return RepeatUntilNarrow(AUTO_S, REPEAT.high)
    more = iter(range(runs - 1))
    return lambda _: next(more, None) is not None


def check_recorder(file: Path) -> None:
    """Raises InputError where a race cannot be saved to `file`, or its codec is not installed: races go without it."""
    if find_spec("msgspec") is None:
        raise InputError("--save needs msgspec, which is not installed; install it, or race without --save.")
    check_destination(file)
