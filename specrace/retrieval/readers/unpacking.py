"""Unpacks zip files in memory, up to a limit."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator

from specrace.retrieval.limits import ReadingLimits
from specrace.retrieval.readers.reading import Refusal

# The largest ratio of unpacked to packed size. Deflate can reach 1,032; text and XML seldom reach 50.
MAX_RATIO = 200
# Up to this number of bytes any ratio is harmless.
_SMALL = 1_000_000
# Listing the members takes time and memory, too; a guess.
MAX_MEMBERS = 20_000


def open_zip(content: bytes) -> zipfile.ZipFile:
    """Open a zip. Raises Refusal if it is broken or has too many members."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise Refusal("is broken: pack or save it again.") from error
    if len(archive.infolist()) > MAX_MEMBERS:
        raise Refusal(f"holds more than {MAX_MEMBERS:,} members: give a smaller file.")
    return archive


def unpack(archive: zipfile.ZipFile, limits: ReadingLimits) -> Iterator[tuple[zipfile.ZipInfo, bytes]]:
    """Unpack every member. Raises Refusal if a member cannot be unpacked, or if together they are too large."""
    bytes_left = limits.unpacked_bytes
    for info in archive.infolist():
        content = unpack_member(archive, info, bytes_left)
        bytes_left -= len(content)
        yield info, content


def unpack_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, max_bytes: int) -> bytes:
    """Unpack a member. Raises Refusal if it has more than `max_bytes` bytes, whatever size it declares."""
    # Bit 0 means encrypted.
    if info.flag_bits & 1:
        raise Refusal("is encrypted: pack it without a password.")
    try:
        with archive.open(info) as stream:
            content = stream.read(max_bytes + 1)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, ValueError, RuntimeError) as error:
        raise Refusal("is broken: pack or save it again.") from error
    if len(content) > max_bytes or len(content) > max(_SMALL, MAX_RATIO * info.compress_size):
        raise Refusal("unpacks to far more than its size: give the files themselves.")
    return content
