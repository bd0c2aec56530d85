"""`python -m specrace export`: recorded races as one HTML file, which plays without a server."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from specrace.cli.shared.outputs import add_output
from specrace.core.errors import InputError, shorten
from specrace.core.files import as_input_error, write_atomically


def add_parser(commands: Any) -> None:
    """Add `export` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("export", help="write recorded races as one HTML file; needs no model")
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="RACE.jsonl",
        help="recordings that race --save or the page wrote; the first one plays when the file is opened",
    )
    add_output(parser, "--html", required=True, metavar="FILE.html", help="the file to write")
    parser.add_argument("--tour", action="store_true", help="with the tour and its two recorded races (0.2 MB)")


def run(options: argparse.Namespace) -> int:
    """Write the file. Raises InputError."""
    if options.html.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--html is {shorten(options.html.name)!r}; give a file that ends in .html.")
    try:
        from specrace.ui.stage.html_file import PUBLIC, read_recordings, write_html
    except ModuleNotFoundError as error:
        raise InputError(f"export needs {error.name}, which is not installed; install it.") from error
    page = write_html(read_recordings(options.files), tour=options.tour).encode()
    # PUBLIC: a file mode with which everybody may read the file.
    with as_input_error(options.html, "--html"):
        write_atomically(options.html, page, PUBLIC)
    print(f"{options.html} ({len(page) / 1e6:.1f} MB) plays in any browser, without a server.")
    return 0
