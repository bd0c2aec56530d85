"""Servers of the page under test: in this process, where a test can hold races, and `python app.py` in its own process.

The code calls the function behind `python app.py` the front door.
"""

from __future__ import annotations

import functools
import math
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from specrace.cli import app as front_door
from specrace.core.events import Event, Started, Step
from specrace.ui.helper.gallery import Gallery
from specrace.ui.races.worker import Worker
from tests import processes

ROOT = Path(__file__).resolve().parents[2]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
# In order of preference: to load a page, the headless shell takes half of a full browser's processor time.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# The limit of every wait, which only a busy machine comes near.
PATIENCE_S = 300
POLL_S = 0.02
# The query of an address that makes answers short, for tests that only need some race.
SHORT = "?tokens=24"

Ask = Callable[..., Iterator[Event]]
# Reading the bundled recordings takes a second, so all servers share them.
read_gallery = functools.cache(Gallery.in_folder)


class Hold:
    """Lets a test do something in the middle of a race, however fast or slow the machine is.

    `begun` and `running` count races; `events` are those of the latest race. Races are repeated only if `repeats`.
    """

    def __init__(self) -> None:
        self.begun = self.running = 0
        self.repeats = False
        self.events: list[Event] = []
        # How many events a new race, and the running race, may yield before they are held.
        self._allowed = self._left = math.inf
        self._midway = False
        self._change = threading.Condition()

    def wrap(self, ask: Ask) -> Ask:
        """Wrap `Workbench.ask`, so that a race yields only the events that the test allows."""

        def held_ask(
            workbench: Any, request: Any, *, stop: Callable[[], bool] = lambda: False, **options: Any
        ) -> Iterator[Event]:
            self.begun += 1
            self.events, self._left = [], self._allowed
            # The race counts as running only now, because `allow` waits for this number.
            self.running += 1
            if not self.repeats:
                options.pop("again", None)
            upcoming = ask(workbench, request, stop=stop, **options)
            try:
                while True:
                    self._wait(stop)
                    event = next(upcoming, None)
                    if event is None:
                        return
                    self.events.append(event)
                    if self._midway and all_wrote(self.events):
                        self._midway, self._left = False, 0
                    yield event
            finally:
                self.running -= 1

        return held_ask

    def _wait(self, stop: Callable[[], bool]) -> None:
        with self._change:
            while not self._left and not stop():
                self._change.wait(POLL_S)
            self._left = max(0, self._left - 1)

    @contextmanager
    def after(self, events: float) -> Iterator[None]:
        """Hold races that begin in the block after `events` events, until they are allowed more or stopped."""
        wait_until(lambda: self.running == 0)
        self._allowed = events
        try:
            yield
        finally:
            self._allowed = math.inf
            self.allow(math.inf)

    @contextmanager
    def midway(self) -> Iterator[None]:
        """Hold the next race when every lane has written something, until the end of the block."""
        self._midway = True
        try:
            with self.after(math.inf):
                yield
        finally:
            self._midway = False

    def allow(self, events: float) -> None:
        """Allow `events` more events; a finite number first waits until a race runs."""
        if events < math.inf:
            wait_until(lambda: self.running)
        with self._change:
            self._left += events
            self._change.notify_all()


def all_wrote(events: list[Event]) -> bool:
    """Whether every lane has written something."""
    lanes = {info.lane for event in events if isinstance(event, Started) for info in event.lanes}
    return bool(lanes) and lanes == {
        event.lane for event in events if isinstance(event, Step) and "".join(event.texts).strip()
    }


@dataclass(frozen=True)
class App:
    """A server in this process."""

    url: str
    hold: Hold
    worker: Worker

    @property
    def short_url(self) -> str:
        """The address of the page with short answers."""
        return self.url + SHORT


def wait_until(condition: Callable[[], Any]) -> None:
    """Wait until a condition holds. During the wait Playwright handles no events; in `parts.until` it does."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not hold within {PATIENCE_S} s"
        time.sleep(POLL_S)


def open_front_door(*arguments: str, fetch: bool = False) -> str:
    """Serve the page in a thread, with these arguments of `python app.py`, until the process ends; return the address.

    Without `fetch`, the bundled model is served and no other is fetched.
    """
    port = free_port()
    arguments = arguments if fetch else ("--model", "tiny", *arguments)
    # All tests of one process are one visitor.
    limits = ("--races-per-minute", "10000", "--uploads-per-hour", "10000")
    options = front_door.parse([*arguments, "--port", str(port), *limits])
    thread = threading.Thread(target=front_door.run, args=[options], name="front door", daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{port}/"
    wait_until(lambda: answers(url) or not thread.is_alive())
    assert thread.is_alive(), "the server ended"
    return url


@contextmanager
def serving(
    folder: Path, *arguments: str, forked: bool = False
) -> Iterator[tuple[str, subprocess.Popen[bytes] | processes.Process]]:
    """Run `python app.py` with these arguments in a process until the end of the block; yield address and process.

    `forked`: the process starts with its libraries imported.
    """
    port, log = free_port(), folder / "log.txt"
    command = ["app.py", "--no-fetch", *arguments, "--port", str(port)]
    process: subprocess.Popen[bytes] | processes.Process
    with log.open("w") as output:
        if forked:
            process = processes.start(command, output=output.fileno())
        else:
            process = subprocess.Popen([sys.executable, *command], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    try:
        url = f"http://127.0.0.1:{port}/"
        wait_until(lambda: answers(url) or process.poll() is not None)
        if process.poll() is not None:
            pytest.fail(f"app.py ended with code {process.returncode}:\n{log.read_text()}")
        yield url, process
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(url: str) -> bool:
    """Whether a server answers at this address."""
    try:
        urllib.request.urlopen(url, timeout=PATIENCE_S).close()
    except (urllib.error.URLError, OSError):
        return False
    return True


def find_chromium() -> str:
    """The system's Chromium, or Chrome."""
    paths = [path for path in map(shutil.which, BROWSERS) if path]
    if not paths:
        pytest.fail("Chromium is missing; run: apt-get install -y --no-install-recommends chromium fonts-dejavu-core")
    # A browser from a snap may not read the profile that Playwright makes for it.
    return min(paths, key=lambda path: path.startswith("/snap/"))
