"""Races two vLLM servers on the page. Usage: python -m tests.measure.served_page FOLDER [--url PLAIN --url SUFFIX]

FOLDER holds the environment of vllm_check, which is made if it is missing. Starts vLLM on loopback with the bundled
model, without drafts and with suffix decoding (or takes servers that run at two addresses), and the app beside them.
Chromium races vanilla, fusion and both servers. On the page, a box marks the tokens that a step accepted; the boxes of
the server with drafts must be vLLM's `per_step_accepted`, which a proxy between the app and vLLM records. The race is
saved, and replayed and opened from a link when the servers are out of reach. Exits with 1 if anything is off; pictures
are in FOLDER.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from specrace.core.bundled import BUNDLED_MODEL
from tests.browser import apps
from tests.browser.apps import FLAGS, find_chromium
from tests.browser.parts import share
from tests.measure.vllm_server import CASES, make_environment, running
from tests.servers.replies import Answer, as_json, serving

QUESTION, ANSWER_S, READY_MS = "Who coined the term prompt injection?", 600, 300_000
# vLLM without drafts, and with suffix decoding.
PLAIN, SUFFIX = CASES[0], CASES[2]
VIEW = {"width": 1440, "height": 900}


class Noted:
    """A proxy's routes to a vLLM server, and the events of the last answer that went through."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.events: list[Any] = []
        self.routes = {path: as_json(self._get(path)) for path in ("/v1/models", "/version")}
        self.routes["/v1/completions"] = self.forward  # type: ignore[assignment]

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=ANSWER_S) as answer:
            return json.load(answer)

    def forward(self, body: dict[str, Any]) -> Answer:
        """Pass a request on, and its answer back line by line."""
        return Answer(self._blocks(body))

    def _blocks(self, body: dict[str, Any]) -> Iterator[bytes]:
        self.events = []
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(), method="POST")
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    self.events.append(json.loads(line.removeprefix(b"data:")))
                if line.strip():
                    yield line + b"\n"

    @property
    def accepted(self) -> list[int]:
        """The accepted tokens of each step within the text, without the steps that accepted none."""
        sizes = [len(choice["token_ids"]) for event in self.events for choice in event["choices"]]
        counts = self.events[-1]["metrics"]["speculative_decoding"]["per_step_accepted"]
        shown = [count for count in counts if count]
        # The last step may accept tokens past the end of the text.
        return [*shown[:-1], min(shown[-1], sizes[-1])] if shown and sizes[-1] > 1 else shown


def boxes(page: Page) -> list[int]:
    """The accepted tokens that each box states, in the pane of the server with drafts."""
    marked = page.locator(".pane[data-lane=vllm-spec] .text .run").all()
    return [int((box.get_attribute("title") or "0").split()[0]) for box in marked]


def race(browser: Browser, url: str, folder: Path) -> tuple[Page, str]:
    """Race on the page, save the race in the folder, and return the page with a link to the race."""
    page = browser.new_context(viewport=VIEW, reduced_motion="reduce").new_page()  # type: ignore[arg-type]
    page.set_default_timeout(READY_MS)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{url}?tokens=64&lanes=vanilla,fusion")
    page.wait_for_selector(".status[data-state=ready]", state="attached")
    page.locator("#settings-button").click()
    # The page itself ticks only as many servers as fit beside the default lanes: one.
    for box in page.locator("#servers input").all():
        box.check()
    question = page.locator("#question").locator("textarea, input")
    question.fill(QUESTION)
    question.press("Enter")
    page.wait_for_selector(".stage[data-mode=result]")
    with page.expect_download() as download:
        share(page, "save")
    download.value.save_as(folder / "served.jsonl")
    share(page, "pack")
    page.locator(".announcer:has-text('A link that replays this race is copied')").wait_for()
    return page, page.evaluate("navigator.clipboard.readText()").partition("#")[2]


def check(folder: Path, plain: str, suffix: str) -> list[str]:
    """Race beside the servers at two addresses; returns what is off."""
    faults = []
    notes = [Noted(plain), Noted(suffix)]
    with ExitStack() as stack, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with ExitStack() as proxies:
            urls = [proxies.enter_context(serving(note.routes)).url for note in notes]
            servers = ["--server", f"vllm-plain={urls[0]}", "--server", f"vllm-spec={urls[1]}"]
            app, _ = stack.enter_context(apps.serving(scratch, "--model", "tiny", *servers))
            page, link = race(browser, app, folder)
        page.screenshot(path=folder / "served-race.png", full_page=True)
        accepted, texts = notes[1].accepted, page.locator(".pane .text > p:last-child").all_inner_texts()
        print("per_step_accepted", accepted, "boxes", boxes(page))
        replay, shared = (browser.new_context(viewport=VIEW, reduced_motion="reduce").new_page() for _ in range(2))  # type: ignore[arg-type]
        replay.goto(app)
        replay.locator("input.file").set_input_files(folder / "served.jsonl", timeout=READY_MS)
        shared.goto(f"{app}#{link}")
        for name, shown in (("live", page), ("replayed", replay), ("shared", shared)):
            shown.locator(".pane[data-lane=vllm-spec] .run").first.wait_for(timeout=READY_MS)
            shown.wait_for_selector(".stage[data-mode=result]", timeout=READY_MS)
            if not accepted or boxes(shown) != accepted:
                faults.append(f"{name}: the boxes {boxes(shown)} are not {accepted}")
            if shown.locator(".pane .text > p:last-child").all_inner_texts() != texts or len(set(texts)) != 1:
                faults.append(f"{name}: the texts of the {len(texts)} panes differ")
            if shown.locator(".pane[data-lane=vllm-plain] .run").count():
                faults.append(f"{name}: the server without drafts has boxes")
        replay.screenshot(path=folder / "served-replay.png", full_page=True)
        browser.close()
    return faults


def main(arguments: list[str]) -> int:
    """Start the servers unless they run, and check; return 1 if anything is off."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--url", action="append", default=[], help="a vLLM that runs: without drafts, then with suffix")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as servers:
        urls = list(options.url)
        if not urls:
            program = make_environment(options.folder)
            for number, case in enumerate((PLAIN, SUFFIX)):
                log = options.folder / f"page-{case.name}.log"
                urls.append(servers.enter_context(running(program, str(BUNDLED_MODEL), case, log, number)).url)
        faults = check(options.folder, *urls)
    print("\n".join(faults) or "Nothing is off.")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
