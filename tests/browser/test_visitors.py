"""Visitors who leave, wait or lose frames, while a race runs that ends only when the test lets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.apps import wait_until
from tests.browser.parts import ask, begin, reels, stage, texts, turn, until, wait_for, wait_for_reel, wait_for_words

pytestmark = pytest.mark.browser

UNDER_WAY = 24
PICTURE_MS = 95
MOST_NODES = 32


def racing_and_in_line(app: Any, first: Page, second: Page) -> None:
    """Two visitors: the race of one runs, and the other waits for it."""
    begun = app.hold.begun
    ask(first)
    wait_for(first, phase="running")
    assert (app.hold.running, app.hold.begun) == (1, begun + 1)
    ask(second)
    expect(second.locator(".announcer")).to_have_text("You're next.")


def stop(page: Page) -> None:
    page.locator("#stop").click()
    wait_for(page, phase="stopped")


def test_closing_the_tab_stops_the_race_and_lets_the_next_visitor_race(
    app: Any, open_page: Any, share_page: Any
) -> None:
    first, second = open_page(app.short), share_page(app.short)
    with app.hold.after(UNDER_WAY):
        racing_and_in_line(app, first, second)
        first.close()
        wait_for(second, phase="running")
        assert app.hold.running == 1
        stop(second)
        wait_until(lambda: app.hold.running == 0)


def test_a_tab_that_is_closed_in_line_never_races(app: Any, open_page: Any, share_page: Any) -> None:
    first, second = share_page(app.short), open_page(app.short)
    with app.hold.after(UNDER_WAY):
        racing_and_in_line(app, first, second)
        begun, job = app.hold.begun, app.worker.find(stage(second)["key"])
        second.close()
        # Chromium hangs up a moment later; the server has to hear of it before the line moves.
        wait_until(lambda: job.stopped)
        stop(first)
        wait_until(lambda: job.done)
        assert app.hold.begun == begun and not job.events


def test_a_second_visitor_waits_in_line_and_then_races(app: Any, open_page: Any, share_page: Any) -> None:
    first, second = share_page(app.short), open_page(app.short)
    with app.hold.after(UNDER_WAY):
        racing_and_in_line(app, first, second)
        stop(first)
        wait_for(second, phase="running")
        stop(second)


def test_a_lost_connection_is_told(app: Any, share_page: Any) -> None:
    page = share_page(app.short)
    page.route("**/gradio_api/race/*", lambda route: route.abort())
    ask(page)
    wait_for(page, phase="failed")
    expect(page.locator(".announcer")).to_contain_text("connection was lost")
    page.unroute("**/gradio_api/race/*")
    with app.hold.after(UNDER_WAY):
        ask(page)
        wait_for(page, phase="running")
        stop(page)


def test_no_frame_is_lost_in_a_hidden_tab(app: Any, share_page: Any) -> None:
    page = share_page(app.short)
    number = reels(page)
    with app.hold.after(UNDER_WAY):
        ask(page)
        wait_for_words(page)
        page.evaluate("Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true})")
        go_on(app, page, 10, events=4)
        page.evaluate("delete document.visibilityState")
    reel = wait_for_reel(page, number)
    assert stage(page)["lost"] == "0"
    said = ["".join(text for step in own for text in step["event"]["texts"]).lstrip() for own in by_lane(reel)]
    assert texts(page) == said


def by_lane(reel: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """A reel's steps, lane by lane."""
    return [[step for step in reel["steps"] if step["lane"] == lane] for lane in range(len(reel["results"]))]


def test_frames_that_come_fast_are_drawn_together(app: Any, share_page: Any) -> None:
    """Pictures cost more than frames. The page's clock stands still, so that all frames come at once."""
    page = share_page(app.short, stopped=True)
    number = reels(page)
    page.evaluate(
        """() => { window.pictures = 0; new MutationObserver(() => window.pictures++)
          .observe(document.querySelector('.clock b'), {childList: true}); }"""
    )
    with app.hold.after(1):
        begin(page)
        wait_for(page, phase="running")
        for _ in range(3):
            drawn, shown = page.evaluate("window.pictures"), texts(page)
            go_on(app, page, 3, events=4)
            turn(page, PICTURE_MS - 1)
            assert (page.evaluate("window.pictures"), texts(page)) == (drawn, shown)
            turn(page, 1)
            assert page.evaluate("window.pictures") == drawn + 1
            assert len("".join(texts(page))) > len("".join(shown))
    # The end is drawn at once.
    wait_for_reel(page, number)
    assert stage(page)["lost"] == "0"
    assert all(texts(page))


def test_the_draft_tree_follows_a_live_race_while_somebody_looks(app: Any, open_page: Any) -> None:
    page = open_page(app.url, 1920, 1080)
    page.evaluate(
        """() => {
          window.steps = [];
          document.querySelector('.stage').addEventListener('step', ({ detail }) => {
            const { lane } = document.querySelector('.inspector').dataset;
            if (detail.lane === lane) window.steps.push([detail, document.querySelectorAll('.tree g.node').length]);
          });
        }"""
    )
    with app.hold.after(UNDER_WAY):
        ask(page)
        wait_for(page, phase="running")
        expect(page.locator(".inspector")).to_have_attribute("data-lane", "trie")
        go_on_until(app, page, lambda: len(steps(page)) > 3)
        page.locator(".lane-tabs [data-lane=vanilla]").click()
        go_on_until(app, page, lambda: [step["lane"] for step, _ in steps(page)[-2:]] == ["vanilla", "vanilla"])
        # Shut, it asks for nothing; open again, it goes on. Some frames are more than the time between two steps.
        with page.expect_response("**/gradio_api/race/*"):
            page.keyboard.press("t")
        count = len(steps(page))
        go_on(app, page, 8)
        assert len(steps(page)) == count
        page.keyboard.press("t")
        go_on_until(app, page, lambda: len(steps(page)) > count)
        stop(page)
    for lane in ("trie", "vanilla"):
        own = [(step, nodes) for step, nodes in steps(page) if step["lane"] == lane]
        # The bonus token is a node, too.
        assert [nodes for _, nodes in own] == [min(len(step["pieces"]), MOST_NODES) + 1 for step, _ in own]
        indices = [step["index"] for step, _ in own]
        assert indices == sorted(indices) and len(set(indices)) > 1


def steps(page: Page) -> list[tuple[dict[str, Any], int]]:
    """The steps that came whole of the lane that was looked at, and how many nodes were drawn then."""
    found: list[tuple[dict[str, Any], int]] = page.evaluate("window.steps")
    return found


def go_on(app: Any, page: Page, frames: int, events: int = 1) -> None:
    """Let the race go on for so many frames."""
    for _ in range(frames):
        before = stage(page)["frames"]
        app.hold.let(events)
        until(page, lambda before=before: stage(page)["frames"] != before)


def go_on_until(app: Any, page: Page, condition: Callable[[], bool]) -> None:
    """Let the race go on, frame by frame, until something holds."""
    while not condition():
        go_on(app, page, 1)
