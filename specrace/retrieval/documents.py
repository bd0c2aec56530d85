"""Documents: the plain-text files that a person gives, read into memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from specrace.core.errors import InputError
from specrace.core.files import read_bytes
from specrace.retrieval.encoding import decode_text

SUFFIXES = (".md", ".txt")
MAX_TITLE_CHARS = 120

_HEADING = re.compile(r"#{1,6}[ \t]+(?P<title>[^\n]*)")
_FENCES = ("```", "~~~")


@dataclass(frozen=True)
class Document:
    """A file's text. `name` is its path below the root that was given; every offset elsewhere refers to `text`."""

    name: str
    title: str
    text: str


def read_documents(
    paths: Sequence[Path],
    *,
    skip: Callable[[str], object] = str,
    max_files: int = 2000,
    max_bytes: int = 20_000_000,
) -> list[Document]:
    """Read files, and folders with all below them, in the order given; a folder's files come sorted by path.

    Hidden entries of a folder, links that lead out of it, files read already and files without text are skipped, and
    so are files that cannot be read or are no text: `skip` gets a sentence about each of these.
    Raises InputError for a missing path, too much to read, or nothing to read.
    """
    files = _find_files(paths, max_files)
    documents, problems, size = list[Document](), list[str](), 0
    for name, file in files.items():
        try:
            content = read_bytes(file, max_bytes, "give a smaller .md or .txt file that you may read")
            documents.append(_document(name, file, content))
        except InputError as error:
            problems.append(str(error))
            continue
        size += len(content)
        if size > max_bytes:
            raise InputError(f"The documents hold more than {max_bytes:,} bytes: give fewer or smaller files.")
    with_text = [document for document in documents if document.text.strip()]
    if problems and not with_text:
        raise InputError(" ".join(problems))
    for sentence in problems:
        skip(sentence)
    if not with_text:
        where = ", ".join(_printable(path) for path in paths) or "an empty list"
        raise InputError(f"No text was found in {where}: give a .md or .txt file, or a folder that holds some.")
    return with_text


def _find_files(paths: Sequence[Path], max_files: int) -> dict[str, Path]:
    """The files to read by name; one that is reached twice is kept once, and names that clash are numbered."""
    files: dict[str, Path] = {}
    seen: set[Path] = set()
    for root in map(Path, paths):
        for file in _files_under(root):
            real = file.resolve()
            if real in seen:
                continue
            seen.add(real)
            name = _printable(file.relative_to(root) if root.is_dir() else file.name)
            files[_unused(name, files)] = file
            if len(files) > max_files:
                raise InputError(f"{_printable(root)} brings more than {max_files:,} documents: give a smaller folder.")
    return files


def _files_under(root: Path) -> Iterator[Path]:
    """`root` itself if it is a file, else the readable files below it, sorted by path."""
    if root.is_file():
        if root.suffix.lower() not in SUFFIXES:
            raise InputError(f"{_printable(root)} is not a .md or .txt file: save it as plain text first.")
        yield root
    elif root.is_dir():
        home = root.resolve()
        for file in sorted(_walk(root), key=lambda file: file.relative_to(root).parts):
            if file.is_file() and file.resolve().is_relative_to(home):
                yield file
    else:
        raise InputError(f"{_printable(root)} does not exist: check the path of the documents.")


def _walk(root: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> NoReturn:
        raise InputError(f"{_printable(error.filename)} cannot be read: check its permissions.") from error

    for folder, subfolders, names in os.walk(root, onerror=refuse):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for name in names:
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES:
                yield Path(folder, name)


def _unused(name: str, taken: dict[str, Path]) -> str:
    candidate, copy = name, 1
    while candidate in taken:
        copy += 1
        candidate = f"{name} ({copy})"
    return candidate


def _printable(path: str | Path) -> str:
    """A path as text that can be encoded: bytes of a file name that are not UTF-8 become replacement marks."""
    return os.fsencode(Path(path).as_posix()).decode("utf-8", "replace")


def _document(name: str, file: Path, content: bytes) -> Document:
    text = decode_text(content)
    if text is None:
        raise InputError(f"{_printable(file)} is not UTF-8 text: save it as UTF-8.")
    title, body = _take_title(text.replace("\r\n", "\n").replace("\r", "\n"))
    return Document(name, title or Path(name).stem, body)


def _take_title(text: str) -> tuple[str, str]:
    """The first markdown heading outside a code fence and the text without its line; ("", text) without one."""
    start, fenced = 0, False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith(_FENCES):
            fenced = not fenced
        heading = None if fenced else _HEADING.match(line)
        if heading:
            title = " ".join(heading["title"].rstrip().rstrip("#").split())
            return title[:MAX_TITLE_CHARS], text[:start] + text[start + len(line) :]
        start += len(line)
    return "", text
