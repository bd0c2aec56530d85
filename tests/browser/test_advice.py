"""The view "Your logs": a dropped log gets a recommendation, whose settings can be copied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.parts import drop
from tests.browser.test_logs import SCORED_MS
from tests.browser.test_readable import check_on_phone
from tests.browser.test_stage_views import findings
from tests.measure.advice_page import corpus_log

pytestmark = pytest.mark.browser


@pytest.fixture
def page(loading_app: str, share_page: OpenPage) -> Page:
    """A page whose model never finishes loading, because logs need no model."""
    return share_page(loading_app, ready=False)


def test_a_dropped_log_gets_a_recommendation_that_can_be_copied(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    lines = "".join(json.dumps(row) + "\n" for row in corpus_log(3))
    drop(page, "requests.jsonl", lines)
    copy = page.get_by_role("button", name="Copy the settings for vLLM")
    copy.click(timeout=SCORED_MS)
    expect(page.locator(".advice-said").first).to_have_text("Copied")
    line = page.locator(".advice-line pre").first.text_content() or ""
    assert page.evaluate("navigator.clipboard.readText()") == line
    config = json.loads(line.removeprefix("--speculative-config '").removesuffix("'"))
    assert config["method"] in ("ngram", "suffix") and config["num_speculative_tokens"] > 0
    expect(page.locator(".advice-text p").first).to_contain_text("On these 3 requests")
    # The figures come after the recommendation, which stays visible.
    expect(page.locator(".logs-table").last).to_be_visible(timeout=SCORED_MS)
    expect(page.locator(".logs")).to_have_attribute("data-going", "false", timeout=SCORED_MS)
    page.get_by_role("button", name="Recommendation for specrace").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save specrace-settings.json").click()
    assert set(json.loads(Path(download.value.path()).read_text())) == {"method", "num_draft", "options"}
    # With another machine's costs, the same log gets another recommendation.
    page.get_by_label("Your GPU").select_option("t4")
    expect(page.locator(".advice-text p").first).to_contain_text("t4, 8 billion parameters", timeout=SCORED_MS)
    expect(page.locator(".logs")).to_have_attribute("data-going", "false", timeout=SCORED_MS)
    check_view(page)


def check_view(page: Page) -> None:
    """Check that the advice fits the window, and that axe finds nothing serious."""
    for node in page.locator(".advice details > summary").all():
        node.click()
    by_view = {"light": findings(page, "dialog[open]")}
    for key in ("Escape", "d", "l"):
        page.keyboard.press(key)
    # All rules but those for colours have been checked.
    by_view["dark"] = findings(page, "dialog[open]", ["color-contrast"])
    check_on_phone(page, "logs", by_view)
