"""The settings: what a visitor sets is what is raced, and what cannot be is one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from gradio_client import Client
from playwright.sync_api import Locator, Page, expect

from tests.browser.parts import QUESTION, SHORT

pytestmark = pytest.mark.browser


def race(page: Page) -> dict[str, Any]:
    """Ask, and give the head of the race that was run."""
    page.evaluate(
        """document.querySelector('.stage').addEventListener(
          'reel', (event) => { window.__head = event.detail; }, { once: true }
        )"""
    )
    page.locator("#question").locator("textarea, input").fill(QUESTION)
    page.locator("#race").click()
    page.wait_for_function("window.__head", timeout=120_000)
    found: dict[str, Any] = page.evaluate("window.__head")
    return found


def option(page: Page, lane: str, name: str) -> Locator:
    """The field of a lane's option."""
    return page.locator(f"#options-{lane} label:has(span:text-is('{name}'))").locator("input, textarea")


def open_settings(page: Page) -> None:
    page.locator("#settings-button").click()
    expect(page.locator("#lanes")).to_be_visible()


def test_options_of_the_lanes_reach_the_race(app: Any, open_page: Any) -> None:
    page = open_page(app.url + SHORT, calm=True)
    open_settings(page)
    page.locator("#lane-options > button").click()
    trie = page.locator("#options-trie")
    expect(trie).to_be_visible()
    expect(page.locator("#options-suffix")).to_be_hidden()
    page.get_by_role("checkbox", name="Suffix decoding").check()
    expect(page.locator("#options-suffix")).to_be_visible()
    option(page, "trie", "prefix").fill("5")
    trie.get_by_label("static").check()
    options = {lane["lane"]: lane["options"] for lane in race(page)["started"]["lanes"]}
    assert options["trie"] == {"n": 13, "prefix": 5, "static": True}
    assert options["trigram"]["min_context_count"] == 2
    assert "suffix" in options


def test_presets_fill_the_settings_and_empty_the_rest(app: Any, open_page: Any) -> None:
    page = open_page(app.url, calm=True)
    open_settings(page)
    page.get_by_label("Temperature").first.fill("0.5")
    page.locator("#preset-paper").click()
    expect(page.get_by_role("checkbox", name="Trigram")).not_to_be_checked()
    page.locator("#lane-options > button").click()
    expect(page.locator("#options-trie").get_by_label("static")).to_be_checked()
    expect(option(page, "lookahead", "window")).to_have_value("15")
    page.locator("#preset-fast").click()
    expect(page.get_by_role("checkbox", name="Prompt lookup")).to_be_checked()
    expect(page.locator("#options-trie").get_by_label("static")).not_to_be_checked()
    found = race(page)["started"]
    assert [lane["lane"] for lane in found["lanes"]] == ["vanilla", "trie", "prompt-lookup", "suffix"]
    assert found["about"]["settings"]["max_new_tokens"] == 80 and found["about"]["settings"]["temperature"] == 0


def test_another_model_and_dtype(app: Any, open_page: Any) -> None:
    page = open_page(app.url + SHORT, calm=True)
    open_settings(page)
    page.get_by_role("combobox", name="Model").click()
    page.get_by_role("option", name="characters").click()
    page.get_by_role("checkbox", name="Trigram").uncheck()
    page.get_by_role("checkbox", name="Lookahead").uncheck()
    head = race(page)["head"]
    assert head["model"] == "characters" and head["dtype"] == "float32"
    expect(page.locator(".machine")).to_contain_text("characters")
    open_settings(page)
    page.evaluate("delete window.__head")
    page.get_by_role("combobox", name="Model").click()
    page.get_by_role("option", name="as started").click()
    page.get_by_role("combobox", name="Dtype").click()
    page.get_by_role("option", name="bfloat16").click()
    head = race(page)["head"]
    assert (head["model"], head["dtype"]) == ("tiny", "bfloat16")


def test_an_option_out_of_bounds_is_a_toast(app: Any, open_page: Any) -> None:
    page = open_page(app.url, calm=True)
    open_settings(page)
    page.locator("#lane-options > button").click()
    option(page, "trie", "prefix").fill("<img src=x>")
    page.locator("#question").locator("textarea, input").fill(QUESTION)
    page.locator("#race").click()
    expect(page.locator(".toast-wrap")).to_contain_text(
        "trie.prefix is '<img src=x>'; give a whole number from 1 to 32."
    )


@pytest.fixture(scope="module")
def client(app: Any, opener: Any) -> Client:
    """A program that asks the app, whose model is there."""
    opener.own(app.url)
    return Client(app.url, verbose=False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"options": {"trie": {"prefix": 99}}}, "trie.prefix is 99"),
        ({"options": {"trie": {"height": 9}}}, "no option 'height'"),
        ({"options": {"turbo": {}}}, "no lane 'turbo'"),
        ({"options": {"trie": 3}}, "options are not lanes"),
        ({"options": {"trie": {"n": [1]}}}, "is no number"),
        ({"model": "../../etc"}, "no model"),
        ({"model": "gpt2"}, "no model 'gpt2' here; choose from tiny, characters"),
        ({"dtype": "float8"}, "no dtype 'float8'"),
    ],
)
def test_programs_get_a_sentence_for_what_cannot_be(client: Client, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Exception, match=words):
        client.predict(QUESTION, ["vanilla", "trie"], 10, api_name="/race_result", **changes)


def test_the_panel_fits(app: Any, open_page: Any) -> None:
    page = open_page(app.url, calm=True)
    open_settings(page)
    for lane in ("Bigram", "Suffix decoding"):
        page.get_by_role("checkbox", name=lane).check()
    page.locator("#lane-options > button").click()
    for width, height in ((1280, 720), (1920, 1080), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(400)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        outside = page.evaluate(
            """() => [...document.querySelectorAll('#settings :is(input, button, span, label)')].filter((node) => {
              const box = node.getBoundingClientRect();
              return box.width && (box.right > innerWidth + 1 || box.left < -1);
            }).length"""
        )
        assert outside == 0, width
