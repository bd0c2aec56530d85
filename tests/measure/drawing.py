"""What drawing a race costs: python -m tests.measure.drawing [--rounds N] [--recording FILE]

Shows a recorded race, so that no model is at work, and prints which share of a core all of Chromium's processes took
between the start and the finish, and which its page's main thread took. It ends with code 1 above 60 %. Linux only; it
is no part of the tests: on a machine without a GPU, Chromium paints on the processor, and others may use that, too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import CDPSession, Page, sync_playwright

from tests.browser.apps import FLAGS, ROOT, find_chromium, serving

MAX_SHARE, TIMEOUT_MS, LOOK_MS = 0.6, 120_000, 500
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MODE = "mode => document.querySelector('.stage')?.dataset.mode === mode"


def browser_s() -> float:
    """CPU seconds of all Chromium processes so far."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, fields = stat.read_text().rpartition(")")
        except OSError:
            continue
        if "chrom" in name:
            ticks += sum(map(int, fields.split()[11:13]))
    return ticks / TICKS_PER_S


def main_thread_s(session: CDPSession) -> float:
    """Seconds that the page's main thread was at work."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


def show(page: Page, session: CDPSession) -> tuple[float, float]:
    """The shares of a core for one show: all processes, and the main thread."""
    page.locator("[data-do=play]").click()
    page.wait_for_function(MODE, arg="replay", polling=LOOK_MS)
    before = time.monotonic(), browser_s(), main_thread_s(session)
    page.wait_for_function(MODE, arg="result", polling=LOOK_MS)
    wall, browser, main = (
        b - a for a, b in zip(before, (time.monotonic(), browser_s(), main_thread_s(session)), strict=True)
    )
    print(f"shown for {wall:.1f} s: {browser / wall:.0%} of a core in all, {main / wall:.0%} on the main thread")
    return browser / wall, main / wall


def main(arguments: Sequence[str] | None = None) -> int:
    """Show and print; return 1 if it takes more than it may."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--recording", type=Path, default=ROOT / "assets" / "recordings" / "smollm2-copying.jsonl")
    parser.add_argument("--present", action="store_true", help="in Present, at 1920 x 1080")
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), "--replay", str(options.recording)) as (url, _),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        size = {"width": 1920, "height": 1080} if options.present else {"width": 1280, "height": 720}
        page = browser.new_page(viewport=size)
        page.set_default_timeout(TIMEOUT_MS)
        page.goto(url)
        page.wait_for_function(MODE, arg="result", polling=LOOK_MS)
        if options.present:
            page.keyboard.press("p")
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        shares = [show(page, session) for _ in range(options.rounds)]
        browser.close()
    return int(statistics.median(share for share, _ in shares) > MAX_SHARE)


if __name__ == "__main__":
    sys.exit(main())
