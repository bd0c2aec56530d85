"""How much a page slows the race that it shows: python -m tests.measure.overhead [--url URL] [--rounds N]

Races one question alternately headless, through the endpoint for programs, and watched by a browser. Prints for each
lane the median ratio of watched to headless tokens per second on the lane's clock, the ratio of the wall times, and how
fast the page was. Exits with 1 if
- a lane keeps less than 90 % of its speed;
- the wall time is more than 1.25 times as long;
- the first words take longer than 5 s, or app.py needs longer than 15 s to answer.

It is not one of the tests, because on a shared machine it also measures the other programs. The page shows a short race
only when the race is over; with `--model smollm2-135m` it draws while the race runs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from gradio_client import Client
from playwright.sync_api import Page, sync_playwright

from tests.browser.apps import FLAGS, find_chromium, serving

QUESTION = "What is the n-gram trie built from?"
LANES = {"trigram": "Trigram", "lookahead": "Lookahead", "trie": "N-gram trie", "fusion": "Fusion"}
MIN_SPEED_SHARE, MAX_WALL_RATIO, TIMEOUT_MS = 0.9, 1.25, 600_000
FIRST_WORDS_S, ANSWERS_S = 5, 15
# By default Playwright polls at every animation frame, which would slow the page.
POLL_MS = 50
# Tokens per second of each lane, and the wall time in seconds.
Measured = tuple[dict[str, float], float]
# A script that records when Race was pressed and when the first words appeared.
WATCH = """() => {
  const stage = document.querySelector('.stage');
  document.getElementById('race').addEventListener('click', () => {
    Object.assign(window, { pressed: performance.now(), words: undefined });
  });
  stage.addEventListener('cursor', () => (window.words ??= performance.now()));
  stage.addEventListener('reel', (event) => (window.reel = event.detail));
}"""
WAITED_S = "(words - pressed) / 1000"


def race_headless(client: Client) -> Measured:
    """Race without a browser."""
    began = time.monotonic()
    answer = client.predict(QUESTION, ["vanilla", *LANES], api_name="/race")
    return {lane["lane"]: lane["tokens_per_s"] for lane in answer["lanes"]}, time.monotonic() - began


def race_watched(page: Page) -> Measured:
    """Race on a page that shows the race."""
    race, began = page.evaluate("window.reel?.race ?? 0"), time.monotonic()
    page.locator("#race").click()
    page.wait_for_function("race => window.reel?.race > race", arg=race, polling=POLL_MS)
    wall = time.monotonic() - began
    page.wait_for_function("window.words !== undefined", polling=POLL_MS)
    # Take the focus out of the question field, so that the key reaches the page.
    page.locator("h1").click()
    page.keyboard.press("Escape")
    return {row["lane"]: row["tokens_per_s"] for row in page.evaluate("window.reel.results")}, wall


def prepare(page: Page, url: str) -> None:
    """Open the page, choose the lanes and type the question."""
    page.set_default_timeout(TIMEOUT_MS)
    page.goto(url)
    page.wait_for_selector(".status[data-state=ready]", state="attached")
    page.locator("#settings-button").click()
    for title in LANES.values():
        page.get_by_label(title, exact=True).check()
    page.locator("#question").locator("textarea, input").fill(QUESTION)
    page.evaluate(WATCH)


def measure(url: str, rounds: int) -> bool:
    """Measure and print the figures; return whether they are within the limits."""
    pairs: list[tuple[Measured, Measured]] = []
    waited: list[float] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        prepare(page, url)
        client = Client(url, verbose=False)
        for round_number in range(rounds + 1):
            # The second race of a pair runs on a warmer machine, so each kind goes first in every other round.
            if round_number % 2:
                headless_race = race_headless(client)
                watched_race = race_watched(page)
            else:
                watched_race = race_watched(page)
                headless_race = race_headless(client)
            # The first round warms up.
            if round_number:
                pairs.append((headless_race, watched_race))
                waited.append(page.evaluate(WAITED_S))
        browser.close()
    # Not `and`, which would not print the second figures if the first ones fail.
    return check_speed(pairs) & check_wait(waited)


def check_speed(pairs: Sequence[tuple[Measured, Measured]]) -> bool:
    """Print the ratios of (headless, watched) races; return whether the watched races are fast enough."""
    speed_shares = {
        lane: statistics.median(watched[lane] / headless[lane] for (headless, _), (watched, _) in pairs)
        for lane in pairs[0][0][0]
    }
    wall_ratio = statistics.median(watched_s / headless_s for (_, headless_s), (_, watched_s) in pairs)
    for lane, share in speed_shares.items():
        print(f"{lane:14} keeps {share:.0%} of its tokens per second")
    print(f"wall time {wall_ratio:.2f} times; {len(pairs)} rounds")
    return min(speed_shares.values()) >= MIN_SPEED_SHARE and wall_ratio <= MAX_WALL_RATIO


def check_wait(waited: Sequence[float]) -> bool:
    """Print the median time until the first words; return whether it is short enough."""
    first_words_s = statistics.median(waited)
    print(f"the first words {first_words_s:.2f} s after Race was pressed")
    return first_words_s <= FIRST_WORDS_S


def main() -> int:
    """Return 1 if the page slows races too much or is too slow itself, else 0."""
    parser = argparse.ArgumentParser(description="How much a page slows the race that it shows, and how fast it is.")
    parser.add_argument("--url", help="address of a running app (default: start one)")
    parser.add_argument("--model", default="tiny", help="model of the app that is started")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    if options.url:
        return 0 if measure(options.url, options.rounds) else 1
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), "--model", options.model) as (url, _):
        answer_s = time.monotonic() - began
        print(f"app.py answers after {answer_s:.1f} s")
        return 0 if measure(url, options.rounds) and answer_s <= ANSWERS_S else 1


if __name__ == "__main__":
    sys.exit(main())
