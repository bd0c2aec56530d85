"""What a page costs the race that it shows: python tests/browser/overhead.py [--url URL] [--rounds N]

Races the same question in turns: headless, through the endpoint for programs, and watched by a browser. It prints, for
each lane, the median of watched over headless tokens a second on the lane's own clock, and the same of the time on the
wall, and ends with code 1 where a lane keeps less than 90 % of its speed or the wall time is above 1.25 times. It is no
part of the tests: on a machine that others use, too, it measures them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

from conftest import FLAGS, find_chromium, serving  # noqa: E402
from gradio_client import Client  # noqa: E402
from playwright.sync_api import Page, sync_playwright  # noqa: E402

QUESTION = "What is the n-gram trie built from?"
LANES = {"bigram": "Bigram", "trigram": "Trigram", "lookahead": "Lookahead", "trie": "N-gram trie"}
LANES |= {"prompt-lookup": "Prompt lookup"}
KEPT, WALL, TIMEOUT_MS = 0.9, 1.25, 600_000
# Playwright looks at every animation frame unless it is told how often: the page would pay for that.
LOOK_MS = 50
Measured = tuple[dict[str, float], float]


def headless(client: Client) -> Measured:
    """Tokens a second of every lane, and seconds on the wall."""
    began = time.monotonic()
    answer = client.predict(QUESTION, ["vanilla", *LANES], api_name="/race_result")
    return {lane["lane"]: lane["tokens_per_s"] for lane in answer["lanes"]}, time.monotonic() - began


def watched(page: Page) -> Measured:
    """The same with a page that shows it, whose frames are counted."""
    race, began = page.locator(".stage").get_attribute("data-race") or "0", time.monotonic()
    page.locator("#race").click()
    begun = "race => Number(document.querySelector('.stage').dataset.race) > race"
    page.wait_for_function(begun, arg=int(race), polling=LOOK_MS)
    page.wait_for_function("document.querySelector('.stage').dataset.mode === 'result'", polling=LOOK_MS)
    wall = time.monotonic() - began
    page.wait_for_function("race => window.reel?.race > race", arg=int(race), polling=LOOK_MS)
    if page.locator(".stage").get_attribute("data-lost") != "0":
        sys.exit("A frame was lost.")
    return {row["lane"]: row["tokens_per_s"] for row in page.evaluate("window.reel.results")}, wall


def prepare(page: Page, url: str) -> None:
    """The page with the six lanes chosen and the question asked."""
    page.set_default_timeout(TIMEOUT_MS)
    page.goto(url)
    page.wait_for_selector(".status[data-state=ready]", state="attached")
    page.locator("#settings-button").click()
    for title in LANES.values():
        page.get_by_label(title, exact=True).check()
    page.locator("#question").locator("textarea, input").fill(QUESTION)
    page.evaluate("document.querySelector('.stage').addEventListener('reel', e => (window.reel = e.detail))")


def measure(url: str, rounds: int) -> bool:
    """Print the figures; whether they are good enough."""
    pairs: list[tuple[Measured, Measured]] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 720}, reduced_motion="reduce")
        prepare(page, url)
        client = Client(url, verbose=False)
        for each in range(rounds + 1):
            # Whoever comes second finds a warmer machine: they take turns at that, too.
            if each % 2:
                pair = headless(client), watched(page)
            else:
                second, first = watched(page), headless(client)
                pair = first, second
            pairs += [pair] if each else []  # the first round warms up
        browser.close()
    kept = {lane: statistics.median(on[lane] / off[lane] for (off, _), (on, _) in pairs) for lane in pairs[0][0][0]}
    wall = statistics.median(on / off for (_, off), (_, on) in pairs)
    for lane, share in kept.items():
        print(f"{lane:14} keeps {share:.0%} of its tokens a second")
    print(f"wall time {wall:.2f} times; {rounds} rounds")
    return min(kept.values()) >= KEPT and wall <= WALL


def main() -> int:
    """Exit code 1 where the page costs too much."""
    parser = argparse.ArgumentParser(description="What a page costs the race that it shows.")
    parser.add_argument("--url", help="a running app; default: one is started")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    if options.url:
        return 0 if measure(options.url, options.rounds) else 1
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as (app, _):
        return 0 if measure(app.url, options.rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
