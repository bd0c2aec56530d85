"""A process beside the server's that fetches a named model while the page races with another.

In a thread, reading and converting its weights would take the interpreter from the race under way.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from specrace.core.errors import InputError, shorten
from specrace.model.names import NAMES

log = logging.getLogger("specrace")

REPORT_PERIOD_S = 0.5
BROKEN = "the process that fetched it ended; the next start tries again"


class Fetcher:
    """Fetches one model. `text` describes how far it is; `offer` is called with its name once it is there.

    `offline` is the user's own HF_HUB_OFFLINE: the server sets it for itself.
    """

    def __init__(self, name: str, offer: Callable[[str], object] = str, offline: str = "") -> None:
        self.name, self.title, self._offline = name, NAMES[name].title, offline
        self.ready, self.text = False, ""
        self._offer = offer
        self._ended_at = 0.0
        self._closed, self._done = threading.Event(), threading.Event()
        self._began = threading.Event()
        self._connection: Connection | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._done.is_set()

    def wait(self, timeout: float) -> bool:
        """Block until it is done; False after `timeout` seconds."""
        return self._done.wait(timeout)

    def worked_since(self, moment: float) -> bool:
        """Whether it is at work, or ended after `moment` on the monotonic clock."""
        return self._began.is_set() and (not self.done or self._ended_at > moment)

    def start(self) -> None:
        """Begin, in a process of low priority that ends with this one."""
        # Spawned, for a fork would copy the model and its threads' locks.
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self.text = f"Fetching {self.title}"
        self._began.set()
        process = context.Process(target=_work, args=[other, self.name, self._offline], name="fetcher", daemon=True)
        process.start()
        other.close()
        threading.Thread(target=self._listen, args=[self._connection], name="fetcher", daemon=True).start()

    def close(self) -> None:
        """End the process. The next fetch goes on with the files that are not here yet, a wheel in its middle."""
        self._closed.set()
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.send_bytes(b"end")

    def _listen(self, connection: Connection) -> None:
        kind, text = "broken", BROKEN
        with contextlib.suppress(EOFError, OSError):
            while kind not in ("ready", "failed"):
                kind, text = json.loads(connection.recv_bytes())
                if kind == "progress":
                    self.text = f"Fetching {self.title}: {text}"
        if kind == "ready":
            self.ready, self.text = True, f"{self.title} is ready"
            self._offer(self.name)
        else:
            self.text = text if kind == "failed" else f"{self.title} was not fetched: {BROKEN}."
        self._ended_at = time.monotonic()
        self._done.set()


def _work(connection: Connection, name: str, offline: str) -> None:
    """Fetch, and report in short messages. It ends at once when the server closes or has gone."""
    # A group of its own: Ctrl-C is the server's, and what it starts ends with it.
    os.setsid()
    threading.Thread(target=_end_with_server, args=[connection], daemon=True).start()
    with contextlib.suppress(OSError):
        os.nice(19)
    # Libraries read these when they are imported, which has not happened yet. One processor is the race's.
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": offline}
    last = float("-inf")

    def on_progress(what: str, done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() > last + REPORT_PERIOD_S or not total:
            last = time.monotonic()
            amount = f"{done / 1e6:.0f} of {total / 1e6:.0f} MB" if total else ""
            send("progress", amount if what == "fetching" else " ".join(filter(None, (what, amount))))

    def send(kind: str, text: str) -> None:
        connection.send_bytes(json.dumps([kind, text]).encode())

    # A message that the server does not take any more.
    with contextlib.suppress(BrokenPipeError):
        try:
            from specrace.model.fetching import fetch, prepare

            fetch(name, on_progress)
            prepare(on_progress)
            send("ready", "")
        except InputError as error:
            send("failed", str(error))
        # Whatever a library raises, the page gives the reason and races the bundled model.
        except Exception as error:
            log.exception("fetching %s failed", name)
            send("failed", f"{name} was not fetched ({shorten(str(error) or type(error).__name__)}).")


def _end_with_server(connection: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        connection.recv_bytes()
    os.killpg(0, signal.SIGKILL)
