"""Saved races and links that others open, hostile recordings, the gallery, and a page without a model."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlparse

import pytest
from playwright.sync_api import Page, expect

from tests.browser.parts import (
    QUESTION,
    RECORDING,
    RECORDINGS,
    ask,
    drop,
    modes,
    open_race,
    question_field,
    race,
    read_rows,
    reels,
    run_clock,
    run_clock_until,
    share,
    skip,
    stage,
    texts,
    wait_for,
    wait_for_reel,
    write_rows,
)  # fmt: skip
from tests.views.recordings import replace_texts

pytestmark = pytest.mark.browser

ABOUT = read_rows(RECORDING)[0]["about"]
# A replay takes 12 s, and ends in the frame after that.
SHOW_MS = 12_100
STOPPED_AT_S = 3600
SOON_MS = 3000
HOSTILE = (
    "<img src=x onerror=window.__pwn=1> ${alert(1)} ${window.__pwn=2} {{x}} {{{y}}} `${1}` "
    "</p><script>window.__pwn=3</script> \u202egnirts \u2028 🦉 " + "x" * 10_000
)


@pytest.fixture
def page(loading_app: str, share_page: Callable[..., Page]) -> Page:
    """A page whose model never finishes loading."""
    return share_page(loading_app, ready=False)


@dataclass(frozen=True)
class Show:
    """A page without a model, allowed to move, whose clock the test controls; and what it showed after three seconds.

    `runs` counts the pieces of text that it had printed by then.
    """

    page: Page
    runs: int
    modes: list[str]


@pytest.fixture(scope="module")
def show(loading_app: str, opener: Any) -> Iterator[Show]:
    """The page's clock measures the seconds, and stands still while the server answers."""
    page = opener.blank(loading_app, 1280, 720, stopped=True)
    page.emulate_media(reduced_motion="no-preference")
    page.clock.pause_at(STOPPED_AT_S)
    page.goto(loading_app)
    run_clock_until(page, "() => document.querySelector('.stage .pane') !== null")
    wait_for(page, mode="replay")
    run_clock(page, SOON_MS)
    yield Show(page, page.locator(".pane .text .run").count(), modes(page))
    page.context.close()
    assert opener.take_complaints() == []


def open_file(page: Page, path: Path) -> None:
    """Choose a file in the page's file dialog."""
    page.locator("input.file").set_input_files(str(path))


def test_a_saved_race_opens_in_another_browser_without_a_model(
    app: Any, share_page: Any, page: Page, tmp_path: Path
) -> None:
    viewer, racer = page, share_page(app.short_url)
    race(racer)
    with racer.expect_download() as download:
        share(racer, "save")
    assert download.value.suggested_filename == "race-what-is-the-n-gram-trie-built-from.jsonl"
    file = tmp_path / "race.jsonl"
    download.value.save_as(file)

    open_race(viewer, file)
    assert texts(viewer) == texts(racer)
    table = ".results tbody"
    assert viewer.locator(table).inner_text() == racer.locator(table).inner_text()
    assert viewer.locator(".passage").count() == racer.locator(".passage").count() > 0
    expect(viewer.locator(".machine")).to_contain_text("recorded 20")

    saved_again = tmp_path / "again.jsonl"
    with viewer.expect_download() as download:
        share(viewer, "save")
    download.value.save_as(saved_again)
    assert saved_again.read_text(encoding="utf-8") == file.read_text(encoding="utf-8")


def test_a_short_link_replays_the_race_that_the_server_keeps(page: Page, loading_app: str, open_page: Any) -> None:
    open_race(page, RECORDING)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    share(page, "short")
    expect(page.locator(".announcer")).to_have_text(
        "A short link is copied; the server keeps this race for 2 hours. It opens on this machine only."
    )
    link = page.evaluate("navigator.clipboard.readText()")
    assert link.startswith(loading_app) and len(link) < 100
    viewer = open_page(link, ready=False)
    wait_for_reel(viewer, 0)
    assert question_field(viewer).input_value() == QUESTION
    assert texts(viewer) == texts(page)

    viewer.evaluate("location.hash = '#shared=0123'")
    expect(viewer.locator(".announcer")).to_contain_text("This link's race is not on this server")


def test_a_race_dropped_on_the_page_opens(page: Page) -> None:
    number = reels(page)
    drop(page, "race.jsonl", RECORDING.read_text(encoding="utf-8"))
    wait_for_reel(page, number)
    assert stage(page)["mode"] == "result"
    expect(page.locator(".pane[data-lane=trie] .text")).to_contain_text("n-gram")
    assert question_field(page).input_value() == QUESTION


def test_files_that_hold_no_race_are_refused_in_one_sentence(page: Page, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "html.jsonl").write_text("<img src=x onerror=window.__pwn=1>")
    events = read_rows(RECORDING)
    events[-1]["lanes"][3]["speedup"] = 99.0
    write_rows(tmp_path / "false.jsonl", events)
    sentences = {
        "empty": "is not a whole race", "binary": "is not text", "html": "line 1 is not an event",
        "false": "speedup is 99",
    }  # fmt: skip
    for name, sentence in sentences.items():
        open_file(page, tmp_path / f"{name}.jsonl")
        expect(page.locator(".announcer")).to_contain_text(f"{name}.jsonl")
        expect(page.locator(".announcer")).to_contain_text(sentence)
        expect(page.locator(".announcer")).to_have_attribute("data-kind", "bad")
    assert page.evaluate("window.__pwn") is None
    open_race(page, RECORDING)


def test_a_file_that_is_cut_off_plays_to_its_end_and_the_page_says_so(page: Page, tmp_path: Path) -> None:
    text = RECORDING.read_text(encoding="utf-8")
    (tmp_path / "half.jsonl").write_text(text[: len(text) // 2], encoding="utf-8")
    open_race(page, tmp_path / "half.jsonl")
    expect(page.locator(".mode")).to_have_text(f"Stopped {ABOUT['model']}")
    expect(page.locator(".results .pace")).to_contain_text("cut off")
    expect(page.locator(".pane.winner")).to_have_count(0)


def test_hostile_texts_of_an_opened_file_are_shown_as_text(show: Show, tmp_path: Path) -> None:
    events = read_rows(RECORDING)
    about = events[0]["about"]
    about |= {"question": HOSTILE, "model": HOSTILE, "dtype": HOSTILE, "device": HOSTILE, "date": HOSTILE}
    for passage in about["passages"]:
        passage |= {"title": HOSTILE, "document": HOSTILE, "text": passage["text"] + HOSTILE}
    events[0]["lanes"][3] |= {"lane": HOSTILE[:200], "title": HOSTILE}
    events[-1]["lanes"][3]["lane"] = HOSTILE[:200]
    for event in events[1:-1]:
        if event["lane"] == "trie":
            event["lane"] = HOSTILE[:200]
    vanilla = [event for event in events[1:-1] if event["lane"] == "vanilla"]
    hostile_tokens = {*vanilla[0]["emitted"], *vanilla[3]["emitted"]}
    replace_texts(events, lambda token, text: f" {HOSTILE}" if token in hostile_tokens else text)
    page = show.page
    open_race(page, write_rows(tmp_path / "${x}<b>hostile{{y}}.jsonl", events))
    play_to_the_end(page)
    for selector in (".pane .text p:last-child", ".pane h3", ".passage h3", ".passage p", ".machine", ".results td"):
        contents = page.locator(selector).all_text_contents()
        assert any("<img src=x onerror=window.__pwn=1> ${alert(1)}" in text for text in contents), selector
    assert page.evaluate("window.__pwn") is None
    assert page.locator("#stage-host img, #stage-host script, #stage-host .pane b b").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def play_to_the_end(page: Page) -> None:
    """Play a replay that has begun automatically to its end, on a page whose clock the test controls."""
    assert stage(page)["mode"] == "replay"
    skip(page, SHOW_MS)
    assert stage(page)["mode"] == "result"


def test_a_visitor_of_a_page_without_a_model_sees_a_race_within_three_seconds(show: Show) -> None:
    assert show.runs > 2
    assert show.modes == ["replay"]


def test_the_gallery_has_a_card_for_each_recording_and_plays_it(show: Show) -> None:
    page = show.page
    page.locator(".menu [data-do=gallery]").click()
    cards = page.locator(".gallery > .shelf .card")
    expect(cards).to_have_count(len(list(RECORDINGS.glob("*.jsonl"))))
    # The first card with this question has a race of a larger model.
    card = page.locator(".gallery > .shelf .card", has_text=QUESTION).last
    for fact in (ABOUT["model"], ABOUT["dtype"], ABOUT["device"], ABOUT["date"][:10]):
        expect(card).to_contain_text(str(fact))
    number = reels(page)
    cards.last.click()
    wait_for_reel(page, number)
    play_to_the_end(page)
    expect(page.locator(".pane[data-done]")).to_have_count(page.locator(".pane").count())


def test_a_link_sets_the_race_and_starts_it(app: Any, open_page: Any) -> None:
    link = urlencode({"q": "Why does bread rise?", "lanes": "trie", "tokens": 20, "seed": 5, "autorun": 1})
    page = open_page(f"{app.url}?{link}")
    wait_for_reel(page, 0)
    assert question_field(page).input_value() == "Why does bread rise?"
    assert page.locator(".results tbody tr > :first-child").all_text_contents() == [
        "Vanilla", "N-gram trie",
    ]  # fmt: skip
    with page.expect_download() as download:
        page.locator(".results [data-do=csv]").click()
    with Path(download.value.path()).open(newline="", encoding="utf-8") as file:
        lines = [(line["question"], line["lane"], line["identical"]) for line in csv.DictReader(file)]
    assert lines == [("Why does bread rise?", "vanilla", "yes"), ("Why does bread rise?", "trie", "yes")]
    page.locator(".menu [data-do=gallery]").click()
    number = reels(page)
    page.locator(".gallery .session .card", has_text="Why does bread rise?").click()
    wait_for_reel(page, number)
    expect(page.locator(".gallery")).to_be_hidden()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    share(page, "link")
    expect(page.locator(".announcer")).to_contain_text("The link is copied. It leaves out model")
    copied = parse_qs(urlparse(page.evaluate("navigator.clipboard.readText()")).query)
    expected = {"q": "Why does bread rise?", "lanes": "vanilla,trie", "tokens": "20", "seed": "5", "autorun": "1"}
    expected |= {"draft": "auto"}
    assert {name: copied[name] for name in expected} == {name: [value] for name, value in expected.items()}


def test_a_link_without_autorun_starts_no_race(app: Any, open_page: Any) -> None:
    page = open_page(f"{app.url}?{urlencode({'q': HOSTILE[:150], 'tokens': 20})}")
    expect(question_field(page)).to_have_value(HOSTILE[:150])
    assert page.evaluate("window.__pwn") is None
    check_first_race(app, page)


def test_an_invalid_link_shows_an_error_keeps_the_question_and_starts_no_race(app: Any, open_page: Any) -> None:
    page = open_page(f"{app.url}?q=Why+so%3F&lanes=ghost,<b>&autorun=1")
    expect(page.locator(".announcer")).to_contain_text("ghost")
    expect(question_field(page)).to_have_value("Why so?")
    assert page.evaluate("window.__pwn") is None
    check_first_race(app, page)


def check_first_race(app: Any, page: Page) -> None:
    """Check that a race started now is the page's first, so that the page has started none before."""
    with app.hold.after(1):
        ask(page)
        wait_for(page, phase="running")
        page.locator("#stop").click()
        wait_for_reel(page, 0)
    assert page.evaluate("witness.races.size") == reels(page) == 1


@pytest.mark.parametrize("disturbed", [True, False])
def test_a_race_on_a_disturbed_machine_has_no_winner(page: Page, tmp_path: Path, disturbed: bool) -> None:
    """The page says why and offers another race. On a steady machine the table only has the note."""
    rows = read_rows(RECORDING)
    note = "The machine was disturbed: <b>nothing</b> counts." if disturbed else "Clocks are corrected: 0.98 to 1.04."
    figures = {"probes": 40, "probe_ms": 1.5, "low": 0.98, "high": 1.04, "jumps": 0.0, "waited_ms": 2.0, "threads": 1}
    rows[-1]["pace"] = figures | {"disturbed": disturbed, "note": note}
    open_race(page, write_rows(tmp_path / "race.jsonl", rows))
    expect(page.locator(".results .pace")).to_have_text(note)
    expect(page.locator(".mode")).to_have_text(f"{'Disturbed' if disturbed else 'Replayed'} {ABOUT['model']}")
    expect(page.locator(".podium")).to_be_visible(visible=not disturbed)
    expect(page.locator(".pane.winner")).to_have_count(0 if disturbed else 1)
    expect(page.locator(".again")).to_be_visible(visible=disturbed)
    if disturbed:
        expect(page.locator(".announcer")).to_contain_text("The machine was disturbed: these figures do not count.")
