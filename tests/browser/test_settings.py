"""The settings: a race gets the visitor's settings, and invalid ones are refused in one sentence."""

from __future__ import annotations

import re
from typing import Any

import pytest
from gradio_client import Client
from playwright.sync_api import Locator, Page, expect

from tests.browser.parts import (
    QUESTION,
    ask,
    enter,
    latest_reel,
    modes,
    question_field,
    race,
    reels,
    wait_for,
    wait_for_reel,
)  # fmt: skip

pytestmark = pytest.mark.browser

# The groups of fields whose last row is not as wide as the group.
UNFILLED = """all => all.filter((group) => group.checkVisibility() && group.lastElementChild
  .getBoundingClientRect().right < group.getBoundingClientRect().right - 1).map((group) => group.innerText)"""


def set_number(page: Page, name: str, value: str) -> None:
    """Set one of the common settings."""
    page.get_by_role("spinbutton", name=name).fill(value)
    page.get_by_role("spinbutton", name=name).press("Tab")


def lane_box(page: Page, title: str) -> Locator:
    """The box to tick for a lane."""
    return page.get_by_role("checkbox", name=title, exact=True)


def option_field(page: Page, lane: str, name: str) -> Locator:
    """The field of a lane's option."""
    return page.locator(f"#options-{lane} label:has(span:text-is('{name}'))").locator("input, textarea")


def press_preset(page: Page, name: str) -> None:
    """Press a preset's button, and wait until it has filled the settings."""
    # Every preset sets the temperature to 0, which shows that the preset has been applied.
    set_number(page, "Temperature", "0.5")
    page.locator(f"#preset-{name}").click()
    expect(page.get_by_role("spinbutton", name="Temperature")).to_have_value("0")


@pytest.fixture
def page(app: Any, share_page: Any) -> Page:
    """A page with settings and lane options open and at their initial values, except for shorter answers."""
    opened: Page = share_page(app.url)
    if opened.locator("#settings").get_attribute("data-open") != "true":
        opened.locator("#settings-button").click()
    expect(opened.locator("#lanes")).to_be_visible()
    if not opened.locator("#options-trie").is_visible():
        opened.locator("#lane-options > button").click()
    press_preset(opened, "stage")
    set_number(opened, "New tokens", "16")
    return opened


def test_options_of_the_lanes_reach_the_race(page: Page) -> None:
    expect(page.locator("#options-trie")).to_be_visible()
    expect(page.locator("#options-suffix")).to_be_hidden()
    lane_box(page, "Suffix decoding").check()
    lane_box(page, "Trigram").check()
    expect(page.locator("#options-suffix")).to_be_visible()
    option_field(page, "trie", "Prefix").fill("5")
    page.locator("#options-trie").get_by_label("static").check()
    race(page)
    started = latest_reel(page)["started"]
    options = {lane_info["lane"]: lane_info["options"] for lane_info in started["lanes"]}
    assert options["trie:prefix=5:static=true"] == {"n": 13, "prefix": 5, "static": True}
    title = "N-gram trie (prefix=5, static=true)"
    pane = page.locator('.pane[data-lane="trie:prefix=5:static=true"]')
    expect(pane.locator("h3")).to_have_text(title)
    assert page.locator(".results tbody tr td:first-child").all_inner_texts().count(title) == 1
    assert options["trigram"]["min_context_count"] == 2
    assert "suffix" in options and started["about"]["settings"]["max_new_tokens"] == 16


def test_a_lane_is_duplicated_and_another_engines_drafter_is_added(page: Page) -> None:
    """The new lanes race, with names that show their options, and the page's address keeps them."""
    for title in ("Trigram", "Lookahead", "Fusion"):
        lane_box(page, title).uncheck()
    option_field(page, "trie", "N").fill("3")
    page.locator("#duplicate-trie").click()
    expect(lane_box(page, "N-gram trie (n=3)")).to_be_checked()
    expect(option_field(page, "trie", "N")).to_have_value("")
    page.locator("#duplicate-trie").click()
    expect(page.locator(".announcer")).to_contain_text("The lane trie is given twice")
    page.get_by_role("combobox", name="Another lane").click()
    page.get_by_role("option", name="vLLM ngram", exact=True).click()
    page.locator("#added-options textarea, #added-options input").fill("prompt_lookup_max=3")
    page.locator("#add-lane").click()
    expect(lane_box(page, "vLLM ngram (prompt_lookup_max=3)")).to_be_checked()
    race(page)
    reel = latest_reel(page)
    names = ["vanilla", "trie", "trie:n=3", "vllm-ngram:prompt_lookup_max=3"]
    assert [lane_info["lane"] for lane_info in reel["started"]["lanes"]] == names
    assert all(result["badge"][0] in ("reference", "identical") for result in reel["results"])
    hues = page.locator(".pane").evaluate_all("panes => panes.map((pane) => pane.dataset.hue)")
    assert len(set(hues)) == len(names)
    page.wait_for_url(re.compile("lanes=vanilla%2Ctrie%2Ctrie%3An%3D3"))


def test_presets_fill_the_settings_and_empty_the_rest(app: Any, page: Page) -> None:
    press_preset(page, "paper")
    expect(lane_box(page, "Trigram")).not_to_be_checked()
    expect(page.locator("#options-trie").get_by_label("static")).to_be_checked()
    expect(option_field(page, "lookahead", "Window")).to_have_value("15")
    press_preset(page, "fast")
    expect(lane_box(page, "Prompt lookup")).to_be_checked()
    expect(page.locator("#options-trie").get_by_label("static")).not_to_be_checked()
    number = reels(page)
    with app.hold.after(1):
        ask(page)
        wait_for(page, phase="running")
        page.locator("#stop").click()
        wait_for_reel(page, number)
    started = latest_reel(page)["started"]
    assert [lane_info["lane"] for lane_info in started["lanes"]] == ["vanilla", "trie", "prompt-lookup", "suffix"]
    assert started["about"]["settings"]["max_new_tokens"] == 80 and started["about"]["settings"]["temperature"] == 0


def test_a_race_uses_the_chosen_model_and_dtype(page: Page) -> None:
    for title in ("Trigram", "Lookahead", "Fusion"):
        lane_box(page, title).uncheck()
    page.get_by_role("combobox", name="Model").click()
    page.get_by_role("option", name="characters").click()
    race(page)
    head = latest_reel(page)["head"]
    assert head["model"] == "characters" and head["dtype"] == "float32"
    expect(page.locator(".status")).to_contain_text("Ready: characters")
    expect(page.locator(".machine")).to_contain_text("characters")
    page.locator("#settings-button").click()
    page.get_by_role("combobox", name="Model").click()
    page.get_by_role("option", name="server default").click()
    page.get_by_role("combobox", name="Dtype").click()
    page.get_by_role("option", name="bfloat16").click()
    race(page)
    head = latest_reel(page)["head"]
    assert (head["model"], head["dtype"]) == ("tiny", "bfloat16")
    page.locator("#settings-button").click()
    page.get_by_role("combobox", name="Dtype").click()
    page.get_by_role("option", name="server default").click()


def test_a_race_uses_the_chosen_verifier(page: Page) -> None:
    lane_box(page, "Bigram").check()
    page.get_by_label("Rejection", exact=True).check()
    set_number(page, "Temperature", "0.8")
    race(page)
    assert page.locator(".pane[data-lane=bigram]").get_attribute("data-badge") == "law"
    assert page.locator(".pane[data-lane=trie]").get_attribute("data-badge") == "identical"
    expect(page.locator(".pane[data-lane=bigram] .badge")).to_contain_text("same distribution")


def test_the_page_says_why_a_race_cannot_start(page: Page) -> None:
    number, modes_before, announcer = reels(page), modes(page), page.locator(".announcer")
    draft = page.get_by_role("textbox", name=re.compile("^Draft tokens"))
    enter(page, "   ")
    expect(announcer).to_contain_text("Type a question first.")
    draft.fill("<img src=x onerror=window.__pwn=1>")
    enter(page)
    expect(announcer).to_contain_text("Draft tokens: '<img src=x")
    draft.fill("auto")
    set_number(page, "Temperature", "3")
    enter(page)
    expect(announcer).to_contain_text("Temperature: 3 cannot be used; give a number from 0.0 to 2.0.")
    set_number(page, "Temperature", "0")
    option_field(page, "trie", "Prefix").fill("<img src=x>")
    enter(page)
    expect(announcer).to_contain_text("trie.prefix is '<img src=x>'; give a whole number from 1 to 32.")
    assert page.evaluate("window.__pwn") is None
    assert modes(page) == modes_before
    option_field(page, "trie", "Prefix").fill("")
    race(page, start=enter)
    assert reels(page) == number + 1


def test_panes_follow_the_ticked_lanes_and_a_reload_keeps_them(app: Any, open_page: Any) -> None:
    page = open_page(app.url + "?lanes=trie,fusion&tokens=40")
    panes, announcer = page.locator(".pane"), page.locator(".announcer")
    expect(panes).to_have_count(3)
    page.locator("#settings-button").click()
    lane_box(page, "Vanilla").click()
    expect(announcer).to_contain_text("Vanilla always runs")
    expect(lane_box(page, "Vanilla")).to_be_checked()
    for number, title in enumerate(("Bigram", "Jacobi", "Suffix decoding"), 4):
        lane_box(page, title).click()
        expect(panes).to_have_count(number)
    lane_box(page, "REST").click()
    expect(announcer).to_contain_text("At most 6 lanes fit")
    expect(announcer).to_be_in_viewport()
    expect(lane_box(page, "REST")).not_to_be_checked()
    set_number(page, "Temperature", "0.5")
    question_field(page).fill("Why does bread rise?")
    page.wait_for_url(re.compile(r"q=Why.*temperature=0\.5"))
    page.reload()
    expect(question_field(page)).to_have_value("Why does bread rise?")
    expect(panes).to_have_count(6)
    page.locator("#settings-button").click()
    expect(page.get_by_role("spinbutton", name="Temperature")).to_have_value("0.5")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"options": {"trie": {"prefix": 99}}}, "trie.prefix is 99"),
        ({"options": {"trie": {"height": 9}}}, "no option 'height'"),
        ({"options": {"turbo": {}}}, "no lane 'turbo'"),
        ({"options": {"trie": 3}}, "options are not lanes"),
        ({"options": {"trie": {"n": [1]}}}, "is not a number"),
        ({"model": "../../etc"}, "no model"),
        ({"model": "gpt2"}, "no model 'gpt2' here; choose from tiny, characters"),
        ({"dtype": "float8"}, "no dtype 'float8'"),
    ],
)
def test_programs_get_a_sentence_for_invalid_settings(client: Client, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Exception, match=words):
        client.predict(QUESTION, ["vanilla", "trie"], 10, api_name="/race", **changes)


def test_the_settings_panel_fits_the_window(page: Page) -> None:
    lane_box(page, "Suffix decoding").check()
    expect(page.locator("#options-suffix")).to_be_visible()
    for width, height in ((1024, 768), (1280, 720), (1920, 1080), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        # The page takes a moment to adapt to its new size.
        page.wait_for_function(
            """width => innerWidth === width && document.documentElement.scrollWidth <= width
              && [...document.querySelectorAll('#settings :is(input, button, span, label)')].every((node) => {
                const box = node.getBoundingClientRect();
                return !box.width || (box.right <= innerWidth + 1 && box.left >= -1);
              })""",
            arg=width,
        )
        # Fields of one row are on one line, and of one height.
        places = page.locator("#race-settings :is(input[type=number], .input-container, .wrap-inner)").evaluate_all(
            "all => all.map((field) => field.getBoundingClientRect()).map(({ bottom, height }) => [bottom, height])"
        )
        assert len({height for _, height in places}) == 1, places
        rows = len({bottom for bottom, _ in places})
        assert rows == {390: len(places)}.get(width, 2), places
        assert page.locator("#race-settings .form, #settings .lane-group .form").evaluate_all(UNFILLED) == [], width
