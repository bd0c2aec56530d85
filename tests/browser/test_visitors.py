"""Visitors who leave, wait in line or watch during a race; the test decides how far the race runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.apps import wait_until
from tests.browser.parts import (
    ask,
    begin,
    latest_reel,
    reels,
    run_clock,
    stage,
    texts,
    until,
    wait_for,
    wait_for_reel,
    wait_for_words,
)

pytestmark = pytest.mark.browser

# The page draws a live race at most once in this time.
PICTURE_MS = 95
# A query of an address, with enough tokens to watch lanes after each has written something.
MORE = "?tokens=40"


def start_race_and_wait_in_line(app: Any, first: Page, second: Page) -> None:
    """Start a race of the first visitor, and let the second wait in line."""
    begun = app.hold.begun
    ask(first)
    wait_for(first, phase="running")
    assert (app.hold.running, app.hold.begun) == (1, begun + 1)
    ask(second)
    expect(second.locator(".announcer")).to_have_text("You're next.")


def stop(page: Page) -> None:
    """Stop the page's race, and wait until the race has ended."""
    page.locator("#stop").click()
    wait_for(page, phase="stopped")


def test_a_visitor_in_line_races_when_the_first_one_stops_or_closes_the_tab(
    app: Any, open_page: Any, share_page: Any
) -> None:
    first, second = open_page(app.short_url), share_page(app.url + MORE)
    with app.hold.after(1):
        start_race_and_wait_in_line(app, second, first)
        stop(second)
        wait_for(first, phase="running")
        ask(second)
        expect(second.locator(".announcer")).to_have_text("You're next.")
        first.close()
        wait_for(second, phase="running")
        assert app.hold.running == 1
        stop(second)
        wait_until(lambda: app.hold.running == 0)


def test_a_visitor_who_closes_the_tab_in_line_never_races(app: Any, open_page: Any, share_page: Any) -> None:
    first, second = share_page(app.url + MORE), open_page(app.short_url)
    with app.hold.after(1):
        start_race_and_wait_in_line(app, first, second)
        begun, job = app.hold.begun, app.worker.queue.find(stage(second)["key"])
        second.close()
        # Chromium closes the connection a moment later; the server must notice before the line moves.
        wait_until(lambda: job.stopped)
        stop(first)
        wait_until(lambda: job.done)
        assert app.hold.begun == begun and not job.events


def test_the_page_reports_a_lost_connection(app: Any, share_page: Any) -> None:
    page = share_page(app.url + MORE)
    page.route("**/gradio_api/race/*", lambda route: route.abort())
    ask(page)
    wait_for(page, phase="failed")
    expect(page.locator(".announcer")).to_contain_text("connection was lost")
    page.unroute("**/gradio_api/race/*")
    with app.hold.after(1):
        ask(page)
        wait_for(page, phase="running")
        stop(page)


def test_no_step_is_lost_in_a_hidden_tab(app: Any, share_page: Any) -> None:
    page = share_page(app.url + MORE)
    number = reels(page)
    with app.hold.midway():
        ask(page)
        wait_for_words(page)
        page.evaluate("Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true})")
        advance(app, page, 10, events=4)
        page.evaluate("delete document.visibilityState")
    wait_for_reel(page, number)
    reel = latest_reel(page)
    answers = ["".join(text for step in steps for text in step["event"]["texts"]).lstrip() for steps in by_lane(reel)]
    assert texts(page) == answers


def by_lane(reel: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """A reel's steps, lane by lane."""
    return [[step for step in reel["steps"] if step["lane"] == lane] for lane in range(len(reel["results"]))]


def test_steps_that_come_fast_are_drawn_together(app: Any, share_page: Any) -> None:
    """Drawing is slow, so the page draws once for many steps. Its clock stands still while the steps come."""
    page = share_page(app.short_url, stopped=True)
    number = reels(page)
    with app.hold.after(1):
        begin(page)
        wait_for(page, phase="running")
        for _ in range(3):
            before = texts(page)
            advance(app, page, 3, events=4)
            run_clock(page, PICTURE_MS - 1)
            assert texts(page) == before
            run_clock(page, 1)
            assert len("".join(texts(page))) > len("".join(before))
    # The end of a race is drawn immediately.
    wait_for_reel(page, number)
    assert all(texts(page))


def test_the_draft_tree_follows_a_live_race(app: Any, share_page: Any) -> None:
    page = share_page(app.url + MORE, 1920, 1080)
    with app.hold.midway():
        ask(page)
        wait_for_words(page)
        for lane in ("trie", "vanilla"):
            page.locator(f".lane-tabs [data-lane={lane}]").click()
            before = inspected_step(page)
            advance_until(app, page, lambda before=before: inspected_step(page) > before + 1)
            expect(page.locator(".inspector")).to_have_attribute("data-lane", lane)
        stop(page)


def inspected_step(page: Page) -> int:
    """The step in the inspector."""
    return int(page.locator(".inspector").get_attribute("data-step") or -1)


def advance(app: Any, page: Page, times: int, events: int = 1) -> None:
    """Allow `events` more events, `times` times; each time wait until the page has a new step or the race has ended."""
    for _ in range(times):
        before = stage(page)["steps"]
        app.hold.allow(events)
        until(page, lambda before=before: stage(page)["steps"] != before or not app.hold.running)


def advance_until(app: Any, page: Page, condition: Callable[[], bool]) -> None:
    """Let the race advance event by event until a condition holds."""
    while not condition():
        advance(app, page, 1)
