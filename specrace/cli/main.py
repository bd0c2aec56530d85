"""The command line: `python -m specrace COMMAND`, one file a command.

Exit codes: 0 fine, 1 a failure of ours, 2 bad arguments or input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specrace.cli import (
    answers,
    app,
    bench,
    calibrate,
    index,
    lanes,
    models,
    paper,
    race,
    recommend,
    replay,
    score,
    sweep,
)
from specrace.cli.arguments import Parser, under_torchrun
from specrace.cli.terminal import complain, open_closed_streams, quiet_model_library
from specrace.core.errors import InputError

if TYPE_CHECKING:
    from specrace.model.tensor_parallel import Followers

COMMANDS = {
    "app": app.run,
    "race": race.run,
    "replay": replay.run,
    "bench": bench.run,
    "answers": answers.run,
    "index": index.run,
    "score": score.run,
    "sweep": sweep.run,
    "recommend": recommend.run,
    "paper": paper.run,
    "calibrate": calibrate.run,
    "lanes": lanes.run,
    "models": models.run,
}


def build_parser() -> argparse.ArgumentParser:
    """All commands and their arguments (design, section 7)."""
    parser = Parser(prog="specrace", description="Race draft-and-verify decoders on your own documents.")
    parser.add_argument("--traceback", action="store_true", help="show where a failure came from")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    for module in (
        app,
        race,
        replay,
        bench,
        answers,
        index,
        score,
        sweep,
        recommend,
        paper,
        calibrate,
        lanes,
        models,
    ):
        module.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Of torchrun's processes the first does; the others hold model parts."""
    if not under_torchrun():
        return run_command(arguments)
    from specrace.model.tensor_parallel import run

    quiet_model_library()
    return run(lambda followers: run_command(arguments, followers))


def run_command(arguments: Sequence[str] | None, followers: Followers | None = None) -> int:
    """Run one command in this process, on a model that is split among it and the `followers`, if there are any."""
    open_closed_streams()
    options = build_parser().parse_args(arguments)
    options.followers = followers
    try:
        return COMMANDS[options.command](options)
    except InputError as error:
        complain(error)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except Exception as error:
        if options.traceback:
            raise
        complain(f"specrace failed: {error or type(error).__name__} (--traceback shows where).")
        return 1
