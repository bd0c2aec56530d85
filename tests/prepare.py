"""`python -m tests.prepare`: embeds the bundled documents and compiles the decoder, whose results stay on the disk.

Each takes 12 s of processor time or more: embedding the bundled documents, and compiling the decoder for narrow and for
wide vectors. Without this, several test processes would do each of them at the same time. In a new environment,
`tests/run` begins with it while it installs; the process that `tests/conftest.py` starts then finds it done, or waits.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

from filelock import FileLock

# The environment variable with the folder in which all processes of a run keep their caches.
CACHE = "SPECRACE_TEST_CACHE"


def main() -> None:
    """Fill the run's cache, unless another process has."""
    folder = Path(os.environ[CACHE])
    os.environ["XDG_CACHE_HOME"] = str(folder)
    with FileLock(folder / "prepared.lock"):
        if not (folder / "prepared").exists():
            fill()
            (folder / "prepared").touch()


def fill() -> None:
    """Do what is then found in the cache."""
    # Importing and compiling create little garbage, and looking for it takes a sixth of the time.
    gc.disable()
    # Imported here, because a second process, which finds the work done, needs none of it.
    from specrace.model.forward.compiled.decoder import compile_ahead
    from specrace.workbench import Workbench

    Workbench.open()
    compile_ahead(8)
    compile_ahead(16)


if __name__ == "__main__":
    main()
