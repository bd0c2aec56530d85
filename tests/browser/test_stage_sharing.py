"""A race that is saved, opened elsewhere, linked to; hostile recordings; the gallery of a page without a model."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlparse

import pytest
from playwright.sync_api import Page, expect

from specrace.ui.gallery import Gallery
from specrace.ui.page import build_page, launch_options
from specrace.ui.worker import Worker
from specrace.workbench import Workbench
from tests.browser.parts import PATIENCE_MS, QUESTION, SHORT, mode, open_race, race, texts

pytestmark = pytest.mark.browser

RECORDINGS = Path(__file__).resolve().parents[2] / "assets" / "recordings"
RECORDING = RECORDINGS / "ngram-trie.jsonl"
# A machine that has much else to do may be late once.
VISITS = 4
HOSTILE = (
    "<img src=x onerror=window.__pwn=1> ${alert(1)} ${window.__pwn=2} {{x}} {{{y}}} `${1}` "
    "</p><script>window.__pwn=3</script> \u202egnirts \u2028 🦉 " + "x" * 10_000
)


@pytest.fixture(scope="module")
def without_model() -> Iterator[str]:
    """A page whose model never gets ready, with the recordings that ship."""

    def load(report: Callable[[str], None]) -> Workbench:
        report("Loading the model")
        while True:
            time.sleep(3600)

    worker = Worker(load)
    page = build_page(worker, ["Why?"], Gallery.in_folder(RECORDINGS))
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, **launch_options(worker))
    worker.start()
    yield url
    page.close()


def open_file(page: Page, path: Path) -> None:
    page.locator("input.file").set_input_files(str(path))


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDING.read_text(encoding="utf-8").splitlines()]


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    return path


def test_a_saved_race_opens_in_another_browser_without_a_model(
    app: Any, without_model: str, open_page: Any, tmp_path: Path
) -> None:
    page = open_page(app.url + SHORT, calm=True)
    race(page)
    with page.expect_download() as download:
        page.locator("[data-do=save]").click()
    assert download.value.suggested_filename == "race-what-is-the-n-gram-trie-built-from.jsonl"
    file = tmp_path / "race.jsonl"
    download.value.save_as(file)

    other = open_page(without_model, ready=False, calm=True)
    open_file(other, file)
    mode(other, "result")
    assert texts(other) == texts(page)
    table = ".results tbody"
    assert other.locator(table).inner_text() == page.locator(table).inner_text()
    assert other.locator(".passage").count() == page.locator(".passage").count() > 0
    expect(other.locator(".announcer")).to_contain_text("recorded 20")

    again = tmp_path / "again.jsonl"
    with other.expect_download() as download:
        other.locator("[data-do=save]").click()
    download.value.save_as(again)
    assert again.read_text(encoding="utf-8") == file.read_text(encoding="utf-8")


def test_a_race_that_is_dropped_on_the_page_opens(without_model: str, open_page: Any) -> None:
    page = open_page(without_model, ready=False, calm=True)
    drop(page, "race.jsonl", RECORDING.read_text(encoding="utf-8"))
    mode(page, "result")
    expect(page.locator(".pane[data-lane=trie] .text")).to_contain_text("n-gram")
    assert page.locator("#question").locator("textarea, input").input_value() == QUESTION


def drop(page: Page, name: str, text: str) -> None:
    script = """([name, text]) => {
      const transfer = new DataTransfer();
      transfer.items.add(new File([text], name));
      const place = document.querySelector('.panes');
      for (const type of ['dragover', 'drop'])
        place.dispatchEvent(new DragEvent(type, {bubbles: true, cancelable: true, dataTransfer: transfer}));
    }"""
    page.evaluate(script, [name, text])


def test_files_that_are_no_race_are_one_sentence(without_model: str, open_page: Any, tmp_path: Path) -> None:
    page = open_page(without_model, ready=False, calm=True)
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "html.jsonl").write_text("<img src=x onerror=window.__pwn=1>")
    write(tmp_path / "half.jsonl", rows()[:-1])
    events = rows()
    events[-1]["lanes"][3]["speedup"] = 99.0
    write(tmp_path / "liar.jsonl", events)
    sentences = {
        "empty": "is not a whole race", "binary": "line 1 is no event", "html": "line 1 is no event",
        "half": "is not a whole race", "liar": "speedup is given as 99",
    }  # fmt: skip
    for name, sentence in sentences.items():
        open_file(page, tmp_path / f"{name}.jsonl")
        expect(page.locator(".announcer")).to_contain_text(f"{name}.jsonl")
        expect(page.locator(".announcer")).to_contain_text(sentence)
        expect(page.locator(".announcer")).to_have_attribute("data-kind", "bad")
    assert page.evaluate("window.__pwn") is None
    open_file(page, RECORDING)
    mode(page, "result")


def test_what_an_opened_file_says_is_only_text(without_model: str, open_page: Any, tmp_path: Path) -> None:
    events = rows()
    about = events[0]["about"]
    about |= {"question": HOSTILE, "model": HOSTILE, "dtype": HOSTILE, "device": HOSTILE, "date": HOSTILE}
    for passage in about["passages"]:
        passage |= {"title": HOSTILE, "document": HOSTILE, "text": passage["text"] + HOSTILE}
    events[0]["lanes"][3] |= {"lane": HOSTILE[:200], "title": HOSTILE}
    events[-1]["lanes"][3]["lane"] = HOSTILE[:200]
    for event in events[1:-1]:
        if event["index"] in (0, 3):
            event["texts"] = [f" {HOSTILE}", *event["texts"][1:]]
            event["pieces"] = [HOSTILE for _ in event["pieces"]]
        if event["lane"] == "trie":
            event["lane"] = HOSTILE[:200]
    page = open_page(without_model, ready=False)
    open_race(page, write(tmp_path / "${x}<b>hostile{{y}}.jsonl", events))
    mode(page, "replay")
    mode(page, "result")
    for place in (".pane .text p:last-child", ".pane h3", ".passage h3", ".passage p", ".machine", ".results td"):
        found = page.locator(place).all_text_contents()
        assert any("<img src=x onerror=window.__pwn=1> ${alert(1)}" in text for text in found), place
    assert page.evaluate("window.__pwn") is None
    assert page.locator("#stage-host img, #stage-host script, #stage-host .pane b b").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_a_visitor_of_a_page_without_a_model_sees_a_race_within_three_seconds(
    without_model: str, open_page: Any
) -> None:
    for _ in range(VISITS):
        page = open_page(without_model, ready=False)
        # In the page's own time, from its load on.
        seen = page.wait_for_function(
            """() => document.querySelectorAll('.pane .text .run').length > 2
            && performance.now() - performance.getEntriesByType('navigation')[0].loadEventEnd""",
            timeout=PATIENCE_MS,
        ).json_value()
        if seen < 3000:
            break
    assert seen < 3000
    mode(page, "result")
    page.locator(".menu [data-do=gallery]").click()
    cards = page.locator(".gallery .card")
    expect(cards).to_have_count(len(list(RECORDINGS.glob("*.jsonl"))))
    about = rows()[0]["about"]
    card = page.locator(".gallery .card", has_text=QUESTION)
    for fact in (about["model"], about["dtype"], about["device"], about["date"][:10]):
        expect(card).to_contain_text(str(fact))
    cards.last.click()
    mode(page, "replay")
    mode(page, "result")
    expect(page.locator(".pane[data-done]")).to_have_count(page.locator(".pane").count())


def test_a_link_sets_the_race_and_starts_it(app: Any, open_page: Any) -> None:
    link = urlencode({"q": "Why does bread rise?", "lanes": "trie", "tokens": 20, "seed": 5, "autorun": 1})
    page = open_page(f"{app.url}?{link}", calm=True)
    page.evaluate("document.querySelector('.stage').addEventListener('reel', e => (window.reel = e.detail))")
    mode(page, "result")
    assert page.locator("#question").locator("textarea, input").input_value() == "Why does bread rise?"
    assert page.locator(".results tbody tr > :first-child").all_text_contents() == [
        "Vanilla", "N-gram trie",
    ]  # fmt: skip
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("[data-do=link]").click()
    expect(page.locator(".announcer")).to_have_text("The link is copied.")
    copied = parse_qs(urlparse(page.evaluate("navigator.clipboard.readText()")).query)
    wanted = {"q": "Why does bread rise?", "lanes": "vanilla,trie", "tokens": "20", "seed": "5", "autorun": "1"}
    assert {name: copied[name] for name in wanted} == {name: [value] for name, value in wanted.items()}


def test_a_link_without_autorun_waits_and_a_wrong_one_says_so(app: Any, open_page: Any) -> None:
    page = open_page(f"{app.url}?{urlencode({'q': HOSTILE[:150]})}")
    expect(page.locator("#question").locator("textarea, input")).to_have_value(HOSTILE[:150])
    page.wait_for_timeout(500)
    assert page.locator(".stage").get_attribute("data-phase") == "idle"
    page = open_page(f"{app.url}?lanes=ghost,<b>&autorun=1")
    expect(page.locator(".announcer")).to_contain_text("ghost")
    page.wait_for_timeout(500)
    assert page.locator(".stage").get_attribute("data-race") is None
    assert page.evaluate("window.__pwn") is None
