"""Present mode seen from the last row of a room, and the page on a phone: sizes of text and touch targets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from specrace.core.events import LaneSpread, Pace, Repeated, ending
from specrace.engine.recording import save
from specrace.views.recording_check import read_recording
from tests.browser.apps import App
from tests.browser.parts import (
    FEW_FRAMES,
    RECORDING,
    RECORDINGS,
    SIX_LANES,
    WITNESS,
    ask,
    begin,
    open_race,
    run_clock_until,
    skip,
)
from tests.browser.test_stage_views import findings, overflow

pytestmark = pytest.mark.browser

PROJECTORS = [(1280, 720), (1920, 1080)]
WINDOWS = [(1024, 768), *PROJECTORS]
PHONE = {"width": 390, "height": 844}
# The smallest font size that can be read from the last row.
LAST_ROW_PX = 24
RECORDED = {"four lanes": RECORDING, "five lanes": RECORDINGS / "smollm2-copying.jsonl", "six lanes": SIX_LANES}
# [font size in px, text] of each visible text. Text for screen readers only is in a box one pixel wide.
TEXTS = """() => {
  const texts = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode, range = document.createRange();
    const visible = text.parentElement.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    if (!visible || !text.data.trim() || text.parentElement.clientWidth === 1) continue;
    range.selectNodeContents(text);
    if (range.getBoundingClientRect().width)
      texts.push([parseFloat(getComputedStyle(text.parentElement).fontSize), text.data.trim()]);
  }
  return [...texts, ...[...document.querySelectorAll("input:not([type=range], [type=file]), textarea")]
    .filter((field) => field.checkVisibility())
    .map((field) => [parseFloat(getComputedStyle(field).fontSize), field.value || field.placeholder])];
}"""
# The parts whose text is cut off. Letters of this typeface may stick out of their line by an eighth of the font size.
CUT = """() => [".announcer", ".tally", ".guess", ".pane header", ".podium li", ".side", ".track .name", ".legend"]
  .flatMap((name) => [...document.querySelectorAll(name)])
  .filter((node) => node.checkVisibility() && (node.scrollWidth > node.clientWidth + 1 ||
    node.scrollHeight > node.clientHeight + parseFloat(getComputedStyle(node).fontSize) / 8))
  .map((node) => `${node.className || node.tagName}: ${node.textContent}`)"""
# The number of visible meters whose unit or words below the figure are out of sight.
METERS_WITHOUT_UNITS = """() => [...document.querySelectorAll(".pane .meter")]
  .filter((meter) => meter.checkVisibility({ visibilityProperty: true }) && meter.getBoundingClientRect().width)
  .filter((meter) => {
    const words = meter.querySelector("small");
    return !words?.checkVisibility({ visibilityProperty: true }) || !words.getBoundingClientRect().width;
  }).length"""
# Whether a pane of each lane has room for three lines or more.
LINES = """() => [...document.querySelectorAll(".pane .text")]
  .every((text) => text.clientHeight >= 3 * parseFloat(text.style.getPropertyValue("--line")))"""
# Whether each lane's description is inside its pane.
WHOLE_HINTS = """() => {
  const hints = [...document.querySelectorAll(".pane .hint")];
  return hints.length > 3 && hints.every((hint) => {
    const [inner, outer] = [hint, hint.parentElement].map((node) => node.getBoundingClientRect());
    return inner.height && inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1;
  });
}"""
# The number of citation marks at the beginning of a line, in panes of many widths.
MARKS_AT_STARTS = """() => {
  const host = document.querySelector(".panes");
  const tops = (body) => {
    const walker = document.createTreeWalker(body, NodeFilter.SHOW_TEXT), range = document.createRange(), tops = [];
    while (walker.nextNode())
      for (let place = 0; place < walker.currentNode.length; place++) {
        const letter = walker.currentNode.data[place];
        range.setStart(walker.currentNode, place);
        range.setEnd(walker.currentNode, place + 1);
        if (letter.trim()) tops.push([letter, Math.round(range.getBoundingClientRect().bottom)]);
      }
    return tops;
  };
  let count = 0;
  for (let width = 900; width <= 1230; width += 15) {
    host.style.width = `${width}px`;
    for (const body of host.querySelectorAll(".pane .text > p:not(.hint)"))
      count += tops(body).filter(([letter, top], at, all) => letter === "[" && top > all[at - 1]?.[1] + 9).length;
  }
  host.style.width = "";
  return count;
}"""
# The draft tokens that the edge of their strip cuts off. Those that do not fit are in a second line, out of sight.
CUT_DRAFTS = """() => [...document.querySelectorAll(".draft > span")].filter((node) => {
  const [token, strip] = [node, node.parentElement].map((part) => part.getBoundingClientRect());
  return token.width && token.top < strip.bottom && (token.right > strip.right + 1 || token.bottom > strip.bottom + 1);
}).map((node) => node.textContent)"""
# The texts below the digit of the countdown. A digit of this typeface is two thirds of its line high, and half as wide.
COVERED = """() => {
  const node = document.querySelector(".countdown"), size = parseFloat(getComputedStyle(node).fontSize);
  const range = document.createRange();
  range.selectNodeContents(node);
  const { x, y, width, height } = range.getBoundingClientRect();
  const middle = y + height / 2, half = 0.35 * size;
  const digit = { left: x, right: x + width, top: middle - half, bottom: middle + half };
  const walker = document.createTreeWalker(document.querySelector(".arena"), NodeFilter.SHOW_TEXT), covered = [];
  while (walker.nextNode()) {
    const text = walker.currentNode;
    if (node.contains(text) || !text.data.trim() || !text.parentElement.checkVisibility({ visibilityProperty: true }))
      continue;
    range.selectNodeContents(text);
    for (const { left, right, top, bottom } of range.getClientRects())
      if (left < digit.right && right > digit.left && top < digit.bottom && bottom > digit.top) covered.push(text.data);
  }
  return covered;
}"""
# Touch targets smaller than 44 px. A lane's target is its whole row, and a checkbox's includes its label.
TARGETS = """() => [...document.querySelectorAll("button, input, select, textarea, a, summary, [role=button]")]
  .map((node) => node.closest("label:has(> [type=checkbox], > [type=radio])") ?? node)
  .filter((node) => node.checkVisibility({ opacityProperty: true, visibilityProperty: true }))
  .map((node) => [(node.closest(".pane header") ?? node).getBoundingClientRect(), node.outerHTML.slice(0, 120)])
  .filter(([{ width, height }]) => width && (width < 44 || height < 44))
  .map(([{ width, height }, html]) => `${width} x ${height}: ${html}`)"""


def check_on_phone(page: Page, dialog: str, serious: dict[str, list[str]]) -> None:
    """Check that an open dialog fits a phone, and that axe found nothing there or before (`serious`, by view)."""
    page.set_viewport_size(PHONE)
    serious |= {"phone": findings(page, "dialog[open]")}
    assert {view: sentences for view, sentences in serious.items() if sentences} == {}
    assert page.evaluate(f"document.querySelector('.{dialog}-body').scrollWidth") <= PHONE["width"]
    targets = TARGETS.replace("document.querySelectorAll", f"document.querySelector('.{dialog}').querySelectorAll")
    assert page.evaluate(targets) == [] and overflow(page) == []


def small_texts(page: Page) -> list[Any]:
    """The visible texts that are too small to read from the last row."""
    visible_texts: list[Any] = page.evaluate(TEXTS)
    assert visible_texts
    return [(size, text) for size, text in visible_texts if size < LAST_ROW_PX]


def check_present(page: Page, width: int, height: int) -> None:
    """Check that at this size all text is large enough and not cut off, and all parts are visible without overlap."""
    page.set_viewport_size({"width": width, "height": height})
    assert small_texts(page) == []
    assert page.evaluate(CUT) == []
    assert page.evaluate(CUT_DRAFTS) == []
    assert overflow(page) == []
    boxes = {}
    # Without a guess, a podium or an audience, the place beside the bars is theirs.
    aside = [".aside"] if page.locator(".aside > :visible").count() else []
    for name in ("#top-bar", ".console", ".track", *aside, ".panes", ".strip"):
        box = page.locator(name).bounding_box()
        assert box, name
        assert box["x"] >= 0 and box["x"] + box["width"] <= width
        assert box["y"] >= 0 and box["y"] + box["height"] <= height, name
        boxes[name] = box
    for first, second in combinations(boxes, 2):
        assert apart(boxes[first], boxes[second]), (first, second)
    # The podium is in the console's row, beside its sentence.
    headline, podium = (page.locator(name).bounding_box() for name in (".announcer", ".podium"))
    assert headline and (podium is None or (apart(headline, podium) and apart(podium, boxes[".track"])))
    bar = page.locator(".track .bar").first.bounding_box()
    assert bar and bar["width"] > width / 2
    assert page.evaluate(METERS_WITHOUT_UNITS) == 0


def apart(first: Any, second: Any) -> bool:
    """Whether two boxes overlap by at most 1 px in one direction."""
    return any(
        before[start] + before[size] <= after[start] + 1
        for before, after in ((first, second), (second, first))
        for start, size in (("x", "width"), ("y", "height"))
    )


def test_six_panes_show_whole_heads_and_three_lines_and_level_lanes_times_end_below_each_other(
    open_recording: Any,
) -> None:
    page = open_recording(SIX_LANES)
    for view in ("page", "present"):
        for width, height in WINDOWS:
            page.set_viewport_size({"width": width, "height": height})
            if view == "page":
                page.wait_for_function(LINES)
                assert cut_parts(page, ".pane :is(.solo, .badge)") == 0, width
            ends = page.locator(".track .tokens").evaluate_all("all => all.map((n) => n.getBoundingClientRect().right)")
            track = page.locator(".track").bounding_box()
            assert track and max(ends) <= track["x"] + track["width"] + 0.5, (view, width)
            assert max(ends) - min(ends) < 0.5, (view, width)
            # "=4th" and a time are not on each other.
            assert cut_parts(page, ".track :is(.place, .side)") == 0, (view, width)
        page.keyboard.press("p")


def cut_parts(page: Page, selector: str) -> int:
    """The number of parts that are wider than their place."""
    count: int = page.locator(selector).evaluate_all(
        "all => all.filter((part) => part.scrollWidth > part.clientWidth).length"
    )
    return count


def test_no_line_of_a_pane_begins_with_a_citation_mark(open_recording: Any) -> None:
    page = open_recording(SIX_LANES)
    assert page.evaluate(MARKS_AT_STARTS) == 0
    # Without the blanks that do not break, some lines would.
    style = page.add_style_tag(content="#stage-host .kept { white-space: inherit !important }")
    assert page.evaluate(MARKS_AT_STARTS) > 0
    style.evaluate("node => node.remove()")


def test_a_race_is_readable_from_an_empty_stage_to_its_result(app: App, open_page: Any) -> None:
    page = open_page(app.short_url, reduced_motion=False, stopped=True)
    check_hints(page)
    page.keyboard.press("p")
    check_present(page, 1280, 720)
    begin(page)
    check_empty_inspector(page)
    # The countdown begins with the first steps, whenever they come, and hides the meters; the clock then stands still.
    run_clock_until(page, "() => document.querySelector('.stage').dataset.counting === 'true'")
    expect(page.locator(".guess")).to_be_visible()
    check_present(page, 1280, 720)
    check_countdown(page)
    page.keyboard.press("4")
    page.wait_for_selector(".stage[data-phase=finished]", state="attached")
    page.keyboard.press("Escape")
    page.wait_for_selector(".stage[data-mode=result]")
    check_present(page, 1280, 720)


def check_hints(page: Page) -> None:
    """Check that every lane's description is whole before a race."""
    for width, height in WINDOWS:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(WHOLE_HINTS)
    page.set_viewport_size({"width": 1280, "height": 720})


def check_empty_inspector(page: Page) -> None:
    """Check that before its first step the inspector is as high as its neighbours, in a page in present mode."""
    page.keyboard.press("p")
    page.set_viewport_size({"width": 1920, "height": 1080})
    expect(page.locator(".inspector[data-empty=true] .part h3")).to_have_count(4)
    expect(page.locator(".inspector .part h3").first).to_be_visible()
    inspector, passages = (page.locator(name).bounding_box() for name in (".inspector", ".passages"))
    assert inspector and passages and inspector["height"] == pytest.approx(passages["height"], abs=1)
    page.set_viewport_size({"width": 1280, "height": 720})
    page.keyboard.press("p")


def check_countdown(page: Page) -> None:
    """Check that the countdown covers no words, in a page in present mode."""
    expect(page.locator(".countdown")).to_be_visible()
    for view in ("present", "page"):
        for width, height in (*WINDOWS, (PHONE["width"], PHONE["height"])):
            page.set_viewport_size({"width": width, "height": height})
            # The lanes' descriptions stay until the race begins.
            expect(page.locator(".pane .hint:visible").last).to_be_visible()
            assert page.evaluate(COVERED) == [], (view, width)
        page.keyboard.press("p")
    page.set_viewport_size({"width": 1280, "height": 720})


@pytest.mark.parametrize("recorded", [*RECORDED, "one lane"])
def test_present_mode_is_readable_from_the_last_row(open_recording: Any, races: Any, recorded: str) -> None:
    page = open_recording(RECORDED.get(recorded) or races["alone"])
    page.keyboard.press("p")
    if recorded == "six lanes":
        # Half of a narrow window is bars.
        check_present(page, 1024, 768)
    for width, height in PROJECTORS:
        check_present(page, width, height)
    page.evaluate("""const bar = document.querySelector(".scrubber"); bar.value = bar.max / 2;
                     bar.dispatchEvent(new Event("input"))""")
    skip(page, 500)
    page.wait_for_selector(".stage[data-mode=replay]")
    for width, height in PROJECTORS:
        check_present(page, width, height)
        if recorded == "four lanes":
            # With four lanes, the bars have room to be thick.
            bar = page.locator(".track .bar").first.bounding_box()
            assert bar and bar["height"] >= 26
    if recorded == "six lanes":
        page.keyboard.press("Escape")
        check_longest_headline(page)
    page.keyboard.press("Escape")
    page.keyboard.press("p")


def check_longest_headline(page: Page) -> None:
    """Check that the longest headline is not cut off in present mode."""
    page.set_viewport_size({"width": 1280, "height": 720})
    headline = (
        "Token recycling is fastest: 2.4× vanilla (2.2 to 2.6 over 12 runs), with 3.4 tokens per step. "
        "Every other lane printed the same text. The text repeats itself, which flatters copying."
    )
    page.evaluate("words => document.querySelector('.announcer').textContent = words", headline)
    # The headline takes three lines at most.
    box = page.locator(".announcer").bounding_box()
    assert box and box["height"] <= 94
    check_present(page, 1280, 720)


def test_the_headline_of_a_race_with_ranges_is_whole(open_recording: Any, tmp_path: Path) -> None:
    page = open_recording(save_repeated(RECORDINGS / "smollm2-copying.jsonl", tmp_path / "race.jsonl"))
    headline = page.locator(".announcer")
    expect(headline).to_contain_text("over 5 runs")
    for width, height in WINDOWS:
        page.set_viewport_size({"width": width, "height": height})
        # A line is 16 px high; letters stick out of it a little.
        assert headline.evaluate("node => node.scrollHeight - node.clientHeight") < 8, width


def test_a_requested_race_greys_the_last_one_and_moves_nothing_on_a_phone(loading_app: str, open_page: Any) -> None:
    page = open_page(loading_app, **PHONE, ready=False)
    open_race(page, RECORDING)
    row, pane = page.locator("#second-row"), page.locator(".pane").first
    before = row.bounding_box()
    assert pane.evaluate("node => getComputedStyle(node).filter") == "none"
    ask(page)
    page.wait_for_selector(".stage[data-phase=waiting]")
    expect(page.locator("#stop")).to_be_enabled()
    assert row.bounding_box() == before
    assert "grayscale" in pane.evaluate("node => getComputedStyle(node).filter")


def test_the_badges_of_five_lanes_are_not_cut_off(open_recording: Any, tmp_path: Path) -> None:
    """The lanes' speedups have ranges, which take much of a pane's head."""
    path = save_repeated(RECORDINGS / "smollm2-paraphrase.jsonl", tmp_path / "repeated.jsonl")
    page = open_recording(path)
    expect(page.locator(".stage")).to_have_attribute("data-mode", "result")
    for width in (1280, 1024):
        page.set_viewport_size({"width": width, "height": 720})
        widths = page.locator(".pane .badge").evaluate_all(
            "all => all.map((badge) => [badge.scrollWidth, badge.clientWidth])"
        )
        assert len(widths) == 5 and all(needed <= available for needed, available in widths), widths
        assert page.locator(".pane .range:visible").count() == 4


def save_repeated(source: Path, path: Path) -> Path:
    """Save a recorded race as one that was run five times; return the path."""
    events = [event for event in read_recording(source) if not isinstance(event, Repeated)]
    finished, _ = ending(events)
    spreads = []
    for number, lane in enumerate(finished.lanes):
        # Vanilla's speedup over itself is 1 in every run.
        low, high = (0.9 * lane.speedup, 1.1 * lane.speedup) if number else (1.0, 1.0)
        spreads.append(LaneSpread(lane.lane, lane.speedup, low, high, lane.tokens_per_s))
    save([*events, Repeated(5, tuple(spreads), False, "Speedups are medians of 5 runs.")], path)
    return path


@pytest.mark.parametrize("repeated", [False, True])
def test_a_race_whose_figures_do_not_count_has_no_winner(open_recording: Any, tmp_path: Path, repeated: bool) -> None:
    page = open_recording(save_disturbed(SIX_LANES, tmp_path / "disturbed.jsonl", repeated=repeated), 1024, 768)
    expect(page.locator(".mode")).to_have_attribute("data-state", "disturbed")
    assert set(page.locator(".track .place").all_inner_texts()) == {""}
    expect(page.locator(".winner, .podium:visible, .results .best")).to_have_count(0)
    colours = page.locator(".speedup, .counts").evaluate_all("all => all.map((node) => getComputedStyle(node).color)")
    assert len(set(colours)) == 1, colours
    page.keyboard.press("p")
    # The headline has the two lines of any other, so that bars and lanes keep their place.
    headline = page.locator(".announcer").bounding_box()
    assert headline and headline["height"] <= 64
    page.keyboard.press("p")


def save_disturbed(source: Path, path: Path, *, repeated: bool) -> Path:
    """Save a recorded race as one of a machine that was busy, in all of its runs if `repeated`; return the path."""
    events = [event for event in read_recording(source) if not isinstance(event, Repeated)]
    finished, _ = ending(events)
    pace = Pace(9, 1.0, 1.0, 3.0, 0.0, 0.0, 2, True, "Its speed changed by a factor of 3.0.")
    spreads = [LaneSpread(lane.lane, lane.speedup, lane.speedup, lane.speedup, 9.0) for lane in finished.lanes]
    note = "The machine was busy in 10 of 12 runs: these figures do not count."
    runs = [Repeated(12, tuple(spreads), True, note)] if repeated else []
    save([*events[: events.index(finished)], replace(finished, pace=pace), *runs], path)
    return path


@pytest.fixture(scope="module")
def phone(app: App, browser: Browser) -> Iterator[Page]:
    """A page on a phone with a race of six lanes, which tests leave as it was."""
    context = browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True, reduced_motion="reduce")  # type: ignore[arg-type]
    page = context.new_page()
    page.add_init_script(WITNESS)
    page.add_init_script(FEW_FRAMES)
    page.goto(app.url)
    page.wait_for_selector(".status[data-state=ready]", state="attached")
    open_race(page, SIX_LANES)
    yield page
    context.close()


def test_a_phone_shows_who_won_and_every_lane_on_its_first_screen(phone: Page) -> None:
    for name in (
        "#brand p",
        ".announcer",
        *(f".pane header >> nth={lane}" for lane in range(6)),
        ".track .bar >> nth=5",
    ):
        box = phone.locator(name).bounding_box()
        assert box and box["y"] >= 0 and box["y"] + box["height"] <= PHONE["height"], name
    expect(phone.locator(".pane.winner.featured .speedup")).to_contain_text("×")
    # From top to bottom: a lane's name, its bar, the name of the next lane.
    names = [phone.locator(f".pane h3 >> nth={lane}").bounding_box() for lane in range(6)]
    bars = [phone.locator(f".track .bar >> nth={lane}").bounding_box() for lane in range(6)]
    rows = [box["y"] for pair in zip(names, bars, strict=True) for box in pair if box]
    assert len(rows) == 12 and rows == sorted(rows)
    assert overflow(phone) == []


def test_a_phone_shows_the_winner_s_text_and_a_tap_on_a_lane_s_row_shows_its_text(phone: Page) -> None:
    texts = phone.locator(".pane .text:visible")
    expect(texts).to_have_count(1)
    expect(phone.locator(".pane.winner.featured .text")).to_be_visible()
    for lane in (4, 1):
        bar = phone.locator(".track .bar").nth(lane).bounding_box()
        assert bar
        phone.touchscreen.tap(bar["x"] + 40, bar["y"] + 5)
        expect(texts).to_have_count(1)
        expect(phone.locator(".pane .text").nth(lane)).to_be_visible()
    phone.locator(".solo").nth(1).tap()
    expect(texts).to_have_count(1)
    expect(phone.locator(".pane.winner.featured .text")).to_be_visible()


def test_a_phone_shows_a_lane_s_text_below_its_name_and_all_of_the_player(phone: Page) -> None:
    head, text = (phone.locator(f".pane.winner.featured {part}").bounding_box() for part in ("header", ".text"))
    assert head and text and text["y"] == pytest.approx(head["y"] + head["height"], abs=0.5)
    mark = phone.locator(".pane.winner.featured .solo").evaluate("node => getComputedStyle(node, '::before').content")
    assert mark == '"▾"'
    assert phone.locator(".player").evaluate("row => row.scrollWidth <= row.clientWidth")
    for name in ("play", "result", "share"):
        expect(phone.locator(f".player [data-do={name}]")).to_be_visible()
    # The slider has a row with the single steps, and all of the rest of its width.
    back, slider, on = (
        phone.locator(f".player {part}").bounding_box() for part in ("[data-do=back]", ".scrubber", "[data-do=on]")
    )
    assert back and slider and on and back["y"] == slider["y"] == on["y"]
    assert slider["width"] > 250 and back["x"] < slider["x"] < on["x"]


def test_the_vote_on_a_phone_has_the_place_of_the_player(open_recording: Any) -> None:
    page = open_recording(RECORDING, **PHONE)
    page.emulate_media(reduced_motion="no-preference")
    first_lane = "() => document.querySelector('.pane header').getBoundingClientRect().y"
    below_headline = page.evaluate(first_lane)
    begin(page)
    run_clock_until(page, "() => !document.querySelector('.guess').hidden")
    expect(page.locator(".player")).to_be_hidden()
    assert page.evaluate(first_lane) == pytest.approx(below_headline, abs=1)
    for choice in page.locator(".choices button").all():
        box = choice.bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]
        assert box["width"] >= 44 and box["y"] + box["height"] <= PHONE["height"]
    assert page.locator(".choices").evaluate("row => row.scrollWidth <= row.clientWidth") and overflow(page) == []
    # No lane's name is broken at its hyphen.
    lines = page.locator(".choices .whole").evaluate_all("words => words.map((word) => word.getClientRects().length)")
    assert lines == [1]
    page.locator(".choices button").last.click()
    assert page.evaluate(first_lane) == pytest.approx(below_headline, abs=1)
    page.emulate_media(reduced_motion="reduce")
    page.wait_for_selector(".stage[data-phase=finished]", state="attached")


def test_touch_targets_on_a_phone_are_as_large_as_a_finger(phone: Page) -> None:
    assert phone.evaluate(TARGETS) == []
    phone.locator("#settings-button").tap()
    assert phone.evaluate(TARGETS) == []
    fields = phone.locator("#settings input:visible:not([type=checkbox], [type=radio], [type=range])")
    sizes = fields.evaluate_all("fields => fields.map((field) => parseFloat(getComputedStyle(field).fontSize))")
    # A phone zooms in on a field whose text is smaller.
    assert sizes and min(sizes) >= 16
    phone.locator("#settings-button").tap()
    phone.locator("[data-do=gallery]").tap()
    assert phone.evaluate(TARGETS) == [] and overflow(phone) == []
    phone.keyboard.press("Escape")


def test_a_phone_shows_no_hints_at_keys(phone: Page) -> None:
    expect(phone.locator(".key-hint:visible")).to_have_count(0)
    expect(phone.locator(".menu [data-do=help]")).to_be_hidden()


def test_in_present_mode_on_a_phone_no_part_covers_another(phone: Page) -> None:
    phone.locator(".menu summary").tap()
    phone.locator(".menu [data-do=present]").tap()
    expect(phone.locator(".menu details")).not_to_have_attribute("open", "")
    boxes = [phone.locator(name).bounding_box() for name in ("#top-bar", ".console", ".pane header >> nth=0")]
    assert all(boxes) and all(apart(first, second) for first, second in combinations(boxes, 2))
    for name in (".leave", ".strip [data-do=audience]"):
        box = phone.locator(name).bounding_box()
        assert box and box["y"] + box["height"] <= PHONE["height"] - 12, name
    assert overflow(phone) == [] and findings(phone) == []
    phone.locator(".leave").tap()
    expect(phone.locator("#brand")).to_be_visible()


def test_the_page_can_be_installed(phone: Page) -> None:
    answer = phone.context.new_cdp_session(phone).send("Page.getAppManifest")
    assert answer["errors"] == []
    manifest = json.loads(answer["data"])
    assert manifest["display"] == "standalone" and manifest["name"] and manifest["theme_color"]
    for icon in manifest["icons"]:
        size = phone.evaluate(
            """([base, src]) => new Promise((done, fail) => {
              const picture = new Image();
              picture.onload = () => done(picture.naturalWidth);
              picture.onerror = fail;
              picture.src = new URL(src, base).href;
            })""",
            [answer["url"], icon["src"]],
        )
        assert icon["sizes"] in ("any", f"{size}x{size}")
