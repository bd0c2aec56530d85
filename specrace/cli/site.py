"""`python -m specrace site`: recorded races, the tour and reports as a folder for a static host."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from specrace.core.bundled import RECORDINGS
from specrace.core.errors import InputError


def add_parser(commands: Any) -> None:
    """Add `site` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("site", help="write recorded races as a folder for any static host; needs no model")
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="the folder to write; files that specrace did not write stay"
    )
    parser.add_argument(
        "files", type=Path, nargs="*", metavar="RACE.jsonl", help="recordings; by default those that ship with specrace"
    )
    parser.add_argument(
        "--report",
        type=Path,
        action="append",
        default=[],
        metavar="FILE.html",
        help="a report that recommend --report wrote; may be given several times",
    )
    parser.add_argument("--title", default="Recorded races", help="the heading of the index")


def run(options: argparse.Namespace) -> int:
    """Write the folder. Raises InputError."""
    try:
        from specrace.ui.stage.html_file import read_recordings
        from specrace.ui.stage.site import RESERVED, write_site
    except ModuleNotFoundError as error:
        raise InputError(f"site needs {error.name}, which is not installed; install it.") from error
    files = options.files or sorted(RECORDINGS.glob("*.jsonl"))
    # RESERVED: names that a race's page may not have, because other pages of the site have them.
    names = write_site(options.folder, read_recordings(files, RESERVED), options.report, options.title, files)
    print(f"{options.folder}: {len(names)} files; open index.html, or copy the folder to any static host.")
    return 0
