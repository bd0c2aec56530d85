"""How much is read of documents: on the command line and in the library, by `index`, and of uploads."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ReadingLimits:
    """Bounds on reading. `files`, `total_bytes` and `characters` hold for all documents together, the rest for a file.

    `seconds` and `memory_bytes` bound the process that parses.
    """

    files: int
    file_bytes: int
    total_bytes: int
    # What a zip or an Office file may hold when it is unpacked.
    unpacked_bytes: int
    characters: int
    # Of a PDF; slides of a presentation.
    pages: int
    seconds: float
    memory_bytes: int


COMMAND_LINE = ReadingLimits(5_000, 50_000_000, 500_000_000, 200_000_000, 20_000_000, 5_000, 25.0, 2**30)
# Without a bound on the whole: the documents are streamed to disk.
INDEXING = replace(COMMAND_LINE, files=10_000_000, total_bytes=10**12, characters=10**12)
UPLOADS = ReadingLimits(200, 2_000_000, 2_000_000, 20_000_000, 2_000_000, 500, 10.0, 2**29)
# How deep zips may be nested.
MAX_DEPTH = 2
