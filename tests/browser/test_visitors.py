"""Visitors who leave, wait or lose frames: the real page over a race that never ends by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from playwright.sync_api import expect

from specrace.events import Event, Finished, LaneInfo, LaneResult, Started, Step, Timing
from specrace.tree import TokenTree
from specrace.ui.page import build_page, launch_options
from specrace.ui.worker import Worker
from specrace.verify import Scores, Verdict
from specrace.workbench import Workbench

pytestmark = pytest.mark.browser


class EndlessBench:
    """Stands where the workbench stands; its two lanes go on until they are stopped."""

    running = begun = 0

    def ask(self, question: str, spec: Any, *, top: int, stop: Callable[[], bool]) -> Iterator[Event]:
        self.running += 1
        self.begun += 1
        settings = {"settings": {"max_new_tokens": 10_000}, "question": question}
        yield Started((LaneInfo("vanilla", "Vanilla", 0), LaneInfo("trie", "N-gram trie", 2)), 3, 1.0, settings)
        index = 0
        while not stop():
            time.sleep(0.005)
            for lane, size in (("vanilla", 1), ("trie", 3)):
                tree, pieces = TokenTree.chain(1, [2] * (size - 1)), ("a", "b", "c")[:size]
                verdict, timing, texts = Verdict((0,), 1, Scores((1,) * size)), Timing(0, 5, 0), (f" {index}",)
                yield Step(lane, index, 5.0 * index, tree, verdict, (1,), timing, texts=texts, pieces=pieces)
            index += 1
        figures = (index, index, 1.0, 0, 0, 5.0 * index, 200, 1.0, True, None, "stopped", 0)
        self.running -= 1
        yield Finished((LaneResult("vanilla", *figures), LaneResult("trie", *figures)), stopped=True)


@pytest.fixture(scope="module")
def endless() -> Iterator[tuple[str, EndlessBench]]:
    bench = EndlessBench()

    def load(report: Callable[[str], None]) -> Workbench:
        report("Ready: endless")
        return cast(Workbench, bench)

    worker = Worker(load)
    page = build_page(worker, [])
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, **launch_options(worker))
    worker.start()
    yield url, bench
    page.close()


def begin(page: Any) -> None:
    page.locator("#question").locator("textarea, input").fill("Will it end?")
    page.locator("#race").click()


def racing_and_in_line(endless: tuple[str, EndlessBench], open_page: Any) -> tuple[Any, Any]:
    """The pages of a visitor whose race runs and of one who waits for it."""
    url, bench = endless
    first, second = open_page(url), open_page(url)
    begin(first)
    assert wait_until(lambda: bench.running == 1)
    begin(second)
    expect(second.locator(".announcer")).to_have_text("Another race is running: yours is number 1 in line.")
    return first, second


def wait_until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return condition()


@pytest.mark.alone
def test_closing_the_tab_stops_the_race_and_lets_the_next_visitor_race(
    endless: tuple[str, EndlessBench], open_page: Any
) -> None:
    _, bench = endless
    first, second = racing_and_in_line(endless, open_page)
    begun = bench.begun
    first.close()
    assert wait_until(lambda: (bench.running, bench.begun) == (1, begun + 1), 2.0)
    expect(second.locator(".stage")).to_have_attribute("data-phase", "running")
    second.close()
    assert wait_until(lambda: bench.running == 0, 2.0)


@pytest.mark.alone
def test_a_tab_that_is_closed_in_line_never_races(endless: tuple[str, EndlessBench], open_page: Any) -> None:
    _, bench = endless
    first, second = racing_and_in_line(endless, open_page)
    begun = bench.begun
    second.close()
    # Chromium hangs up a moment later; the server has to hear of this one first.
    first.wait_for_timeout(500)
    first.close()
    assert wait_until(lambda: bench.running == 0, 2.0)
    assert not wait_until(lambda: bench.begun > begun, 0.5)


def test_a_lost_connection_is_told(endless: tuple[str, EndlessBench], open_page: Any) -> None:
    url, bench = endless
    page = open_page(url)
    page.route("**/gradio_api/race/*", lambda route: route.abort())
    begin(page)
    expect(page.locator(".stage")).to_have_attribute("data-phase", "failed")
    expect(page.locator(".announcer")).to_contain_text("connection was lost")
    page.unroute("**/gradio_api/race/*")
    begin(page)
    expect(page.locator(".stage")).to_have_attribute("data-phase", "running")
    page.close()
    assert wait_until(lambda: bench.running == 0)


def test_a_second_visitor_waits_in_line_and_then_races(endless: tuple[str, EndlessBench], open_page: Any) -> None:
    first, second = racing_and_in_line(endless, open_page)
    first.locator("#stop").click()
    expect(first.locator(".stage")).to_have_attribute("data-phase", "stopped")
    expect(second.locator(".stage")).to_have_attribute("data-phase", "running")
    second.locator("#stop").click()
    expect(second.locator(".stage")).to_have_attribute("data-phase", "stopped")


@pytest.mark.alone
def test_frames_keep_their_pace_and_none_is_lost_in_a_hidden_tab(
    endless: tuple[str, EndlessBench], open_page: Any
) -> None:
    url, _ = endless
    page = open_page(url)
    begin(page)
    expect(page.locator(".stage")).to_have_attribute("data-phase", "running")
    counted = "Number(document.querySelector('.stage').dataset.frames)"
    before, began = page.evaluate(counted), time.monotonic()
    page.wait_for_timeout(1500)
    rate = (page.evaluate(counted) - before) / (time.monotonic() - began)
    assert rate >= 15
    page.evaluate("Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true})")
    page.wait_for_timeout(1500)
    page.evaluate("delete document.visibilityState")
    page.locator("#stop").click()
    expect(page.locator(".stage")).to_have_attribute("data-phase", "stopped")
    assert page.locator(".stage").get_attribute("data-lost") == "0"
    numbers = page.locator(".pane .text p").last.inner_text().split()
    assert numbers == [str(number) for number in range(len(numbers))] and len(numbers) > 200


def test_the_draft_tree_follows_a_live_race_while_somebody_looks(
    endless: tuple[str, EndlessBench], open_page: Any
) -> None:
    page = open_page(endless[0], 1920, 1080, calm=True)
    page.evaluate(
        """() => {
          window.steps = [];
          window.drawn = [];
          document.querySelector('.stage').addEventListener('step', ({ detail }) => window.steps.push(detail));
          new MutationObserver(() => window.drawn.push(document.querySelectorAll('.tree g.node').length))
            .observe(document.querySelector('.tree'), { childList: true });
        }"""
    )
    begin(page)
    more = "count => window.steps.length > count"
    page.wait_for_function(more, arg=3)
    expect(page.locator(".inspector")).to_have_attribute("data-lane", "trie")
    page.locator(".lane-tabs [data-lane=vanilla]").click()
    page.wait_for_function("() => window.steps.at(-1).lane === 'vanilla'")
    count = page.evaluate("window.steps.length")
    page.wait_for_function(more, arg=count + 3)
    # Shut, it asks for nothing; open again, it goes on.
    page.keyboard.press("t")
    page.wait_for_timeout(600)
    count = page.evaluate("window.steps.length")
    page.wait_for_timeout(1000)
    assert page.evaluate("window.steps.length") == count
    page.keyboard.press("t")
    page.wait_for_function(more, arg=count)
    steps, drawn = page.evaluate("[window.steps, window.drawn]")
    # The bonus token is a node, too.
    assert drawn == [4 if step["lane"] == "trie" else 2 for step in steps]
    times = [step["at_ms"] for step in steps]
    assert times == sorted(times) and all(step["index"] > 0 for step in steps[1:])
    page.locator("#stop").click()
    expect(page.locator(".stage")).to_have_attribute("data-phase", "stopped")
    expect(page.locator(".inspector")).to_have_attribute("data-live", "false")
