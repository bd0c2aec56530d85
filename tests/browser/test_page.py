from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client
from playwright.sync_api import Page, expect

from tests.browser.conftest import RECORDING
from tests.browser.parts import QUESTION, SHORT, ask, mode, open_race, texts

pytestmark = pytest.mark.browser

HOSTILE = (
    "<img src=x onerror=window.__pwn=1> ${alert(1)} ${window.__pwn=2} {{x}} `${1}` "
    "</p><script>window.__pwn=3</script> \u202egnirts 🦉"
)


def wait_for_phase(page: Page, *phases: str, timeout_s: float = 30) -> None:
    page.wait_for_function(
        "phases => phases.includes(document.querySelector('.stage').dataset.phase)", arg=list(phases),
        timeout=1000 * timeout_s,
    )  # fmt: skip


def stage(page: Page) -> dict[str, Any]:
    data: dict[str, Any] = page.evaluate("({...document.querySelector('.stage').dataset})")
    return data


@pytest.mark.alone
def test_the_page_answers_while_the_model_is_still_loading(app: Any) -> None:
    assert app.answered_s < 15


@pytest.mark.alone
def test_a_question_is_raced_to_the_end(app: Any, open_page: Any) -> None:
    page = open_page(app.url)
    ask(page)
    clicked = time.monotonic()
    page.wait_for_function("document.querySelector('.pane .text p:last-child').textContent.length > 0")
    assert time.monotonic() - clicked < 3
    wait_for_phase(page, "finished")
    expect(page.locator(".pane[data-done]")).to_have_count(4)
    said = texts(page)
    assert len(said[0]) > 40 and set(said) == {said[0]}
    badges = page.locator(".pane .badge").all_text_contents()
    assert badges == ["the reference", *["✓ identical to vanilla"] * 3]
    assert page.locator(".results tbody tr").count() == 4
    assert page.locator(".winner").count() == 1
    assert stage(page)["lost"] == "0"
    assert page.locator(".pane[data-lane=trie] .text .run").count() > 0
    assert page.locator(".pane[data-lane=vanilla] .text .run").count() == 0
    expect(page.locator(".announcer")).to_contain_text("vanilla")


def test_evidence_is_marked_and_accepted_words_are_lit_where_they_came_from(app: Any, share_page: Any) -> None:
    page = share_page(app.url + SHORT)
    ask(page)
    wait_for_phase(page, "finished")
    expect(page.locator(".passage")).to_have_count(4)
    expect(page.locator(".passage mark.evidence").first).to_be_visible()
    expect(page.locator(".passage mark.drafted").first).to_be_visible()
    runs = set("".join(page.locator(".pane[data-lane=trie] .text .run").all_text_contents()).split())
    lit = " ".join(page.locator(".passage mark.drafted").all_text_contents())
    assert any(word in runs for word in lit.split() if len(word) > 3)


def test_an_example_and_the_enter_key_race_too(app: Any, open_page: Any) -> None:
    page = open_page(app.url + SHORT)
    example = page.locator(".example").first
    example.click()
    wait_for_phase(page, "finished")
    assert page.locator("#question").locator("textarea, input").input_value() == example.inner_text()
    before = stage(page)["race"]
    page.locator("#question").locator("textarea, input").press("Enter")
    page.wait_for_function("race => document.querySelector('.stage').dataset.race > race", arg=before)
    wait_for_phase(page, "finished")


def test_a_race_that_begins_has_nothing_of_the_one_before(app: Any, open_page: Any) -> None:
    page = open_page(f"{app.url}?tokens=40", calm=True)
    open_race(page, RECORDING)
    assert all(texts(page))
    held: list[Any] = []
    page.route("**/gradio_api/race/**", lambda route: held.append(route))
    ask(page)
    mode(page, "live")
    assert not any(texts(page)) and set(page.locator(".speedup").all_text_contents()) == {"–"}
    expect(page.locator(".podium")).to_be_hidden()
    page.wait_for_function("!document.querySelector('.passage mark.drafted')")
    held[0].continue_()
    mode(page, "result")
    assert all(texts(page))


def test_stop_ends_a_race_and_another_can_start(app: Any, open_page: Any) -> None:
    page = open_page(app.url)
    ask(page)
    page.wait_for_function("Number(document.querySelector('.stage').dataset.frames) > 3")
    page.locator("#stop").click()
    wait_for_phase(page, "stopped", timeout_s=5)
    assert page.locator(".results tbody tr").count() == 4
    cut = texts(page)[0]
    ask(page)
    wait_for_phase(page, "running")
    wait_for_phase(page, "finished")
    assert texts(page)[0].startswith(cut) and len(texts(page)[0]) > len(cut)


def test_keys_stop_and_race_but_not_while_typing(app: Any, open_page: Any) -> None:
    page = open_page(app.url)
    page.locator("#question").locator("textarea, input").fill("")
    page.keyboard.type("roar")
    assert stage(page)["phase"] == "idle"
    page.locator("#question").locator("textarea, input").fill(QUESTION)
    page.locator("h1").click()
    page.keyboard.press("r")
    wait_for_phase(page, "running")
    page.keyboard.press("Escape")
    wait_for_phase(page, "stopped")


def test_hostile_documents_and_questions_are_only_text(app: Any, open_page: Any, tmp_path: Path) -> None:
    file = tmp_path / "hostile.md"
    file.write_text(f"# Owls {HOSTILE}\n\nThe owl hears a mouse under the snow. The sign says {HOSTILE} and no more.")
    page = open_page(app.url + SHORT)
    page.locator("#settings-button").click()
    page.locator("#files input[type=file]").set_input_files(str(file))
    expect(page.locator("#files")).to_contain_text("hostile")
    ask(page, f"What does the owl hear? {HOSTILE}")
    wait_for_phase(page, "finished")
    expect(page.locator(".passage h3").first).to_contain_text("<img src=x onerror=window.__pwn=1>")
    shown = page.locator(".passage p").all_text_contents()
    assert any("${alert(1)}" in text and "{{x}}" in text and "🦉" in text for text in shown)
    assert page.evaluate("window.__pwn") is None
    assert page.locator("#stage-host img, #stage-host script").count() == 0
    assert set(texts(page)) == {texts(page)[0]}


def test_uploads_that_cannot_be_used_are_one_sentence(app: Any, open_page: Any, tmp_path: Path) -> None:
    (tmp_path / "owls.txt").write_bytes(b"\xff\xfe\x00owls")
    page = open_page(app.url)
    page.locator("#settings-button").click()
    page.locator("#files input[type=file]").set_input_files(str(tmp_path / "owls.txt"))
    expect(page.locator("#files")).to_contain_text("owls")
    ask(page)
    wait_for_phase(page, "failed")
    expect(page.locator(".announcer")).to_contain_text("not UTF-8 text")
    expect(page.locator(".announcer")).to_be_in_viewport()


def test_a_blank_question_is_a_toast(app: Any, open_page: Any) -> None:
    page = open_page(app.url)
    ask(page, "   ")
    expect(page.locator(".toast-wrap")).to_contain_text("There is no question; type one.")
    assert stage(page)["phase"] == "idle"


def test_a_visitors_words_in_a_toast_stay_words(app: Any, open_page: Any) -> None:
    page = open_page(app.url)
    page.locator("#settings-button").click()
    page.get_by_label("Draft tokens").fill("<img src=x onerror=window.__pwn=1>")
    ask(page)
    expect(page.locator(".toast-wrap")).to_contain_text("<img src=x")
    assert page.evaluate("window.__pwn") is None


def test_nothing_overflows_and_panes_stay_in_sight(app: Any, open_page: Any) -> None:
    page = open_page(app.url, 1280, 720)
    ask(page)
    wait_for_phase(page, "running")
    during = boxes(page)
    wait_for_phase(page, "finished")
    assert boxes(page) == during
    for width, height in ((1280, 720), (1920, 1080), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("document.body.scrollWidth") <= width
        if width > 900:
            assert all(box["y"] + box["height"] <= height for box in boxes(page))


def boxes(page: Page) -> list[dict[str, float]]:
    """Where the panes are."""
    found: list[dict[str, float]] = page.evaluate(
        "[...document.querySelectorAll('.pane')].map(pane => pane.getBoundingClientRect().toJSON())"
    )
    return found


def test_six_lanes_keep_their_badges_in_sight(app: Any, open_page: Any) -> None:
    page = open_page(app.url + SHORT)
    page.locator("#settings-button").click()
    for lane in ("Bigram", "Prompt lookup"):
        page.get_by_label(lane).check()
    ask(page)
    wait_for_phase(page, "finished")
    for pane in page.locator(".pane").all():
        frame, badge = pane.bounding_box(), pane.locator(".badge").bounding_box()
        assert frame and badge and badge["width"] > 40 and badge["x"] + badge["width"] <= frame["x"] + frame["width"]


def test_a_program_gets_the_final_figures(app: Any, share_page: Any) -> None:
    share_page(app.url + SHORT)
    client = Client(app.url, verbose=False)
    answer = client.predict(QUESTION, ["vanilla", "trie"], 40, api_name="/race_result")
    assert [(lane["lane"], lane["identical"]) for lane in answer["lanes"]] == [("vanilla", True), ("trie", True)]
    assert answer["lanes"][1]["tokens"] <= 40 and answer["passages"]
    with pytest.raises(Exception, match="answer's length"):
        client.predict(QUESTION, ["trie"], 10**9, api_name="/race_result")
