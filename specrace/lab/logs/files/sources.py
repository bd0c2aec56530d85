"""Which files a log consists of: a file, the members of a zip, or all log files in a folder."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from specrace.core.errors import InputError, shorten
from specrace.core.files import open_regular
from specrace.lab.logs.files.packing import PACKED_SUFFIXES, ZIP_MAGICS, DamagedError, check_ratio

_LOG_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow")
_MAX_MEMBERS = 20_000
# How many names of files that were skipped a sentence tells.
_NAMED = 3


@dataclass(frozen=True)
class Source:
    """A file of a log; `member` is its name in the zip at `path`, "" for the file at `path` itself."""

    path: Path
    member: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.member}" if self.member else str(self.path)

    @property
    def name(self) -> PurePath:
        """The file's own name, whose endings may say what it is."""
        return PurePosixPath(self.member) if self.member else self.path

    @contextmanager
    def open(self, *, pipes: bool = False) -> Iterator[io.BufferedReader]:
        """Open for reading. Raises OSError if that fails; reading a zip's member raises DamagedError."""
        with ExitStack() as opened:
            raw = opened.enter_context(open_regular(self.path, pipes=pipes))
            if self.member:
                try:
                    archive = opened.enter_context(zipfile.ZipFile(raw))
                    size = archive.getinfo(self.member).compress_size
                    packed = opened.enter_context(archive.open(self.member))
                except (zipfile.BadZipFile, NotImplementedError, RuntimeError, KeyError) as error:
                    raise OSError(f"the zip file is damaged or packed unusually: {error}") from error
                raw = io.BufferedReader(_Member(packed, size))
            yield raw


class _Member(io.RawIOBase):
    """The bytes of a zip's member. Raises DamagedError."""

    def __init__(self, packed: Any, compressed_size: int) -> None:
        self._packed = packed
        self._sizes = [compressed_size, 0]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._packed.read(len(buffer))
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
            raise DamagedError("the zip file is damaged here; copy or write it again") from error
        buffer[: len(data)] = data
        check_ratio(self._sizes, len(data))
        return len(data)


def is_log_name(name: PurePath) -> bool:
    """Whether a file's name is one of a log."""
    if name.suffix in PACKED_SUFFIXES:
        name = name.with_suffix("")
    return name.suffix.lower() in _LOG_SUFFIXES


def find_sources(path: Path) -> tuple[list[Source], list[str]]:
    """The files of a log in the order of their names, and the names of those in its folder or zip that are no logs.

    Raises InputError for a folder or a zip that cannot be read or has no log.
    """
    if path.is_dir():
        sources, skipped = _in_folder(path)
    elif _is_zip(path):
        sources, skipped = _in_zip(path)
    else:
        return [Source(path)], []
    if not sources:
        others = f", but {count_files(skipped)}" if skipped else ""
        raise InputError(f"{shorten(path)} holds no log{others}; logs have names in {', '.join(_LOG_SUFFIXES)}.")
    return sources, skipped


def count_files(names: Sequence[str]) -> str:
    """How many files these are, and the first few names."""
    shown = ", ".join(shorten(name, 40) for name in names[:_NAMED])
    more = ", ..." if len(names) > _NAMED else ""
    return f"{len(names):,} {'file' if len(names) == 1 else 'files'} ({shown}{more})"


def _in_folder(folder: Path) -> tuple[list[Source], list[str]]:
    sources: list[Source] = []
    skipped: list[str] = []

    def fail(error: OSError) -> None:
        raise InputError(f"{shorten(error.filename)} cannot be read ({error.strerror}); give a folder of logs.")

    files = []
    for parent, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [Path(parent, name) for name in names if not name.startswith(".")]
    for file in sorted(files, key=lambda file: file.parts):
        if file.suffix.lower() == ".zip" and _is_zip(file):
            members, others = _in_zip(file)
            sources += members
            skipped += [f"{file.name}: {name}" for name in others]
        elif is_log_name(file) and file.is_file():
            sources.append(Source(file))
        else:
            skipped.append(str(file.relative_to(folder)))
    return sources, skipped


def _is_zip(path: Path) -> bool:
    # Opening a pipe and closing it again would end whoever writes to it.
    if not path.is_file():
        return False
    try:
        with open_regular(path) as raw:
            return raw.peek(4).startswith(ZIP_MAGICS)
    except OSError:
        # The error is reported where the file is read.
        return False


def _in_zip(path: Path) -> tuple[list[Source], list[str]]:
    try:
        with open_regular(path) as raw, zipfile.ZipFile(raw) as archive:
            names = sorted(info.filename for info in archive.infolist() if not info.is_dir())
            locked = next((info.filename for info in archive.infolist() if info.flag_bits & 1), "")
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
        raise InputError(f"{shorten(path)}: the zip file breaks off or is damaged; copy or write it again.") from error
    if "xl/workbook.xml" in names:
        raise InputError(f"{shorten(path)} is an Excel workbook; save the sheet with the log as CSV.")
    if locked:
        raise InputError(f"{shorten(path)} is encrypted; pack it without a password.")
    if len(names) > _MAX_MEMBERS:
        raise InputError(f"{shorten(path)} holds more than {_MAX_MEMBERS:,} files; unpack it, and give the folder.")
    names = [name for name in names if not any(part.startswith((".", "__MACOSX")) for part in PurePath(name).parts)]
    logs = [name for name in names if is_log_name(PurePath(name)) or len(names) == 1]
    return [Source(path, name) for name in logs], [name for name in names if name not in set(logs)]
