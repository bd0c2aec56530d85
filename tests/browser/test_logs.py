"""The view "Your logs": a dropped log gets the command line's figures, and its drafts are shown token by token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.parts import HOSTILE, RECORDING, drop, reels, wait_for_reel
from tests.browser.test_readable import check_on_phone
from tests.browser.test_stage_views import findings
from tests.lab.logs.formats.written import SHAPES
from tests.lab.parts import run, write

pytestmark = pytest.mark.browser

LANES = "trigram,lookahead,trie,prompt-lookup,suffix,fusion"
# Other tests may keep all processors busy while a log is scored.
SCORED_MS = 300_000


@pytest.fixture
def page(loading_app: str, share_page: Any) -> Page:
    """One page for all tests of this file, whose model never finishes loading, because logs need no model."""
    opened: Page = share_page(loading_app, ready=False)
    if opened.locator("dialog.logs").is_visible():
        opened.keyboard.press("Escape")
    return opened


def command_line_figures(capsys: pytest.CaptureFixture[str], path: Path) -> Any:
    """The figures that the command line prints for a log."""
    assert run(path, "--tokenizer", "tiny", "--by", "category", "--lanes", LANES, "--json") == 0
    return json.loads(capsys.readouterr().out)


def shown_rows(page: Page) -> list[list[str]]:
    """The page's table of tokens per step."""
    rows: list[list[str]] = page.locator(".logs-table tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.children].map(cell => cell.textContent))"
    )
    return rows


def table_of(figures: Any) -> list[list[str]]:
    """The table that the page should show for the command line's figures; "none" alone would repeat "all"."""
    categories = dict.fromkeys(row["category"] for row in figures["groups"])
    if set(categories) == {"all", "none"}:
        del categories["none"]
    rows = [[row for row in figures["groups"] if row["category"] == category] for category in categories]
    return [[group[0]["category"], str(group[0]["outputs"]), *(f"{row['tau']:.3f}" for row in group)] for group in rows]


def test_the_page_opens_while_the_model_is_still_loading(page: Page) -> None:
    expect(page.locator(".status")).to_have_attribute("data-state", "loading")
    expect(page.locator(".status")).to_contain_text("Loading the model")


@pytest.mark.parametrize("shape", ["openai-response", "specrace text"])
def test_a_log_gets_the_command_line_s_figures_in_a_view_that_fits(
    page: Page, shape: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = SHAPES[shape](tmp_path)
    figures = command_line_figures(capsys, path)
    if shape == "specrace text":
        page.keyboard.press("l")
        expect(page.locator("dialog.logs")).to_be_visible()
        page.locator(".logs input[type=file]").set_input_files(str(path))
    else:
        drop(page, path.name, path.read_text())
    expect(page.locator(".logs-line")).to_have_text(f"{path.name} is scored.", timeout=SCORED_MS)
    assert shown_rows(page) == table_of(figures)
    expect(page.locator(".logs-facts").first).to_contain_text(f"{path.name}: {figures['format_title']}")
    expect(page.locator(".logs-facts").first).to_contain_text("20 requests scored.")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download all figures as CSV").click()
    head, *rows = Path(download.value.path()).read_text().splitlines()
    assert head.split(",") == list(figures["groups"][0]) and len(rows) == len(figures["groups"])
    best, first = page.locator(".logs-lists button").nth(0), page.locator(".logs .pane .text p:last-child").nth(0)
    best.click()
    expect(best).to_have_attribute("aria-pressed", "true")
    assert len(set(page.locator(".logs .pane .text p:last-child").all_text_contents())) == 1
    # Tokens whose text is not known are shown as "#" and their id.
    assert ("#" in (first.text_content() or "")) == (shape == "openai-response")
    expect(page.locator(".logs .pane:visible")).to_have_count(6)
    expect(page.locator(".logs .pane .speedup:visible")).to_have_count(0)
    if shape == "specrace text":
        check_view(page)


def test_a_dropped_race_opens_and_a_bad_log_gets_one_sentence(page: Page, tmp_path: Path) -> None:
    number = reels(page)
    drop(page, "race.jsonl", RECORDING.read_text(encoding="utf-8"))
    wait_for_reel(page, number)
    expect(page.locator("dialog.logs")).to_be_hidden()
    good = write(tmp_path / "good.jsonl", {"prompt_ids": [1, 2, 1], "output_ids": [2, 1, 2], "category": HOSTILE})
    drop(page, "good.jsonl", good.read_text())
    expect(page.locator(".logs-line")).to_have_text("good.jsonl is scored.", timeout=SCORED_MS)
    before = shown_rows(page)
    assert len(before) == 2 and before[1][0].startswith("<img src=x onerror")
    drop(page, "bad.jsonl", f"{HOSTILE}\n", ".logs-drop")
    expect(page.locator(".logs-line")).to_contain_text(
        "bad.jsonl holds no request that can be scored; this is HTML or XML", timeout=SCORED_MS
    )
    expect(page.locator(".logs-line")).to_have_attribute("data-kind", "bad")
    assert shown_rows(page) == before and page.evaluate("window.__pwn") is None
    assert page.locator(".logs img, .logs script").count() == 0


def check_view(page: Page) -> None:
    """Check that the view fits the window, and that axe finds nothing serious."""
    by_view = {"light": findings(page, "dialog[open]")}
    for key in ("Escape", "d", "l"):
        page.keyboard.press(key)
    expect(page.locator(".logs-table")).to_be_visible()
    # All rules but those for colours have been checked.
    by_view["dark"] = findings(page, "dialog[open]", ["color-contrast"])
    check_on_phone(page, "logs", by_view)
    for key in ("Escape", "d"):
        page.keyboard.press(key)
