"""Reads a file's content: one document, or all documents in a zip."""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from specrace.core.blank import is_blank
from specrace.retrieval.limits import MAX_ZIP_DEPTH, ReadingLimits
from specrace.retrieval.readers.kinds import KIND_NAMES, KINDS, Reader, kind_of
from specrace.retrieval.readers.reading import Reading, Refusal
from specrace.retrieval.readers.unpacking import open_zip, unpack_member

# The path of a member inside the file ("" for the file itself), and its text, or why it is left out (see `Refusal`).
MemberResult = tuple[str, Reading | str]


def read_content(name: str, content: bytes, limits: ReadingLimits, depth: int = 0) -> Iterator[MemberResult]:
    """Yield the documents in a file called `name`, and the reason for each that is left out.

    `depth` is the number of zips around the file.
    """
    try:
        read = kind_of(name, content).read
        # Only a zip has no reader.
        if read is None:
            yield from _members(content, limits, depth)
            return
    except Refusal as refusal:
        yield "", str(refusal)
        return
    yield from read_document(read, content, limits)


def read_document(read: Reader, content: bytes, limits: ReadingLimits) -> Iterator[MemberResult]:
    """Yield the document that a kind's reader reads, or the reason why it is left out, and the reader's problems."""
    try:
        reading = read(content, limits)
        if len(reading.text) > limits.characters:
            raise Refusal(f"has more than {limits.characters:,} characters: give a smaller file.")
    except Refusal as refusal:
        yield "", str(refusal)
    except RecursionError:
        yield "", "is nested too deeply: give a simpler file."
    else:
        yield from (("", problem) for problem in reading.problems)
        if not is_blank(reading.text):
            yield "", reading
        elif not reading.problems:
            yield "", "holds no text."


def _members(content: bytes, limits: ReadingLimits, depth: int) -> Iterator[MemberResult]:
    """Read a zip's members, except hidden files and files of unsupported kinds. Raises Refusal."""
    if depth >= MAX_ZIP_DEPTH:
        raise Refusal("lies too deep in other zips: unpack them first.")
    bytes_left, files = limits.unpacked_bytes, 0
    with open_zip(content) as archive:
        for info in archive.infolist():
            path = PurePosixPath(info.filename.replace("\\", "/"))
            # macOS adds a folder __MACOSX with metadata.
            is_hidden = any(part.startswith(".") and part != ".." for part in path.parts) or "__MACOSX" in path.parts
            if info.is_dir() or is_hidden or path.suffix.lower() not in KINDS:
                continue
            files += 1
            if files > limits.files:
                raise Refusal(f"holds more than {limits.files:,} documents: the others are left out.")
            try:
                member = _unpack(archive, info, path, bytes_left)
            except Refusal as refusal:
                yield path.as_posix(), str(refusal)
                continue
            bytes_left -= len(member)
            inner_limits = replace(limits, unpacked_bytes=bytes_left)
            for inner_path, reading in read_content(path.name, member, inner_limits, depth + 1):
                yield f"{path.as_posix()}/{inner_path}".removesuffix("/"), reading
    if not files:
        raise Refusal(f"holds no {KIND_NAMES} file.")


def _unpack(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: PurePosixPath, max_bytes: int) -> bytes:
    """A member's content. Raises Refusal for a link, a path out of the zip, and more than `max_bytes`."""
    if path.is_absolute() or ".." in path.parts:
        raise Refusal("leads out of the zip: pack it under a plain name.")
    # The upper 16 bits are the member's mode on Unix.
    if stat.S_ISLNK(info.external_attr >> 16):
        raise Refusal("is a link: pack the file itself.")
    return unpack_member(archive, info, max_bytes)
