"""The processor time of drawing a race: python -m tests.measure.drawing [--rounds N] [--recording FILE]

Shows a recorded race, so that no model computes. Prints the share of a core that all of Chromium's processes took from
the start of the race to its end, and the share of the page's main thread. Exits with 1 if all processes together took
more than 60 %. Needs Linux. It is not one of the tests, because without a GPU Chromium paints on the processor, which
other programs use, too.
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

import numpy as np
from playwright.sync_api import CDPSession, Page, sync_playwright

from tests.browser.apps import FLAGS, ROOT, find_chromium, serving

# The largest share of a core that drawing may take, a bar of our own; and times in ms.
MAX_SHARE, TIMEOUT_MS, POLL_MS = 0.6, 120_000, 500
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# A script that tells whether the page plays a race ("replay") or shows its end ("result").
MODE = "mode => document.querySelector('.stage')?.dataset.mode === mode"


def browser_s() -> float:
    """Processor seconds of all Chromium processes so far."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, fields = stat.read_text().rpartition(")")
        except OSError:
            continue
        if "chrom" in name:
            # User and system time.
            ticks += sum(map(int, fields.split()[11:13]))
    return ticks / TICKS_PER_S


def main_thread_s(session: CDPSession) -> float:
    """Seconds of work on the page's main thread so far."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


def show(page: Page, session: CDPSession) -> tuple[float, float]:
    """Play the race once; return the shares of a core that all processes and the main thread took."""
    page.locator("[data-do=play]").click()
    page.wait_for_function(MODE, arg="replay", polling=POLL_MS)
    before = np.array([time.monotonic(), browser_s(), main_thread_s(session)])
    page.wait_for_function(MODE, arg="result", polling=POLL_MS)
    wall, browser, main = np.array([time.monotonic(), browser_s(), main_thread_s(session)]) - before
    print(f"shown for {wall:.1f} s: {browser / wall:.0%} of a core in all, {main / wall:.0%} on the main thread")
    return float(browser / wall), float(main / wall)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the race several times; return 1 if the median share of all processes is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--recording", type=Path, default=ROOT / "assets" / "recordings" / "smollm2-copying.jsonl")
    parser.add_argument("--present", action="store_true", help="present mode, at 1920 x 1080")
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
        page.wait_for_function(MODE, arg="result", polling=POLL_MS)
        if options.present:
            page.keyboard.press("p")
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        shares = [show(page, session) for _ in range(options.rounds)]
        browser.close()
    return int(statistics.median(share for share, _ in shares) > MAX_SHARE)


if __name__ == "__main__":
    sys.exit(main())
