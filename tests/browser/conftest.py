"""A real Chromium and the real app, each started once per process. The browser is the system's, not Playwright's."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from filelock import FileLock
from gradio_client import Client
from playwright.sync_api import Browser, Page, expect, sync_playwright

from specrace.engine import recording
from specrace.ui import serve
from specrace.ui.helper.gallery import Gallery
from specrace.ui.races.worker import Worker
from specrace.workbench import Workbench
from tests.browser.apps import (
    FLAGS,
    PATIENCE_S,
    ROOT,
    App,
    Hold,
    find_chromium,
    open_front_door,
    read_gallery,
    serving,
    wait_until,
)
from tests.browser.parts import FEW_FRAMES, QUESTION, RECORDING, WITNESS, open_race, skip

# The recorded races that tests inspect: name -> lanes and other settings.
LANES = ["vanilla", "trigram", "jacobi", "lookahead", "trie", "suffix"]
RACES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "greedy": (LANES, {"max_new_tokens": 90}),
    "brief": (LANES, {"max_new_tokens": 24}),
    "alone": (["vanilla"], {"max_new_tokens": 24}),
    "sampled": (
        ["vanilla", "trigram"],
        {"max_new_tokens": 48, "temperature": 0.3, "verifier": "rejection"},
    ),
}
# The page time at which a clock is stopped: later than anything that happens while the page loads.
STOPPED_AT_S = 3600
# By this time, a page has drawn the race that it opened.
SETTLED_MS = 1000
# Shows the end of the recording at this path, if the page has received no other race since; says whether it did.
RETURN_TO_END = """path => {
  if (witness.kept !== `${path} ${witness.reels}`) return false;
  document.querySelector('.stage [data-do=result]').click();
  return true;
}"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--model", default=str(ROOT / "assets" / "tiny"), help="the model that the app under test serves")


@pytest.fixture(scope="session", autouse=True)
def one_upload_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make all servers of this process share one upload folder, because Gradio has only one per process."""
    folder = tmp_path_factory.mktemp("uploads")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specrace.ui.server.folder.upload_folder", lambda: contextlib.nullcontext(str(folder)))
        yield


@pytest.fixture(scope="session", autouse=True)
def one_gallery() -> Iterator[None]:
    """Make all servers of this process share the bundled recordings, which the collecting process has read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gallery, "in_folder", read_gallery)
        yield


@pytest.fixture(scope="session")
def app(request: pytest.FixtureRequest, bundled: Workbench) -> Iterator[App]:  # noqa: ARG001  embeds the documents
    """The app with the model, served in this process."""
    hold, workers, start = Hold(), [], Worker.start

    def start_and_keep(worker: Worker) -> None:
        workers.append(worker)
        start(worker)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workbench, "ask", hold.wrap(Workbench.ask))
        patch.setattr(Worker, "start", start_and_keep)
        url = open_front_door("--model", request.config.getoption("--model"))
        wait_until(lambda: workers)
        yield App(url, hold, workers[0])
        # The process must not end while its model computes.
        wait_until(lambda: workers[0].loading.settled and not hold.running)


@pytest.fixture(scope="session")
def loading_app() -> str:
    """The address of an app whose model never finishes loading, and which keeps shared races for two hours."""

    def load(report: Callable[[str], None]) -> NoReturn:
        report("Loading the model")
        while True:
            threading.Event().wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serve, "loader", lambda _: load)
        return open_front_door("--keep-shares", "2")


@pytest.fixture(scope="session")
def replay_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `python app.py --replay` with a recording that ships."""
    with serving(tmp_path_factory.mktemp("replay"), "--replay", str(RECORDING), forked=True) as (url, _):
        yield url


@pytest.fixture(scope="session")
def client(app: App) -> Client:
    """A program that calls the app."""
    return Client(app.url, verbose=False)


@pytest.fixture(scope="session")
def races(app: App, client: Client, cache_folder: Path) -> dict[str, Path]:
    """Recordings of real races, which all processes of a run share."""
    paths = {name: cache_folder / f"race-{name}.jsonl" for name in RACES}
    with FileLock(cache_folder / "races.lock"):
        for name, path in paths.items():
            if not path.exists():
                lanes, settings = RACES[name]
                client.predict(QUESTION, lanes, api_name="/race", **settings)
                recording.save(app.hold.events, path)
    return paths


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium from the system."""
    expect.set_options(timeout=1000 * PATIENCE_S)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        yield chromium
        chromium.close()


OpenPage = Callable[..., Page]


class Opener:
    """Opens pages, and lists a complaint for each request to another server, each native dialog and each exception.

    A page that a test is done with opens the next one: in its process the scripts are compiled already, which saves a
    third of the processor time of a load.
    """

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.complaints: list[str] = []
        # The pages to use again, by whether they are dark.
        self.spare: dict[bool, list[Page]] = {False: [], True: []}
        # The address of the app that a page shows.
        self.homes: dict[Page, str] = {}
        self.shared: dict[tuple[Any, ...], Page] = {}
        self.sharing_file: Path | None = None

    def open(
        self,
        url: str,
        width: int = 1280,
        height: int = 720,
        *,
        reduced_motion: bool = True,
        ready: bool = True,
        **options: Any,
    ) -> Page:
        """Open a page and wait for its stage, and if `ready`, for its model.

        `reduced_motion`: the visitor prefers it. `options`: arguments of `blank`; the clock of a `stopped` page then
        stands still.
        """
        page = self.blank(url, width, height, **options)
        page.goto(url)
        page.wait_for_selector(".stage .pane")
        if ready:
            page.wait_for_selector(".status[data-state=ready]", state="attached")
        if options.get("stopped"):
            page.clock.pause_at(STOPPED_AT_S)
        if not reduced_motion:
            # Motion is allowed only now, because a page with motion plays a recorded race while the model loads.
            page.emulate_media(reduced_motion="no-preference")
        return page

    def blank(
        self, url: str, width: int, height: int, *, dark: bool = False, stopped: bool = False, script: str = ""
    ) -> Page:
        """A page that has not loaded `url` yet.

        `dark`: the visitor prefers a dark page. `stopped`: the test controls the page's clock. `script` runs before the
        page's scripts.
        """
        page = self.take_spare(dark) if self.spare[dark] and not (stopped or script) else self.create(dark, stopped)
        page.set_viewport_size({"width": width, "height": height})
        self.homes[page] = url.partition("?")[0].partition("#")[0].rstrip("/")
        if script:
            page.add_init_script(script)
        return page

    def take_spare(self, dark: bool) -> Page:
        """A page of an earlier test, as if it were new."""
        page = self.spare[dark].pop()
        page.mouse.move(0, 0)
        page.emulate_media(reduced_motion="reduce")
        return page

    def create(self, dark: bool, stopped: bool) -> Page:
        """A page in a context of its own: pages keep connections open, and a browser allows few to each server."""
        context = self.browser.new_context(
            reduced_motion="reduce", color_scheme="dark" if dark else "light", accept_downloads=True
        )
        if stopped:
            context.clock.install(time=0)
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE_S)
        complain = self.complaints.append
        page.on(
            "request",
            lambda request: (
                None if stays_on_app(request.url, self.homes[page]) else complain(f"requested {request.url}")
            ),
        )
        page.on("pageerror", lambda error: complain(f"threw {error}"))
        page.on("dialog", lambda dialog: complain(f"dialog {dialog.message}"))
        page.add_init_script(WITNESS)
        if not stopped:
            page.add_init_script(FEW_FRAMES)
        return page

    def release(self, page: Page, *, dark: bool = False, stopped: bool = False, script: str = "", **_: Any) -> None:
        """Keep a page that was opened with these settings for another test, if nothing of them would stay."""
        if stopped or script or page.is_closed():
            page.context.close()
            return
        page.unroute_all()
        page.evaluate("sessionStorage.clear()")
        page.goto("about:blank")
        self.spare[dark].append(page)

    def share(self, url: str, width: int = 1280, height: int = 720, **options: Any) -> Page:
        """The shared page with these settings, at this size, scrolled to its top, with nothing focused or hovered."""
        key = (url, *sorted(options.items()))
        if key not in self.shared:
            self.shared[key] = self.open(url, width, height, **options)
        page = self.shared[key]
        page.set_viewport_size({"width": width, "height": height})
        page.mouse.move(0, 0)
        page.evaluate("document.activeElement.blur(), scrollTo(0, 0)")
        return page

    def share_within(self, file: Path) -> None:
        """Close the shared pages of another test file, whose tests may have left an overlay open or changed lanes."""
        if file != self.sharing_file:
            for (_, *options), page in self.shared.items():
                self.release(page, **dict(options))
            self.shared.clear()
            self.sharing_file = file

    def take_complaints(self) -> list[str]:
        """The complaints since the last call."""
        for page in self.shared.values():
            # Playwright delivers the page's pending events before this answer.
            page.evaluate("0")
        complaints = self.complaints[:]
        self.complaints.clear()
        return complaints


@pytest.fixture(scope="session")
def opener(browser: Browser) -> Opener:
    """Opens this process's pages, and keeps the pages that tests share."""
    return Opener(browser)


@pytest.fixture
def open_page(opener: Opener, request: pytest.FixtureRequest) -> Iterator[OpenPage]:
    """A function that opens a new page, which is closed after the test."""
    opened: list[tuple[Page, dict[str, Any]]] = []

    def open_new(*arguments: Any, **options: Any) -> Page:
        opened.append((opener.open(*arguments, **options), options))
        return opened[-1][0]

    failed = request.session.testsfailed
    yield open_new
    for page, options in opened:
        if request.session.testsfailed > failed:
            # The test may have left the page in any state.
            page.context.close()
        else:
            opener.release(page, **options)
    assert opener.take_complaints() == []


@pytest.fixture
def share_page(opener: Opener, request: pytest.FixtureRequest) -> Iterator[OpenPage]:
    """A function that returns a page shared by the tests of a file, for tests that change only the page's race."""
    opener.share_within(request.path)
    failed = request.session.testsfailed
    yield opener.share
    if request.session.testsfailed > failed:
        # The test may have left the pages in any state.
        opener.shared.clear()
    assert opener.take_complaints() == []


@pytest.fixture
def open_recording(app: App, share_page: OpenPage) -> OpenPage:
    """A function that opens a recording on a page without motion, whose clock the test controls."""

    def open_file(path: Path, width: int = 1280, height: int = 720) -> Page:
        page = share_page(app.short_url, width, height, stopped=True)
        open_race(page, path)
        skip(page, SETTLED_MS)
        return page

    return open_file


@pytest.fixture
def keep_recording(app: App, share_page: OpenPage, open_recording: OpenPage) -> OpenPage:
    """Like `open_recording`, for tests that only read a race: a page that still has it is moved to its end."""

    def keep_file(path: Path, width: int = 1280, height: int = 720) -> Page:
        page = share_page(app.short_url, width, height, stopped=True)
        if page.evaluate(RETURN_TO_END, str(path)):
            skip(page, SETTLED_MS)
        else:
            page = open_recording(path, width, height)
            page.evaluate("path => { witness.kept = `${path} ${witness.reels}`; }", str(path))
        return page

    return keep_file


def stays_on_app(url: str, home: str) -> bool:
    """Whether a request goes to the app itself."""
    return url.startswith((home, home.replace("http", "ws", 1), "data:", "blob:"))
