"""The folder for what visitors send. It goes when the server ends, or with the next one if the server was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX = "specrace-uploads-"
# A server locks its folder right after it has made it.
YOUNG_S = 60.0


@contextlib.contextmanager
def upload_folder() -> Iterator[str]:
    """A new folder, locked while this process lives. Folders that killed servers left are removed."""
    _remove_stale()
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield folder
        finally:
            os.close(handle)


def _remove_stale() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        # Another user's, or one that a server has just locked or removed.
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                found = os.fstat(handle)
                if found.st_uid != os.getuid() or abs(time.time() - found.st_mtime) < YOUNG_S:
                    continue
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)
