"""Explain mode, live and in a replay: captions are true, stay long enough to read, and are not read out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.parts import SIX_LANES, begin, latest_reel, open_race, reels, stage, wait_for_reel

pytestmark = pytest.mark.browser

MIN_SHOWN_MS = 3500
TURN_MS = 100
# Kinds of captions that the next caption may replace immediately. "why", which names the winner, replaces any caption
# immediately.
REPLACEABLE = ("hello", "start", "why")
# Kinds of captions that come at most once in a replay.
ONCE = {"start", "hello", "vanilla", "refused", "none", "same", "slower", "ahead", "end", "loops", "law"}

WATCH = """() => {
  window.captions = [];
  window.watcher?.disconnect();
  const caption = document.querySelector('.caption');
  window.watcher = new MutationObserver(() => {
    const { mode } = document.querySelector('.stage').dataset;
    window.captions.push([performance.now(), caption.dataset.about, caption.textContent, mode]);
  });
  window.watcher.observe(caption, { childList: true });
}"""


@pytest.fixture
def page(app: Any, share_page: Any) -> Iterator[Page]:
    """A page in explain mode, whose clock the test controls."""
    opened: Page = share_page(app.short_url, stopped=True)
    expect(opened.locator(".caption")).to_be_hidden()
    opened.keyboard.press("e")
    expect(opened.locator(".caption")).to_be_visible()
    opened.evaluate(WATCH)
    yield opened
    opened.keyboard.press("e")
    expect(opened.locator(".caption")).to_be_hidden()


def captions(page: Page) -> list[list[Any]]:
    """For each caption: its time in ms, its kind, its text, and the stage's mode."""
    rows: list[list[Any]] = page.evaluate("window.captions")
    return rows


def test_a_live_race_is_explained_from_its_start_on(app: Any, page: Page) -> None:
    with app.hold.after(1):
        number = reels(page)
        begin(page)
        page.wait_for_selector(".caption[data-about=start]")
        assert captions(page)[-1][1::2] == ["start", "live"]
    wait_for_reel(page, number)
    reel = latest_reel(page)
    if reel["pace"]["disturbed"] or not max(reel["results"], key=lambda row: row["speedup"])["drafted"]:
        # On a busy machine there may be no winner to explain, and then no lane is called the fastest.
        assert not any(kind == "why" for _, kind, *_ in captions(page))
        return
    page.wait_for_selector(".caption[data-about=why]")
    about, words = captions(page)[-1][1:3]
    assert about == "why" and re.search(r"accepted \d+ % of .+ a step took [\d.]+ times", words)


def test_captions_are_true_and_stay_long_enough_to_read(page: Page) -> None:
    open_race(page, SIX_LANES)
    page.evaluate(WATCH)
    page.locator(".speed").select_option("0.25")
    # Repeat a slow replay until there are enough captions; each replay may show each kind again.
    for number in itertools.count(1):
        before = len(captions(page))
        page.locator("[data-do=play]").click()
        while stage(page)["mode"] == "replay":
            page.clock.fast_forward(TURN_MS)
        kinds = [caption[1] for caption in captions(page)[before:]]
        assert kinds[-1] == "why" and all(kinds.count(key) == 1 for key in kinds if key in ONCE)
        lasting = [caption for caption in captions(page) if caption[1] not in REPLACEABLE]
        if len(lasting) >= 3:
            break
        assert number < 12, "a dozen replays show enough captions"
    for (earlier, first, *_), (later, second, *_) in pairwise(captions(page)):
        assert later - earlier >= MIN_SHOWN_MS or first in REPLACEABLE or second == "why"
    for _, key, words, _ in captions(page):
        assert words.endswith(".") and len(words) < 170
        if key in ("accepted", "all"):
            # The last number, the tokens of the step, is that of the accepted tokens plus the bonus token.
            numbers = [int(number) for number in re.findall(r"\d+", words)]
            assert numbers[-1] == (numbers[1] if key == "accepted" else numbers[0]) + 1
    page.locator(".speed").select_option("1")


def test_there_is_one_live_region_and_captions_are_not_in_it(page: Page) -> None:
    live_regions = page.locator("#stage-host [aria-live], #stage-host [role=status], #stage-host [role=alert]")
    expect(live_regions).to_have_count(1)
    assert live_regions.locator(".caption").count() == 0
    assert page.locator("#explain-toggle").get_attribute("aria-pressed") == "true"
    page.locator(".menu summary").click()
    page.keyboard.press("Escape")
    expect(page.locator("#explain-toggle")).to_be_hidden()
    page.locator(".menu summary").click()
    page.locator("#explain-toggle").click()
    expect(page.locator(".caption")).to_be_hidden()
    page.keyboard.press("e")
    expect(page.locator(".caption")).to_be_visible()


def test_a_caption_of_any_length_moves_no_pane(page: Page) -> None:
    # Measured from the arena's top, because Gradio's parts above it may still move in a new window size.
    tops = """() => {
      const { top } = document.querySelector('.arena').getBoundingClientRect();
      return [...document.querySelectorAll('.pane')].map((pane) => pane.getBoundingClientRect().top - top);
    }"""
    short_caption = page.locator(".caption").inner_text()
    long_caption = "N-gram trie proposed 16 tokens, the model accepted all: 17 tokens in one forward pass."
    set_caption = "words => { document.querySelector('.caption').textContent = words; }"
    for width, height in ((1280, 720), (1920, 1080), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate(set_caption, short_caption)
        before = page.evaluate(tops)
        page.evaluate(set_caption, long_caption)
        assert page.evaluate(tops) == pytest.approx(before, abs=0.1), width
        assert page.evaluate("document.documentElement.scrollWidth") <= width
