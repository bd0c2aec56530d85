"""The time from a dropped log to a copied recommendation: python -m tests.measure.advice_page [REQUESTS]

Makes a log from sentences of the bundled documents, drops it on the page, waits for the recommendation and copies the
settings for vLLM. Prints the wall time until then, and the processor time of the server's processes. With `n` idle
processors the wait is at least the processor time divided by `n`.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.browser.apps import FLAGS, ROOT, find_chromium, serving

WAIT_MS = 300_000
REQUESTS = 500
# Category -> how many of an answer's five sentences are copied from the document in its prompt. The others are taken
# from another document.
COPIED = {"answers from a document": 4, "summaries": 2, "stories": 0}


def corpus_log(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """The rows of a log: `count` requests about bundled documents, of about 350 prompt and 150 output tokens."""
    rng = random.Random(seed)
    files = sorted((ROOT / "corpus").glob("*.md"))
    documents = [re.split(r"(?<=[.!?])\s+", file.read_text(encoding="utf-8").strip()) for file in files]
    requests = []
    for number in range(count):
        category = list(COPIED)[number % len(COPIED)]
        document, other = rng.sample(documents, 2)
        # A document's first sentence begins with its heading, so it is not copied.
        sentences = rng.sample(document[1:], COPIED[category]) + rng.sample(other[1:], 5 - COPIED[category])
        rng.shuffle(sentences)
        prompt = f"{' '.join(document)}\n\nQuestion {number}: what does this text say?\n"
        requests.append({"category": category, "prompt": prompt, "output": " ".join(sentences)})
    return requests


def processor_s(pid: int) -> float:
    """User and system seconds of a process and its descendants, including ended ones."""
    # Process id -> (its parent, its processor time in clock ticks).
    descendants, stats = {pid}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # The fields after the name: 1 is the parent; 11 to 14 are user and system ticks, its own and of ended children.
        stats[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    while children := {child for child, (parent, _) in stats.items() if parent in descendants} - descendants:
        descendants |= children
    ticks = sum(stats[process][1] for process in descendants if process in stats)
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Drop a log, wait for the recommendation, copy it, and print the times."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        log = Path(scratch) / "requests.jsonl"
        log.write_text("".join(json.dumps(request) + "\n" for request in corpus_log(count)), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        with serving(Path(scratch), "--model", "tiny") as (url, process):
            context = browser.new_context(viewport={"width": 1280, "height": 720}, reduced_motion="reduce")
            context.grant_permissions(["clipboard-read", "clipboard-write"])
            page = context.new_page()
            page.goto(url)
            page.wait_for_selector(".status[data-state=ready]", state="attached", timeout=WAIT_MS)
            page.locator("[data-do=logs]").click()
            page.wait_for_selector(".logs fieldset input")
            began, processor_before = time.monotonic(), processor_s(process.pid)
            page.locator(".logs input[type=file]").set_input_files(str(log))
            page.locator(".advice-line .small-button").first.click(timeout=WAIT_MS)
            page.wait_for_selector(".advice-said:has-text('Copied')", timeout=WAIT_MS)
            wall_s, spent_s = time.monotonic() - began, processor_s(process.pid) - processor_before
            line = page.evaluate("navigator.clipboard.readText()")
            text = page.locator(".advice-text p").first.text_content()
    print(f"{count} requests: {wall_s:.1f} s until the line was copied, {spent_s:.1f} s of processor time.")
    print(text, line, sep="\n")


if __name__ == "__main__":
    main()
