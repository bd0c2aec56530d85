"""The replay: it plays a recorded race at its true speed, forwards and backwards, and needs only the recording.

The tests control the page's clock, so they do not depend on how busy the machine is.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.apps import serving
from tests.browser.parts import (
    RECORDING,
    begin,
    latest_reel,
    modes,
    race,
    read_rows,
    reels,
    run_clock,
    skip,
    stage,
    texts,
    wait_for,
)  # fmt: skip

pytestmark = pytest.mark.browser

ROWS = read_rows(RECORDING)
STEPS = ROWS[1:-1]
LANES = [lane["lane"] for lane in ROWS[0]["lanes"]]
LENGTH_MS = max(step["at_ms"] for step in STEPS)
# The browser has a frame every 16 ms, and the player draws every second one.
FRAME_MS = 32
# A live race is shown slowed to 12 s, after 2 s in which to guess the winner.
LEAD_MS, SHOW_MS = 2100, 12_000
# The finish line's share of the track.
FINISH_LINE = 0.965


def printed_text(lane: str, until_ms: float = 1e9) -> str:
    """The text that a lane has printed by a time, according to the recording."""
    steps = [step for step in STEPS if step["lane"] == lane and step["at_ms"] <= until_ms]
    return "".join(text for step in steps for text in step["texts"]).lstrip()


def printed_texts(until_ms: float = 1e9) -> list[str]:
    """The texts that the lanes have printed by a time, according to the recording."""
    return [printed_text(lane, until_ms) for lane in LANES]


def clock(page: Page) -> float:
    """The player's race time in ms."""
    return float(page.locator(".scrubber").input_value())


def set_time(page: Page, time_ms: float) -> None:
    """Move the scrubber to this race time."""
    script = "(range, time) => { range.value = time; range.dispatchEvent(new Event('input', {bubbles: true})); }"
    page.locator(".scrubber").evaluate(script, time_ms)


def now(page: Page) -> float:
    """The page's time in ms, which only the test advances."""
    return float(page.evaluate("performance.now()"))


def mode(page: Page) -> str:
    return str(stage(page)["mode"])


# How many races a page had received when it had opened the recording.
opened: dict[Page, int] = {}


@pytest.fixture
def result_page(app: Any, share_page: Any, open_recording: Any) -> Iterator[Page]:
    """A page that shows the recording's result, at the start of a frame; it will replay at the true speed."""
    page: Page = share_page(app.short_url, stopped=True)
    if opened.get(page) != reels(page):
        open_recording(RECORDING)
        opened[page] = reels(page)
    elif mode(page) != "result":
        page.keyboard.press("Escape")
    assert mode(page) == "result" and texts(page) == printed_texts()
    page.locator(".speed").select_option("1")
    run_clock(page, FRAME_MS - now(page) % FRAME_MS)
    yield page
    page.locator(".speed").select_option("auto")


def check_time(page: Page, began: float) -> float:
    """Check that a replay which began at this page time shows what it must now; return its race time."""
    # One call for all, because tests call this for each frame.
    now_ms, clock_ms, printed = page.evaluate(
        """() => [performance.now(), Number(document.querySelector('.scrubber').value),
          [...document.querySelectorAll('.pane .text p:last-child')].map((part) => part.textContent)]"""
    )
    time = min(LENGTH_MS, now_ms - began)
    assert clock_ms == pytest.approx(time) and printed == printed_texts(time)
    return time


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_player_needs_no_model(open_page: Any, tmp_path: Path) -> None:
    with serving(tmp_path, "--replay", str(RECORDING)) as (url, process):
        page = open_page(url, ready=False)
        wait_for(page, mode="result")
        assert texts(page) == printed_texts()
        maps = Path(f"/proc/{process.pid}/maps").read_text()
    assert "python" in maps
    assert "torch" not in maps and "transformers" not in maps


def test_events_are_shown_in_the_first_frame_after_they_are_due(result_page: Page) -> None:
    page, began = result_page, now(result_page)
    page.keyboard.press(" ")
    assert texts(page) == ["" for _ in LANES]
    time = 0.0
    while time < LENGTH_MS:
        run_clock(page, FRAME_MS)
        time = check_time(page, began)
    assert mode(page) == "result" and texts(page) == printed_texts()


def test_a_slow_machine_still_replays_in_race_time(result_page: Page) -> None:
    """With few and late frames, each frame still shows every event that is due, and the replay ends on time."""
    page, began, rng = result_page, now(result_page), random.Random(1)
    page.keyboard.press(" ")
    time = 0.0
    while time < LENGTH_MS:
        assert mode(page) == "replay"
        page.clock.fast_forward(rng.choice([40, 90, 150]))
        time = check_time(page, began)
    assert mode(page) == "result" and texts(page) == printed_texts()


def test_the_scrubber_and_the_step_buttons_move_the_replay(result_page: Page) -> None:
    page = result_page
    set_time(page, LENGTH_MS / 2)
    assert texts(page) == printed_texts(LENGTH_MS / 2)
    expect(page.locator(".podium")).to_be_hidden()
    set_time(page, LENGTH_MS / 4)
    assert texts(page) == printed_texts(LENGTH_MS / 4)
    before = clock(page)
    page.locator("[data-do=on]").click()
    next_step_ms = next(step["at_ms"] for step in STEPS if step["at_ms"] > before)
    assert abs(clock(page) - next_step_ms) < 1e-6
    assert texts(page) == printed_texts(next_step_ms)
    page.locator("[data-do=back]").click()
    assert clock(page) < next_step_ms


@pytest.mark.parametrize("speed", ["0.25", "4"])
def test_a_replay_has_the_chosen_speed_and_can_be_paused(result_page: Page, speed: str) -> None:
    page, pace = result_page, float(speed)
    page.locator(".speed").select_option(speed)
    page.locator("[data-do=play]").click()
    run_clock(page, 5 * FRAME_MS)
    assert clock(page) == 5 * FRAME_MS * pace
    page.keyboard.press(" ")
    run_clock(page, 20 * FRAME_MS)
    assert clock(page) == 5 * FRAME_MS * pace and mode(page) == "replay"
    page.keyboard.press(" ")
    frames = LENGTH_MS / pace // FRAME_MS
    run_clock(page, FRAME_MS * (frames - 5))
    assert clock(page) == FRAME_MS * pace * frames and mode(page) == "replay"
    run_clock(page, FRAME_MS)
    assert mode(page) == "result" and texts(page) == printed_texts()


def test_a_button_skips_to_the_result(result_page: Page) -> None:
    page = result_page
    page.locator("[data-do=play]").click()
    run_clock(page, 5 * FRAME_MS)
    assert texts(page) != printed_texts()
    result = page.locator("[data-do=result]")
    result.click()
    assert mode(page) == "result" and texts(page) == printed_texts()
    expect(result).to_be_disabled()


def test_the_arrow_keys_step_only_the_lane_that_is_shown(result_page: Page) -> None:
    page = result_page
    page.evaluate("document.querySelector('.stage').addEventListener('cursor', e => (window.at = e.detail))")
    page.keyboard.press("4")
    expect(page.locator(".pane:visible")).to_have_count(1)
    # The trie ends after a third of vanilla's time, so it still has steps here.
    set_time(page, LENGTH_MS / 8)
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        assert page.evaluate("window.at.lane") == 3
    expect(page.locator(".pane:visible .at").first).to_be_visible()
    first = page.evaluate("window.at.step")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("window.at") == {"lane": 3, "step": first - 1}
    page.keyboard.press("4")
    expect(page.locator(".pane:visible")).to_have_count(4)


def test_events_report_the_cursor_and_can_move_it(result_page: Page) -> None:
    page = result_page
    page.evaluate("document.querySelector('.stage').addEventListener('cursor', e => (window.at = e.detail))")
    page.evaluate(
        "document.querySelector('.stage').dispatchEvent(new CustomEvent('seek', {detail: {lane: 1, step: 20}}))"
    )
    due = [step["at_ms"] for step in STEPS if step["lane"] == LANES[1]][20]
    assert abs(clock(page) - due) < 1e-6 and page.evaluate("window.at") == {"lane": 1, "step": 20}
    run = page.locator(".pane[data-lane=trie] .run").first
    run.click()
    assert page.evaluate("window.at") == {"lane": 3, "step": int(run.get_attribute("data-step") or -1)}


def test_with_reduced_motion_no_replay_starts_automatically(result_page: Page) -> None:
    page = result_page
    page.keyboard.press("Escape")
    modes_before = modes(page)
    page.clock.fast_forward(60_000)
    assert modes(page) == modes_before and mode(page) == "result"


def test_a_replay_pauses_in_a_hidden_tab(result_page: Page) -> None:
    page = result_page
    page.locator("[data-do=play]").click()
    run_clock(page, 4 * FRAME_MS)
    time_before, texts_before = clock(page), texts(page)
    # What a browser does to a hidden tab: no animation frames, and an event when it is visible again.
    page.evaluate("window.ask = requestAnimationFrame; window.requestAnimationFrame = (go) => (window.held = go)")
    run_clock(page, FRAME_MS)
    page.clock.fast_forward(5000)
    page.evaluate(
        "document.dispatchEvent(new Event('visibilitychange')); window.requestAnimationFrame = window.ask; held()"
    )
    assert 0 < time_before <= clock(page) <= time_before + FRAME_MS
    assert len("".join(texts_before)) <= len("".join(texts(page))) < len("".join(printed_texts()))
    skip(page, LENGTH_MS)
    assert mode(page) == "result" and texts(page) == printed_texts()


def test_a_live_race_is_shown_slowed_and_can_be_replayed(app: Any, share_page: Any) -> None:
    page = share_page(app.short_url, stopped=True)
    page.emulate_media(reduced_motion="no-preference")
    race(page, start=begin)
    reel = latest_reel(page)
    length = max(step["at"] for step in reel["steps"])
    assert modes(page)[-1] == "live" and not any(texts(page))
    page.locator(".guess button", has_text="Fusion").click()
    expect(page.locator(".guess")).to_have_text("Your guess: Fusion")
    run_clock(page, LEAD_MS)
    skip(page, SHOW_MS / 2 - FRAME_MS)
    assert clock(page) == pytest.approx(length / 2, rel=0.01)
    words = page.locator(".track-speed").inner_text()
    assert float(words.removeprefix("slowed ").removesuffix("×")) == pytest.approx(SHOW_MS / length, rel=0.1)
    skip(page, SHOW_MS / 2 + 2 * FRAME_MS)
    assert modes(page)[-2:] == ["live", "result"]
    # On a disturbed machine no lane has won.
    tally = r"^$" if reel["pace"]["disturbed"] else r"You guessed (right|wrong): [01] of 1 so far\."
    expect(page.locator(".tally")).to_have_text(re.compile(tally))
    final = [page.locator(selector).inner_text() for selector in (".panes", ".podium")]
    page.keyboard.press(" ")
    assert mode(page) == "replay" and page.locator(".announcer").inner_text() == f"“{reel['head']['question']}”"
    skip(page, SHOW_MS + 2 * FRAME_MS)
    assert mode(page) == "result"
    assert [page.locator(selector).inner_text() for selector in (".panes", ".podium")] == final
    assert [step["event"]["at_ms"] for step in reel["steps"]] == [step["at"] for step in reel["steps"]]
    assert set(reel) >= {"head", "steps", "headline", "results", "phase"}
    page.emulate_media(reduced_motion="reduce")


def test_a_hidden_tab_receives_the_whole_race(open_recording: Any) -> None:
    page = open_recording(RECORDING)
    page.evaluate("Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true})")
    race(page, start=begin)
    page.evaluate("delete document.visibilityState")
    reel = latest_reel(page)
    for number, result in enumerate(reel["results"]):
        lane_events = [step["event"] for step in reel["steps"] if step["lane"] == number]
        assert sum(len(event["emitted"]) for event in lane_events) == result["tokens"] > 0
    # With reduced motion no replay follows.
    modes_before = modes(page)
    page.clock.fast_forward(60_000)
    assert modes(page) == modes_before and modes_before[-2:] == ["live", "result"]


def test_lanes_run_to_a_finish_line_in_the_order_of_their_times(result_page: Page) -> None:
    page = result_page
    tokens = {lane: sum(len(step["emitted"]) for step in STEPS if step["lane"] == lane) for lane in LANES}
    set_time(page, LENGTH_MS / 4)
    for lane, share in zip(LANES, shares(page), strict=True):
        so_far = [step for step in STEPS if step["lane"] == lane and step["at_ms"] <= LENGTH_MS / 4]
        assert share == pytest.approx(
            FINISH_LINE * sum(len(step["emitted"]) for step in so_far) / tokens[lane], abs=1e-4
        )
    page.locator("[data-do=result]").click()
    assert shares(page) == pytest.approx([FINISH_LINE] * len(LANES))
    ends = {lane: max(step["at_ms"] for step in STEPS if step["lane"] == lane) for lane in LANES}
    order = sorted(LANES, key=ends.__getitem__)
    rows = page.locator(".track-row[data-lane]")
    assert rows.evaluate_all("rows => rows.map((row) => row.dataset.place)") == [
        str(order.index(lane) + 1) for lane in LANES
    ]
    expect(page.locator(".photo:visible")).to_have_count(len(LANES) - 1)


def shares(page: Page) -> list[float]:
    """The share of the track that each lane has covered."""
    bars = page.locator(".track .bar i").evaluate_all("bars => bars.map((bar) => bar.style.transform)")
    return [float(bar.removeprefix("scaleX(").removesuffix(")")) for bar in bars]
