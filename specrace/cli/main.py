"""The command line: `python -m specrace COMMAND`; each command has its own module.

Exit codes: 0 success, 1 a failure of ours, 2 bad arguments or input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from specrace.cli import (
    answers,
    app,
    bench,
    calibrate,
    compare,
    export,
    index,
    lanes,
    metrics,
    models,
    paper,
    race,
    recommend,
    replay,
    score,
    site,
    space,
    sweep,
)
from specrace.cli.shared.arguments import Parser, under_torchrun
from specrace.cli.shared.terminal import exit_code, quiet_model_library, standard_streams

if TYPE_CHECKING:
    from specrace.model.tensor_parallel import Followers

COMMANDS = {
    "app": app,
    "race": race,
    "replay": replay,
    "export": export,
    "site": site,
    "bench": bench,
    "answers": answers,
    "index": index,
    "score": score,
    "sweep": sweep,
    "recommend": recommend,
    "paper": paper,
    "calibrate": calibrate,
    "compare": compare,
    "lanes": lanes,
    "models": models,
    "metrics": metrics,
}


def build_parser() -> argparse.ArgumentParser:
    """A parser of all commands and their arguments."""
    parser = Parser(prog="specrace", description="Race draft-and-verify decoders on your own documents.")
    parser.add_argument("--traceback", action="store_true", help="before the command: show where an error came from")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    for module in COMMANDS.values():
        module.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Under torchrun only the first process runs the command; the others hold parts of the model.
    """
    if not under_torchrun():
        return run_command(arguments)
    from specrace.model.tensor_parallel import run

    quiet_model_library()
    return run(lambda followers: run_command(arguments, followers))


def run_command(arguments: Sequence[str] | None, followers: Followers | None = None) -> int:
    """Run one command in this process; `followers`, if given, are the processes with the other parts of the model."""
    traceback = False
    with standard_streams():
        try:
            options = build_parser().parse_args(add_environment_flags(sys.argv[1:] if arguments is None else arguments))
            options.followers, traceback = followers, options.traceback
            code: int = COMMANDS[options.command].run(options)
            return code
        except (Exception, KeyboardInterrupt) as error:
            return exit_code(error, traceback=traceback)


def add_environment_flags(arguments: Sequence[str]) -> list[str]:
    """Return the arguments, for `app` with the environment's flags before its own flags. Raises InputError.

    `python app.py` reads these flags too.
    """
    # The options before a command have no values.
    options = list(takewhile(lambda word: word.startswith("-"), arguments))
    command, flags = list(arguments[len(options) :][:1]), list(arguments[len(options) + 1 :])
    return [*options, *command, *(space.with_environment(flags) if command == ["app"] else flags)]
