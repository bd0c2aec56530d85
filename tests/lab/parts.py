"""Parts that the tests of `score` share: files of transcripts, and the command without the rest of the command line."""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specrace.cli import score
from specrace.lab.logs import Transcript

# Ends in 1 2 3, which stood at its start: copying pays from the first step on.
COPYING = {
    "id": "a",
    "category": "copy",
    "prompt_ids": [1, 2, 3, 4, 5, 9, 1, 2],
    "output_ids": [3, 4, 5, 9, 7, 3, 4, 8],
}
FRESH = {"id": 2, "category": "fresh", "prompt_ids": [1, 2, 3], "output_ids": [4, 5, 6]}


def transcript(prompt: Sequence[int], output: Sequence[int]) -> Transcript:
    """A transcript of these ids."""
    return Transcript("", "none", tuple(prompt), tuple(output), max(*prompt, *output) + 1)


def write(path: Path, *lines: Any) -> Path:
    """A file of these lines: objects as JSON, bytes as they are; gzip where the name says so."""
    packed = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    path.write_bytes(gzip.compress(packed) if path.suffix == ".gz" else packed)
    return path


def run(*arguments: object) -> int:
    """`score` with these arguments. Raises InputError as `run` does; `main` is what turns that into exit code 2."""
    parser = argparse.ArgumentParser()
    score.add_parser(parser.add_subparsers(dest="command", required=True))
    return score.run(parser.parse_args(["score", *map(str, arguments)]))
