"""`python -m tests.fork ARGUMENTS`: runs `python ARGUMENTS` in a fork, for programs that start Python by its name.

The new interpreter only waits for the fork, which `tests.processes` starts and which has the libraries already.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests import processes


def main() -> int:
    """Return the fork's exit code, or 128 and the signal that ended it. A SIGTERM is passed on."""
    fork = processes.start(sys.argv[1:], cwd=Path.cwd(), output=1, errors=2)
    signal.signal(signal.SIGTERM, lambda *_: fork.terminate())
    code = fork.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    # Without the interpreter's own end, which has nothing to clean up.
    os._exit(main())
