"""The pages under test: the front door in this process, whose races a test can hold, and `python app.py` by itself."""

from __future__ import annotations

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
from specrace.ui.worker import Worker
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
# Without a window the first of them needs half the processor time to load a page.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# For busy machines; nothing waits that long otherwise.
PATIENCE_S = 300
LOOK_S = 0.02
# After an address: short answers, for tests that only need some race.
SHORT = "?tokens=40"

Ask = Callable[..., Iterator[Event]]


class Hold:
    """Lets a test do something in the middle of a race, however fast or slow the machine is.

    `begun` and `running` count races; `events` are those of the latest one. No race is repeated, unless it `repeats`.
    """

    def __init__(self) -> None:
        self.begun = self.running = 0
        self.repeats = False
        self.events: list[Event] = []
        self._each = self._left = math.inf
        self._midway = False
        self._change = threading.Condition()

    def around(self, ask: Ask) -> Ask:
        """Wrap `Workbench.ask`, so that races go on only as far as the test lets them."""

        def held(
            bench: Any, question: str, spec: Any, *, stop: Callable[[], bool] = lambda: False, **how: Any
        ) -> Iterator[Event]:
            self.begun += 1
            self.events, self._left = [], self._each
            # Set last: `let` waits for it.
            self.running += 1
            if not self.repeats:
                how.pop("again", None)
            upcoming = ask(bench, question, spec, stop=stop, **how)
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

        return held

    def _wait(self, stop: Callable[[], bool]) -> None:
        with self._change:
            while not self._left and not stop():
                self._change.wait(LOOK_S)
            self._left = max(0, self._left - 1)

    @contextmanager
    def after(self, events: int) -> Iterator[None]:
        """Hold races that begin in the block after `events` events, unless they are let go on or stopped."""
        wait_until(lambda: self.running == 0)
        self._each = events
        try:
            yield
        finally:
            self._each = math.inf
            self.let(math.inf)

    @contextmanager
    def midway(self) -> Iterator[None]:
        """Hold the next race once every lane has written something, until the end of the block."""
        self._midway = True
        try:
            with self.after(math.inf):
                yield
        finally:
            self._midway = False

    def let(self, events: float) -> None:
        """Let the race go on by `events` events; a finite number first waits until a race runs."""
        if events < math.inf:
            wait_until(lambda: self.running)
        with self._change:
            self._left += events
            self._change.notify_all()


def all_wrote(events: list[Event]) -> bool:
    """Whether every lane has written something. A lane may be held up while others take many steps."""
    lanes = {info.lane for event in events if isinstance(event, Started) for info in event.lanes}
    return bool(lanes) and lanes == {
        event.lane for event in events if isinstance(event, Step) and "".join(event.texts).strip()
    }


@dataclass(frozen=True)
class App:
    """A front door in this process."""

    url: str
    hold: Hold
    worker: Worker

    @property
    def short(self) -> str:
        """The address of its page with short answers."""
        return self.url + SHORT


def wait_until(condition: Callable[[], Any]) -> None:
    """Wait until a condition holds that needs no work by a page."""
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "it never happened"
        time.sleep(LOOK_S)


def open_front_door(*arguments: str, fetch: bool = False) -> str:
    """Start `python app.py` with these arguments in a thread that runs until the process ends; its address."""
    port = free_port()
    arguments = arguments if fetch else ("--model", "tiny", *arguments)
    options = front_door.parse([*arguments, "--port", str(port), "--races-per-minute", "10000"])
    thread = threading.Thread(target=front_door.run, args=[options], name="front door", daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{port}/"
    wait_until(lambda: answers(url) or not thread.is_alive())
    assert thread.is_alive(), "the front door is shut"
    return url


@contextmanager
def serving(
    folder: Path, *arguments: str, forked: bool = False
) -> Iterator[tuple[str, subprocess.Popen[bytes] | processes.Process]]:
    """Run `python app.py` with these arguments in its own process until the end of the block; its address. `forked`:
    the process starts with its libraries imported.
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
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(url: str) -> bool:
    """Whether something answers there."""
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
