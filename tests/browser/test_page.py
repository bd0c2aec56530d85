"""Live races: they start, stop and run to the end; visitors' questions and documents; and what the stage shows."""

from __future__ import annotations

from typing import Any

import pytest
from gradio_client import Client
from playwright.sync_api import Page, expect

from specrace.core.metrics import format_speedup
from specrace.engine.spec import DEFAULT_LANES
from tests.browser.apps import wait_until
from tests.browser.parts import (
    HOSTILE,
    QUESTION,
    RECORDING,
    ask,
    drop,
    enter,
    latest_reel,
    modes,
    open_race,
    question_field,
    race,
    reels,
    stage,
    texts,
    wait_for,
    wait_for_reel,
    wait_for_words,
)  # fmt: skip

pytestmark = pytest.mark.browser

# The page receives ranges with six decimals.
ROUNDING_ERROR = 1e-6
# Records the boxes of the page's parts in every frame, until `recorded` is set. A race must move none of them.
RECORD_LAYOUTS = """() => {
  window.layouts = new Set();
  const parts = '.console, .top, .panes, .pane, .strip';
  const record = () => {
    const boxes = [...document.querySelectorAll(parts)].map((part) => part.getBoundingClientRect());
    window.layouts.add(JSON.stringify(boxes));
    if (!window.recorded) requestAnimationFrame(record);
  };
  record();
  window.shift = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) for (const source of entry.sources)
      if (source.node?.closest?.('.pane, .console, .strip') === source.node) window.shift += entry.value;
  }).observe({type: 'layout-shift'});
}"""


@pytest.fixture
def page(app: Any, share_page: Any) -> Page:
    """A page that asks two lanes for short answers."""
    opened: Page = share_page(app.short_url + "&lanes=vanilla,trie")
    return opened


def test_a_question_is_raced_to_the_end_and_replayed(app: Any, open_page: Any) -> None:
    page = open_page(app.short_url, reduced_motion=False)
    page.evaluate(RECORD_LAYOUTS)
    number = reels(page)
    with app.hold.midway():
        ask(page)
        # Every lane's text appears while the race still runs.
        page.wait_for_function(
            "() => [...document.querySelectorAll('.pane .text p:last-child')].every((p) => p.textContent)"
        )
        assert stage(page)["phase"] == "running" and reels(page) == number
        # With reduced motion no replay starts automatically; the test starts it below.
        page.emulate_media(reduced_motion="reduce")
    wait_for_reel(page, number)
    reel = latest_reel(page)
    assert stage(page)["phase"] == "finished"
    expect(page.locator(".pane[data-done]")).to_have_count(len(DEFAULT_LANES))
    answers = texts(page)
    assert len(answers[0]) > 40 and set(answers) == {answers[0]}
    badges = page.locator(".pane .badge").all_text_contents()
    assert badges == ["reference", *["✓ identical to vanilla"] * (len(DEFAULT_LANES) - 1)]
    assert page.locator(".results tbody tr").count() == len(DEFAULT_LANES)
    assert page.locator(".pane[data-lane=trie] .text .run").count() > 0
    assert page.locator(".pane[data-lane=vanilla] .text .run").count() == 0
    expect(page.locator(".announcer")).to_have_text(reel["headline"])
    page.emulate_media(reduced_motion="no-preference")
    page.locator(".speed").select_option("4")
    page.locator(".announcer").click()
    page.keyboard.press(" ")
    page.wait_for_function("() => witness.modes.join(' ') === 'live result replay result'")
    assert texts(page) == answers
    page.evaluate("window.recorded = true")
    assert page.evaluate("[window.layouts.size, window.shift]") == [1, 0]


def test_the_medians_of_repeated_runs_replace_the_first_run_s_figures(
    app: Any, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The medians replace the figures in the panes and in the race that is saved."""
    # A slow machine must have time for another run, too.
    monkeypatch.setattr("specrace.ui.page.events.REPEAT_S", float("inf"))
    app.hold.repeats = True
    try:
        race(page)
        page.wait_for_function("() => witness.reel.repeated")
        expect(page.locator(".status .ready")).to_be_hidden()
    finally:
        app.hold.repeats = False
    page.locator("#stop").click()
    wait_until(lambda: app.hold.running == 0)
    expect(page.locator(".status .ready")).to_be_visible()
    repeated = page.evaluate("witness.reel.repeated")
    assert repeated["runs"] >= 1
    for (_, low, high), row in list(zip(repeated["lanes"], page.evaluate("witness.reel.results"), strict=True))[1:]:
        assert low - ROUNDING_ERROR <= row["speedup"] <= high + ROUNDING_ERROR
        words = page.locator(f".pane[data-lane={row['lane']}] .range").inner_text()
        ends = [format_speedup(speedup).rstrip("×") for speedup in (low, high)]
        # Of speedups that are equal as shown there is no range.
        assert words == "" if ends[0] == ends[1] else words.startswith(" to ".join(ends)), (words, ends)
    assert page.evaluate("witness.reel.again")["runs"] == repeated["runs"]


def test_evidence_is_marked_and_accepted_words_are_lit_where_they_came_from(page: Page) -> None:
    race(page)
    expect(page.locator(".passage")).to_have_count(4)
    expect(page.locator(".passage mark.evidence").first).to_be_visible()
    expect(page.locator(".passage mark.drafted").first).to_be_visible()
    runs = set("".join(page.locator(".pane[data-lane=trie] .text .run").all_text_contents()).split())
    lit_words = " ".join(page.locator(".passage mark.drafted").all_text_contents())
    assert any(word in runs for word in lit_words.split() if len(word) > 3)


def test_an_example_plays_from_a_recording_and_a_second_press_races_it(app: Any, open_page: Any) -> None:
    # Recordings of examples have the initial settings, so the page must not ask for short answers.
    page = open_page(app.url)
    example, number = page.locator(".example").first, reels(page)
    with app.hold.after(0):
        # No live race can finish, so this is a recorded one. The page shows its date and machine.
        example.click()
        wait_for_reel(page, number)
        recorded = latest_reel(page)
    assert recorded["head"]["question"] == example.inner_text() == question_field(page).input_value()
    assert recorded["head"]["date"][:10] in page.locator(".machine").inner_text()
    expect(page.locator(".announcer")).to_contain_text("Press again to race live")
    with app.hold.midway():
        example.click()
        wait_for_words(page)
        page.locator("#stop").click()
        wait_for_reel(page, number + 1)
    live = latest_reel(page)
    assert live["head"]["question"] == example.inner_text()
    assert stage(page)["race"] == str(live["race"])


def test_a_new_race_shows_nothing_of_the_race_before(app: Any, page: Page) -> None:
    open_race(page, RECORDING)
    assert all(texts(page))
    number = reels(page)
    with app.hold.after(0):
        ask(page)
        wait_for(page, phase="waiting")
        # The old race stays until the new one has something to show.
        assert all(texts(page)) and stage(page)["mode"] == "result"
        app.hold.allow(1)
        wait_for(page, mode="live")
        assert not any(texts(page)) and set(page.locator(".speedup").all_text_contents()) == {"–"}
        expect(page.locator(".podium")).to_be_hidden()
        expect(page.locator(".stage > .plots")).to_be_hidden()
        expect(page.locator(".passage mark.drafted")).to_have_count(0)
    wait_for_reel(page, number)
    assert all(texts(page))
    expect(page.locator(".stage > .plots")).to_be_visible()


def test_buttons_and_keys_stop_and_start_races_but_not_while_typing(app: Any, page: Page) -> None:
    number, modes_before = reels(page), modes(page)
    question_field(page).fill("")
    page.keyboard.type("roar")
    assert question_field(page).input_value() == "roar"
    assert modes(page) == modes_before
    question_field(page).fill(QUESTION)
    page.locator("h1").click()
    with app.hold.midway():
        page.keyboard.press("r")
        wait_for(page, phase="running")
        page.keyboard.press("Escape")
        wait_for_reel(page, number)
        assert latest_reel(page)["phase"] == "stopped"
    # The letter "r" starts a race, but typing "roar" in the field started none.
    assert reels(page) == number + 1
    with app.hold.midway():
        ask(page)
        wait_for_words(page)
        page.locator("#stop").click()
        wait_for_reel(page, number + 1)
    assert stage(page)["phase"] == "stopped"
    assert page.locator(".results tbody tr").count() == 2
    stopped_text = texts(page)[0]
    race(page, start=enter)
    assert stage(page)["phase"] == "finished"
    assert texts(page)[0].startswith(stopped_text) and len(texts(page)[0]) > len(stopped_text) > 0


def test_a_visitor_s_documents_are_shown_as_text_or_refused_in_one_sentence(page: Page, tmp_path: Any) -> None:
    (tmp_path / "owls.txt").write_bytes(b"\xff\xfe\x00owls")
    words = f"# Owls {HOSTILE}\n\nThe owl hears a mouse under the snow. The sign says {HOSTILE} and no more."
    (tmp_path / "hostile.md").write_text(words)
    page.locator("#files input[type=file]").set_input_files(str(tmp_path / "owls.txt"))
    expect(page.locator("#files")).to_contain_text("owls")
    ask(page)
    wait_for(page, phase="failed")
    expect(page.locator(".announcer")).to_contain_text("not UTF-8 text")
    expect(page.locator(".announcer")).to_be_in_viewport()
    clear_files(page)
    page.locator("#files input[type=file]").set_input_files(str(tmp_path / "hostile.md"))
    expect(page.locator("#files")).to_contain_text("hostile")
    # The passages are listed before a race, as text, and a reload keeps the document.
    for reloaded in (False, True):
        if reloaded:
            page.reload()
        expect(page.locator("#own-passages summary")).to_have_text("hostile.md: 1 passage")
        expect(page.locator("#own-passages li")).to_contain_text("<img src=x onerror=window.__pwn=1>")
        expect(page.locator("#documents-button")).to_have_text("Your documents: 1")
    assert page.locator("#own-passages img").count() == 0
    race(page, f"What does the owl hear? {HOSTILE}")
    expect(page.locator(".passage h3").first).to_contain_text("<img src=x onerror=window.__pwn=1>")
    passages = page.locator(".passage p").all_text_contents()
    assert any("${alert(1)}" in text and "{{x}}" in text and "🦉" in text for text in passages)
    assert page.evaluate("window.__pwn") is None
    assert page.locator("#stage-host img, #stage-host script").count() == 0
    assert set(texts(page)) == {texts(page)[0]}
    clear_files(page)
    expect(page.locator("#documents-button")).to_have_text("Your documents")


def test_the_page_says_which_of_a_visitor_s_files_are_used(page: Page, tmp_path: Any) -> None:
    """The page names a file that is too large, and does not race on the server's documents instead."""
    good, large = tmp_path / "good.md", tmp_path / "large.txt"
    good.write_text("# Owls\n\nThe owl hears a mouse under the snow.")
    large.write_text("owl " * 510_000)
    status = page.locator(".status")
    expect(status).to_contain_text("Ready")
    page.locator("#files input[type=file]").set_input_files(str(large))
    expect(page.locator("#files")).to_contain_text("large")
    ask(page)
    wait_for(page, phase="failed")
    expect(page.locator(".announcer")).to_contain_text("large.txt is too large: at most 2,000,000 bytes")
    clear_files(page)
    page.locator("#files input[type=file]").set_input_files([str(large), str(good)])
    expect(status).to_have_text("Ready: tiny, float32, cpu, 1 passage of your own documents")
    expect(page.locator(".announcer")).to_contain_text("Left out: large.txt is too large")
    examples = ["What do the documents say about “Owls”?", "Explain: “The owl hears a mouse under the snow.”"]
    expect(page.locator(".example")).to_have_text(examples)
    # The whole button opens the choice of more files.
    with page.expect_file_chooser():
        page.locator("#files .icon-button").first.click(position={"x": 6, "y": 6})
    race(page, "What does the owl hear?")
    expect(page.locator(".passage h3")).to_have_count(1)
    clear_files(page)
    expect(status).not_to_contain_text("your own documents")
    expect(page.locator(".example")).to_have_count(4)
    expect(page.locator("#documents-button")).to_have_text("Your documents")
    page.wait_for_function("sessionStorage.getItem('specrace-documents') === null")


def test_documents_dropped_anywhere_on_the_page_are_used(page: Page) -> None:
    """Gradio would refuse all files because of one that it does not accept; the server leaves out only that file."""
    for number, selector in enumerate((".stage", "#documents"), 1):
        drop(page, f"{number}.md", f"# Owls {number}\n\nThe owl hears a mouse.", selector)
        expect(page.locator(".status")).to_contain_text(f"cpu, {number} passage")
    drop(page, "photo.png", "no text", ".stage")
    expect(page.locator(".announcer")).to_contain_text("Left out: photo.png is not a txt, md, html")
    expect(page.locator(".status")).to_contain_text("cpu, 2 passages of your own documents")
    expect(page.locator(".toast-wrap")).to_be_hidden()
    clear_files(page)
    expect(page.locator("#documents-button")).to_have_text("Your documents")


def clear_files(page: Page) -> None:
    """Remove all uploaded files; a race has closed the panel, so open it first."""
    clear = page.locator("#files").get_by_label("Clear")
    if not clear.is_visible():
        page.locator("#documents-button").click()
    clear.click()


def test_a_program_gets_the_final_figures(client: Client) -> None:
    answer = client.predict(QUESTION, ["vanilla", "trie"], 40, api_name="/race")
    assert [(lane["lane"], lane["identical"]) for lane in answer["lanes"]] == [("vanilla", True), ("trie", True)]
    assert answer["lanes"][1]["tokens"] <= 40 and answer["passages"]
    with pytest.raises(Exception, match="New tokens"):
        client.predict(QUESTION, ["trie"], 10**9, api_name="/race")
