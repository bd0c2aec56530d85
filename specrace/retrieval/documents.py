"""Documents: the user's files, read into memory as text with addresses."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from specrace.core.errors import InputError
from specrace.core.files import read_bytes
from specrace.retrieval.limits import COMMAND_LINE, ReadingLimits
from specrace.retrieval.readers.archives import MemberResult, read_document
from specrace.retrieval.readers.kinds import KIND_NAMES, KINDS, kind_of
from specrace.retrieval.readers.reading import Mark, Refusal
from specrace.retrieval.sandbox import HINT, Sandbox
from specrace.retrieval.sentences import Span

# Seconds between progress lines.
REPORT_S = 2.0

UNREADABLE = "cannot be read: check its permissions, and where it leads if it is a link."
# A folder with both files is an index that `specrace index` wrote. It is not searched for documents.
INDEX_FILES = ("index.json", "vectors.f16")


@dataclass(frozen=True)
class Document:
    """A file's text. `name` is its path below the folder that was read; all offsets refer to `text`.

    `marks` give the address of each part of the text, in order; `code` has the spans in which "# ..." is a comment.
    """

    name: str
    title: str
    text: str
    marks: tuple[Mark, ...] = field(default=(), compare=False)
    code: tuple[Span, ...] = field(default=(), compare=False)


def ignore(_: str) -> None:
    """Ignore a message; the default for callbacks."""


def read_documents(
    paths: Sequence[Path],
    *,
    on_skip: Callable[[str], object] = ignore,
    on_progress: Callable[[str], object] = ignore,
    limits: ReadingLimits = COMMAND_LINE,
) -> list[Document]:
    """Read files, folders (recursively) and zips, in the order of `paths`; the files of a folder are sorted by path.

    In folders and zips, hidden files and files of unsupported kinds are ignored without a message. So is a file that
    was read before. A file that cannot be read, has no text, is a link out of its folder or zip, or exceeds `limits` is
    left out, and `on_skip` is called with a sentence about it. `on_progress` gets a line every two seconds. Raises
    InputError for a path that does not exist, and if no document can be read.
    """
    problems: list[str] = []
    documents = list(stream_documents(paths, on_skip=problems.append, on_progress=on_progress, limits=limits))
    if not documents:
        where = ", ".join(_printable(path) for path in paths) or "an empty list"
        no_text = f"No text was found in {where}: give a {KIND_NAMES} file, or a folder that holds some."
        raise InputError(" ".join(problems) or no_text)
    for sentence in problems:
        on_skip(sentence)
    return documents


def stream_documents(
    paths: Sequence[Path],
    *,
    on_skip: Callable[[str], object] = ignore,
    on_progress: Callable[[str], object] = ignore,
    limits: ReadingLimits = COMMAND_LINE,
) -> Iterator[Document]:
    """Yield the documents that `read_documents` returns, one at a time; no document at all is not an error."""
    reader = _LimitedReader(limits, on_skip)
    files = _find_files(paths, reader)
    with Sandbox(limits) as sandbox:
        last_report = time.monotonic()
        for number, (name, file) in enumerate(files.items(), 1):
            yield from reader.read(name, file, sandbox)
            if time.monotonic() - last_report >= REPORT_S:
                on_progress(f"Read {number:,} of {len(files):,} documents")
                last_report = time.monotonic()


class _LimitedReader:
    """Reads files up to the limits on all documents; `on_skip` gets a sentence about each file that is left out."""

    def __init__(self, limits: ReadingLimits, on_skip: Callable[[str], object]) -> None:
        self.limits = limits
        self.on_skip = on_skip
        self._names: set[str] = set()
        self._bytes = self._characters = 0

    def refuse(self, path: str | Path, why: str, member: str = "") -> None:
        """Report why a path, or a member of the zip at that path, is left out."""
        self.on_skip(f"{_join(_printable(path), member)} {why}")

    def read(self, name: str, file: Path, sandbox: Sandbox) -> Iterator[Document]:
        """The document in a file, or the documents in a zip."""
        limits = self.limits
        try:
            size = file.stat().st_size
        except OSError as error:
            self.refuse(file, f"cannot be read ({error.strerror}); {HINT}.")
            return
        if size > limits.file_bytes:
            self.refuse(file, f"is too large: at most {limits.file_bytes:,} bytes are read of a file.")
            return
        if self._bytes + size > limits.total_bytes:
            self.refuse(file, f"is too large: at most {limits.total_bytes:,} bytes are read in all.")
            return
        self._bytes += size
        remaining = replace(
            limits, characters=limits.characters - self._characters, files=limits.files - len(self._names)
        )
        for member, reading in self._read_content(file, remaining, sandbox):
            # A string is the reason why the file or member is left out.
            if isinstance(reading, str):
                self.refuse(file, reading, member)
            elif self._characters + len(reading.text) > limits.characters:
                self.refuse(file, f"is left out: at most {limits.characters:,} characters are read in all.", member)
            else:
                self._characters += len(reading.text)
                unique_name = _make_unique(_join(name, member), self._names)
                title = reading.title or Path(unique_name).stem
                self._names.add(unique_name)
                yield Document(unique_name, title, reading.text, reading.marks, reading.code)

    def _read_content(self, file: Path, limits: ReadingLimits, sandbox: Sandbox) -> Iterator[MemberResult]:
        """Read a file here if it only needs decoding and the limits allow it, else in the sandbox, a child process."""
        kind = KINDS.get(file.suffix.lower())
        if not (limits.all_in_sandbox or kind is None or kind.parsed):
            try:
                content = read_bytes(file, limits.file_bytes, HINT)
                kind = kind_of(file.name, content)
            except InputError as error:
                # Unlike a Refusal's, this message already names the file.
                self.on_skip(str(error))
                return iter(())
            except Refusal as refusal:
                return iter([("", str(refusal))])
            if kind.read is not None and not kind.parsed:
                return read_document(kind.read, content, limits)
        return sandbox.read(file, limits)


def _find_files(paths: Sequence[Path], reader: _LimitedReader) -> dict[str, Path]:
    """The files to read, by their unique names. A file that several paths lead to is listed once."""
    files: dict[str, Path] = {}
    seen: set[Path] = set()
    for root in map(Path, paths):
        for file, real_path in _files_under(root, reader):
            if real_path in seen:
                continue
            if len(files) == reader.limits.files:
                reader.refuse(root, f"holds more than {reader.limits.files:,} documents: the others are left out.")
                return files
            seen.add(real_path)
            name = _printable(file.relative_to(root) if root.is_dir() else file.name)
            files[_make_unique(name, files)] = file
    return files


def _files_under(root: Path, reader: _LimitedReader) -> Iterator[tuple[Path, Path]]:
    """(path, resolved path) of `root` if it is a file, else of the readable files below it, sorted by path."""
    if root.is_file():
        yield root, root.resolve()
    elif root.is_dir():
        real_root = root.resolve()
        for file in sorted(_walk(root, reader), key=lambda file: file.relative_to(root).parts):
            try:
                real_path, is_file = file.resolve(), file.is_file()
            except (OSError, RuntimeError):  # a link to itself is a RuntimeError
                reader.refuse(file, UNREADABLE)
                continue
            if not real_path.is_relative_to(real_root):
                reader.refuse(file, "is a link out of the folder: copy the file itself there.")
            elif is_file:
                yield file, real_path
    else:
        raise InputError(f"{_printable(root)} does not exist: check the path of the documents.")


def _walk(root: Path, reader: _LimitedReader) -> Iterator[Path]:
    """The files of known kinds below `root`, except hidden files and those in hidden folders and indexes."""

    def refuse(error: OSError) -> None:
        reader.refuse(error.filename, UNREADABLE)

    for folder, subfolders, names in os.walk(root, onerror=refuse):
        if set(INDEX_FILES) <= set(names):
            # The files of an index are not documents.
            subfolders.clear()
            continue
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for name in names:
            if not name.startswith(".") and Path(name).suffix.lower() in KINDS:
                yield Path(folder, name)


def _make_unique(name: str, taken: Container[str]) -> str:
    """Return `name`, or "NAME (2)", "NAME (3)" and so on if it is taken."""
    candidate, copy = name, 1
    while candidate in taken:
        copy += 1
        candidate = f"{name} ({copy})"
    return candidate


def _join(name: str, member: str) -> str:
    """Join a zip's path and a member's; `Path` would drop the zip's path if the member's begins with a slash."""
    return f"{name}/{member}" if member else name


def _printable(path: str | Path) -> str:
    """A path as text that can be encoded: bytes of a file name that are not UTF-8 become U+FFFD."""
    return os.fsencode(Path(path).as_posix()).decode("utf-8", "replace")
