"""The user's cache folder; files that are read up to a limit, and written whole or not at all."""

from __future__ import annotations

import errno
import io
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specrace.core.errors import InputError, shorten


def user_cache_folder() -> Path | None:
    """$XDG_CACHE_HOME (which counts only if absolute) or ~/.cache, and `specrace` below it; None without a home."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (base if base.is_absolute() else Path.home() / ".cache") / "specrace"
    except RuntimeError:
        return None


def open_regular(path: Path, *, pipes: bool = False) -> io.BufferedReader:
    """A regular file, a link to one, or with `pipes` a pipe, open for reading. Raises OSError for any other kind."""
    if pipes and path.is_fifo():
        return path.open("rb")
    try:
        # Without waiting for a pipe's other end.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error)) from error
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise OSError(errno.EINVAL, f"it is {_kind(mode)} and no regular file", str(path))
    return os.fdopen(handle, "rb")


def read_bytes(path: Path, most: int, hint: str) -> bytes:
    """The content of a regular file of at most `most` bytes, whatever size it states.

    Raises InputError for any other; `hint` is what the sentence tells the user to do.
    """
    try:
        with open_regular(path) as stream:
            content = stream.read(most + 1)
    except OSError as error:
        raise InputError(f"{shorten(path)} cannot be read ({error.strerror or error}); {hint}.") from error
    if len(content) > most:
        raise InputError(f"{shorten(path)} is larger than {most / 1e6:,g} MB; {hint}.")
    return content


def read_text(path: Path, most: int, hint: str) -> str:
    """As `read_bytes`, the UTF-8 text, without a byte order mark."""
    try:
        return read_bytes(path, most, hint).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{shorten(path)} is not UTF-8 text (byte {error.start}); {hint}.") from error


def check_destination(file: Path) -> None:
    """Raises InputError unless `file` can be written: a regular file, or a new one in a folder that takes it.

    For what takes long to make, before it is made.
    """
    with explained(file):
        require_regular(file)
        if not file.parent.is_dir():
            raise InputError(f"{shorten(file)} cannot be written: there is no folder {shorten(file.parent)}.")
        with tempfile.TemporaryFile(dir=file.parent):
            pass


@contextmanager
def explained(path: Path, choose: str = "file") -> Iterator[None]:
    """An OSError as an InputError: `path` cannot be written, choose another."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{shorten(path)} cannot be written ({error.strerror}); choose another {choose}.") from error


def require_regular(file: Path) -> None:
    """Raises OSError where `file` is there and is no regular file: to rename onto a link or a device replaces it."""
    try:
        mode = file.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, f"it is {_kind(mode)} and no regular file", str(file))


def _kind(mode: int) -> str:
    """What a file of this mode is, where it is no regular one."""
    return "a folder" if stat.S_ISDIR(mode) else "a symbolic link" if stat.S_ISLNK(mode) else "a device or a pipe"


def write_whole(file: Path, content: bytes) -> None:
    """Write beside the file and rename, so that no reader ever sees half of it.

    Raises OSError, also for what is no regular file, and leaves nothing.
    """
    require_regular(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".writing-", suffix=file.suffix)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink()
        raise
