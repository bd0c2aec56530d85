"""The folder for what visitors send. It is removed when the server ends; if it was killed, when the next one starts."""

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
    """A new folder, locked while this process lives. Removes folders left behind by servers that were killed.

    The environment's GRADIO_TEMP_DIR, which names the server's folder, does not outlive it.
    """
    _remove_stale()
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield folder
        finally:
            os.close(handle)
            # Gradio and the stored bodies would look for it in the next server of this process.
            os.environ.pop("GRADIO_TEMP_DIR", None)


def _remove_stale() -> None:
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
