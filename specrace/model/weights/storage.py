"""Where models are stored: disk errors, checks for free space and memory, and one writer at a time."""

from __future__ import annotations

import errno
import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from specrace.core.errors import InputError, shorten
from specrace.model.machine.memory import free_memory

# Called with the stage ("fetching", "converting" ...), the bytes so far, and the total bytes (0: unknown).
OnProgress = Callable[[str, int, int], object]

# What must stay free on a disk, in bytes (a guess).
SPARE_BYTES = 50_000_000
# What a conversion holds in memory, in bytes: the weights in 32 and in 16 bits, and the libraries (about so much).
_BYTES_PER_PARAMETER, _LIBRARY_BYTES = 6, 400_000_000
DISK_FULL = {errno.ENOSPC, errno.EDQUOT}
# ENOTDIR and EEXIST occur if a folder of the path is a file.
DISK_ERRORS = DISK_FULL | {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST}
# The environment variables that set where our cache and the hub's are.
CACHE_VARIABLE, HUB_VARIABLE = "XDG_CACHE_HOME", "HF_HOME"


class UnreachableError(Exception):
    """A source does not answer, or has no such model; the message is the reason."""


@contextmanager
def disk_errors(folder: Path, variable: str) -> Iterator[None]:
    """Turn a disk's OSError into an InputError; `variable` is the environment variable that sets where `folder` is."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        full = error.errno in DISK_FULL
        hint = "make room, then try again" if full else f"set {variable} to a folder that you can write"
        raise InputError(f"{shorten(folder)} cannot be written ({error.strerror}); {hint}.") from error


@contextmanager
def writing(folder: Path, on_progress: OnProgress) -> Iterator[None]:
    """Hold the lock on a model's `folder` in our cache; if the process is killed, the system releases it.

    Raises InputError for a disk that is full or cannot be written.
    """
    with disk_errors(folder.parent, CACHE_VARIABLE):
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.parent / f".{folder.name}.lock")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            on_progress("waiting for another process that fetches it", 0, 0)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()


def check_space(folder: Path, size: int, variable: str) -> None:
    """Raises InputError unless the disk has room for `size` bytes."""
    free = shutil.disk_usage(folder).free
    if free < size + SPARE_BYTES:
        raise InputError(
            f"{shorten(folder)} has {free / 1e6:,.0f} MB free and {(size + SPARE_BYTES) / 1e6:,.0f} MB are needed; "
            f"make room, or set {variable} to a folder on another disk."
        )


def check_memory(name: str, parameters: int) -> None:
    """Raises InputError if the conversion does not fit in memory: the kernel would kill every attempt."""
    needed, free = _BYTES_PER_PARAMETER * parameters + _LIBRARY_BYTES, free_memory()
    if free is not None and free < needed:
        raise InputError(
            f"{shorten(name)} needs {needed / 1e6:,.0f} MB of memory once, to be converted, and {free / 1e6:,.0f} MB "
            "are free; give this machine or container more."
        )


def work_folder(folder: Path) -> Path:
    """The folder in which a model is assembled before it moves to `folder`."""
    return folder.parent / f".{folder.name}"


def check_hash(file: Path, sha256: str, name: str) -> None:
    """Raises InputError and deletes the file unless its hash is `sha256`; the message calls the file `name`."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != sha256:
        file.resolve().unlink()
        file.unlink(missing_ok=True)
        raise InputError(
            f"{name} has the hash {digest[:12]}… instead of {sha256[:12]}… and was deleted; try again, and if that "
            "does not help, ask the administrator of your package index or proxy."
        )
