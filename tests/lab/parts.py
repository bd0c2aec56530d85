"""What tests of scoring share: transcripts, log files, and a call of the command `score`."""

from __future__ import annotations

import argparse
import bz2
import gzip
import json
import lzma
import random
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import zstandard

from specrace.cli import score
from specrace.lab.logs.transcripts import Transcript

# The prompt begins with 1 2 3 and ends in 1 2, so copying pays from the first step on.
COPYING = {
    "id": "a",
    "category": "copy",
    "prompt_ids": [1, 2, 3, 4, 5, 9, 1, 2],
    "output_ids": [3, 4, 5, 9, 7, 3, 4, 8],
}
# Nothing of the output is in the prompt.
FRESH = {"id": 2, "category": "fresh", "prompt_ids": [1, 2, 3], "output_ids": [4, 5, 6]}


def transcript(prompt: Sequence[int], output: Sequence[int]) -> Transcript:
    """A transcript of these ids, in the category "none"; its vocabulary ends at the largest of them."""
    return Transcript("", "none", tuple(prompt), tuple(output), max(*prompt, *output) + 1)


def write(path: Path, *lines: Any) -> Path:
    """Write a file of these lines: objects as JSON, bytes as they are; compressed if its name ends in .gz."""
    data = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def pack(path: Path, data: bytes) -> Path:
    """Write `data` to a file, compressed as the suffix of its name says; a zip has it as log.jsonl."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("log.jsonl", data)
    else:
        # By default, xz takes ten times as long, and blocks of bzip2 have 900 kB instead of 100 kB.
        xz, bz = partial(lzma.compress, preset=0), partial(bz2.compress, compresslevel=1)
        packers = {".gz": gzip.compress, ".zst": zstandard.compress, ".xz": xz, ".bz2": bz}
        path.write_bytes(packers[path.suffix](data))
    return path


def run(*arguments: object) -> int:
    """Run `score` with these arguments. Raises InputError like `score.run`; only `main` turns it into exit code 2."""
    parser = argparse.ArgumentParser()
    score.add_parser(parser.add_subparsers(dest="command", required=True))
    return score.run(parser.parse_args(["score", *map(str, arguments)]))


def mostly_copying(count: int, *, seed: int = 0, category: str = "copy") -> list[Transcript]:
    """Requests whose outputs copy spans of their prompts; every fourth copies nothing, and its category is "fresh"."""
    chance = random.Random(seed)
    transcripts = []
    for number in range(count):
        prompt = [chance.randrange(200) for _ in range(60)]
        copies_nothing = number % 4 == 3
        output = [chance.randrange(200, 400) for _ in range(24)] if copies_nothing else []
        while len(output) < 24:
            start = chance.randrange(40)
            output += prompt[start : start + chance.randrange(4, 12)]
        kind = "fresh" if copies_nothing else category
        transcripts.append(Transcript(f"r{number}", kind, tuple(prompt), tuple(output[:24]), 400))
    return transcripts


def write_log(path: Path, transcripts: Sequence[Transcript]) -> Path:
    """Write a log of these transcripts."""
    rows = (
        {"id": request.id, "category": request.category, "prompt_ids": request.prompt, "output_ids": request.output}
        for request in transcripts
    )
    return write(path, *rows)
