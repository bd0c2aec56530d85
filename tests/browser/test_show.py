"""Slow motion, the proof that texts are identical, and the tour, on a replay that needs no model."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Page, expect

from tests.browser.parts import (
    RECORDING,
    RECORDINGS,
    open_race,
    read_rows,
    reels,
    share,
    steps_of,
    wait_for,
    write_rows,
)

pytestmark = pytest.mark.browser

PHASES = ["source", "draft", "verify", "accept", "cost"]
COPYING = RECORDINGS / "smollm2-copying.jsonl"


# How many races a page had received when it had opened the recording.
opened: dict[Page, int] = {}


@pytest.fixture
def page(replay_app: str, share_page: Any) -> Page:
    """A page without open dialogs that shows the result of a recorded race."""
    shared: Page = share_page(replay_app, ready=False)
    shared.emulate_media(reduced_motion="reduce")
    shared.keyboard.press("Escape")
    expect(shared.locator("dialog[open]")).to_have_count(0)
    if opened.get(shared) != reels(shared):
        open_race(shared, RECORDING)
        opened[shared] = reels(shared)
    wait_for(shared, mode="result")
    return shared


def write_differing_race(path: Path) -> Path:
    """A recording whose last lane ends with another token than vanilla, and whose result reports the difference."""
    rows = read_rows(RECORDING)
    result = rows[-1]["lanes"][-1]
    step = steps_of(rows, result["lane"])[-1]
    step["verdict"]["bonus"] += 1
    step["verdict"]["scores"]["targets"][step["verdict"]["path"][-1]] += 1
    step["emitted"][-1] += 1
    result["identical"] = False
    result["first_difference"] = {"position": result["tokens"] - 1, "best": ["a", "b"], "gap": 0.004}
    return write_rows(path, rows)


def test_slow_motion_reaches_every_phase_of_both_steps(page: Page) -> None:
    open_race(page, COPYING)
    page.keyboard.press("m")
    overlay = page.locator(".slow")
    reached = []
    for _ in range(10):
        expect(overlay.locator("svg [data-part=caption]").first).to_be_visible()
        reached.append((overlay.get_attribute("data-scene"), overlay.get_attribute("data-phase")))
        page.keyboard.press("ArrowRight")
    assert reached == [(scene, phase) for scene in "01" for phase in PHASES]
    page.keyboard.press("Escape")
    expect(overlay).to_be_hidden()
    # The keys control the replay again.
    page.keyboard.press("m")
    expect(overlay).to_be_visible()


@pytest.mark.parametrize("key", ["m", "v"])
def test_every_text_is_large_enough_for_a_projector(page: Page, key: str) -> None:
    page.keyboard.press(key)
    expect(page.locator("dialog[open]")).to_be_visible()
    small = page.evaluate(
        """() => [...document.querySelectorAll("dialog[open] *")].filter((node) => {
          const isText = (child) => child.nodeType === Node.TEXT_NODE && child.data.trim();
          return [...node.childNodes].some(isText) && parseFloat(getComputedStyle(node).fontSize) < 24;
        }).map((node) => node.outerHTML)"""
    )
    assert small == []


def test_a_film_of_the_race_is_recorded_in_the_chosen_shape(page: Page) -> None:
    """A whole film takes as long as it plays; tests/browser/modules/film.js saves a short one."""
    share(page, "film")
    dialog = page.get_by_role("dialog", name="The race as a film")
    canvas, save = dialog.locator("canvas"), dialog.get_by_role("button", name="Record the race")
    expect(canvas).to_have_attribute("width", "1280")
    dialog.get_by_role("button", name="Upright").click()
    expect(canvas).to_have_attribute("height", "1280")
    save.click()
    expect(dialog.locator(".film-status")).to_contain_text("Recording: ")
    expect(save).to_have_text("Stop")
    save.click()
    expect(save).to_have_text("Save film")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_slow_motion_plays_automatically_and_can_be_paused(page: Page) -> None:
    open_race(page, COPYING)
    page.emulate_media(reduced_motion="no-preference")
    page.keyboard.press("m")
    overlay = page.locator(".slow")
    expect(overlay).to_have_attribute("data-phase", "verify")
    page.keyboard.press(" ")
    paused = overlay.locator("svg").evaluate("picture => picture.outerHTML")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert overlay.locator("svg").evaluate("picture => picture.outerHTML") == paused


def test_a_picture_is_saved_with_its_colours_and_fonts(page: Page, tmp_path: Path) -> None:
    page.keyboard.press("m")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save this picture").click()
    saved.value.save_as(tmp_path / "step.svg")
    root = ElementTree.parse(tmp_path / "step.svg").getroot()
    text = (tmp_path / "step.svg").read_text(encoding="utf-8")
    assert root.tag.endswith("svg") and root.get("viewBox") == "0 0 1280 720"
    assert "@font-face" in text and "data:" in text and "var(--" not in text
    assert saved.value.suggested_filename.endswith(".svg")


def test_a_step_is_recorded_as_a_video(page: Page) -> None:
    """A whole step takes as long as it plays; tests/browser/modules/film.js and video.js save short ones."""
    page.keyboard.press("m")
    save = page.get_by_role("button", name="Save this step")
    save.click()
    expect(save).to_have_text("Stop")
    save.click()
    expect(save).to_have_text("Save video")


def test_the_proof_shows_equal_texts_as_one(page: Page) -> None:
    page.keyboard.press("v")
    expect(page.locator(".proof-count")).to_have_text("129 of 129 tokens the same in all 4 lanes")
    # The recorded answer has 129 tokens, each with a mark for every lane.
    assert page.locator(".proof-token").count() == 129
    assert page.locator(".proof-token .marks i:not(.none)").count() == 4 * 129
    page.keyboard.press("v")
    expect(page.locator(".proof")).to_be_hidden()


def test_the_proof_forks_where_texts_differ(page: Page, tmp_path: Path) -> None:
    open_race(page, write_differing_race(tmp_path / "differs.jsonl"))
    page.keyboard.press("v")
    expect(page.locator(".proof-count")).to_have_text("128 of 129 tokens the same in all 4 lanes")
    branches = page.locator(".fork p")
    assert branches.count() == 2
    expect(branches.last).to_contain_text("differs at token 128: near tie, gap 0.004")
    assert page.locator(".proof-token .marks i.none").count() == 1


def test_a_page_that_only_replays_says_what_was_asked(page: Page) -> None:
    asked, tour = page.locator("#asked h2"), page.locator("#tour button")
    expect(asked).to_have_text(read_rows(RECORDING)[0]["about"]["question"])
    for width, height in ((1280, 720), (1024, 768), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function("width => innerWidth === width", arg=width)
        head, button = asked.bounding_box(), tour.bounding_box()
        menu = page.locator("#menu button:visible").first.bounding_box()
        assert head and button and menu
        # Tour follows the question: in its line or, on a phone, first in the next one.
        is_phone = width == 390
        assert button["x"] + button["width"] <= menu["x"]
        assert button["y"] >= head["y"] + head["height"] if is_phone else button["x"] >= head["x"] + head["width"]
        page.keyboard.press("p")
        expect(tour).to_be_hidden()
        expect(asked).to_be_in_viewport()
        page.keyboard.press("p")


@pytest.fixture
def tour_page(loading_app: str, open_page: Any) -> Page:
    """A page that has the tour's recorded races, with an empty stage."""
    fresh: Page = open_page(loading_app, ready=False)
    return fresh


def test_a_page_that_only_replays_has_the_tour_and_a_remote_s_keys(page: Page) -> None:
    assert {"g", "o"} <= set(page.locator(".help dt").all_text_contents())
    page.keyboard.press("p")
    page.keyboard.press("PageUp")
    wait_for(page, mode="replay")
    page.keyboard.press("Escape")
    wait_for(page, mode="result")
    page.keyboard.press("p")


def test_the_tour_shows_five_chapters_and_leaves_the_page_as_it_was(tour_page: Page) -> None:
    page = tour_page
    page.locator(".menu [data-do=tour]").click()
    words, chapters = set(), list[str]()
    expect(page.locator(".tour-words")).not_to_be_empty()
    while "Ask a question" not in page.locator(".tour-words").inner_text():
        words.add(page.locator(".tour-words").inner_text())
        chapters.append(page.locator(".tour-title").inner_text())
        page.keyboard.press("ArrowRight")
    assert list(dict.fromkeys(title.split(":")[0] for title in chapters)) == [
        f"{number} of 5" for number in range(1, 6)
    ]
    assert len(words) == len(chapters) > 12
    page.keyboard.press("ArrowLeft")
    assert page.locator(".tour-words").inner_text() in words
    # Keys of the page do nothing during the tour, such as "r", which starts a race.
    for key in "oor":
        page.keyboard.press(key)
    page.keyboard.press("Escape")
    expect(page.locator(".tour footer")).to_be_hidden()
    assert page.evaluate("document.body.dataset.tour") is None
    assert page.evaluate("document.body.dataset.view") != "stage"
    # The arrows control the replay again.
    page.keyboard.press("ArrowLeft")
    wait_for(page, mode="replay")


def test_the_tour_plays_automatically_and_can_be_paused(tour_page: Page) -> None:
    page = tour_page
    page.emulate_media(reduced_motion="no-preference")
    page.keyboard.press("o")
    page.wait_for_function("() => Number(document.querySelector('.tour').dataset.shot) >= 1")
    page.keyboard.press(" ")
    first = page.locator(".tour-progress i").first
    filled = first.get_attribute("style")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert filled and first.get_attribute("style") == filled
    page.keyboard.press("Escape")
