"""Runs a server, and stops it with all its processes when this program's standard input is closed.

Standard input is a pipe from the process that measures. If that process is killed, the system closes the pipe, so the
server does not stay behind, where it would hold memory and slow down the next measurement. The program is run by its
path, without the package, as the leader of a process group. Usage: keeper.py COMMAND...
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

# How many seconds the server has to stop before it is killed.
STOP_S = 30.0
_POLL_S = 0.1


def main(command: list[str]) -> int:
    """Run the command until it ends or standard input is closed, then kill the process group, with this process.

    Returns 127 if the command cannot be started.
    """
    # This program must survive the SIGTERM that it sends to its own group. It handles the signal by doing nothing, and
    # does not ignore it, because the server would inherit that.
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
        # Standard input was closed: ask all processes of this group (0) to stop.
        os.killpg(0, signal.SIGTERM)
    ends_s = time.monotonic() + STOP_S
    while server.poll() is None and time.monotonic() < ends_s:
        time.sleep(_POLL_S)
    # Kill all processes of the server, and this one.
    os.killpg(0, signal.SIGKILL)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
