"""A process that fetches a model while the page already races with another one.

It is a process because a thread that reads and converts the weights would hold the interpreter's lock, and so slow
down the race under way.
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
from pathlib import Path

from specrace.core.errors import InputError, shorten
from specrace.model.weights.names import NAMES
from specrace.ui.helper.priority import lower_priority

log = logging.getLogger("specrace")

# The shortest time between two progress messages.
REPORT_PERIOD_S = 0.5
BROKEN = "the process that fetched it ended; the next start tries again"


class Fetcher:
    """Fetches the model with the short name `name`, or converts the GGUF file `name`.

    `text` describes the progress; `on_ready` is called with the name once the model is ready. `offline` is the user's
    value of HF_HUB_OFFLINE, which the server overwrites in its own environment.
    """

    def __init__(self, name: str, on_ready: Callable[[str], object] | None = None, offline: str = "") -> None:
        self.name = name
        self.title = NAMES[name].title if name in NAMES else Path(name).name
        self.ready = False
        self.text = ""
        self._on_ready = on_ready
        self._offline = offline
        self._ended_at = 0.0
        self._began = threading.Event()
        self._done = threading.Event()
        self._connection: Connection | None = None

    @property
    def done(self) -> bool:
        """Whether the fetch has ended, with success or not."""
        return self._done.is_set()

    def wait(self, timeout: float) -> bool:
        """Wait until the fetch has ended. Returns False if that takes longer than `timeout` seconds."""
        return self._done.wait(timeout)

    def worked_since(self, moment: float) -> bool:
        """Whether a fetch is under way, or ended after `moment` on the monotonic clock."""
        return self._began.is_set() and (not self.done or self._ended_at > moment)

    def start(self) -> None:
        """Start the fetch in a process of low priority, which ends with this one."""
        # Spawned: a fork would copy the model and the locks of its threads.
        context = multiprocessing.get_context("spawn")
        self._connection, process_end = context.Pipe()
        self.text = f"Fetching {self.title}"
        self._began.set()
        process = context.Process(
            target=_work, args=[process_end, self.name, self._offline], name="fetcher", daemon=True
        )
        process.start()
        process_end.close()
        threading.Thread(target=self._listen, args=[self._connection], name="fetcher", daemon=True).start()

    def close(self) -> None:
        """End the process. The next fetch keeps complete files, and resumes a half-downloaded package of weights."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.send_bytes(b"end")

    def _listen(self, connection: Connection) -> None:
        """Receive the process's messages until the fetch has ended."""
        kind, text = "broken", BROKEN
        with contextlib.suppress(EOFError, OSError):
            while kind not in ("ready", "failed"):
                kind, text = json.loads(connection.recv_bytes())
                if kind == "progress":
                    self.text = f"Fetching {self.title}: {text}"
        if kind == "ready":
            self.ready, self.text = True, f"{self.title} is ready"
            if self._on_ready is not None:
                self._on_ready(self.name)
        else:
            self.text = text if kind == "failed" else f"{self.title} was not fetched: {BROKEN}."
        self._ended_at = time.monotonic()
        self._done.set()


def _work(connection: Connection, name: str, offline: str) -> None:
    """Fetch in this process, and report in short messages. The process ends when the server closes or dies."""
    # In a process group of its own, Ctrl-C does not reach it, and its child processes can be killed with it.
    os.setsid()
    threading.Thread(target=_end_with_server, args=[connection], daemon=True).start()
    lower_priority()
    # The libraries imported below read these variables. One thread leaves the other processors to the race.
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": offline}
    reported_at = float("-inf")

    def on_progress(what: str, done: int, total: int) -> None:
        """Report bytes `done` of `total`, but not too often; work without a `total` is always reported."""
        nonlocal reported_at
        if time.monotonic() > reported_at + REPORT_PERIOD_S or not total:
            reported_at = time.monotonic()
            amount = f"{done / 1e6:.0f} of {total / 1e6:.0f} MB" if total else ""
            send("progress", amount if what == "fetching" else " ".join(filter(None, (what, amount))))

    def send(kind: str, text: str) -> None:
        connection.send_bytes(json.dumps([kind, text]).encode())

    # The server may have closed its end before a message is sent.
    with contextlib.suppress(BrokenPipeError):
        try:
            from specrace.model.forward.compiled.ahead import compile_decoder
            from specrace.model.weights.fetching import fetch
            from specrace.model.weights.source import find_source, named_source

            fetch(named_source(name) if name in NAMES else find_source(name), on_progress)
            compile_decoder(on_progress)
            send("ready", "")
        except InputError as error:
            send("failed", str(error))
        # A library may raise anything. The page shows the reason, and keeps racing with the model that it has.
        except Exception as error:
            log.exception("fetching %s failed", name)
            send("failed", f"{name} was not fetched ({shorten(str(error) or type(error).__name__)}).")


def _end_with_server(connection: Connection) -> None:
    """Kill this process, and those that it started, once the server closes the connection or dies."""
    with contextlib.suppress(EOFError, OSError):
        connection.recv_bytes()
    os.killpg(0, signal.SIGKILL)
