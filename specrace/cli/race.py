"""`python -m specrace race`: retrieves passages for a question, races the lanes, shows and saves the race."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from specrace.cli.shared.arguments import add_race_arguments, race_spec
from specrace.cli.shared.opening import open_workbench
from specrace.cli.shared.outputs import add_output
from specrace.cli.shared.servers import (
    ServedLanes,
    add_reference_argument,
    add_server_argument,
    check_together,
    read_servers,
)
from specrace.cli.shared.terminal import show
from specrace.core.blank import is_blank
from specrace.core.errors import InputError
from specrace.core.events import Repeated
from specrace.core.settings import Setting
from specrace.engine.repeats import RepeatUntilNarrow, repeat_times
from specrace.engine.request import RaceRequest
from specrace.engine.spec import DEFAULT_LANES

# The time limit of "--repeat auto", in seconds: a guess at how long somebody waits.
AUTO_S = 20.0
REPEAT = Setting(
    "repeat",
    None,
    "--repeat",
    f"how many runs; auto: until every speedup's range is within 10 %, for at most {AUTO_S:.0f} s",
    1,
    50,
)


def add_parser(commands: Any) -> None:
    """Add `race` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("race", help="ask a question, retrieve, and race")
    parser.add_argument("question", help="in quotes")
    add_race_arguments(parser, DEFAULT_LANES)
    repeat_help = f"{REPEAT.help} ({REPEAT.range()}; default 1)"
    parser.add_argument("--repeat", default=1, metavar="N|auto", help=repeat_help.replace("%", "%%"))
    add_server_argument(parser)
    add_reference_argument(parser)
    add_output(parser, "--save", metavar="FILE.jsonl", help="record the race")


def run(options: argparse.Namespace) -> int:
    """Race the lanes on a question, show the race and save it. Raises InputError."""
    run_again = read_repeat(options.repeat)
    # Recordings are written with msgspec; a race needs it for nothing else.
    if options.save is not None and find_spec("msgspec") is None:
        raise InputError("--save needs msgspec, which is not installed; install it, or race without --save.")
    if is_blank(options.question):
        raise InputError("Type a question first, in quotes after 'race'.")
    spec = race_spec(options).with_options_in_names()
    request = RaceRequest(options.question, spec, options.passages, options.noise, options.thinking)
    check_together(options)
    addresses = read_servers(options.server, spec, options.reference)
    workbench = open_workbench(options)
    beside = ServedLanes(addresses, together=options.together, reference=options.reference) if addresses else None
    events = workbench.ask(request, again=run_again, beside=beside)
    recorded = show(events, as_json=options.json)
    if options.save is not None:
        from specrace.engine.recording import save

        save(recorded, options.save)
    return 0


def read_repeat(text: Any) -> Callable[[Repeated], bool]:
    """A function that says after each run whether to run again, from the value of --repeat. Raises InputError."""
    runs: int | None = REPEAT.check(text)
    if runs is None:
        return RepeatUntilNarrow(AUTO_S, REPEAT.high)
    return repeat_times(runs)
