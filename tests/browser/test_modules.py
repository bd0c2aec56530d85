"""The page's scripts as modules, without Gradio: what each script computes, and what all scripts add to the page.

`modules/NAME.js` tests the script NAME.js: its `cases` return the actual and the expected value.
"""

from __future__ import annotations

import functools
import json
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from specrace.core.events import Event, Started, Step
from specrace.lab.logs.transcripts import TranscriptFile
from specrace.ui.server.scripts import STATIC
from specrace.ui.stage.constants import Constants
from specrace.views.frames import RaceView
from specrace.views.recording_check import read_recording
from specrace.views.reel import reel_json
from tests.browser.apps import ROOT
from tests.browser.parts import RECORDINGS, SIX_LANES
from tests.lab.logs.files.test_pairs import by_letter
from tests.lab.logs.formats.written import batch_pair
from tests.parts import continuation
from tests.servers.replies import stream, vllm_answering, vllm_chunk, vllm_end
from tests.servers.test_race import NGRAM, PROMPT, decode, make_target, run

pytestmark = pytest.mark.browser

# A race short enough to fit into a link.
TIDES = RECORDINGS / "tides.jsonl"
CARD = {"name": "race", "fastest": "Trie", "speedup": 2, "lanes": [], "ms": 1}
CASES = Path(__file__).parent / "modules"
# Scripts that only combine others; the tests of the whole page cover them.
COMBINING = {"main.js", "stage_tools.js", "draw_stage.js", "exported_race.js"}
SCRIPTS = sorted(path.name for path in STATIC.rglob("*.js") if path.name not in COMBINING)


class Files(SimpleHTTPRequestHandler):
    """Serves an empty page and the repository's files, which the browser keeps: a test loads 160 modules."""

    protocol_version = "HTTP/1.1"
    empty_page = f"<!doctype html><title>Modules</title>{Constants().tag()}".encode()

    def do_GET(self) -> None:
        """Answer with the empty page or a file."""
        if self.path != "/":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(self.empty_page)))
        self.end_headers()
        self.wfile.write(self.empty_page)
        return None

    def end_headers(self) -> None:
        """Let the browser keep the answer."""
        self.send_header("Cache-Control", "max-age=3600")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """An empty page whose origin serves the repository's files."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=ROOT)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        opened = browser.new_page(reduced_motion="reduce", base_url=f"http://127.0.0.1:{server.server_port}/")
        opened.goto("/")
        yield opened
        opened.close()
        server.shutdown()


@pytest.mark.parametrize("name", SCRIPTS)
def test_module_cases_give_the_expected_values(page: Page, name: str) -> None:
    """Fails for a module without a file of cases."""
    results = page.evaluate(
        """async (path) => {
          const { cases } = await import(path), results = [];
          for (const [name, run] of Object.entries(cases)) results.push([name, ...(await run())]);
          return results;
        }""",
        f"/{(CASES / name).relative_to(ROOT)}",
    )
    assert results
    assert {case: actual for case, actual, _ in results} == {case: expected for case, _, expected in results}
    assert page.evaluate("window.__pwn") is None


def race_with_servers() -> list[Event]:
    """A race beside a server whose chunks are steps, and one whose chunks are not."""
    target = make_target()
    text = continuation(PROMPT, target.next_token, 24)
    whole = vllm_chunk(text, decode(text), "length")
    return run(target, vllm_answering(target, decode, **NGRAM), stream(whole, vllm_end(24, [9], [12])))


@pytest.mark.parametrize("make_events", [lambda: read_recording(SIX_LANES), race_with_servers], ids=["ours", "servers"])
def test_the_page_and_the_server_make_equal_frames(page: Page, make_events: Callable[[], list[Event]]) -> None:
    """A reel is a race as it is sent to the page, without the parts of a frame that the page can compute."""
    events = make_events()
    read = "async ([path, wire]) => (await import(path)).readReel(JSON.parse(wire)).steps"
    steps = page.evaluate(read, [f"/{(STATIC / 'stage/reel.js').relative_to(ROOT)}", reel_json(events)])
    view, started = RaceView(), events[0]
    assert isinstance(started, Started)
    lane_numbers = {info.lane: number for number, info in enumerate(started.lanes)}
    for event in events[:-1]:
        view.add(event)
        if isinstance(event, Step):
            number, step = lane_numbers[event.lane], steps.pop(0)
            assert (step["lane"], step["index"], step["at"]) == (number, event.index, event.at_ms)
            assert step["frame"] == json.loads(json.dumps(asdict(view.lane_frame(number))))
    assert not steps


def draw(page: Page, **props: object) -> None:
    """Let the page's scripts draw the page's HTML with these properties."""
    names = ("tour.html", "menu.html", "stage/stage.html")
    html = "".join((STATIC / name).read_text(encoding="utf-8") for name in names)
    page.goto("/")
    page.evaluate("window.names = [...Object.getOwnPropertyNames(window), 'names']")
    page.evaluate(
        """async ([path, html, reel, props]) => {
          const element = document.body.appendChild(document.createElement('div'));
          element.innerHTML = html;
          await import(path);
          const server = { play_recorded: async () => ({ reel }) };
          specrace.drawStage({ element, props, server, watch: () => {} });
        }""",
        [
            f"/{(STATIC / 'main.js').relative_to(ROOT)}",
            html,
            reel_json(read_recording(SIX_LANES)),
            {"lanes": ["vanilla", "trie"], "methods": [], "gallery": [CARD], "only_replay": True, **props},
        ],
    )


def test_the_scripts_add_one_global_name(page: Page) -> None:
    """This holds after a race was shown and keys were pressed."""
    draw(page)
    page.evaluate("document.querySelector('.gallery .card').click()")
    page.wait_for_selector(".inspector[data-step]", state="attached")
    for key in ["t", "e", "d", "p", "1", "ArrowLeft", " ", "Escape"]:
        page.keyboard.press(key)
    added = page.evaluate("Object.getOwnPropertyNames(window).filter((name) => !names.includes(name))")
    assert added == ["specrace"]


def test_a_pasted_link_to_a_race_opens_the_race(page: Page) -> None:
    """The link changes only the part after "#", so the browser loads nothing; the page must notice the change.

    When the page itself changes that part, as `removeRaceFromAddress` does, it must open nothing.
    """
    draw(page, gallery=[])
    share, reel = f"/{(STATIC / 'lib/share.js').relative_to(ROOT)}", json.loads(reel_json(read_recording(TIDES)))
    link = page.evaluate("async ([path, reel]) => (await import(path)).linkWithRace(reel)", [share, reel])
    page.evaluate(
        """() => {
          window.sent = [];
          window.fetch = async (url, { body }) => {
            sent.push([url.split('?')[0], JSON.parse((await body.text()).split('\\n')[0])]);
            return new Response('no race', { status: 400 });
          };
        }"""
    )
    for number in (1, 2):
        page.evaluate("link => location.assign(link)", link)
        page.wait_for_function("number => sent.length >= number", arg=number)
        page.evaluate("async (path) => (await import(path)).removeRaceFromAddress()", share)
    assert page.evaluate("sent") == [["gradio_api/recording", reel["started"]]] * 2


def test_the_page_offers_only_what_the_server_supports(page: Page) -> None:
    """A server that accepts no files scores no logs; one without the two races of the tour has no tour."""
    # The buttons and the keys that the page offers with files and without.
    offered = {}
    for files in (True, False):
        draw(page, takes_files=files)
        page.add_style_tag(path=STATIC / "page.css")
        buttons = page.locator(".menu button:visible").evaluate_all("all => all.map((button) => button.dataset.do)")
        keys = page.locator(".help dt").all_text_contents()
        offered[files] = {"tour", "logs", "gallery"} & set(buttons), {"o", "l", "g"} & set(keys)
        page.keyboard.press("l")
        assert page.locator("dialog.logs[open]").count() == files
    assert offered == {True: ({"logs", "gallery"}, {"l", "g"}), False: ({"gallery"}, {"g"})}


def test_a_batch_that_the_page_zips_is_scored_as_its_two_files(page: Page, tmp_path: Path) -> None:
    requests, responses = batch_pair(tmp_path)
    contents = page.evaluate(
        """async ([path, texts]) => {
          const { joinLogs } = await import(path);
          const { body } = await joinLogs(texts.map(([name, text]) => new File([text], name)), 1e6);
          return [...new Uint8Array(await body.arrayBuffer())];
        }""",
        [
            f"/{(STATIC / 'lib/scoring.js').relative_to(ROOT)}",
            [[path.name.removesuffix(".jsonl"), path.read_text(encoding="utf-8")] for path in (responses, requests)],
        ],
    )
    (tmp_path / "dropped").write_bytes(bytes(contents))
    with zipfile.ZipFile(tmp_path / "dropped") as archive:
        assert archive.testzip() is None
    expected = list(TranscriptFile(responses, requests=requests, chat=by_letter))
    assert expected and list(TranscriptFile(tmp_path / "dropped", chat=by_letter)) == expected
