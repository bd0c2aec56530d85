"""The user's cache folder, and files, there and elsewhere, that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specrace.core.errors import InputError


def user_cache_folder() -> Path | None:
    """$XDG_CACHE_HOME (which counts only if absolute) or ~/.cache, and `specrace` below it; None without a home."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (base if base.is_absolute() else Path.home() / ".cache") / "specrace"
    except RuntimeError:
        return None


def check_destination(file: Path) -> None:
    """Raises InputError unless `file` can be written: a regular file, or a new one in a folder that takes it.

    For what takes long to make, before it is made.
    """
    with explained(file):
        require_regular(file)
        if not file.parent.is_dir():
            raise InputError(f"{file} cannot be written: there is no folder {file.parent}.")
        with tempfile.TemporaryFile(dir=file.parent):
            pass


@contextmanager
def explained(path: Path, choose: str = "file") -> Iterator[None]:
    """An OSError as an InputError: `path` cannot be written, choose another."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); choose another {choose}.") from error


def require_regular(file: Path) -> None:
    """Raises OSError where `file` is there and is no regular file: to rename onto a link or a device replaces it."""
    try:
        mode = file.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISREG(mode):
        kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISLNK, "a symbolic link"))
        kind = next((words for holds, words in kinds if holds(mode)), "a device or a pipe")
        raise OSError(errno.EINVAL, f"it is {kind} and no regular file", str(file))


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
