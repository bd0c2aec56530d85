"""A real Chromium against the real app, started once. The browser is Debian's; Playwright's own is not needed."""

from __future__ import annotations

import fcntl
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
RECORDING = ROOT / "assets" / "recordings" / "ngram-trie.jsonl"
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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--model", default=str(ROOT / "assets" / "tiny"), help="the model that the app under test serves")


@dataclass(frozen=True)
class App:
    """The app under test: its address, and how long it took to answer."""

    url: str
    answered_s: float


@pytest.fixture(scope="session")
def app(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """`python app.py` on a free port."""
    model = request.config.getoption("--model", default=str(ROOT / "assets" / "tiny"))
    with serving(tmp_path_factory.mktemp("app"), "--model", str(model)) as (served, _):
        yield served


@pytest.fixture(scope="session")
def replay_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[App, int]]:
    """`python app.py --replay` of a recording that ships, and the process's number."""
    with serving(tmp_path_factory.mktemp("replay"), "--replay", str(RECORDING)) as (served, process):
        yield served, process.pid


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[tuple[App, subprocess.Popen[bytes]]]:
    """`python app.py` with these arguments on a free port, until the end of the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log, began = folder / "log.txt", time.monotonic()
    with log.open("w") as output:
        command = [sys.executable, "app.py", *arguments, "--port", str(port)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    try:
        url = f"http://127.0.0.1:{port}/"
        wait_for_answer(url, process, log)
        yield App(url, time.monotonic() - began), process
    finally:
        process.terminate()
        process.wait(10)


def wait_for_answer(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until the page answers; the app's own words where it does not."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if process.poll() is not None:
            pytest.fail(f"app.py ended with code {process.returncode}:\n{log.read_text()}")
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    pytest.fail(f"app.py does not answer:\n{log.read_text()}")


@pytest.fixture(scope="session")
def races(own_cache_folder: Path) -> dict[str, Path]:
    """Recordings of two real races with the bundled model, one greedy, one with sampled drafts; made once a run."""
    folder = own_cache_folder / "races"
    folder.mkdir(exist_ok=True)
    found = {name: folder / f"{name}.jsonl" for name in ("greedy", "sampled")}
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all(path.exists() for path in found.values()):
            command = [sys.executable, "-m", "tests.browser.races", str(folder)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
    return found


def find_chromium() -> str:
    """The system's Chromium."""
    path = shutil.which("chromium")
    if path is None:
        pytest.fail("Chromium is missing; run: apt-get install -y --no-install-recommends chromium fonts-dejavu-core")
    return path


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium from the system."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        yield chromium
        chromium.close()


OpenPage = Callable[..., Page]


class Opener:
    """Opens pages that must not ask anybody else for anything, open a dialog, or throw."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.complaints: list[str] = []
        self.contexts: list[BrowserContext] = []
        self.shared: dict[tuple[str | tuple[str, bool], ...], Page] = {}

    def own(
        self, url: str, width: int = 1280, height: int = 720, calm: bool = False, dark: bool = False, ready: bool = True
    ) -> Page:
        """`calm`: the visitor wants reduced motion. `ready`: wait until the model is there."""
        context = self.browser.new_context(
            viewport={"width": width, "height": height},
            reduced_motion="reduce" if calm else "no-preference",
            color_scheme="dark" if dark else "light",
            accept_downloads=True,
        )
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        home = url.split("?")[0].rstrip("/")
        complain = self.complaints.append
        page.on("request", lambda asked: None if is_own(asked.url, home) else complain(f"asked {asked.url}"))
        page.on("pageerror", lambda error: complain(f"threw {error}"))
        page.on("dialog", lambda dialog: complain(f"dialog {dialog.message}"))
        page.goto(url)
        page.wait_for_selector(".stage .pane")
        if ready:
            page.wait_for_selector(".status[data-state=ready]", state="attached", timeout=90_000)
        return page

    def share(self, url: str, width: int = 1280, height: int = 720, **how: bool) -> Page:
        """The page that was opened so before, in this size now; nothing in focus or under the pointer, at its top."""
        key = (url, *sorted(how.items()))
        if key not in self.shared:
            self.shared[key] = self.own(url, width, height, **how)
        page = self.shared[key]
        page.set_viewport_size({"width": width, "height": height})
        page.mouse.move(0, 0)
        page.evaluate("document.activeElement.blur(), scrollTo(0, 0)")
        return page

    def heard(self) -> list[str]:
        """The complaints since the last time, with those that are still on their way."""
        for page in self.shared.values():
            page.evaluate("0")
        said = self.complaints[:]
        self.complaints.clear()
        return said

    def close(self) -> None:
        """Close all pages."""
        for context in self.contexts:
            context.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Opens pages of the test's own."""
    opener = Opener(browser)
    yield opener.own
    opener.close()
    assert opener.complaints == []


@pytest.fixture(scope="module")
def opener(browser: Browser) -> Iterator[Opener]:
    """What keeps the pages that a file's tests share."""
    opener = Opener(browser)
    yield opener
    opener.close()
    assert opener.complaints == []


@pytest.fixture
def share_page(opener: Opener) -> Iterator[OpenPage]:
    """Gives a page that others of the file look at too, for tests that leave it as they found it, but for its race."""
    yield opener.share
    assert opener.heard() == []


def is_own(asked: str, home: str) -> bool:
    """Whether a request stays on the app."""
    return asked.startswith((home, home.replace("http", "ws", 1), "data:", "blob:"))
