"""What the page looks like and how it is steered: present and bench, keys, three sizes, light and dark, axe, frames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.parts import QUESTION, SHORT, ask, mode, race

pytestmark = pytest.mark.browser

SIX_LANES = Path(__file__).resolve().parents[2] / "assets" / "recordings" / "six-lanes.jsonl"
SIZES = [(1280, 720), (1920, 1080), (390, 844)]
SERIOUS = {"serious", "critical"}


def box(page: Page, selector: str) -> dict[str, float]:
    found = page.locator(selector).bounding_box()
    assert found is not None, selector
    return dict(found)


def font_size(page: Page, selector: str) -> float:
    return float(page.locator(selector).first.evaluate("node => parseFloat(getComputedStyle(node).fontSize)"))


def overflow(page: Page) -> list[str]:
    """What sticks out of the window at a side."""
    parts = "#stage-host .stage > *, #stage-host .arena > *, #stage-host .pane, #top-bar > *, #second-row > *"
    script = """(parts) => [...document.querySelectorAll(parts)].filter((node) => {
      const {left, right} = node.getBoundingClientRect();
      return node.checkVisibility() && (right > innerWidth + 1 || left < -1);
    }).map((node) => node.className || node.id)"""
    found: list[str] = page.evaluate(script, parts)
    return found + (["page"] if page.evaluate("document.documentElement.scrollWidth > innerWidth") else [])


@pytest.mark.parametrize(("width", "height", "text", "six"), [(1280, 720, 22, 18), (1920, 1080, 30, 26)])
def test_present_mode_reads_from_the_last_row(
    app: Any, open_page: Any, width: int, height: int, text: int, six: int
) -> None:
    page = open_page(app.url + SHORT, width, height, calm=True)
    race(page)
    page.locator("h1").click()
    page.keyboard.press("p")
    assert box(page, "#top-bar")["height"] == 48 and box(page, ".strip")["height"] == 28
    assert font_size(page, ".pane .text p:last-child") == text
    for hidden in ("#brand", "#second-row", "#settings", "#settings-button", ".results", ".passages"):
        expect(page.locator(hidden)).to_be_hidden()
    assert overflow(page) == [] and page.evaluate("document.documentElement.scrollHeight") <= height
    strip = page.locator(".strip")
    for words in ("accepted run", "race time", "float32", "as if it had the device to itself"):
        expect(strip).to_contain_text(words)
    assert len({round(box(page, f".pane >> nth={number}")["width"]) for number in range(4)}) == 1
    page.locator("input.file").set_input_files(str(SIX_LANES))
    expect(page.locator(".pane")).to_have_count(6)
    assert font_size(page, ".pane .text p:last-child") == six
    tops = [round(box(page, f".pane >> nth={number}")["y"]) for number in range(6)]
    assert tops[0] == tops[1] == tops[2] < tops[3] == tops[4] == tops[5]
    assert overflow(page) == [] and page.evaluate("document.documentElement.scrollHeight") <= height
    page.locator(".leave").click()
    expect(page.locator("#brand")).to_be_visible()


def test_the_bench_has_passages_left_and_the_race_beside_them(app: Any, open_page: Any) -> None:
    page = open_page(app.url + SHORT, 1920, 1080, calm=True)
    before = box(page, ".panes")
    race(page)
    left, panes, table = box(page, ".passages"), box(page, ".panes"), box(page, ".results")
    assert panes == before
    assert left["x"] + left["width"] <= panes["x"] and left["y"] + left["height"] <= 1080
    assert table["y"] >= panes["y"] + panes["height"]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_nothing_overflows_at_three_sizes(app: Any, open_page: Any, width: int, height: int) -> None:
    page = open_page(app.url, width, height, calm=True)
    for dark in (False, True):
        assert page.evaluate("document.body.classList.contains('dark')") is dark
        assert overflow(page) == []
        page.keyboard.press("d")
    page.keyboard.press("d")
    page.locator("input.file").set_input_files(str(SIX_LANES))
    mode(page, "result")
    for dark in (True, False):
        assert page.evaluate("document.body.classList.contains('dark')") is dark
        fits(page, width, height)
        page.keyboard.press("d")


def fits(page: Page, width: int, height: int) -> None:
    """A page that shows the result of six lanes, and its dialogs."""
    assert overflow(page) == []
    if width > 900:
        bottoms = [box(page, f".pane >> nth={number}") for number in range(6)]
        assert all(each["y"] + each["height"] <= height for each in bottoms)
    else:
        assert len({round(box(page, f".pane >> nth={number}")["x"]) for number in range(6)}) == 1
    for key in ("g", "?"):
        page.keyboard.press(key)
        dialog = page.locator("dialog[open]")
        frame = dialog.bounding_box()
        assert frame and frame["x"] >= 0 and frame["x"] + frame["width"] <= width and frame["y"] >= 0
        assert frame["y"] + frame["height"] <= height
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)


def test_a_replay_moves_nothing_but_what_is_in_the_panes(app: Any, open_page: Any) -> None:
    page = open_page(app.url)
    page.evaluate(
        """() => { window.shift = 0; new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) for (const source of entry.sources)
          if (source.node?.closest?.('.pane, .console, .strip') === source.node) window.shift += entry.value;
        }).observe({type: 'layout-shift', buffered: true}); }"""
    )
    where = [box(page, place) for place in (".console", ".top", ".panes", ".strip")]
    ask(page)
    for name in ("live", "result", "replay", "result"):
        mode(page, name)
        assert [box(page, place) for place in (".console", ".top", ".panes", ".strip")] == where
    assert page.evaluate("window.shift") == 0


def test_keys_steer_the_page_but_not_while_typing(app: Any, open_page: Any) -> None:
    page = open_page(app.url + SHORT, calm=True)
    field = page.locator("#question").locator("textarea, input")
    field.fill("")
    page.keyboard.type("pd?4 ")
    assert field.input_value() == "pd?4 "
    assert page.evaluate("[document.body.dataset.view, document.querySelector('dialog[open]')]") == [None, None]
    field.fill(QUESTION)
    page.locator("h1").click()
    page.keyboard.press("r")
    mode(page, "live")
    mode(page, "result")
    number = page.locator(".stage").get_attribute("data-race")
    dark = page.evaluate("document.body.classList.contains('dark')")
    page.keyboard.press("d")
    assert page.evaluate("document.body.classList.contains('dark')") is not dark
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
    # The space bar is the replay's, though the race was last started by a button.
    page.locator("#race").click()
    page.wait_for_function("race => document.querySelector('.stage').dataset.race > race", arg=number)
    mode(page, "result")
    page.wait_for_selector(".scrubber:enabled")
    number = page.locator(".stage").get_attribute("data-race")
    page.keyboard.press(" ")
    mode(page, "replay")
    page.keyboard.press("Escape")
    mode(page, "result")
    assert page.locator(".stage").get_attribute("data-race") == number


def test_the_sampling_rule_is_chosen_by_hand(app: Any, open_page: Any) -> None:
    page = open_page(app.url + SHORT, calm=True)
    page.locator("#settings-button").click()
    page.get_by_label("Bigram").check()
    page.get_by_label("Rejection: its distribution only").check()
    page.get_by_role("spinbutton", name="Temperature").fill("0.8")
    page.get_by_role("spinbutton", name="Temperature").press("Tab")
    race(page)
    assert page.locator(".pane[data-lane=bigram]").get_attribute("data-badge") == "law"
    assert page.locator(".pane[data-lane=trie]").get_attribute("data-badge") == "identical"
    expect(page.locator(".pane[data-lane=bigram] .badge")).to_contain_text("same distribution")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_serious(app: Any, open_page: Any, dark: bool) -> None:
    page = open_page(app.url, calm=True, dark=dark)
    found: dict[str, list[str]] = {"fresh": findings(page)}
    page.locator("input.file").set_input_files(str(SIX_LANES))
    mode(page, "result")
    found["result"] = findings(page)
    page.keyboard.press("p")
    found["present"] = findings(page)
    page.keyboard.press("p")
    for key in ("g", "?"):
        page.keyboard.press(key)
        found[key] = findings(page)
        page.keyboard.press("Escape")
    page.locator("#settings-button").click()
    found["settings"] = findings(page)
    page.set_viewport_size({"width": 390, "height": 844})
    found["phone"] = findings(page)
    assert {name: each for name, each in found.items() if each} == {}


def findings(page: Page) -> list[str]:
    """Serious findings of axe, one an element."""
    answer = Axe().run(page).response
    return [
        f"{rule['id']}: {node['html'][:160]}"
        for rule in answer["violations"]
        if rule["impact"] in SERIOUS
        for node in rule["nodes"]
    ]


def test_six_lanes_get_fifteen_frames_a_second_and_none_is_lost(app: Any, open_page: Any) -> None:
    page = open_page(app.url, calm=True)
    page.locator("#settings-button").click()
    for label in ("Bigram", "Prompt lookup"):
        page.get_by_label(label, exact=True).check()
    page.evaluate(
        """() => { window.times = []; window.pictures = 0; new MutationObserver(() => {
          const stage = document.querySelector('.stage');
          if (stage.dataset.mode === 'live') window.times.push(performance.now());
        }).observe(document.querySelector('.stage'), {attributeFilter: ['data-seq']});
        new MutationObserver(() => window.pictures += document.querySelector('.stage').dataset.mode === 'live')
          .observe(document.querySelector('.clock b'), {childList: true}); }"""
    )
    rates: list[float] = []
    # A machine that has much else to do may be late twice.
    while len(rates) < 3 and max(rates, default=0.0) < 15:
        page.evaluate("window.times = []; window.pictures = 0")
        race(page)
        times = page.evaluate("window.times")
        assert len(times) > 10
        rates.append((len(times) - 1) / (times[-1] - times[0]) * 1000)
        assert page.locator(".stage").get_attribute("data-lost") == "0"
        # They are drawn together where they come fast: pictures cost more than frames.
        assert 5 < page.evaluate("window.pictures") < 12 * (times[-1] - times[0]) / 1000 + 3
    assert max(rates) >= 15


def test_an_idle_page_asks_for_no_pictures(app: Any, open_page: Any) -> None:
    page = open_page(app.url, calm=True)
    frames = -1
    # Gradio has something to fade for some seconds after a page has loaded.
    for _ in range(8):
        page.context.browser.start_tracing(page=page, categories=["devtools.timeline"])
        page.wait_for_timeout(1000)
        events = json.loads(page.context.browser.stop_tracing())["traceEvents"]
        frames = sum(event["name"] == "FireAnimationFrame" for event in events)
        if not frames:
            break
    assert frames == 0
