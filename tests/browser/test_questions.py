"""The view "Questions": a list is raced into one table, across a killed server and a reload of the page."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests import processes
from tests.browser.apps import App, answers, free_port, wait_until
from tests.browser.conftest import OpenPage
from tests.browser.parts import HOSTILE, latest_reel, reels, wait_for_reel
from tests.browser.test_readable import check_on_phone
from tests.browser.test_stage_views import findings

pytestmark = pytest.mark.browser

# Answers are as short as a race allows to be told apart.
TINY = "?tokens=8&lanes=vanilla,trie"
QUESTIONS = ["Why does bread rise?", f"Who? {' '.join(HOSTILE.split())}", "What do owls hunt?"]


@contextmanager
def app_at(port: int, folder: Path) -> Iterator[processes.Process]:
    """Run `python app.py` at this port until the end of the block, unless it is killed."""
    command = ["app.py", "--no-fetch", "--model", "tiny", "--port", str(port)]
    with (folder / "log.txt").open("a") as output:
        process = processes.start(command, output=output.fileno())
    try:
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/"))
        yield process
    finally:
        process.kill()
        process.wait()


def open_list(page: Page, questions: list[str]) -> None:
    """Open the dialog, and race these questions."""
    page.keyboard.press("q")
    page.get_by_label("Questions, one a line").fill("\n".join(questions))
    page.get_by_role("button", name="Race these questions").click()


def states(page: Page) -> list[str]:
    """The state of each question."""
    of_rows: list[str] = page.locator(".questions-table tbody tr").evaluate_all(
        "rows => rows.map(r => r.dataset.state)"
    )
    return of_rows


def check_files(page: Page) -> None:
    """The CSV and the report of the list hold its questions, and no markup of theirs."""
    with page.expect_download() as download:
        page.get_by_role("button", name="Download all figures as CSV").click()
    with Path(download.value.path()).open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["lane"] for line in lines] == ["vanilla", "trie"] * 3
    assert {line["identical"] for line in lines} == {"yes"}
    assert {line["question"] for line in lines} == set(QUESTIONS)
    assert all(float(line["first_token_ms"]) > 0 and float(line["tokens_per_step"]) >= 1 for line in lines)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download a report as one HTML file").click()
    report = Path(download.value.path()).read_text(encoding="utf-8")
    assert report.startswith("<!doctype html>") and "default-src 'none'" in report
    assert "&lt;img src=x" in report and "<img" not in report and "<script" not in report
    assert "raced on the documents owls.md" in report


def test_a_list_survives_a_killed_server_and_a_reload(open_page: OpenPage, tmp_path: Path) -> None:
    """Takes over 10 s: the server is started twice, because it is killed after the first of three questions."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/{TINY}"
    with app_at(port, tmp_path) as process:
        page = open_page(url)
        page.locator("#files input[type=file]").set_input_files(
            {"name": "owls.md", "mimeType": "text/markdown", "buffer": b"# Owls\n\nOwls hunt mice at night."}
        )
        expect(page.locator("#documents-button")).to_have_text("Your documents: 1")
        open_list(page, QUESTIONS)
        page.wait_for_selector(".questions-table [data-state=raced]")
        process.kill()
        process.wait()
        expect(page.locator(".questions")).to_have_attribute("data-racing", "false")
        expect(page.locator(".questions-line")).to_have_attribute("data-kind", "bad")
        before = page.locator(".questions-table tbody tr").first.inner_text()
        # Gradio itself would reload the page at a moment that the test does not know.
        page.goto("about:blank")
    with app_at(port, tmp_path):
        page.goto(url)
        page.wait_for_selector(".status[data-state=ready]", state="attached")
        expect(page.locator("#documents-button")).to_have_text("Your documents: 1")
        page.keyboard.press("q")
        expect(page.locator(".questions-line")).to_contain_text("of 3 questions are raced; Resume goes on.")
        page.get_by_role("button", name="Race the questions that are left").click()
        expect(page.locator(".questions-line")).to_contain_text("All questions are raced.")
        # The first race was kept: its figures have not been measured again.
        rows = page.locator(".questions-table tbody tr")
        assert rows.first.inner_text().split("\n")[:3] == before.split("\n")[:3]
        assert set(states(page)) <= {"raced", "disturbed"} and rows.count() == 3
        assert page.evaluate("window.__pwn") is None and page.locator(".questions img").count() == 0
        check_files(page)
        number = reels(page)
        page.get_by_role("button", name="What do owls hunt?").click()
        wait_for_reel(page, number)
        head = latest_reel(page)["head"]
        assert head["question"] == "What do owls hunt?" and head["passages"][0]["document"] == "owls.md"


def test_the_view_fits_and_axe_finds_nothing_serious(app: App, open_page: OpenPage) -> None:
    page = open_page(app.url + TINY)
    open_list(page, QUESTIONS[:1])
    expect(page.locator(".questions-line")).to_contain_text("All questions are raced.")
    by_view = {"light": findings(page, "dialog[open]")}
    page.evaluate("document.body.classList.add('dark')")
    # All rules but those for colours have been checked.
    by_view["dark"] = findings(page, "dialog[open]", ["color-contrast"])
    check_on_phone(page, "questions", by_view)
