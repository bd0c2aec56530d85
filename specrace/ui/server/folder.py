"""The folder for visitors' files. It is removed when the server ends; after a kill, when the next one starts."""

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
# A younger folder may belong to a server that has not locked it yet.
MIN_AGE_S = 60.0


@contextlib.contextmanager
def upload_folder() -> Iterator[str]:
    """A new folder, locked inside the `with` block. Removes folders that killed servers have left behind.

    At the end GRADIO_TEMP_DIR, which the caller may have set to the folder, is removed from the environment.
    """
    _remove_stale()
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield folder
        finally:
            os.close(handle)
            # Otherwise another server in this process would store files in a folder that no longer exists.
            os.environ.pop("GRADIO_TEMP_DIR", None)


def _remove_stale() -> None:
    """Remove the folders of servers that no longer run."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        # An OSError means that the folder is another user's, or that a server has just locked or removed it.
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                status = os.fstat(handle)
                if status.st_uid != os.getuid() or abs(time.time() - status.st_mtime) < MIN_AGE_S:
                    continue
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)
