"""What tests of a finished race share: a recording as rows, and a page that has opened it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

Row = dict[str, Any]
QUESTION = "What is the n-gram trie built from?"
# For machines that have much else to do; nothing here waits that long otherwise.
PATIENCE_MS = 120_000
DRAWS_WITHIN_MS = 250
# Behind an address: answers of this length, where a race only has to be run.
SHORT = "?tokens=40"
HOSTILE = (
    "<img src=x onerror=window.__pwn=1> ${alert(1)} ${window.__pwn=2} {{x}} `${1}` "
    "</p><script>window.__pwn=3</script> =cmd() \u202egnirts \u2028 🦉 "
)


def read_rows(path: Path) -> list[Row]:
    """The events of a recording."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def write_rows(path: Path, rows: list[Row]) -> Path:
    """A recording of these events."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def steps_of(rows: list[Row], lane: str) -> list[Row]:
    """A lane's steps, in order."""
    return [row for row in rows[1:-1] if row["lane"] == lane]


def ask(page: Page, question: str = QUESTION) -> None:
    """Type a question and press Race."""
    page.locator("#question").locator("textarea, input").fill(question)
    page.locator("#race").click()


def mode(page: Page, name: str) -> None:
    """Wait until the stage is in this mode."""
    page.wait_for_function(
        "name => document.querySelector('.stage').dataset.mode === name", arg=name, timeout=PATIENCE_MS
    )


def texts(page: Page) -> list[str]:
    """What the panes print; the hint of an empty pane is not part of it."""
    found: list[str] = page.locator(".pane .text p:last-child").all_text_contents()
    return found


def race(page: Page, question: str = QUESTION) -> None:
    """A live race to its end, its replay at hand."""
    ask(page, question)
    mode(page, "live")
    mode(page, "result")
    page.wait_for_selector(".scrubber:enabled")


def open_race(page: Page, path: Path) -> None:
    """Open a recording from its file, and wait until the page has it."""
    number = page.evaluate("window.__reels ??= 0")
    page.evaluate("document.querySelector('.stage').addEventListener('reel', () => window.__reels++, { once: true })")
    page.locator("input.file").set_input_files(str(path))
    page.wait_for_function("number => window.__reels > number", arg=number)


def choose(page: Page, lane: str, step: int) -> None:
    """Walk the inspector to a step of a lane, on a page whose clock can be turned."""
    if page.locator(".inspector").get_attribute("data-lane") != lane:
        page.locator(f".lane-tabs [data-lane={lane}]").click()
    page.evaluate(
        """([lane, step]) => {
          const tabs = [...document.querySelectorAll('.lane-tabs button')];
          const detail = { lane: tabs.findIndex((tab) => tab.dataset.lane === lane), step };
          document.querySelector('.stage').dispatchEvent(new CustomEvent('seek', { detail }));
        }""",
        [lane, step],
    )
    # It draws a few times a second only.
    page.clock.run_for(DRAWS_WITHIN_MS)
    page.wait_for_selector(f".inspector[data-lane={lane}][data-step='{step}']")
