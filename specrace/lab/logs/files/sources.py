"""Which files a log consists of: a file, the members of a zip, or all log files in a folder, without copies."""

from __future__ import annotations

import hashlib
import io
import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from specrace.core.errors import InputError, shorten
from specrace.core.files import open_regular
from specrace.lab.logs.files.kinds import LOG_SUFFIXES, ZIP_MAGICS, is_log_name
from specrace.lab.logs.files.packing import DamagedError, check_ratio, open_text

# A zip with more files is refused; a guess.
_MAX_MEMBERS = 20_000
# How many names of skipped files a sentence lists.
_MAX_NAMES = 3
# How much of a file is read at once to compare files. The first block tells most files apart.
_BLOCK = 1 << 16
# What Hugging Face's datasets names the results of `map` and `filter`, beside the data set itself.
_CACHED = re.compile(r"cache-\w+\.arrow")


class OpenFile:
    """Keeps one file open between readings, so that a log is opened once; opening another file closes it.

    A zip's directory is read again whenever the zip is opened: doing that for each member of a zip of 2,000 took 30 s.
    Two readers that take turns need an `OpenFile` each.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._raw: io.BufferedReader | None = None
        self._archive: zipfile.ZipFile | None = None

    def open(self, path: Path, *, pipes: bool = False) -> io.BufferedReader:
        """The file at its beginning, or a pipe where it was left. Raises OSError, also for a pipe without `pipes`."""
        if self._raw is None or path != self._path:
            self.close()
            self._raw = open_regular(path, pipes=pipes)
            self._path = path
        elif self._raw.seekable():
            self._raw.seek(0)
        return self._raw

    def archive(self, path: Path) -> zipfile.ZipFile:
        """The zip at this path. Raises OSError, BadZipFile, NotImplementedError or ValueError."""
        if self._archive is None or path != self._path:
            self._archive = zipfile.ZipFile(self.open(path))
        return self._archive

    def close(self) -> None:
        """Close the file, if one is open."""
        if self._archive is not None:
            self._archive.close()
        if self._raw is not None:
            self._raw.close()
        self._path = self._raw = self._archive = None


@dataclass(frozen=True)
class Source:
    """A file of a log; `member` is its name in the zip at `path`, "" for the file at `path` itself.

    `kept`: keeps the file open between readings; None closes it after each.
    """

    path: Path
    member: str = ""
    kept: OpenFile | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.path}: {self.member}" if self.member else str(self.path)

    @property
    def name(self) -> PurePath:
        """The file's own name, whose end may say what it is."""
        return PurePosixPath(self.member) if self.member else self.path

    @contextmanager
    def open(self, *, pipes: bool = False) -> Iterator[io.BufferedReader]:
        """Open for reading. Raises OSError if that fails; reading a zip's member raises DamagedError."""
        with ExitStack() as stack:
            file = self.kept
            if file is None:
                file = OpenFile()
                stack.callback(file.close)
            if not self.member:
                yield file.open(self.path, pipes=pipes)
                return
            try:
                archive = file.archive(self.path)
                size = archive.getinfo(self.member).compress_size
                packed = stack.enter_context(archive.open(self.member))
            except (zipfile.BadZipFile, NotImplementedError, RuntimeError, KeyError) as error:
                raise OSError(f"the zip file is damaged or packed unusually: {error}") from error
            yield io.BufferedReader(_Member(packed, size))


class _Member(io.RawIOBase):
    """The bytes of a zip's member. Reading raises DamagedError."""

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


def find_sources(path: Path, kept: OpenFile | None = None) -> tuple[list[Source], list[str]]:
    """A log's files, sorted by name, and the names of the files beside them in its folder or zip that are not read,
    because they are not logs, or are copies.

    `kept`: keeps a file open until the caller closes it. Raises InputError for a folder or a zip that cannot be read or
    has no log.
    """
    if path.is_dir():
        sources, skipped = _in_folder(path, kept)
    elif _is_zip(path, kept):
        sources, skipped = _in_zip(path, kept)
    else:
        return [Source(path, kept=kept)], []
    if not sources:
        others = f", but {count_files(skipped)}" if skipped else ""
        raise InputError(f"{shorten(path)} holds no log{others}; logs have names in {', '.join(LOG_SUFFIXES)}.")
    copies = _find_copies(sources)
    skipped += [f"{_inner_name(copy, path)}, a copy of {_inner_name(copies[copy], path)}" for copy in copies]
    return [source for source in sources if source not in copies], skipped


def _find_copies(sources: Sequence[Source]) -> dict[Source, Source]:
    """Copy -> original, for files with the same unpacked content, such as a.jsonl.gz and a.jsonl."""
    by_start: dict[bytes, list[Source]] = {}
    originals: dict[bytes, Source] = {}
    copies: dict[Source, Source] = {}
    with closing(OpenFile()) as file:
        opened = {source: replace(source, kept=source.kept or file) for source in sources}
        for source in sources:
            by_start.setdefault(_digest(opened[source], max_blocks=1), []).append(source)
        for similar in by_start.values():
            for source in similar if len(similar) > 1 else ():
                original = originals.setdefault(_digest(opened[source]), source)
                if original is not source:
                    copies[source] = original
    return copies


def _digest(source: Source, max_blocks: int | None = None) -> bytes:
    """A digest of the unpacked file, or of its first blocks; of its name if it is empty or cannot be read."""
    digest = hashlib.blake2b()
    is_empty = True
    try:
        with source.open() as raw:
            stream = open_text(raw, source.name)
            for block in islice(iter(partial(stream.read, _BLOCK), b""), max_blocks):
                digest.update(block)
                is_empty = False
    except (OSError, DamagedError, InputError):
        is_empty = True
    return str(source).encode(errors="surrogateescape") if is_empty else digest.digest()


def _inner_name(source: Source, log: Path) -> str:
    """The name of a file in a log's folder or zip."""
    return str((source.path / source.member).relative_to(log))


def count_files(names: Sequence[str]) -> str:
    """The number of these files and the first few names, as text."""
    shown = ", ".join(shorten(name, 40) for name in names[:_MAX_NAMES])
    more = ", ..." if len(names) > _MAX_NAMES else ""
    return f"{len(names):,} {'file' if len(names) == 1 else 'files'} ({shown}{more})"


def _in_folder(folder: Path, kept: OpenFile | None) -> tuple[list[Source], list[str]]:
    """(the log files in a folder and its zips, the names of the other files), hidden ones left out."""
    sources: list[Source] = []
    skipped: list[str] = []

    def fail(error: OSError) -> None:
        raise InputError(f"{shorten(error.filename)} cannot be read ({error.strerror}); give a folder of logs.")

    files = []
    cached = set[Path]()
    for parent, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if "_delta_log" in folders:
            _require_current(Path(parent))
        files += [Path(parent, name) for name in names if not name.startswith(".")]
        cached.update(Path(parent, name) for name in names if _is_cached(name, names))
    for file in sorted(files, key=lambda file: file.parts):
        if file.suffix.lower() == ".zip" and _is_zip(file, kept):
            members, others = _in_zip(file, kept)
            sources += members
            skipped += [f"{file.name}: {name}" for name in others]
        elif file not in cached and is_log_name(file) and file.is_file():
            sources.append(Source(file, kept=kept))
        else:
            skipped.append(str(file.relative_to(folder)))
    return sources, skipped


def _is_cached(name: str, names: Sequence[str]) -> bool:
    """Whether a file in a folder of Hugging Face's datasets was computed from the other files there, as by `map`."""
    in_dataset = not {"state.json", "dataset_info.json"}.isdisjoint(names)
    return in_dataset and _CACHED.fullmatch(name) is not None


def _require_current(table: Path) -> None:
    """Raise InputError if a Delta table's folder may keep files that the table no longer has.

    The log names files that a commit removed (delta-io/delta, PROTOCOL.md); a checkpoint replaces older commits.
    """
    log = table / "_delta_log"
    is_changed = (log / "_last_checkpoint").exists()
    try:
        for commit in () if is_changed else log.glob("*.json"):
            with open_regular(commit) as lines:
                parts = iter(partial(lines.readline, _BLOCK), b"")
                is_changed = is_changed or any(part.startswith(b'{"remove"') for part in parts)
    except OSError:
        is_changed = True
    if is_changed:
        raise InputError(
            f"{shorten(table)} is a Delta table, whose folder also keeps rows that were replaced or deleted; "
            "write the table's rows to a Parquet file."
        )


def _is_zip(path: Path, kept: OpenFile | None) -> bool:
    # A pipe is left alone: closing it again would end the program that writes to it.
    if not path.is_file():
        return False
    try:
        with Source(path, kept=kept).open() as raw:
            return raw.peek(4).startswith(ZIP_MAGICS)
    except OSError:
        # Reading the file will fail in the same way, and then the error is reported.
        return False


def _in_zip(path: Path, kept: OpenFile | None) -> tuple[list[Source], list[str]]:
    """(the log files in a zip, the names of its other files), hidden ones left out. Raises InputError."""
    file = kept or OpenFile()
    try:
        members = file.archive(path).infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
        raise InputError(f"{shorten(path)}: the zip file breaks off or is damaged; copy or write it again.") from error
    finally:
        if kept is None:
            file.close()
    names = sorted(info.filename for info in members if not info.is_dir())
    if "xl/workbook.xml" in names:
        raise InputError(f"{shorten(path)} is an Excel workbook; save the sheet with the log as CSV.")
    # Bit 0 marks an encrypted member.
    if any(info.flag_bits & 1 for info in members):
        raise InputError(f"{shorten(path)} is encrypted; pack it without a password.")
    if len(names) > _MAX_MEMBERS:
        raise InputError(f"{shorten(path)} holds more than {_MAX_MEMBERS:,} files; unpack it, and give the folder.")
    names = [name for name in names if not any(part.startswith((".", "__MACOSX")) for part in PurePath(name).parts)]
    # A single file is taken for the log, whatever its name is.
    logs = [name for name in names if is_log_name(PurePath(name)) or len(names) == 1]
    known = set(logs)
    return [Source(path, name, kept) for name in logs], [name for name in names if name not in known]
