"""How much is read of documents: a row for the command line and the library, one for `index`, one for uploads."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ReadingLimits:
    """`files`, `total_bytes` and `characters` count over all documents, the other limits hold for each file."""

    files: int
    file_bytes: int
    total_bytes: int
    # What a zip, or an Office file, may hold once it is unpacked.
    unpacked_bytes: int
    characters: int
    # Of a PDF or a presentation.
    pages: int
    seconds: float
    # Of the process that parses.
    memory_bytes: int


COMMAND_LINE = ReadingLimits(5_000, 50_000_000, 500_000_000, 200_000_000, 20_000_000, 5_000, 25.0, 2**30)
# Streamed to the disk.
INDEXING = replace(COMMAND_LINE, files=10_000_000, total_bytes=10**12, characters=10**12)
UPLOADS = ReadingLimits(200, 2_000_000, 2_000_000, 20_000_000, 2_000_000, 500, 10.0, 2**29)
# Zips within zips.
MAX_DEPTH = 2
