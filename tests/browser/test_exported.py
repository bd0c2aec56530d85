"""Exported races: HTML files that play from a disk, without a server and without a network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from specrace.ui.stage.html_file import read_recordings, write_html
from specrace.ui.stage.site import RESERVED, write_site
from tests.browser.firefox import open_firefox
from tests.browser.parts import RECORDING, RECORDINGS, read_rows, share, write_rows
from tests.browser.test_stage_views import findings
from tests.views.recordings import replace_texts

pytestmark = pytest.mark.browser

SIZES = [(1280, 720), (390, 844)]
# The Escape key in WebDriver.
ESCAPE = "\ue00c"
# Each text tries to end the element, the attribute, the script or the JSON that holds it.
HOSTILE = [
    "<script>window.__pwn=1</script>",
    "</script><script>window.__pwn=1</script>",
    "<!--<script>window.__pwn=1",
    "--><img src=x onerror=window.__pwn=1>",
    "<!-- races -->",
    '"><img src=x onerror=window.__pwn=1>',
    "'><svg onload=window.__pwn=1>",
    "</title><script>window.__pwn=1</script>",
    "</style><script>window.__pwn=1</script>",
    "javascript:window.__pwn=1",
    "${window.__pwn=1} {{window.__pwn=1}} `${window.__pwn=1}`",
    "\\u003cscript\\u003ewindow.__pwn=1\\u003c/script\\u003e",
    "<iframe srcdoc='<script>parent.__pwn=1</script>'></iframe>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.__pwn=1>",
    "\u202e\u2028\u2029\x00<a href='//evil.test' autofocus onfocus=window.__pwn=1>x</a>",
]


@pytest.fixture(scope="module")
def exported_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded race with the tour, in one file."""
    file = tmp_path_factory.mktemp("exported") / "race.html"
    file.write_text(write_html(read_recordings([RECORDING]), tour=True), encoding="utf-8")
    return file


@pytest.fixture
def open_file(open_page: Callable[..., Page]) -> Callable[..., Page]:
    """A function that opens a file from the disk. The test fails if the page requests anything else."""

    def open_path(file: Path, width: int = 1280, height: int = 720) -> Page:
        return open_page(file.as_uri(), width, height, ready=False)

    return open_path


def hostile_recording(path: Path, text: str) -> Path:
    """A recording in which the question, the model, the passages and all tokens are `text`."""
    rows = read_rows(RECORDINGS / "tides.jsonl")
    about = rows[0]["about"]
    about |= {"question": text, "model": text, "device": text}
    for passage in about["passages"]:
        passage |= {"title": text, "document": text}
    return write_rows(path, replace_texts(rows, lambda *_: text))


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_file_plays_its_race_without_a_server(
    open_file: Callable[..., Page], exported_file: Path, width: int, height: int
) -> None:
    page = open_file(exported_file, width, height)
    expect(page.locator(".stage[data-mode=result]")).to_be_visible()
    lanes = [lane["title"] for lane in read_rows(RECORDING)[0]["lanes"]]
    assert page.locator(".pane h3").all_inner_texts() == lanes
    expect(page.locator("#provenance")).to_contain_text("follow from the recorded steps")
    expect(page.locator("#asked h2")).to_have_text(read_rows(RECORDING)[0]["about"]["question"])
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".stage[data-mode=replay]")).to_be_visible()
    expect(page.locator(".inspector .tree svg")).to_be_visible()
    page.keyboard.press("v")
    expect(page.locator(".proof[data-done=true] .proof-count[data-state=same]")).to_be_visible()
    page.keyboard.press("Escape")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert findings(page) == []


def test_a_file_offers_only_what_works_without_a_server(open_file: Callable[..., Page], exported_file: Path) -> None:
    page = open_file(exported_file)
    expect(page.locator(".stage[data-mode=result]")).to_be_visible()
    for name in ("logs", "audience"):
        expect(page.locator(f"[data-do={name}]").first).to_be_hidden()
    page.keyboard.press("s")
    expect(page.locator("dialog.share [data-do]:visible b")).to_have_text(["Recording", "Film"])
    page.keyboard.press("Escape")
    with page.expect_download() as download:
        share(page, "save")
    assert Path(download.value.path()).read_text(encoding="utf-8").split("\n")[0].startswith('{"type":"started"')
    page.keyboard.press("o")
    expect(page.locator(".tour-title")).to_have_text("1 of 5: The idle machine")


@pytest.fixture
def offline_page(browser: Browser) -> Iterator[Page]:
    """A page without a network. The test fails if the page requests anything but files and its own data."""
    context = browser.new_context(offline=True, reduced_motion="reduce")
    requested: list[str] = []
    context.on("request", lambda request: requested.append(request.url))
    yield context.new_page()
    context.close()
    assert requested and all(url.startswith(("file:", "data:", "blob:")) for url in requested)


def test_a_file_plays_in_a_frame_of_a_strict_page(offline_page: Page, exported_file: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer.html"
    outer.write_text(
        '<!doctype html><meta http-equiv="Content-Security-Policy" content="default-src \'none\'; frame-src file:">'
        f'<iframe sandbox="allow-scripts" width="1000" height="600" src="{exported_file.as_uri()}"></iframe>',
        encoding="utf-8",
    )
    offline_page.goto(outer.as_uri())
    expect(offline_page.frame_locator("iframe").locator(".stage[data-mode=result]")).to_be_visible()


def test_no_text_of_a_recording_runs_as_a_script(open_file: Callable[..., Page], tmp_path: Path) -> None:
    names = [f"{number}<b>'\"&" for number in range(len(HOSTILE))]
    files = [hostile_recording(tmp_path / f"{name}.jsonl", text) for name, text in zip(names, HOSTILE, strict=True)]
    file = tmp_path / "hostile.html"
    file.write_text(write_html(read_recordings(files)), encoding="utf-8")
    page = open_file(file)
    for number in range(len(HOSTILE)):
        page.keyboard.press("g")
        page.locator(".gallery .card").nth(number).click()
        expect(page.locator(".stage[data-mode=result]")).to_be_visible()
        expect(page.locator("#asked h2")).to_be_visible()
    assert page.evaluate("window.__pwn") is None
    assert page.locator("#asked h2 *").count() == 0
    assert page.locator("#stage-host :is(img, script, iframe, style, foreignObject)").count() == 0


def test_the_page_exports_the_race_that_it_shows(
    share_page: Any, open_file: Callable[..., Page], loading_app: str, tmp_path: Path
) -> None:
    page = share_page(loading_app, ready=False)
    page.locator("input.file").set_input_files(str(RECORDING))
    expect(page.locator(".stage[data-mode=result]")).to_be_visible()
    with page.expect_download() as download:
        share(page, "export")
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    assert file.name.endswith(".html")
    exported_page = open_file(file)
    expect(exported_page.locator(".stage[data-mode=result]")).to_be_visible()
    # The bars below the panes are drawn a moment after the result.
    for shown in (page, exported_page):
        expect(shown.locator(".source-share").last).not_to_have_text("–")
    for part in (".results", ".panes", ".passages"):
        assert exported_page.locator(part).inner_text() == page.locator(part).inner_text()


def test_a_site_lists_its_races_and_opens_them(offline_page: Page, tmp_path: Path) -> None:
    files = sorted(RECORDINGS.glob("smollm2-co*.jsonl"))
    report = tmp_path / "log.html"
    report.write_text("<!doctype html><title>A report</title><p>Figures", encoding="utf-8")
    names = write_site(tmp_path / "site", read_recordings(files, RESERVED), [report], "Races & <others>")
    assert names == [*(f"{file.stem}.html" for file in files), "tour.html", "report-log.html", "index.html"]
    page = offline_page
    page.goto((tmp_path / "site" / "index.html").as_uri())
    expect(page.locator("main h2").first).to_have_text("Races & <others>")
    assert page.locator(".cards a").count() == len(files)
    page.locator(".cards a").first.click()
    expect(page.locator(".stage[data-mode=result]")).to_be_visible()
    page.go_back()
    page.locator("a.tour").click()
    expect(page.locator(".tour-title")).to_have_text("1 of 5: The idle machine")


@pytest.mark.skipif(not (shutil.which("firefox-esr") or shutil.which("firefox")), reason="Firefox is not installed")
def test_a_file_plays_in_firefox(exported_file: Path, tmp_path: Path) -> None:
    with open_firefox(tmp_path / "profile") as firefox:
        for width, height in SIZES:
            firefox.open(exported_file.as_uri(), width, height)
            firefox.wait_for(".stage[data-mode=result]")
            firefox.press("v")
            firefox.wait_for(".proof[data-done=true] .proof-count[data-state=same]")
            firefox.press(ESCAPE)
            assert firefox.run("document.documentElement.scrollWidth") <= width
        titles = [lane["title"] for lane in read_rows(RECORDING)[0]["lanes"]]
        shown = "JSON.stringify([...document.querySelectorAll('.pane h3')].map((title) => title.innerText))"
        assert json.loads(firefox.run(shown)) == titles
        assert firefox.messages == []
