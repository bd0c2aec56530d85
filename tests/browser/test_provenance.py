"""Accepted runs in the panes and the words in the passages that they were copied from, linked both ways.

A run is the text that one step accepted.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.parts import DRAWS_WITHIN_MS, read_rows, run_clock, steps_of

pytestmark = pytest.mark.browser


@pytest.fixture
def page(keep_recording: Callable[..., Page], races: dict[str, Path]) -> Page:
    """A page that shows the greedy race, with its passages beside the panes."""
    opened = keep_recording(races["greedy"], 1920, 1080)
    expect(opened.locator(".passage mark.drafted").first).to_be_visible()
    return opened


def without_blanks(text: str) -> str:
    """The text without its white space."""
    return "".join(text.split())


def lit_words(page: Page) -> str:
    """The highlighted words of all passages, without white space."""
    return without_blanks("".join(page.locator("mark.lit").all_text_contents()))


def test_a_run_lights_exactly_the_words_that_it_was_copied_from(page: Page, races: dict[str, Path]) -> None:
    rows = read_rows(races["greedy"])
    origins, passages = rows[0]["about"]["origins"], rows[0]["about"]["passages"]
    num_checked = 0
    for row in random.Random(3).sample(steps_of(rows, "trie") + steps_of(rows, "suffix"), 12):
        nodes = row["verdict"]["path"][1 : len(row["emitted"]) + 1]
        positions = [row["tree"]["positions"][node] for node in nodes]
        copied_positions = [position for position in positions if 0 <= position < len(origins) and origins[position]]
        run = page.locator(f".pane[data-lane={row['lane']}] .run[data-step='{row['index']}']")
        if not copied_positions or not run.count():
            continue
        run.hover()
        words = "".join(
            passages[passage]["text"][start:end] for passage, start, end in map(origins.__getitem__, copied_positions)
        )
        assert lit_words(page) == without_blanks(words)
        if len(copied_positions) == len(positions):
            assert lit_words(page) == without_blanks(run.inner_text())
        num_checked += 1
    assert num_checked >= 4


def test_words_light_the_runs_that_were_drafted_from_them(page: Page) -> None:
    mark = page.locator(".passage mark.drafted").first
    mark.hover()
    lit = page.locator(".run.lit")
    assert lit.count() >= 1
    assert any(without_blanks(mark.inner_text()) in without_blanks(text) for text in lit.all_text_contents())
    page.locator(".announcer").hover()
    expect(page.locator(".lit")).to_have_count(0)


def test_keys_move_between_runs_and_from_a_run_to_its_words(page: Page) -> None:
    runs = page.locator(".pane[data-lane=trie] .run.linked")
    runs.first.focus()
    expect(page.locator("mark.lit").first).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(runs.nth(1)).to_be_focused()
    expect(runs.nth(1)).to_have_class("run linked lit")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.matches('.passage mark.drafted')")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.matches('.run.linked')")


def test_the_step_at_the_cursor_lights_its_run(page: Page) -> None:
    linked = page.locator(".pane[data-lane=trie] .run.linked").nth(2)
    text = linked.inner_text()
    linked.click()
    expect(page.locator(".inspector[data-lane=trie]")).to_be_visible()
    page.locator(".announcer").hover()
    # In this race, lane 4 is the trie.
    page.evaluate(
        "step => document.querySelector('.stage')"
        ".dispatchEvent(new CustomEvent('seek', { detail: { lane: 4, step } }))",
        int(linked.get_attribute("data-step") or 0),
    )
    expect(page.locator(".run.lit")).to_have_text(text)


def test_the_bar_shows_the_share_of_tokens_from_each_source(page: Page, races: dict[str, Path]) -> None:
    rows = read_rows(races["greedy"])
    origins = rows[0]["about"]["origins"]
    for lane in [lane["lane"] for lane in rows[0]["lanes"]]:
        total = copied = 0
        for row in steps_of(rows, lane):
            total += len(row["emitted"])
            for node in row["verdict"]["path"][1 : len(row["emitted"]) + 1]:
                position = (row["tree"]["positions"] or {node: -1})[node]
                copied += 0 <= position < len(origins) and origins[position] is not None
        line = page.locator(f".source-row[data-lane={lane}]")
        assert line.locator(".source-share").inner_text() == f"{int(100 * copied / total + 0.5)} %"
        counts = line.locator(".source-bar i").evaluate_all("parts => parts.map(part => Number(part.style.flexGrow))")
        assert sum(counts) == total
        assert sum(line.locator(".source-bar i.from-passage").evaluate_all(
            "parts => parts.map(part => Number(part.style.flexGrow))"
        )) == copied  # fmt: skip


def test_going_back_in_the_replay_turns_marks_off(page: Page) -> None:
    count = page.locator(".passage mark.drafted").count()
    page.locator(".scrubber").evaluate(
        "bar => { bar.value = bar.max / 6; bar.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    run_clock(page, DRAWS_WITHIN_MS)
    assert page.locator(".passage mark.drafted").count() < count
