"""The page's looks and keys: present and bench mode, three sizes, light and dark, and axe's accessibility checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page, expect

from tests.browser.parts import (
    QUESTION,
    RECORDING,
    SIX_LANES,
    begin,
    open_race,
    question_field,
    race,
    reels,
    stage,
    until,
)  # fmt: skip

pytestmark = pytest.mark.browser

PROJECTORS = [(1280, 720), (1920, 1080)]
SIZES = [*PROJECTORS, (390, 844)]
# The page shows the lanes of the recording before it opens the recording.
SAME_LANES = "?lanes=vanilla,trigram,lookahead,trie"
SERIOUS = {"serious", "critical"}
# Runs axe's rules, or those named, and returns the findings that count. It skips rules whose findings would not count.
AXE = """async ([part, names, impacts]) => {
  const counts = (rule) => rule.enabled && !rule.tags.includes("experimental") && impacts.includes(rule.impact);
  const values = names.length ? names : axe._audit.rules.filter(counts).map((rule) => rule.id);
  const options = { resultTypes: ["violations"], runOnly: { type: "rule", values } };
  const { violations } = await axe.run(part ?? document, options);
  return violations.filter((rule) => impacts.includes(rule.impact))
    .flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 160)}`));
}"""


def box(page: Page, selector: str) -> dict[str, float]:
    """Position and size of the element at `selector`."""
    bounds = page.locator(selector).bounding_box()
    assert bounds is not None, selector
    return dict(bounds)


def overflow(page: Page) -> list[str]:
    """The parts that stick out of the window on the left or right."""
    parts = "#stage-host .stage > *, #stage-host .arena > *, #stage-host .pane, #top-bar > *, #second-row > *"
    script = """(parts) => [...document.querySelectorAll(parts)].filter((node) => {
      const {left, right} = node.getBoundingClientRect();
      return node.checkVisibility() && (right > innerWidth + 1 || left < -1);
    }).map((node) => node.className || node.id)"""
    wide = "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth) > innerWidth"
    outside: list[str] = page.evaluate(script, parts)
    return outside + (["page"] if page.evaluate(wide) else [])


def test_present_mode_shows_only_the_race(open_recording: Any) -> None:
    page = open_recording(RECORDING)
    page.keyboard.press("p")
    for hidden in ("#brand", "#second-row", "#settings", "#settings-button", ".results", ".passages"):
        expect(page.locator(hidden)).to_be_hidden()
    expect(page.locator(".turns")).to_be_visible()
    strip = page.locator(".strip")
    for words in ("accepted run", "float32"):
        expect(strip).to_contain_text(words)
    expect(page.locator(".clock")).to_have_attribute("title", re.compile("as if it had the device to itself"))
    check_present_panes(page, 4)
    open_race(page, SIX_LANES)
    check_present_panes(page, 6)
    page.locator(".leave").click()
    expect(page.locator("#brand")).to_be_visible()


def check_present_panes(page: Page, count: int) -> None:
    """Check that the panes have one width, that six stand in two rows, and that nothing can be scrolled."""
    expect(page.locator(".pane")).to_have_count(count)
    for width, height in PROJECTORS:
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollHeight") <= height
        frames = pane_frames(page)
        assert len({round(frame["width"]) for frame in frames}) == 1
        tops = [round(frame["y"]) for frame in frames]
        if count == 6:
            assert tops[0] == tops[1] == tops[2] < tops[3] == tops[4] == tops[5]


def pane_frames(page: Page) -> list[dict[str, float]]:
    """Position and size of each pane."""
    frames: list[dict[str, float]] = page.locator(".pane").evaluate_all(
        "panes => panes.map((pane) => pane.getBoundingClientRect().toJSON())"
    )
    return frames


def test_the_result_has_a_winner_a_podium_and_a_badge_in_each_pane(open_recording: Any) -> None:
    page = open_recording(SIX_LANES)
    # Two lanes are level at 3.2×.
    expect(page.locator(".winner h3")).to_have_text(["N-gram trie", "Fusion"])
    expect(page.locator(".podium li > span")).to_have_text(["N-gram trie", "Fusion", "Trigram"])
    expect(page.locator(".podium i")).to_have_text(["=1", "=1", "3"])
    for pane in page.locator(".pane").all():
        frame, badge = pane.bounding_box(), pane.locator(".badge").bounding_box()
        assert frame and badge and badge["width"] > 40 and badge["x"] + badge["width"] <= frame["x"] + frame["width"]


def test_a_fresh_page_requests_no_animation_frames(app: Any, share_page: Any) -> None:
    page = share_page(app.url + SAME_LANES)
    # Gradio animates a fade for some seconds after a page has loaded. Code that draws every frame requests the next
    # frame before the current one ends, so a request would always be pending.
    until(page, lambda: page.evaluate("framesDue.size") == 0)


def test_a_page_is_dark_for_a_visitor_who_prefers_that(loading_app: str, open_page: Any) -> None:
    page = open_page(loading_app, ready=False, dark=True)
    assert page.evaluate("document.body.classList.contains('dark')")


def test_nothing_overflows_at_three_sizes_light_and_dark(app: Any, share_page: Any) -> None:
    page = share_page(app.url + SAME_LANES)
    check_fit(page)
    assert findings_by_view(page, lambda _: iter([("fresh", None)])) == {}
    panes_before = box(page, ".panes")
    open_race(page, RECORDING)
    # The panes are where they were before the race, when the page has adapted to its size.
    until(page, lambda: box(page, ".panes") == panes_before)
    check_fit(page)
    page.set_viewport_size({"width": 1920, "height": 1080})
    # In a wide window the first race gets columns beside it, which later races keep.
    until(page, lambda: stands_beside(box(page, ".passages"), box(page, ".panes"), 1080))
    panes, table = box(page, ".panes"), box(page, ".results")
    assert table["y"] >= panes["y"] + panes["height"]
    open_race(page, SIX_LANES)
    check_fit(page)
    check_dialogs_fit(page)


def stands_beside(left: dict[str, float], right: dict[str, float], height: int) -> bool:
    """Whether one box ends left of the other, and within a window of this height."""
    return left["x"] + left["width"] <= right["x"] and left["y"] + left["height"] <= height


def check_fit(page: Page) -> None:
    """Check that at all sizes nothing sticks out, and that all panes are visible, or in one column on a phone."""
    for dark in (False, True):
        assert page.evaluate("document.body.classList.contains('dark')") is dark
        for width, height in SIZES:
            page.set_viewport_size({"width": width, "height": height})
            assert overflow(page) == [], (width, dark)
            frames = pane_frames(page)
            if width > 900:
                assert all(frame["y"] + frame["height"] <= height for frame in frames)
            else:
                assert len({round(frame["x"]) for frame in frames}) == 1
        page.keyboard.press("d")
    page.set_viewport_size({"width": 1280, "height": 720})


def check_dialogs_fit(page: Page) -> None:
    """Check that every dialog that a key opens is inside the window, at all sizes."""
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        for key in ("g", "?", "m", "v"):
            page.keyboard.press(key)
            dialog = page.locator("dialog[open]")
            frame = dialog.bounding_box()
            assert frame and frame["x"] >= 0 and frame["x"] + frame["width"] <= width and frame["y"] >= 0
            assert frame["y"] + frame["height"] <= height
            page.keyboard.press("Escape")
            expect(dialog).to_have_count(0)


def test_keys_control_the_page_but_not_while_typing(open_recording: Any) -> None:
    page = open_recording(RECORDING)
    field = question_field(page)
    field.fill("")
    page.keyboard.type("pd?4 ")
    assert field.input_value() == "pd?4 "
    assert page.evaluate("[document.body.dataset.view === 'stage', document.querySelector('dialog[open]')]") == [
        False, None,
    ]  # fmt: skip
    expect(page.locator(".pane:visible")).to_have_count(4)
    page.locator("h1").click()
    dark = page.evaluate("document.body.classList.contains('dark')")
    page.keyboard.press("d")
    assert page.evaluate("document.body.classList.contains('dark')") is not dark
    page.keyboard.press("d")
    page.keyboard.press("2")
    expect(page.locator(".pane:visible h3")).to_have_text("Trigram")
    page.keyboard.press("3")
    expect(page.locator(".pane:visible h3")).to_have_text("Lookahead")
    page.keyboard.press("3")
    expect(page.locator(".pane:visible")).to_have_count(4)
    page.keyboard.press("p")
    assert page.evaluate("document.body.dataset.view") == "stage"
    page.keyboard.press("p")
    page.keyboard.press("f")
    page.wait_for_function("document.fullscreenElement !== null")
    page.keyboard.press("f")
    page.wait_for_function("document.fullscreenElement === null")
    page.keyboard.press("?")
    expect(page.locator("dialog.help")).to_be_visible()
    for name in ("r", "Esc", "space", "←", "→", "1 – 6", "p", "f", "t", "d", "?"):
        expect(page.locator("dialog.help dt").get_by_text(name, exact=True)).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator("dialog.help")).to_be_hidden()
    page.locator(".inspector").scroll_into_view_if_needed()
    expect(page.locator(".inspector")).to_be_in_viewport()
    page.keyboard.press("t")
    expect(page.locator("#inspector-toggle")).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("t")
    expect(page.locator(".inspector .tree svg")).to_be_visible()


def test_a_typed_question_dims_the_last_result(open_recording: Any) -> None:
    page = open_recording(RECORDING)
    line, field, pane = page.locator(".announcer"), question_field(page), page.locator(".pane").first
    headline, question = line.inner_text(), field.input_value()
    field.fill("How do owls hunt?")
    expect(line).to_have_text("Press “Race” to ask this question.")
    for dimmed in (pane, *map(page.locator, (".player", ".podium", ".legend", ".machine"))):
        assert "grayscale" in dimmed.evaluate("node => getComputedStyle(node).filter")
    expect(page.locator(".mode")).to_have_text("Earlier race")
    field.fill(question)
    expect(line).to_have_text(headline)
    assert pane.evaluate("node => getComputedStyle(node).filter") == "none"


def test_the_space_bar_plays_the_replay_after_a_button_started_the_race(open_recording: Any) -> None:
    page = open_recording(RECORDING)
    race(page, QUESTION, begin)
    number, race_before = reels(page), stage(page)["race"]
    page.keyboard.press(" ")
    assert stage(page)["mode"] == "replay"
    page.keyboard.press("Escape")
    assert stage(page)["mode"] == "result"
    assert (reels(page), stage(page)["race"]) == (number, race_before)


def test_axe_finds_nothing_serious_light_and_dark(app: Any, share_page: Any, races: Any) -> None:
    page = share_page(app.url + SAME_LANES)
    open_race(page, races["brief"])
    assert findings_by_view(page, walk) == {}


def walk(page: Page) -> Iterator[tuple[str, str | None]]:
    """Open each view of a page that shows a result; yield its name and its part of the page, then leave it."""
    yield "result", None
    page.keyboard.press("p")
    yield "present", ".arena"
    page.keyboard.press("p")
    for key in ("g", "?", "m", "v"):
        page.keyboard.press(key)
        yield key, "dialog[open]"
        page.keyboard.press("Escape")
    page.locator("#settings-button").click()
    yield "settings", "#settings"
    page.set_viewport_size({"width": 390, "height": 844})
    yield "phone", None
    page.set_viewport_size({"width": 1280, "height": 720})
    page.locator("#settings-button").click()


def findings_by_view(page: Page, views: Callable[[Page], Iterator[tuple[str, str | None]]]) -> dict[str, list[str]]:
    """Axe's serious findings in views of the page, light and dark, where there are any."""
    serious = {}
    for dark in (False, True):
        assert page.evaluate("document.body.classList.contains('dark')") is dark
        # The dark theme differs only in its colours, so only their contrast is checked there.
        only = ["color-contrast"] if dark else []
        serious |= {f"{view}, dark: {dark}": findings(page, part, only) for view, part in views(page)}
        page.keyboard.press("d")
    return {view: sentences for view, sentences in serious.items() if sentences}


def findings(page: Page, selector: str | None = None, only: Sequence[str] = ()) -> list[str]:
    """Axe's serious findings on the page or in the part at `selector`, one per element; `only` limits the rules."""
    # A button that has just become active fades in, and has low contrast until then. A transition's own promise
    # `finished` may never settle once its element has left the page.
    page.wait_for_function(
        "document.getAnimations().every((animation) => "
        "!(animation instanceof CSSTransition) || animation.playState !== 'running')",
        polling=50,
    )
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    serious: list[str] = page.evaluate(AXE, [selector, [*only], [*SERIOUS]])
    return serious
