"""Takes the README's pictures, of a real race: python -m tests.measure.screenshots [FOLDER [MODEL|RACE.jsonl]]

With a recording nothing is measured, so a busy machine can take the pictures of a race on a quiet one.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.browser.apps import FLAGS, PATIENCE_S, ROOT, find_chromium, serving

QUESTION = "What is the n-gram trie built from?"


def take_picture(page: Page, width: int, height: int, file: Path) -> None:
    """Save a picture of the window at this size."""
    page.set_viewport_size({"width": width, "height": height})
    # Wait until the page has settled at the new size.
    page.wait_for_timeout(600)
    page.screenshot(path=file)


def take_all(page: Page, url: str, folder: Path, recorded: bool) -> None:
    """Race with the default lanes, or show the recorded race that the server plays; take a picture of every mode."""
    page.set_default_timeout(PATIENCE_S * 1000)
    if recorded:
        page.goto(url)
    else:
        page.goto(f"{url}?q={QUESTION}&autorun=1")
        page.wait_for_selector(".stage[data-phase=finished]")
    page.wait_for_selector(".track [data-place='1']")
    page.keyboard.press("Space")
    take_picture(page, 1280, 720, folder / "replay.png")
    page.evaluate("document.querySelector('.inspector').scrollIntoView()")
    page.locator(".inspector").get_by_role("button", name="Fusion").click()
    take_picture(page, 1280, 720, folder / "inspector.png")
    page.evaluate("window.scrollTo(0, 0)")
    page.locator(".player [data-do=result]").click()
    page.keyboard.press("p")
    take_picture(page, 1280, 720, folder / "stage.png")
    page.keyboard.press("p")
    take_picture(page, 1920, 1080, folder / "bench.png")
    take_picture(page, 390, 844, folder / "phone.png")


def main() -> None:
    """Serve the app, race, and write the pictures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "assets" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    recorded = sys.argv[-1].endswith(".jsonl")
    arguments = ["--replay" if recorded else "--model", sys.argv[2]] if len(sys.argv) > 2 else []
    with (
        tempfile.TemporaryDirectory() as scratch,
        serving(Path(scratch), *arguments) as (url, _),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        take_all(browser.new_page(viewport={"width": 1280, "height": 720}), url, folder, recorded)


if __name__ == "__main__":
    main()
