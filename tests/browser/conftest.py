"""A real Chromium against the real app, started once. The browser is Debian's; Playwright's own is not needed."""

from __future__ import annotations

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
from playwright.sync_api import Browser, Page, sync_playwright

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
def races(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Recordings of two real races with the bundled model: one greedy, one with sampled drafts."""
    folder = tmp_path_factory.mktemp("races")
    asked = {
        "greedy": ["--lanes", "vanilla,trigram,jacobi,lookahead,trie,suffix", "--max-new-tokens", "90"],
        "sampled": ["--lanes", "vanilla,trigram", "--temperature", "0.3", "--sampling-rule", "rejection"],
    }
    for name, options in asked.items():
        command = [sys.executable, "-m", "specrace", "race", "What is the n-gram trie built from?", *options]
        done = subprocess.run(
            [*command, "--save", str(folder / f"{name}.jsonl")], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    return {name: folder / f"{name}.jsonl" for name in asked}


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


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Opens pages that must not ask anybody else for anything, open a dialog, or throw."""
    complaints: list[str] = []
    contexts = []

    def open_one(
        url: str, width: int = 1280, height: int = 720, *, calm: bool = False, dark: bool = False, ready: bool = True
    ) -> Page:
        """`calm`: the visitor wants reduced motion. `ready`: wait until the model is there."""
        context = browser.new_context(
            viewport={"width": width, "height": height},
            reduced_motion="reduce" if calm else "no-preference",
            color_scheme="dark" if dark else "light",
            accept_downloads=True,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        home = url.split("?")[0].rstrip("/")
        page.on("request", lambda asked: None if is_own(asked.url, home) else complaints.append(f"asked {asked.url}"))
        page.on("pageerror", lambda error: complaints.append(f"threw {error}"))
        page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
        page.goto(url)
        page.wait_for_selector(".stage .pane")
        if ready:
            page.wait_for_selector(".status[data-state=ready]", state="attached", timeout=90_000)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert complaints == []


def is_own(asked: str, home: str) -> bool:
    """Whether a request stays on the app."""
    return asked.startswith((home, home.replace("http", "ws", 1), "data:", "blob:"))
