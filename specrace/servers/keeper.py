"""Runs a server, and stops it with all its processes when nobody holds this program's standard input any more.

The one who started it may be killed at any time; then the system closes the pipe, and the server does not stay behind,
where it would hold memory and slow down what is measured next. The program is run by its path, without the package, and
is the leader of a process group. Usage: keeper.py COMMAND...
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

STOP_S = 30.0
_POLL_S = 0.1


def main(command: list[str]) -> int:
    """Run the command until it ends, which gives its exit code, or until standard input is closed."""
    # A function, because a signal that is ignored would be ignored by the server, too.
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    while not select.select([sys.stdin], [], [], _POLL_S)[0]:
        if server.poll() is not None:
            break
    else:
        os.killpg(0, signal.SIGTERM)
    ends_s = time.monotonic() + STOP_S
    while server.poll() is None and time.monotonic() < ends_s:
        time.sleep(_POLL_S)
    # The server's own processes, and this one.
    os.killpg(0, signal.SIGKILL)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
