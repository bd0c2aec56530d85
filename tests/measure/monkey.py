"""Random actions on the page, and a race after them: python -m tests.measure.monkey [--actions N] [--seed S]

Clicks, presses keys, types questions, chooses lanes, uploads files, resizes, closes tabs, reloads, also during a race.
Exits with 1 if the page threw or sent a request to another server; fails if it cannot race afterwards.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import Error as BrowserError

from tests.browser.apps import FLAGS, PATIENCE_S, find_chromium, serving
from tests.browser.parts import FEW_FRAMES, RECORDING, question_field

# Keys that do something on the page (stage/keys.js), and those with which visitors move about.
KEYS = [*"r123456pftemvogd?", "Escape", " ", "ArrowLeft", "ArrowRight", "Tab", "Enter"]
QUESTIONS = ["What is the n-gram trie built from?", "", "  ", "<b>${x}</b>", "Why does bread rise?", "a" * 2500]
SIZES = [(1280, 720), (1920, 1080), (390, 844), (800, 600)]
# The time limit of an action. An action that has nothing to act on waits that long.
ACTION_MS = 300


class Monkey:
    """Performs random actions on a page, which depend on the seed and on what the page shows."""

    def __init__(self, browser: Browser, url: str, seed: int, folder: Path) -> None:
        self.browser, self.url, self.folder = browser, url, folder
        self.rng = random.Random(seed)
        self.complaints: list[str] = []
        self.num_done: Counter[str] = Counter()
        self.page = self.open()
        (folder / "owls.md").write_text("# Owls\n\nThe owl hears a mouse under the snow.", encoding="utf-8")
        (folder / "bad.md").write_bytes(b"\xff\xfe\x00\xd8 owls")
        (folder / "cut.jsonl").write_bytes(RECORDING.read_bytes()[:20_000])
        (folder / "race.jsonl").write_bytes(RECORDING.read_bytes())

    def open(self) -> Page:
        """Open a new tab."""
        page = self.browser.new_page(viewport={"width": 1280, "height": 720})
        page.set_default_timeout(1000 * PATIENCE_S)
        page.add_init_script(FEW_FRAMES)
        page.on("pageerror", lambda error: self.complaints.append(f"threw {error}"))
        page.on("request", lambda request: self.check_request(request.url))
        page.goto(self.url)
        page.wait_for_selector(".stage .pane")
        page.set_default_timeout(ACTION_MS)
        return page

    def check_request(self, url: str) -> None:
        """Record a complaint for a request to another server."""
        if not url.startswith((self.url.partition("?")[0], "data:", "blob:")):
            self.complaints.append(f"requested {url}")

    def act(self, count: int) -> None:
        """Do this many random actions."""
        weighted_actions: list[tuple[int, Callable[[], object]]] = [
            (10, self.press_key),
            (10, self.click),
            (4, self.ask),
            (3, self.choose_lane),
            (2, self.resize),
            (2, self.upload_files),
            (2, self.open_recording),
            (1, self.reload),
            (1, self.change_tab),
        ]
        for _ in range(count):
            weights = [weight for weight, _ in weighted_actions]
            ((_, action),) = self.rng.choices(weighted_actions, weights)
            try:
                action()
                self.num_done[action.__name__] += 1
            except BrowserError:
                self.num_done["nothing to do"] += 1
            self.page.wait_for_timeout(self.rng.choice([0, 10, 60, 300]))

    def press_key(self) -> None:
        """Press a key, wherever the focus is."""
        self.page.keyboard.press(self.rng.choice(KEYS))

    def click(self) -> None:
        """Click a visible control."""
        targets = self.page.locator("button:visible, input[type=checkbox]:visible, select:visible, .pane [data-step]")
        targets.nth(self.rng.randrange(max(1, targets.count()))).click()

    def ask(self) -> None:
        """Type a question, and in 7 of 10 cases race."""
        question_field(self.page).fill(self.rng.choice(QUESTIONS))
        if self.rng.random() < 0.7:
            self.page.locator("#race").click()

    def choose_lane(self) -> None:
        """Add or remove a lane."""
        if self.page.locator("#settings").get_attribute("data-open") != "true":
            self.page.locator("#settings-button").click()
        boxes = self.page.locator("#settings input[type=checkbox]:visible")
        boxes.nth(self.rng.randrange(max(1, boxes.count()))).click()

    def resize(self) -> None:
        """Change the window's size."""
        width, height = self.rng.choice(SIZES)
        self.page.set_viewport_size({"width": width, "height": height})

    def upload_files(self) -> None:
        """Upload documents, good and bad."""
        files = [str(self.folder / name) for name in self.rng.sample(["owls.md", "bad.md"], self.rng.randint(1, 2))]
        self.page.locator("#files input[type=file]").set_input_files(files)

    def open_recording(self) -> None:
        """Open a recorded race, complete or cut off."""
        self.page.locator("input.file").set_input_files(str(self.folder / self.rng.choice(["race.jsonl", "cut.jsonl"])))

    def reload(self) -> None:
        """Reload the page."""
        self.page.reload(timeout=1000 * PATIENCE_S)
        self.page.wait_for_selector(".stage .pane", timeout=1000 * PATIENCE_S)

    def change_tab(self) -> None:
        """Close this tab, also during a race, and open a new one."""
        self.page.close()
        self.page = self.open()

    def race(self) -> None:
        """Run a race to its end in a new tab."""
        self.change_tab()
        self.page.set_default_timeout(1000 * PATIENCE_S)
        self.page.emulate_media(reduced_motion="reduce")
        self.page.wait_for_selector(".status[data-state=ready]", state="attached")
        question_field(self.page).fill(QUESTIONS[0])
        self.page.locator("#race").click()
        self.page.wait_for_selector(".stage[data-phase=finished][data-mode=result]", state="attached")


def run(browser: Browser, url: str, actions: int, seed: int, folder: Path) -> Monkey:
    """Do the actions, then race."""
    monkey = Monkey(browser, url, seed, folder)
    monkey.act(actions)
    monkey.race()
    monkey.page.close()
    return monkey


def main() -> int:
    """Return 1 if there are complaints, else 0."""
    parser = argparse.ArgumentParser(description="Random actions on the page, and a race after them.")
    parser.add_argument("--actions", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as scratch,
        serving(Path(scratch), "--model", "tiny") as (url, _),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        monkey = run(browser, url, options.actions, options.seed, Path(scratch))
    print(f"{sum(monkey.num_done.values())} actions: {dict(monkey.num_done.most_common())}")
    print("\n".join(monkey.complaints) or "no complaint, and the page still races")
    return 1 if monkey.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
