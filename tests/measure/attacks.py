"""How long other visitors wait, and how much memory the server takes, while one visitor attacks it:
python -m tests.measure.attacks

The attacker asks three times for passages of 20 HTML files that are slow to parse ("<a " repeated, 30 kB each), and
then sends 80 logs of 20 MB without their last bytes. Meanwhile another visitor asks for passages of a document of one
line. Needs Linux.
"""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from specrace.ui.server.guard import LOGS
from specrace.ui.visitor_limits import MAX_LOG_BYTES
from tests.ui.served import Served
from tests.ui.server.test_attacks import ATTACKER, HELD, hold, peak_memory, retrieve, server

FILES = {f"{number}.html": b"<a " * 10_000 for number in range(20)}


def time_one_line(app: Served) -> float:
    """Seconds until another visitor gets the passages of a one-line document."""
    began = time.monotonic()
    answer = retrieve(app, app.upload({"owls.md": b"Owls hear."}).json())
    assert answer.startswith("event: complete"), answer
    return time.monotonic() - began


def main() -> None:
    """Run the attacks one after another; print the waiting times and the memory."""
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as (app, process), ExitStack() as stack:
        attacker = replace(app, source=ATTACKER)
        print(f"one line, no attack: {time_one_line(app):.1f} s (starts a helper)")
        paths = attacker.upload(FILES).json()
        threads = [threading.Thread(target=retrieve, args=[attacker, paths]) for _ in range(3)]
        for thread in threads:
            thread.start()
        print(f"one line, beside three times 20 slow files: {time_one_line(app):.1f} s")
        for thread in threads:
            thread.join()
        before = peak_memory(process)
        for _ in range(HELD):
            stack.enter_context(hold(attacker, LOGS, MAX_LOG_BYTES))
        print(f"one line, beside {HELD} held bodies: {time_one_line(app):.1f} s")
        print(f"memory for {HELD} held bodies: {(peak_memory(process) - before) / 1e6:.0f} MB more at the peak")


if __name__ == "__main__":
    main()
