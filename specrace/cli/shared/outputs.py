"""The files that a command writes: their arguments, and checks before the command begins."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError
from specrace.core.files import check_destination

# Names in the parsed namespace that are no arguments: OUTPUTS holds the names of the arguments that `add_output` added.
OUTPUTS, COMMAND = "outputs", "command"


def add_output(parser: argparse.ArgumentParser, flag: str, **settings: Any) -> None:
    """Add an argument that names a file to write. `check_outputs` checks the file before the command begins."""

    def read(text: str) -> Path:
        if not text:
            raise InputError(f"{flag} names no file; give one, or leave {flag} out.")
        return Path(text)

    name = parser.add_argument(flag, type=read, **settings).dest
    earlier_names = parser.get_default(OUTPUTS) or ()
    parser.set_defaults(**{OUTPUTS: (*earlier_names, name)})


def check_outputs(options: argparse.Namespace) -> None:
    """Check that the files of `add_output` can be written and are no inputs of the command. Raises InputError."""
    for name in getattr(options, OUTPUTS, ()):
        file = getattr(options, name)
        if file is not None:
            check_destination(file, inputs(options))


def check_folder(folder: Path | None, names: Iterable[str], options: argparse.Namespace) -> None:
    """Check that files with these `names` can be written into `folder`, if it exists, and are no inputs of the command.

    Raises InputError.
    """
    if folder is None or not folder.is_dir():
        return
    for name in names:
        check_destination(folder / name, inputs(options))


def inputs(options: argparse.Namespace) -> list[Path]:
    """The texts and paths among the arguments' values, as paths, except the files to write; many name no file."""
    others = {*getattr(options, OUTPUTS, ()), OUTPUTS, COMMAND}
    values = [value for name, value in vars(options).items() if name not in others]
    listed = [item for value in values for item in (value if isinstance(value, list) else [value])]
    texts = [str(item) for item in listed if isinstance(item, str | Path)]
    # An argument of the form NAME=FILE names a file, too.
    return [Path(path) for text in texts for path in {text, text.rpartition("=")[2]}]
