"""The files that a command writes: their arguments, and checks before the command begins."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError
from specrace.core.files import check_destination

# Names in the namespace of parsed arguments that are not arguments.
OUTPUTS, COMMAND = "outputs", "command"


def add_output(parser: argparse.ArgumentParser, flag: str, **settings: Any) -> None:
    """Add an argument that names a file to write. `check_outputs` checks the file before the command begins."""

    def read(text: str) -> Path:
        if not text:
            raise InputError(f"{flag} names no file; give one, or leave {flag} out.")
        return Path(text)

    name = parser.add_argument(flag, type=read, **settings).dest
    parser.set_defaults(**{OUTPUTS: (*(parser.get_default(OUTPUTS) or ()), name)})


def check_outputs(options: argparse.Namespace) -> None:
    """Check that the files of `add_output` can be written and are no inputs of the command. Raises InputError."""
    for name in getattr(options, OUTPUTS, ()):
        file = getattr(options, name)
        if file is not None:
            check_destination(file, inputs(options))


def check_folder(folder: Path | None, names: Iterable[str], options: argparse.Namespace) -> None:
    """Like `check_outputs`, check files with these names in the folder of --out, if it exists. Raises InputError."""
    for name in names if folder is not None and folder.is_dir() else ():
        check_destination(Path(folder or "", name), inputs(options))


def inputs(options: argparse.Namespace) -> list[Path]:
    """All values of arguments that may be paths, except the files to write; many of them are not paths at all."""
    others = {*getattr(options, OUTPUTS, ()), OUTPUTS, COMMAND}
    values = [value for name, value in vars(options).items() if name not in others]
    listed = [item for value in values for item in (value if isinstance(value, list) else [value])]
    texts = [str(item) for item in listed if isinstance(item, str | Path)]
    # "NAME=FILE" names a file too.
    return [Path(text) for whole in texts for text in {whole, whole.rpartition("=")[2]}]
