"""Documents: the files that a person gives, read into memory as text with addresses."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from specrace.core.errors import InputError
from specrace.core.files import read_bytes
from specrace.retrieval.limits import COMMAND_LINE, ReadingLimits
from specrace.retrieval.readers.archives import Found, read_content
from specrace.retrieval.readers.kinds import KINDS, READ, kind_of
from specrace.retrieval.readers.reading import Mark, Refusal
from specrace.retrieval.sandbox import HINT, Sandbox

# Between progress lines.
REPORT_S = 2.0

UNREADABLE = "cannot be read: check its permissions, and where it leads if it is a link."
# What every index has, as `specrace.retrieval.store` keeps it.
INDEX_FILES = ("index.json", "vectors.f16")


@dataclass(frozen=True)
class Document:
    """A file's text. `name` is its path below the root that was given; every offset elsewhere refers to `text`.

    `marks` are the addresses in it, in order.
    """

    name: str
    title: str
    text: str
    marks: tuple[Mark, ...] = field(default=(), compare=False)


def read_documents(
    paths: Sequence[Path],
    *,
    skip: Callable[[str], object] = str,
    on_progress: Callable[[str], object] = str,
    limits: ReadingLimits = COMMAND_LINE,
) -> list[Document]:
    """Read files, folders with all below them, and zips, in the order given; a folder's files come sorted by path.

    Hidden entries of a folder, files of other kinds and files read already are passed over. What cannot be read, has
    no text, leads out of its folder or zip, or exceeds `limits` is left out: `skip` gets a sentence about each of
    these, `on_progress` a line about progress every two seconds.
    Raises InputError for a missing path or nothing to read.
    """
    problems: list[str] = []
    documents = list(stream_documents(paths, skip=problems.append, on_progress=on_progress, limits=limits))
    if not documents:
        where = ", ".join(_printable(path) for path in paths) or "an empty list"
        none = f"No text was found in {where}: give a {READ} file, or a folder that holds some."
        raise InputError(" ".join(problems) or none)
    for sentence in problems:
        skip(sentence)
    return documents


def stream_documents(
    paths: Sequence[Path],
    *,
    skip: Callable[[str], object] = str,
    on_progress: Callable[[str], object] = str,
    limits: ReadingLimits = COMMAND_LINE,
) -> Iterator[Document]:
    """As `read_documents`, one after the other; none at all is no error."""
    intake = _Intake(limits, skip)
    files = _find_files(paths, intake)
    with Sandbox(limits) as sandbox:
        last = time.monotonic()
        for number, (name, file) in enumerate(files.items(), 1):
            yield from intake.read(name, file, sandbox)
            if time.monotonic() - last >= REPORT_S:
                on_progress(f"Read {number:,} of {len(files):,} documents")
                last = time.monotonic()


class _Intake:
    """What was read so far; `skip` gets sentences about the rest."""

    def __init__(self, limits: ReadingLimits, skip: Callable[[str], object]) -> None:
        self.limits = limits
        self.skip = skip
        self._names: set[str] = set()
        self._bytes = self._characters = 0

    def refuse(self, path: str | Path, why: str, member: str = "") -> None:
        """Note why a path, or a member of the zip there, is left out."""
        self.skip(f"{_below(_printable(path), member)} {why}")

    def read(self, name: str, file: Path, sandbox: Sandbox) -> Iterator[Document]:
        """What one file holds, or the files of a zip."""
        most = self.limits
        try:
            size = file.stat().st_size
        except OSError as error:
            self.refuse(file, f"cannot be read ({error.strerror}); {HINT}.")
            return
        if size > most.file_bytes:
            self.refuse(file, f"is too large: at most {most.file_bytes:,} bytes are read of a file.")
            return
        if self._bytes + size > most.total_bytes:
            self.refuse(file, f"is too large: at most {most.total_bytes:,} bytes are read in all.")
            return
        self._bytes += size
        left = replace(most, characters=most.characters - self._characters, files=most.files - len(self._names))
        for member, found in self._found(file, left, sandbox):
            if isinstance(found, str):
                self.refuse(file, found, member)
            elif self._characters + len(found.text) > most.characters:
                self.refuse(file, f"is left out: at most {most.characters:,} characters are read in all.", member)
            else:
                self._characters += len(found.text)
                own = _unused(_below(name, member), self._names)
                title = found.title or Path(own).stem
                self._names.add(own)
                yield Document(own, title, found.text, found.marks)

    def _found(self, file: Path, limits: ReadingLimits, sandbox: Sandbox) -> Iterator[Found]:
        """What only decodes text is read here, the rest in the sandbox."""
        kind = KINDS.get(file.suffix.lower())
        if kind is None or kind.parsed:
            return sandbox.read(file, limits)
        try:
            content = read_bytes(file, limits.file_bytes, HINT)
            if kind_of(file.name, content).parsed:
                return sandbox.read(file, limits)
        except InputError as error:
            self.skip(str(error))
            return iter(())
        except Refusal as refusal:
            return iter([("", str(refusal))])
        return read_content(file.name, content, limits)


def _find_files(paths: Sequence[Path], intake: _Intake) -> dict[str, Path]:
    """The files to read by name; one that is reached twice is kept once, and names that clash are numbered."""
    files: dict[str, Path] = {}
    seen: set[Path] = set()
    for root in map(Path, paths):
        for file, real in _files_under(root, intake):
            if real in seen:
                continue
            if len(files) == intake.limits.files:
                intake.refuse(root, f"holds more than {intake.limits.files:,} documents: the others are left out.")
                return files
            seen.add(real)
            name = _printable(file.relative_to(root) if root.is_dir() else file.name)
            files[_unused(name, files)] = file
    return files


def _files_under(root: Path, intake: _Intake) -> Iterator[tuple[Path, Path]]:
    """`root` itself if it is a file, else the readable files below it, sorted by path; each with where it lies."""
    if root.is_file():
        yield root, root.resolve()
    elif root.is_dir():
        home = root.resolve()
        for file in sorted(_walk(root, intake), key=lambda file: file.relative_to(root).parts):
            try:
                real, is_file = file.resolve(), file.is_file()
            except (OSError, RuntimeError):  # a link to itself is a RuntimeError
                intake.refuse(file, UNREADABLE)
                continue
            if not real.is_relative_to(home):
                intake.refuse(file, "is a link out of the folder: copy the file itself there.")
            elif is_file:
                yield file, real
    else:
        raise InputError(f"{_printable(root)} does not exist: check the path of the documents.")


def _walk(root: Path, intake: _Intake) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        intake.refuse(error.filename, UNREADABLE)

    for folder, subfolders, names in os.walk(root, onerror=refuse):
        if set(INDEX_FILES) <= set(names):
            # The passages of an index are no documents.
            subfolders.clear()
            continue
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for name in names:
            if not name.startswith(".") and Path(name).suffix.lower() in KINDS:
                yield Path(folder, name)


def _unused(name: str, taken: Container[str]) -> str:
    candidate, copy = name, 1
    while candidate in taken:
        copy += 1
        candidate = f"{name} ({copy})"
    return candidate


def _below(name: str, member: str) -> str:
    """Joined as text: a hostile member's path may begin with a slash."""
    return f"{name}/{member}" if member else name


def _printable(path: str | Path) -> str:
    """A path as text that can be encoded: bytes of a file name that are not UTF-8 become replacement marks."""
    return os.fsencode(Path(path).as_posix()).decode("utf-8", "replace")
