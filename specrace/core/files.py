"""The user's cache folder, reading files up to a size limit, and writing them atomically."""

from __future__ import annotations

import errno
import io
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from specrace.core.errors import InputError, shorten


def user_cache_folder() -> Path | None:
    """The folder `specrace` in $XDG_CACHE_HOME (ignored unless absolute) or ~/.cache; None if there is no home."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (base if base.is_absolute() else Path.home() / ".cache") / "specrace"
    except RuntimeError:
        return None


def open_regular(path: Path, *, pipes: bool = False) -> io.BufferedReader:
    """Open a regular file, a link to one or, with `pipes`, a pipe for reading. Raises OSError for any other kind."""
    if pipes and path.is_fifo():
        return path.open("rb")
    try:
        # With O_NONBLOCK, opening a pipe does not wait for its other end. Some systems lack one of these two flags.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error)) from error
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise OSError(errno.EINVAL, f"it is {_kind(mode)}, not a regular file", str(path))
    return os.fdopen(handle, "rb")


def read_bytes(path: Path, max_bytes: int, hint: str) -> bytes:
    """The content of a regular file of at most `max_bytes`; the limit holds even if the file grows.

    Raises InputError if it cannot be read or is larger; `hint` is the part of the message that says what to do.
    """
    try:
        with open_regular(path) as stream:
            content = stream.read(max_bytes + 1)
    except OSError as error:
        raise InputError(f"{shorten(path)} cannot be read ({error.strerror or error}); {hint}.") from error
    if len(content) > max_bytes:
        raise InputError(f"{shorten(path)} is larger than {max_bytes / 1e6:,g} MB; {hint}.")
    return content


def read_text(path: Path, max_bytes: int, hint: str) -> str:
    """The UTF-8 text of a regular file, without a byte order mark. Raises InputError; see `read_bytes`."""
    try:
        return read_bytes(path, max_bytes, hint).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{shorten(path)} is not UTF-8 text (byte {error.start}); {hint}.") from error


def check_destination(file: Path, inputs: Iterable[Path] = ()) -> None:
    """Check that `file` can be written: it is a regular file, or a new one in a folder that accepts files.

    It must not be one of the `inputs`, not even under another path; these need not exist. Call this before producing
    something that takes long. Raises InputError.
    """
    for path in inputs:
        # A path that does not exist raises an OSError, one with a NUL a ValueError.
        with suppress(OSError, ValueError):
            if file.samefile(path):
                raise InputError(f"{shorten(file)} is an input too, and would be replaced; choose another file.")
    with as_input_error(file):
        require_regular(file)
        if not file.parent.is_dir():
            raise InputError(f"{shorten(file)} cannot be written: there is no folder {shorten(file.parent)}.")
        # Raises OSError if the folder accepts no new file.
        with tempfile.TemporaryFile(dir=file.parent):
            pass


@contextmanager
def as_input_error(path: Path, choose: str = "file") -> Iterator[None]:
    """Turn an OSError into an InputError that says that `path` cannot be written and what to `choose` instead."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{shorten(path)} cannot be written ({error.strerror}); choose another {choose}.") from error


def require_regular(file: Path) -> None:
    """Raise OSError if `file` exists and is not a regular file; renaming onto a link or a device would replace it."""
    try:
        mode = file.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, f"it is {_kind(mode)}, not a regular file", str(file))


def _kind(mode: int) -> str:
    """What a file of this mode is, if not a regular one."""
    if stat.S_ISDIR(mode):
        return "a folder"
    return "a symbolic link" if stat.S_ISLNK(mode) else "a device or a pipe"


def write_atomically(file: Path, content: bytes, mode: int = 0o600) -> None:
    """Write to a temporary file in the same folder and rename it, so that no reader ever sees half of the content.

    With the default `mode`, only the user may read the file. Raises OSError, for instance if `file` is not a regular
    file; then no temporary file is left.
    """
    require_regular(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".writing-", suffix=file.suffix)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        Path(temporary).chmod(mode)
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink()
        raise
