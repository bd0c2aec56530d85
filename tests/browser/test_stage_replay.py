"""The replay: a recorded race at its own pace, forwards and back, with nothing but the recording."""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.parts import PATIENCE_MS, SHORT, mode, race, texts

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
ROWS = [json.loads(line) for line in (ROOT / "assets/recordings/ngram-trie.jsonl").read_text("utf-8").splitlines()]
STEPS = ROWS[1:-1]
LANES = [lane["lane"] for lane in ROWS[0]["lanes"]]
LENGTH_MS = max(step["at_ms"] for step in STEPS)
LATEST_MS = 50
TURN_MS = 10
# The test's zero is noted a moment after the player's.
CLOCKS_MS = 5

# Notes when each pane's text grew, and how long it was: what a visitor sees, not what the player says of itself. And
# when the browser drew at all: a machine with much else to do may leave it no moment within 50 ms.
WATCH = """() => {
  window.seen = [];
  window.drawn = [];
  const note = () => { window.drawn.push(performance.now()); requestAnimationFrame(note); };
  note();
  const panes = [...document.querySelectorAll('.pane .text p:last-child')];
  panes.forEach((pane, lane) => new MutationObserver(() => {
    window.seen.push([performance.now(), lane, pane.textContent.length]);
  }).observe(pane, {childList: true, subtree: true, characterData: true}));
}"""


def said(lane: str, until_ms: float = 1e9) -> str:
    """What a lane has said at a time, from the recording itself."""
    steps = [step for step in STEPS if step["lane"] == lane and step["at_ms"] <= until_ms]
    return "".join(text for step in steps for text in step["texts"]).lstrip()


def clock(page: Page) -> float:
    """The player's race time in ms."""
    return float(page.locator(".scrubber").input_value())


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_player_needs_no_model(replay_app: Any, open_page: Any) -> None:
    app, process = replay_app
    page = open_page(app.url, ready=False)
    mode(page, "result")
    assert texts(page) == [said(lane) for lane in LANES]
    maps = Path(f"/proc/{process}/maps").read_text()
    assert "python" in maps
    assert "torch" not in maps and "transformers" not in maps


def test_events_are_shown_within_fifty_ms_of_their_recorded_times(replay_app: Any, open_page: Any) -> None:
    """On a clock that the test turns, so that it is the player which is judged, and not how busy the machine is."""
    page = open_page(replay_app[0].url, ready=False, calm=True)
    mode(page, "result")
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    page.keyboard.press(" ")
    assert texts(page) == ["" for _ in LANES]
    for now in range(TURN_MS, int(LENGTH_MS), TURN_MS):
        page.clock.run_for(TURN_MS)
        shown = texts(page)
        for lane, text in zip(LANES, shown, strict=True):
            assert said(lane, now - LATEST_MS) in text and text in said(lane, now), (lane, now)
            assert len(said(lane, now - LATEST_MS)) <= len(text) <= len(said(lane, now))
    page.clock.run_for(2 * TURN_MS)
    assert page.locator(".stage").get_attribute("data-mode") == "result"
    assert texts(page) == [said(lane) for lane in LANES]


@pytest.mark.alone
def test_events_are_shown_in_the_first_frame_after_they_are_due(replay_app: Any, open_page: Any) -> None:
    """By the wall's clock and the frames that the browser really drew; no allowance for a slow one."""
    page = open_page(replay_app[0].url, ready=False)
    mode(page, "result")
    page.evaluate(WATCH)
    # The first change is the panes being emptied: race time 0.
    page.keyboard.press(" ")
    page.wait_for_function("window.seen.length > 0")
    mode(page, "result")
    seen: list[list[float]] = page.evaluate("window.seen")
    start, late, early = seen[0][0], 0, 0
    drawn = [time - start for time in page.evaluate("window.drawn")]
    for number, lane in enumerate(LANES):
        at = [step["at_ms"] for step in STEPS if step["lane"] == lane]
        lengths = [len(said(lane, time)) for time in at]
        grown = [(time - start, length) for time, each, length in seen if each == number and length]
        assert grown[-1][1] == lengths[-1]
        for length, due in zip(lengths, at, strict=True):
            shown = next(when for when, printed in grown if printed >= length)
            # Before the second frame begins the first one is drawn.
            second = drawn[bisect_right(drawn, due) :][1:2]
            late += any(shown > when for when in second)
        for when, length in grown:
            early += length > ([0, *lengths])[bisect_right(at, when + CLOCKS_MS)]
    assert (late, early) == (0, 0)


@pytest.mark.alone
def test_scrubbing_stepping_and_speed(replay_app: Any, open_page: Any) -> None:
    page = open_page(replay_app[0].url, ready=False, calm=True)
    mode(page, "result")
    set_time(page, LENGTH_MS / 2)
    assert texts(page) == [said(lane, LENGTH_MS / 2) for lane in LANES]
    expect(page.locator(".podium")).to_be_hidden()
    set_time(page, LENGTH_MS / 4)
    assert texts(page) == [said(lane, LENGTH_MS / 4) for lane in LANES]
    before = clock(page)
    page.locator("[data-do=on]").click()
    following = next(step["at_ms"] for step in STEPS if step["at_ms"] > before)
    assert abs(clock(page) - following) < 1e-6
    assert texts(page) == [said(lane, following) for lane in LANES]
    page.locator("[data-do=back]").click()
    assert clock(page) < following
    page.locator(".speed").select_option("4")
    page.locator("[data-do=play]").click()
    began = page.evaluate("performance.now()")
    mode(page, "result")
    took = page.evaluate("performance.now()") - began
    assert took < 0.6 * LENGTH_MS
    assert texts(page) == [said(lane) for lane in LANES]


def set_time(page: Page, time_ms: float) -> None:
    script = "(range, time) => { range.value = time; range.dispatchEvent(new Event('input', {bubbles: true})); }"
    page.locator(".scrubber").evaluate(script, time_ms)


@pytest.mark.alone
def test_slow_motion_takes_its_time_and_a_pause_holds_it(replay_app: Any, open_page: Any) -> None:
    page = open_page(replay_app[0].url, ready=False)
    mode(page, "result")
    page.locator(".speed").select_option("0.25")
    page.locator("[data-do=play]").click()
    page.wait_for_timeout(400)
    page.keyboard.press(" ")
    held = clock(page)
    assert 0 < held < 400
    page.wait_for_timeout(200)
    assert clock(page) == held
    page.locator("[data-do=result]").click()
    mode(page, "result")
    assert texts(page) == [said(lane) for lane in LANES]


@pytest.fixture
def at_rest(replay_app: Any, share_page: Any) -> Page:
    """A page that shows the recording's result, and moves nothing by itself."""
    page: Page = share_page(replay_app[0].url, ready=False, calm=True)
    if page.locator(".stage").get_attribute("data-mode") != "result":
        page.locator("[data-do=result]").click()
    mode(page, "result")
    return page


def test_a_lane_alone_is_stepped_alone(at_rest: Page) -> None:
    page = at_rest
    page.evaluate("document.querySelector('.stage').addEventListener('cursor', e => (window.at = e.detail))")
    page.keyboard.press("4")
    expect(page.locator(".pane:visible")).to_have_count(1)
    set_time(page, LENGTH_MS / 8)  # the trie is done after a third of vanilla's time
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        assert page.evaluate("window.at.lane") == 3
    expect(page.locator(".pane:visible .at").first).to_be_visible()
    first = page.evaluate("window.at.step")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("window.at") == {"lane": 3, "step": first - 1}
    page.keyboard.press("4")
    expect(page.locator(".pane:visible")).to_have_count(4)


def test_others_follow_the_cursor_and_may_move_it(at_rest: Page) -> None:
    page = at_rest
    page.evaluate("document.querySelector('.stage').addEventListener('cursor', e => (window.at = e.detail))")
    page.evaluate(
        "document.querySelector('.stage').dispatchEvent(new CustomEvent('seek', {detail: {lane: 1, step: 20}}))"
    )
    due = [step["at_ms"] for step in STEPS if step["lane"] == LANES[1]][20]
    assert abs(clock(page) - due) < 1e-6 and page.evaluate("window.at") == {"lane": 1, "step": 20}
    run = page.locator(".pane[data-lane=trie] .run").first
    run.click()
    assert page.evaluate("window.at") == {"lane": 3, "step": int(run.get_attribute("data-step") or -1)}


def test_reduced_motion_starts_nothing_by_itself(replay_app: Any, open_page: Any) -> None:
    page = open_page(replay_app[0].url, ready=False, calm=True)
    mode(page, "result")
    page.clock.install()
    page.keyboard.press("Escape")
    page.clock.fast_forward(60_000)
    assert page.locator(".stage").get_attribute("data-mode") == "result"


@pytest.mark.alone
def test_a_hidden_tab_holds_the_clock(replay_app: Any, open_page: Any) -> None:
    page = open_page(replay_app[0].url, ready=False)
    mode(page, "result")
    page.locator(".speed").select_option("0.25")
    page.keyboard.press("Escape")
    page.locator("[data-do=play]").click()
    # What a browser does to a tab that is not seen: no animation frames, and an event when it is seen again.
    page.evaluate("window.ask = requestAnimationFrame; window.requestAnimationFrame = (go) => (window.held = go)")
    page.wait_for_timeout(100)
    at = clock(page)
    page.wait_for_timeout(500)
    page.evaluate(
        "document.dispatchEvent(new Event('visibilitychange')); window.requestAnimationFrame = window.ask; held()"
    )
    assert clock(page) - at < 60
    mode(page, "result")
    assert texts(page) == [said(lane) for lane in LANES]


@pytest.mark.alone
def test_a_slow_machine_still_replays_in_race_time(replay_app: Any, open_page: Any) -> None:
    page = open_page(replay_app[0].url, ready=False, calm=True)
    mode(page, "result")
    page.evaluate(WATCH)
    page.evaluate(
        """() => { const stage = document.querySelector('.stage'); new MutationObserver(() => {
        if (stage.dataset.mode === 'result') window.ended = performance.now();
        }).observe(stage, {attributeFilter: ['data-mode']}); }"""
    )
    page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": 6})
    page.locator("[data-do=play]").click()
    page.wait_for_function("window.ended", timeout=PATIENCE_MS)
    start, ended, drawn = page.evaluate("[window.seen[0][0], window.ended, window.drawn]")
    # It ends in the first frame after the last event is due, however few frames there are.
    after = [time for time in drawn if time >= start + LENGTH_MS]
    assert ended - start > LENGTH_MS - CLOCKS_MS
    assert len(after) < 2 or ended <= after[1]
    assert texts(page) == [said(lane) for lane in LANES]


def test_a_live_race_is_followed_by_its_replay(app: Any, open_page: Any) -> None:
    page = open_page(app.url + SHORT)
    page.evaluate("document.querySelector('.stage').addEventListener('reel', e => (window.reel = e.detail))")
    race(page)
    final, rows = texts(page), page.locator(".results tbody").inner_text()
    expect(page.locator(".podium li")).to_have_count(3)
    mode(page, "replay")
    mode(page, "result")
    assert texts(page) == final and page.locator(".results tbody").inner_text() == rows
    reel = page.evaluate("window.reel")
    assert [each["event"]["at_ms"] for each in reel["steps"]] == [each["at"] for each in reel["steps"]]
    assert set(reel) >= {"head", "steps", "headline", "results", "phase"}


def test_the_reel_reaches_a_hidden_tab(app: Any, open_page: Any) -> None:
    page = open_page(app.url + SHORT, calm=True)
    page.evaluate("Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true})")
    page.evaluate("document.querySelector('.stage').addEventListener('reel', e => (window.reel = e.detail))")
    race(page)
    assert page.locator(".stage").get_attribute("data-lost") == "0"
    rows = page.evaluate("window.reel.steps.map((step) => [step.lane, step.event.emitted.length])")
    for number, result in enumerate(page.evaluate("window.reel.results")):
        assert sum(count for lane, count in rows if lane == number) == result["tokens"] > 0


def test_no_replay_follows_a_live_race_where_motion_is_unwanted(app: Any, open_page: Any) -> None:
    page = open_page(app.url + SHORT, calm=True)
    page.clock.install()
    race(page)
    page.clock.fast_forward(60_000)
    assert page.locator(".stage").get_attribute("data-mode") == "result"


def test_the_track_s_axis_is_race_time(at_rest: Page) -> None:
    page = at_rest
    set_time(page, LENGTH_MS / 2)
    bars = page.locator(".track .bar i").evaluate_all(
        "bars => bars.map((bar) => bar.getBoundingClientRect().width / bar.parentNode.getBoundingClientRect().width)"
    )
    for lane, width in zip(LANES, bars, strict=True):
        last = max(step["at_ms"] for step in STEPS if step["lane"] == lane and step["at_ms"] <= LENGTH_MS / 2)
        assert width == pytest.approx(last / LENGTH_MS, abs=0.01)
    page.locator("[data-do=result]").click()
    ends = {lane: max(step["at_ms"] for step in STEPS if step["lane"] == lane) for lane in LANES}
    order = sorted(LANES, key=ends.__getitem__)
    rows = page.locator(".track-row[data-lane]")
    assert rows.evaluate_all("rows => rows.map((row) => row.dataset.place)") == [
        str(order.index(lane) + 1) for lane in LANES
    ]
    tokens = {lane: sum(len(step["emitted"]) for step in STEPS if step["lane"] == lane) for lane in LANES}
    marks = page.locator(".track .bar path").evaluate_all("paths => paths.map((path) => path.getAttribute('d'))")
    assert [path.count("M") for path in marks] == [tokens[lane] // 10 for lane in LANES]
    assert page.locator(".track .axis .ticks i").first.text_content() == "0 s"
