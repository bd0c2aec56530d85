"""A race in pictures, on one sheet: python -m tests.measure.contact_sheet OUT.png [options]"""

from __future__ import annotations

import argparse
import base64
import hashlib
import html
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.apps import FLAGS, find_chromium, serving
from tests.browser.parts import QUESTION, question_field

READY_MS = 120_000
COLUMNS, CELL_WIDTH = 6, 320
SHEET = """<style>
  body {{ margin: 8px; font: 14px sans-serif }}
  body {{ display: grid; gap: 8px; grid-template-columns: repeat({columns}, {width}px) }}
  h1 {{ grid-column: 1 / -1; margin: 0; font-size: 20px }} figure {{ margin: 0 }} img {{ width: 100%; display: block }}
</style><h1>{title}</h1>{cells}"""


def read_options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.contact_sheet", description=__doc__)
    parser.add_argument("out", type=Path, help="the sheet, a PNG file")
    parser.add_argument("--size", default="1280x720", help="size of the window (default: %(default)s)")
    parser.add_argument("--every", type=int, default=250, metavar="MS", help="time between two pictures (default: 250)")
    parser.add_argument(
        "--seconds", type=float, default=16.0, help="time from the first picture to the last (default: %(default)s)"
    )
    parser.add_argument("--question", default=QUESTION, help="question that the bundled model races on")
    parser.add_argument("--recording", type=Path, metavar="FILE", help="a saved race to play instead")
    parser.add_argument("--present", action="store_true", help="present mode, which shows only the race")
    parser.add_argument("--keys", default="", help="keys to press when the race begins, such as o for the tour")
    return parser.parse_args()


def begin(page: Page, url: str, options: argparse.Namespace) -> None:
    """Open the page and start a race or a recording."""
    page.goto(url)
    page.wait_for_selector(".status[data-state=ready]", state="attached", timeout=READY_MS)
    if options.present:
        page.keyboard.press("p")
    if options.recording:
        page.locator("input.file").set_input_files(str(options.recording))
        page.wait_for_selector(".stage[data-mode=replay]")
    else:
        question_field(page).fill(options.question)
        page.locator("#race").click()
        page.wait_for_selector(".stage[data-phase=running][data-mode=live]", timeout=READY_MS)
        # Move the focus out of the question field, so that keys reach the page.
        page.evaluate("document.activeElement.blur()")
    for key in options.keys:
        page.keyboard.press(key)


def take_pictures(page: Page, every_ms: int, seconds: float) -> list[tuple[float, bytes]]:
    """Pictures, each with the second at which it was taken."""
    start, pictures = time.monotonic(), []
    while (now := time.monotonic() - start) < seconds:
        pictures.append((now, page.screenshot()))
        due = len(pictures) * every_ms / 1000 - (time.monotonic() - start)
        page.wait_for_timeout(max(0.0, 1000 * due))
    return pictures


def lay_out(browser: Browser, pictures: list[tuple[float, bytes]], title: str, out: Path) -> None:
    """Write one sheet of all pictures, each with its number and time."""
    cells = "".join(
        f'<figure><img src="data:image/png;base64,{base64.b64encode(data).decode()}">{number}: {taken_s:.2f} s</figure>'
        for number, (taken_s, data) in enumerate(pictures, 1)
    )
    page = browser.new_page(viewport={"width": COLUMNS * (CELL_WIDTH + 8) + 8, "height": 100})
    page.set_content(SHEET.format(columns=COLUMNS, width=CELL_WIDTH, title=html.escape(title), cells=cells))
    page.screenshot(path=out, full_page=True)


def main() -> None:
    """Serve the app, race or play, and write the sheet."""
    options = read_options()
    width, height = map(int, options.size.split("x"))
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        with serving(Path(scratch), "--model", "tiny") as (url, _):
            page = browser.new_page(viewport={"width": width, "height": height})
            begin(page, url, options)
            pictures = take_pictures(page, options.every, options.seconds)
        distinct = len({hashlib.sha256(data).digest() for _, data in pictures})
        title = f"{distinct} distinct pictures of {len(pictures)}, {options.size}"
        lay_out(browser, pictures, f"{title}: {options.recording or options.question}", options.out)
        print(title)


if __name__ == "__main__":
    main()
