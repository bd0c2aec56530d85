"""Limits on reading documents: for the command line and the library, for `index`, and for uploads."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ReadingLimits:
    """Limits on reading.

    `files`, `total_bytes`, `total_seconds` and `characters` bound all documents together, the other limits one file.
    `seconds` is the time that a parser may take for a file, `memory_bytes` the memory of the process that parses. With
    `all_in_sandbox`, that process reads even files whose text only needs decoding, because strangers sent them.
    """

    files: int
    file_bytes: int
    total_bytes: int
    # The size of a zip or an Office file when it is unpacked.
    unpacked_bytes: int
    characters: int
    # Pages of a PDF, or slides of a presentation.
    pages: int
    seconds: float
    memory_bytes: int
    total_seconds: float = math.inf
    all_in_sandbox: bool = False


# The numbers below are guesses: more than the documents of a demonstration need, and little enough for a small machine.
COMMAND_LINE = ReadingLimits(
    files=5_000,
    file_bytes=50_000_000,
    total_bytes=500_000_000,
    unpacked_bytes=200_000_000,
    characters=20_000_000,
    pages=5_000,
    seconds=25.0,
    memory_bytes=2**30,
)
# `index` streams documents to disk, so their total size is practically unlimited.
INDEXING = replace(COMMAND_LINE, files=10_000_000, total_bytes=10**12, characters=10**12)
# Smaller, because many visitors share the server.
UPLOADS = ReadingLimits(
    files=200,
    file_bytes=2_000_000,
    total_bytes=2_000_000,
    unpacked_bytes=20_000_000,
    characters=2_000_000,
    pages=500,
    seconds=10.0,
    memory_bytes=2**29,
    total_seconds=30.0,
    all_in_sandbox=True,
)
# A zip and the zips in it are opened; a zip inside those is not.
MAX_ZIP_DEPTH = 2
