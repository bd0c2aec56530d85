"""What a page costs the race that it shows: python -m tests.measure.overhead [--url URL] [--rounds N]

Races the same question in turns: headless, through the endpoint for programs, and watched by a browser. It prints, for
each lane, the median ratio of watched to headless tokens a second on the lane's own clock, the ratio of wall times, and
how fast the page was. It ends with code 1 where a lane keeps less than 90 % of its speed, the wall time is
above 1.25 times, or the first words take longer than 5 s or the page longer than 15 s. It is no part of the tests: on a
shared machine it measures the other programs, too. A page holds a race back that is over within a second; with
`--model smollm2-135m` it draws while the race runs.
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
KEPT, WALL, TIMEOUT_MS = 0.9, 1.25, 600_000
FIRST_WORDS_S, ANSWERS_S = 5, 15
# By default Playwright polls at every animation frame, which would slow the page.
LOOK_MS = 50
Measured = tuple[dict[str, float], float]
# Records when Race was pressed, and when the first words appeared.
WATCH = """() => {
  const stage = document.querySelector('.stage');
  document.getElementById('race').addEventListener('click', () => {
    Object.assign(window, { asked: performance.now(), words: undefined });
  });
  stage.addEventListener('cursor', () => (window.words ??= performance.now()));
  stage.addEventListener('reel', (event) => (window.reel = event.detail));
}"""
WAITED_S = "(words - asked) / 1000"


def headless(client: Client) -> Measured:
    """Tokens a second of every lane, and seconds on the wall."""
    began = time.monotonic()
    answer = client.predict(QUESTION, ["vanilla", *LANES], api_name="/race")
    return {lane["lane"]: lane["tokens_per_s"] for lane in answer["lanes"]}, time.monotonic() - began


def watched(page: Page) -> Measured:
    """Tokens a second of every lane, and seconds on the wall, with a page that shows the race."""
    race, began = page.evaluate("window.reel?.race ?? 0"), time.monotonic()
    page.locator("#race").click()
    page.wait_for_function("race => window.reel?.race > race", arg=race, polling=LOOK_MS)
    wall = time.monotonic() - began
    page.wait_for_function("window.words !== undefined", polling=LOOK_MS)
    page.locator("h1").click()
    page.keyboard.press("Escape")
    return {row["lane"]: row["tokens_per_s"] for row in page.evaluate("window.reel.results")}, wall


def prepare(page: Page, url: str) -> None:
    """The page with these lanes chosen and the question asked."""
    page.set_default_timeout(TIMEOUT_MS)
    page.goto(url)
    page.wait_for_selector(".status[data-state=ready]", state="attached")
    page.locator("#settings-button").click()
    for title in LANES.values():
        page.get_by_label(title, exact=True).check()
    page.locator("#question").locator("textarea, input").fill(QUESTION)
    page.evaluate(WATCH)


def measure(url: str, rounds: int) -> bool:
    """Print the figures; whether they are good enough."""
    pairs: list[tuple[Measured, Measured]] = []
    waited: list[float] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        prepare(page, url)
        client = Client(url, verbose=False)
        for round_number in range(rounds + 1):
            # The second of a pair has a warmer machine, so they take turns at going first.
            if round_number % 2:
                pair = headless(client), watched(page)
            else:
                second, first = watched(page), headless(client)
                pair = first, second
            # The first round warms up.
            pairs += [pair] if round_number else []
            waited += [page.evaluate(WAITED_S)] if round_number else []
        browser.close()
    return tell_cost(pairs) & tell_wait(waited)


def tell_cost(pairs: Sequence[tuple[Measured, Measured]]) -> bool:
    """Whether the races kept their speed."""
    kept_shares = {
        lane: statistics.median(on[lane] / off[lane] for (off, _), (on, _) in pairs) for lane in pairs[0][0][0]
    }
    wall = statistics.median(on / off for (_, off), (_, on) in pairs)
    for lane, share in kept_shares.items():
        print(f"{lane:14} keeps {share:.0%} of its tokens a second")
    print(f"wall time {wall:.2f} times; {len(pairs)} rounds")
    return min(kept_shares.values()) >= KEPT and wall <= WALL


def tell_wait(waited: Sequence[float]) -> bool:
    """Whether the first words came soon."""
    words = statistics.median(waited)
    print(f"the first words {words:.2f} s after Race was pressed")
    return words <= FIRST_WORDS_S


def main() -> int:
    """Exit code 1 where the page costs too much, or is too slow."""
    parser = argparse.ArgumentParser(description="What a page costs the race that it shows, and how fast it is.")
    parser.add_argument("--url", help="a running app; default: one is started")
    parser.add_argument("--model", default="tiny", help="of the app that is started")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    if options.url:
        return 0 if measure(options.url, options.rounds) else 1
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), "--model", options.model) as (url, _):
        answered = time.monotonic() - began
        print(f"app.py answers after {answered:.1f} s")
        return 0 if measure(url, options.rounds) and answered <= ANSWERS_S else 1


if __name__ == "__main__":
    sys.exit(main())
