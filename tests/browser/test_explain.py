"""Explain mode in a live race: true, readable, once each, and silent for a screen reader."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

QUESTION = "What is the n-gram trie built from?"
SHORTEST_MS = 3500
TURN_MS = 100
# What gives way at once to what happens; and who has won is told at once.
HASTY = ("hello", "start", "why")
ONCE = {"start", "hello", "vanilla", "refused", "none", "same", "slower", "ahead", "end", "loops", "law"}

WATCH = """() => {
  window.captions = [];
  const caption = document.querySelector('.caption');
  new MutationObserver(() => {
    const { mode } = document.querySelector('.stage').dataset;
    window.captions.push([performance.now(), caption.dataset.about, caption.textContent, mode]);
  }).observe(caption, { childList: true });
}"""


def wait_for_mode(page: Page, name: str) -> None:
    page.wait_for_function("name => document.querySelector('.stage').dataset.mode === name", arg=name, timeout=90_000)


def test_captions_say_what_happened_and_let_it_be_read(app: Any, open_page: Any) -> None:
    page = open_page(app.url, calm=True)
    page.clock.install()
    expect(page.locator(".caption")).to_be_hidden()
    page.evaluate(WATCH)
    page.keyboard.press("e")
    expect(page.locator(".caption")).to_be_visible()
    page.locator("#question").locator("textarea, input").fill(QUESTION)
    page.locator("#race").click()
    wait_for_mode(page, "result")
    captions = page.evaluate("window.captions")
    assert captions[0][1] == "hello" and captions[1][3] == "live"
    assert captions[-1][1] == "why" and re.search(r" wins: [\d.]+ tokens for each run of the model", captions[-1][2])
    # The replay, slowly, as often as it takes on a fast machine: in each everything may be said again, once. The page's
    # clock is turned, so that nobody has to wait for it.
    page.locator(".speed").select_option("0.25")
    for _ in range(12):
        before = len(captions)
        page.locator("[data-do=play]").click()
        wait_for_mode(page, "replay")
        while page.locator(".stage").get_attribute("data-mode") == "replay":
            page.clock.run_for(TURN_MS)
        captions = page.evaluate("window.captions")
        said = [each[1] for each in captions[before:]]
        assert all(said.count(key) == 1 for key in said if key in ONCE)
        times = [each[0] for each in captions if each[1] not in HASTY]
        if len(times) >= 3:
            break
    assert len(times) >= 3
    for (earlier, first, *_), (later, second, *_) in pairwise(captions):
        assert later - earlier >= SHORTEST_MS or first in HASTY or second == "why"
    for _, key, words, _ in captions:
        assert words.endswith(".") and len(words) < 170
        if key in ("accepted", "all"):
            numbers = [int(number) for number in re.findall(r"\d+", words)]
            assert numbers[-1] == (numbers[1] if key == "accepted" else numbers[0]) + 1


def test_there_is_one_live_region_and_captions_are_not_in_it(app: Any, open_page: Any) -> None:
    page = open_page(app.url, calm=True)
    page.keyboard.press("e")
    live = page.locator("#stage-host [aria-live], #stage-host [role=status], #stage-host [role=alert]")
    expect(live).to_have_count(1)
    assert live.locator(".caption").count() == 0
    assert page.locator("#explain-toggle").get_attribute("aria-pressed") == "true"
    page.locator("#explain-toggle").click()
    expect(page.locator(".caption")).to_be_hidden()


def test_captions_move_nothing(app: Any, open_page: Any) -> None:
    page = open_page(app.url, calm=True)
    page.keyboard.press("e")
    tops = "[...document.querySelectorAll('.pane')].map(pane => pane.getBoundingClientRect().top)"
    short = page.locator(".caption").inner_text()
    longest = "N-gram trie proposed 16 tokens and the model agreed with every one: 17 tokens for the price of one run."
    say = "words => { document.querySelector('.caption').textContent = words; }"
    for width, height in ((1280, 720), (1920, 1080), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate(say, short)
        before = page.evaluate(tops)
        page.evaluate(say, longest)
        assert page.evaluate(tops) == before, width
        assert page.evaluate("document.documentElement.scrollWidth") <= width
