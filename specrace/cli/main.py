"""The command line: `python -m specrace COMMAND`; each command has its own module.

Exit codes: 0 success, 1 a failure of ours, 2 bad arguments or input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from specrace.cli import space
from specrace.cli.shared.arguments import Parser, under_torchrun
from specrace.cli.shared.outputs import check_outputs
from specrace.cli.shared.terminal import exit_code, quiet_model_library, standard_streams

if TYPE_CHECKING:
    from specrace.model.tensor_parallel import Followers

# The commands, each of which is the name of its module.
COMMANDS = (
    "app",
    "race",
    "replay",
    "export",
    "site",
    "bench",
    "answers",
    "index",
    "score",
    "sweep",
    "recommend",
    "paper",
    "calibrate",
    "compare",
    "lanes",
    "models",
    "metrics",
)


def command_module(name: str) -> Any:
    """The module of a command. Raises ImportError for a name that is not in COMMANDS."""
    return importlib.import_module(f"specrace.cli.{name}")


def build_parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """A parser of these commands and their arguments, by default of all; only their modules are imported."""
    parser = Parser(prog="specrace", description="Race draft-and-verify decoders on your own documents.")
    parser.add_argument("--traceback", action="store_true", help="before the command: show where an error came from")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    for name in names:
        command_module(name).add_parser(commands)
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
            words = add_environment_flags(sys.argv[1:] if arguments is None else arguments)
            options = build_parser(named_commands(words)).parse_args(words)
            traceback = options.traceback
            options.followers = followers
            check_outputs(options)
            code: int = command_module(options.command).run(options)
            # Flush here, where an error such as a full disk is still reported in a sentence.
            sys.stdout.flush()
            return code
        except (Exception, KeyboardInterrupt) as error:
            return exit_code(error, traceback=traceback)


def named_commands(words: Sequence[str]) -> Sequence[str]:
    """The one command that the arguments name, whose parser suffices; all commands if they name none or ask for help.

    Importing all commands takes longer than some commands run.

    >>> named_commands(["--traceback", "lanes"])
    ('lanes',)
    """
    first_word = next((word for word in words if word != "--traceback"), "")
    return (first_word,) if first_word in COMMANDS else COMMANDS


def add_environment_flags(arguments: Sequence[str]) -> list[str]:
    """Return the arguments; for `app`, insert the environment's flags before its own flags. Raises InputError.

    `python app.py` reads these flags too.
    """
    # The options before a command have no values.
    options = list(takewhile(lambda word: word.startswith("-"), arguments))
    command, flags = list(arguments[len(options) :][:1]), list(arguments[len(options) + 1 :])
    return [*options, *command, *(space.with_environment(flags) if command == ["app"] else flags)]
