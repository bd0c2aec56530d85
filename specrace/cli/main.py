"""The command line: race, replay, bench, score, calibrate, lanes.

Exit codes: 0 fine, 1 a failure of ours, 2 bad arguments or input.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from specrace.cli import bench, calibrate, score
from specrace.cli.arguments import add_race_arguments, open_workbench, race_spec, under_torchrun
from specrace.cli.terminal import Terminal, clean, console, quiet_model_library
from specrace.core.errors import InputError
from specrace.core.events import Event, Finished, Started, Step
from specrace.core.files import check_destination
from specrace.drafters import METHODS
from specrace.drafters.base import Flag
from specrace.engine import recording
from specrace.engine.race import DEFAULT_LANES
from specrace.views.frames import report

if TYPE_CHECKING:
    from specrace.model.tensor_parallel import Followers


class _Parser(argparse.ArgumentParser):
    """Unlike argparse's own, an error is one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{message[:1].upper()}{message[1:]}; see {self.prog} --help.\n")


def build_parser() -> argparse.ArgumentParser:
    """All commands and their arguments (design, section 7)."""
    parser = _Parser(prog="python -m specrace", description="Race draft-and-verify decoders on your own documents.")
    parser.add_argument("--traceback", action="store_true", help="show where a failure came from")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    _add_race(commands.add_parser("race", help="ask a question, retrieve, and race"))
    replay = commands.add_parser("replay", help="play a recorded race; needs no model")
    replay.add_argument("file", type=Path)
    replay.add_argument("--speed", type=float, default=1.0, help="1 is race time, 2 twice as fast")
    replay.add_argument("--json", action="store_true", help="print the result at once, as JSON")
    bench.add_parser(commands)
    score.add_parser(commands)
    calibrate.add_parser(commands)
    lanes = commands.add_parser("lanes", help="list the lanes and their options")
    lanes.add_argument("--json", action="store_true")
    return parser


def _add_race(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("question")
    add_race_arguments(parser, DEFAULT_LANES)
    parser.add_argument("--passages", type=int, default=4, help="passages in the prompt")
    parser.add_argument("--save", type=Path, metavar="FILE.jsonl", help="record the race")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Of torchrun's processes the first does; the others hold model parts."""
    if not under_torchrun():
        return run_command(arguments)
    from specrace.model.tensor_parallel import run

    quiet_model_library()
    return run(lambda followers: run_command(arguments, followers))


def run_command(arguments: Sequence[str] | None, followers: Followers | None = None) -> int:
    """Run one command in this process, on a model that is split among it and the `followers`, if there are any."""
    options = build_parser().parse_args(arguments)
    options.followers = followers
    commands: dict[str, Callable[[argparse.Namespace], int]] = {
        "race": run_race,
        "replay": run_replay,
        "bench": bench.run,
        "score": score.run,
        "calibrate": calibrate.run,
        "lanes": run_lanes,
    }
    try:
        return commands[options.command](options)
    except InputError as error:
        print(clean(str(error)), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except Exception as error:
        if options.traceback:
            raise
        print(
            f"specrace failed: {clean(str(error)) or type(error).__name__} (--traceback shows where).", file=sys.stderr
        )
        return 1


def run_race(options: argparse.Namespace) -> int:
    """Ask, race, show, save."""
    spec = race_spec(options)
    if not options.question.strip():
        raise InputError("There is no question; type one in quotes after 'race'.")
    if options.save is not None:
        check_destination(options.save)
    workbench = open_workbench(options)
    stopping = threading.Event()
    events = workbench.ask(options.question, spec, top=options.passages, stop=stopping.is_set)
    seen = show(events, as_json=options.json)
    if options.save is not None:
        recording.save(seen, options.save)
    return 0


def show(events: Iterable[Event], *, as_json: bool) -> list[Event]:
    """Show a race as it happens; returns its events."""
    seen: list[Event] = []

    def watched() -> Iterator[Event]:
        for event in events:
            seen.append(event)
            yield event

    if as_json:
        for _ in watched():
            pass
        started, finished = seen[0], seen[-1]
        assert isinstance(started, Started) and isinstance(finished, Finished)
        print(json.dumps(report(started, finished), ensure_ascii=False))
    else:
        Terminal(console()).play(watched())
    return seen


def run_replay(options: argparse.Namespace) -> int:
    """Play a recording at race time times `speed`."""
    if not 0 < options.speed <= 1000:
        raise InputError(f"--speed is {options.speed}; give a number above 0 and at most 1000.")
    events = recording.load(options.file)
    show(events if options.json else paced(events, options.speed), as_json=options.json)
    return 0


def paced(events: Iterable[Event], speed: float) -> Iterator[Event]:
    """The events at the times at which they happened, divided by `speed`."""
    began = time.monotonic()
    for event in events:
        if isinstance(event, Step):
            time.sleep(max(0.0, began + event.at_ms / 1000 / speed - time.monotonic()))
        yield event


def run_lanes(options: argparse.Namespace) -> int:
    """List what can be raced."""
    rows: list[dict[str, Any]] = []
    for method in METHODS.values():
        entries: list[dict[str, Any]] = []
        for option in method.options:
            entry: dict[str, Any] = {
                "name": f"{method.name}.{option.name}",
                "default": option.default,
                "help": option.bounds.help,
            }
            if not isinstance(option.bounds, Flag):
                entry |= {"low": option.bounds.low, "high": option.bounds.high}
            entries.append(entry)
        rows.append({"lane": method.name, "title": method.title, "summary": method.summary, "options": entries})
    if options.json:
        print(json.dumps({"lanes": rows}))
        return 0
    for row in rows:
        print(f"{row['lane']:14} {row['summary']}")
        for entry in row["options"]:
            bounds = f"{entry['low']} to {entry['high']}" if "low" in entry else "true or false"
            print(f"    {entry['name']:28} {entry['help']} ({bounds}; default {entry['default']})")
    return 0
