"""Opens a log of every format on the page, and compares the page's figures with the command line's:
python -m tests.measure.logs_page

Serves the page with the bundled model, and with a chat template that writes every message. Exits with 1 if a figure
differs in any digit.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from specrace.core.bundled import BUNDLED_MODEL
from specrace.ui.api.log_routes import DEFAULT_LANES
from tests.browser.apps import FLAGS, ROOT, find_chromium, serving
from tests.lab.logs.formats.written import SHAPES, TEMPLATE

WAIT_MS = 120_000
TIMED_FIELDS = ("draft_ms_per_step", "build_ms_per_output")
# A script that records the scores that the page receives.
WITNESS = """{
  const read = JSON.parse;
  JSON.parse = (text) => {
    const value = read(text);
    if (value?.scores) window.scores = value.scores;
    return value;
  };
}"""


def command_line(paths: list[Path], tokenizer: Path) -> Any:
    """The output of `score --json`."""
    command = [sys.executable, "-m", "specrace", "score", *map(str, paths), "--tokenizer", str(tokenizer), "--json"]
    command += ["--by", "category", "--lanes", ",".join(DEFAULT_LANES)]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def page_scores(page: Page, paths: list[Path]) -> tuple[Any, list[list[str]]]:
    """The scores that the page received for these files, and its table."""
    page.evaluate("window.scores = undefined")
    page.locator(".logs input[type=file]").set_input_files([str(path) for path in paths])
    page.wait_for_selector(".logs[data-going=false] .logs-line:has-text('scored')", timeout=WAIT_MS)
    page.wait_for_function("window.scores !== undefined", timeout=WAIT_MS)
    table = page.locator(".logs-table tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.children].map(cell => cell.textContent))"
    )
    return page.evaluate("window.scores"), table


def figures(result: Any) -> list[dict[str, Any]]:
    """The result's rows without the measured times, which differ between runs."""
    return [{name: value for name, value in row.items() if name not in TIMED_FIELDS} for row in result["groups"]]


def compare(page: Page, shape: str, paths: list[Path], tokenizer: Path) -> bool:
    """Print a line for a format; return whether the page and the command line agree."""
    expected = command_line(paths, tokenizer)
    scores, table = page_scores(page, paths)
    tau = [row["tau"] for row in expected["groups"] if row["category"] == "all"]
    # The table's first row is that of all requests; its third cell is the first lane's.
    agrees = figures(scores) == figures(expected) and table[0][2:] == [f"{value:.3f}" for value in tau]
    # Every log in `SHAPES` has the same 20 requests, and the name of its shape begins with that of its format.
    agrees &= [scores[name] for name in ("format", "outputs", "skipped")] == [shape.split()[0], 20, 0]
    print(f"{'same' if agrees else 'DIFFERS':8} {shape:26} {' '.join(table[0][1:])}", flush=True)
    return agrees


def main() -> int:
    """Compare every format; return 0 if all agree, else 1."""
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        model = Path(scratch) / "chat"
        shutil.copytree(BUNDLED_MODEL, model)
        (model / "chat_template.jinja").write_text(TEMPLATE)
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        with serving(Path(scratch), "--model", str(model), "--uploads-per-hour", "1000") as (url, _):
            page = browser.new_page(viewport={"width": 1280, "height": 720}, reduced_motion="reduce")
            page.add_init_script(WITNESS)
            page.goto(url)
            page.wait_for_selector(".status[data-state=ready]", state="attached", timeout=WAIT_MS)
            page.locator("[data-do=logs]").click()
            page.wait_for_selector(".logs fieldset input")
            agreements = []
            for shape, make in SHAPES.items():
                folder = Path(scratch) / shape
                folder.mkdir()
                agreements.append(compare(page, shape, make(folder), model))
    print(f"{sum(agreements)} of {len(agreements)} formats have the command line's figures.")
    return 0 if all(agreements) else 1


if __name__ == "__main__":
    sys.exit(main())
