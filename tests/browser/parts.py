"""Helpers for tests of races: they read and write recordings, and operate a page that runs or shows a race."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, TimeoutError

from tests.browser.apps import PATIENCE_S, ROOT

# Makes a page draw ten frames a second instead of 60: the browser then needs half of the processor time for a race.
# `framesDue` holds the frames that were requested and have not been drawn yet.
FEW_FRAMES = """{
  const draw = requestAnimationFrame, waiting = (window.framesDue = new Set());
  let last = 0;
  requestAnimationFrame = (callback) => {
    const id = ++last;
    waiting.add(id);
    setTimeout(() => draw((time) => waiting.delete(id) && callback(time)), 85);
    return id;
  };
  cancelAnimationFrame = (id) => waiting.delete(id);
}
"""
Row = dict[str, Any]
QUESTION = "What is the n-gram trie built from?"
RECORDINGS = ROOT / "assets" / "recordings"
RECORDING = RECORDINGS / "ngram-trie.jsonl"
SIX_LANES = RECORDINGS / "six-lanes.jsonl"
# The inspector and the marks in passages are drawn again after at most this time.
DRAWS_WITHIN_MS = 250
# The time between two checks of a condition.
TURN_MS = 20
HOSTILE = (
    "<img src=x onerror=window.__pwn=1> ${alert(1)} ${window.__pwn=2} {{x}} `${1}` "
    "</p><script>window.__pwn=3</script> =cmd() \u202egnirts \u2028 🦉 "
)
# A script that records a page's reels, its modes in order, and its races. It leaves out "idle", a mode that may last
# less than a frame between two others.
WITNESS = """{
  const seen = window.witness = { reels: 0, reel: undefined, modes: [], races: new Set() };
  addEventListener("reel", ({ detail }) => { seen.reels++; seen.reel = detail; }, true);
  const add = (mode) => mode !== "idle" && mode !== seen.modes.at(-1) && seen.modes.push(mode);
  new MutationObserver((changes) => {
    for (const { target, attributeName, oldValue } of changes) {
      if (attributeName === "data-mode") add(oldValue);
      else seen.races.add(target.dataset.race);
    }
    const stage = document.querySelector(".stage");
    if (stage) add(stage.dataset.mode);
  }).observe(document, { subtree: true, attributeFilter: ["data-mode", "data-race"], attributeOldValue: true });
}
"""


def read_rows(path: Path) -> list[Row]:
    """Read the events of a recording."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def write_rows(path: Path, rows: list[Row]) -> Path:
    """Write a recording of these events."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def steps_of(rows: list[Row], lane: str) -> list[Row]:
    """A lane's steps, in order."""
    return [row for row in rows[1:-1] if row["lane"] == lane]


def until(page: Page, condition: Callable[[], Any]) -> None:
    """Wait until a condition holds, while the page works."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not hold within {PATIENCE_S} s"
        page.wait_for_timeout(TURN_MS)


def run_clock(page: Page, ms: float) -> None:
    """Advance the clock of a page whose clock the test controls."""
    page.clock.run_for(ms)


def skip(page: Page, ms: float) -> None:
    """Advance the clock at once, as if the page had been asleep: each timer fires at most once, one frame is drawn.

    To draw every frame of a replay, as `run_clock` does, takes seconds of processor time.
    """
    page.clock.fast_forward(ms)
    run_clock(page, TURN_MS)


def run_clock_until(page: Page, condition: str, value: Any = None) -> None:
    """Advance the page's clock in small steps until a JavaScript condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not page.evaluate(condition, value):
        assert time.monotonic() < deadline, condition
        run_clock(page, TURN_MS)


def question_field(page: Page) -> Locator:
    """The field in which a question is typed."""
    return page.locator("#question").locator("textarea, input")


def ask(page: Page, question: str = QUESTION) -> None:
    """Type a question and press Race."""
    question_field(page).fill(question)
    page.locator("#race").click()


def enter(page: Page, question: str = QUESTION) -> None:
    """Type a question and press Enter, which works even if something covers the button."""
    question_field(page).fill(question)
    question_field(page).press("Enter")


def begin(page: Page, question: str = QUESTION) -> None:
    """Type a question, press Race, and advance the page's clock until the race begins."""
    races = page.evaluate("witness.races.size")
    ask(page, question)
    run_clock_until(page, "races => witness.races.size > races", races)


def stage(page: Page) -> dict[str, Any]:
    """The stage's data attributes."""
    data: dict[str, Any] = page.evaluate("({...document.querySelector('.stage').dataset})")
    return data


def wait_for(page: Page, **data: str) -> None:
    """Wait until the stage has these data attributes."""
    selector = "".join(f"[data-{name}='{value}']" for name, value in data.items())
    page.wait_for_selector(f".stage{selector}", state="attached")


def wait_for_words(page: Page) -> None:
    """Wait until the requested race runs, and every lane has written something."""
    wait_for(page, phase="running")
    until(page, lambda: all(texts(page)))


def modes(page: Page) -> list[str]:
    """The modes that the stage has been in, in order."""
    modes_so_far: list[str] = page.evaluate("witness.modes")
    return modes_so_far


def reels(page: Page) -> int:
    """How many complete races the page has received."""
    return int(page.evaluate("witness.reels"))


def texts(page: Page) -> list[str]:
    """The panes' texts, without the hint in an empty pane."""
    printed: list[str] = page.locator(".pane .text p:last-child").all_text_contents()
    return printed


def wait_for_reel(page: Page, number: int) -> None:
    """Wait until the page has received more than `number` complete races."""
    page.wait_for_function("number => witness.reels > number", arg=number)


def latest_reel(page: Page) -> dict[str, Any]:
    """The latest complete race, read as one string: Playwright checks each value of an object, which takes seconds."""
    reel: dict[str, Any] = json.loads(page.evaluate("JSON.stringify(witness.reel)"))
    return reel


def race(page: Page, question: str = QUESTION, start: Callable[[Page, str], None] = ask) -> None:
    """Run a live race to its end."""
    number = reels(page)
    start(page, question)
    wait_for_reel(page, number)


def open_race(page: Page, path: Path) -> None:
    """Open a recording from its file, and wait until the page has it."""
    number = reels(page)
    page.locator("input.file").set_input_files(str(path))
    try:
        wait_for_reel(page, number)
    except TimeoutError as error:
        raise AssertionError(f"{path} did not open: {page.locator('.announcer').inner_text()}") from error


def share(page: Page, name: str) -> None:
    """Press a button of the dialog in which a race is saved or shared, by its `data-do`."""
    page.locator("[data-do=share]").click()
    page.locator(f"dialog.share [data-do={name}]").click()


def drop(page: Page, name: str, text: str, selector: str = ".panes") -> None:
    """Drop a file on a part of the page."""
    script = """([name, text, selector]) => {
      const transfer = new DataTransfer();
      transfer.items.add(new File([text], name));
      const place = document.querySelector(selector);
      for (const type of ['dragover', 'drop'])
        place.dispatchEvent(new DragEvent(type, {bubbles: true, cancelable: true, dataTransfer: transfer}));
    }"""
    page.evaluate(script, [name, text, selector])


def choose(page: Page, lane: str, step: int) -> None:
    """Show a step of a lane in the inspector, on a page whose clock the test controls."""
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
    # The inspector is drawn only a few times a second.
    run_clock(page, DRAWS_WITHIN_MS)
    page.wait_for_selector(f".inspector[data-lane={lane}][data-step='{step}']")
