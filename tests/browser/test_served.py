"""Recorded races with servers, in an exported file: what was measured is shown, and nothing is invented."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from playwright.sync_api import Page, expect

from specrace.core.events import Event, Step
from specrace.engine.recording import save
from specrace.ui.stage.html_file import read_recordings, write_html
from specrace.views.detokenize import Narrator
from tests.parts import continuation
from tests.servers.replies import as_json, stream, vllm_answering, vllm_chunk, vllm_end
from tests.servers.test_race import NGRAM, PROMPT, decode, make_target, run

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=window.__pwn=1>"


@pytest.fixture(scope="module")
def events() -> list[Event]:
    """A race of vanilla, the trie, a server with steps (s0) and one without (s1); a third was left out."""
    target = make_target()
    text = continuation(PROMPT, target.next_token, 24)
    parts = [text[start : start + 3] for start in range(0, 24, 3)]
    chunks = [vllm_chunk(part, decode(part), "length" if number == 7 else None) for number, part in enumerate(parts)]
    broken = as_json({"error": {"message": HOSTILE}}, 500)
    events = run(target, vllm_answering(target, decode, **NGRAM), stream(*chunks, vllm_end(24)), broken)
    add_texts = Narrator(SimpleNamespace(decode=lambda tokens, **_: decode(tokens)))
    return list(map(add_texts, events))


@pytest.fixture
def shown(open_page: Callable[..., Page], events: list[Event], tmp_path: Path) -> Page:
    """The race in an exported file, at its end."""
    save(events, tmp_path / "race.jsonl")
    file = tmp_path / "race.html"
    file.write_text(write_html(read_recordings([tmp_path / "race.jsonl"])), encoding="utf-8")
    page = open_page(file.as_uri(), 1280, 720, ready=False)
    expect(page.locator(".stage[data-mode=result]")).to_be_visible()
    return page


def test_the_boxes_are_the_servers_steps_and_a_pane_without_boxes_says_why(shown: Page, events: list[Event]) -> None:
    runs = [step.accepted for step in events if isinstance(step, Step) and step.lane == "s0" and step.accepted]
    assert len(runs) > 2
    marked, unmarked = (shown.locator(f".pane[data-lane={lane}]") for lane in ("s0", "s1"))
    assert [len(text.strip()) for text in marked.locator(".text .run").all_inner_texts()] == runs
    assert unmarked.locator(".run").count() == 0
    expect(unmarked.locator("footer")).to_contain_text("so its chunks cannot be checked")
    texts = shown.locator(".pane .text > p:last-child").all_inner_texts()
    assert len(texts) == 4 and len(set(texts)) == 1


def test_a_server_has_no_speedup_and_no_place(shown: Page) -> None:
    for lane in ("s0", "s1"):
        pane, row = shown.locator(f".pane[data-lane={lane}]"), shown.locator(f".results tr[data-lane={lane}]")
        expect(pane.locator("header")).to_contain_text(f"measured on {lane}")
        assert pane.locator(".speedup").count() == 0
        assert row.locator("td").nth(1).inner_text() == "–"
        assert shown.locator(f".track-row[data-lane={lane}] .place").inner_text() == ""
    # Empty if the machine was too busy for the figures to count.
    assert {"s0 (vLLM 0.32.0)", "s1 (vLLM 0.32.0)"}.isdisjoint(shown.locator(".podium span").all_inner_texts())
    assert shown.locator(".results tr[data-lane=s1] td").all_inner_texts()[3:7] == ["–"] * 4, "no counts were reported"
    said = shown.locator(".results .servers").inner_text()
    assert (
        "Measured on s0 (vLLM 0.32.0, m)" in said
        and f"Left out: The server s2 answers with status 500: {HOSTILE}" in said
    )
    assert shown.evaluate("window.__pwn") is None


def test_plots_inspector_and_proof_know_what_a_server_does_not_tell(shown: Page) -> None:
    words = shown.locator(".plot p").all_inner_texts()
    assert sum("Without s0 (vLLM 0.32.0), s1 (vLLM 0.32.0)" in text for text in words) == 2
    assert sum("Without s1 (vLLM 0.32.0): what its server streams are not steps" in text for text in words) == 2
    shown.locator(".lane-tabs button[data-lane=s1]").click()
    expect(shown.locator(".inspector .words")).to_contain_text("its steps and drafts are not known")
    expect(shown.locator(".inspector .place")).to_have_text(re.compile(r"token \d+ of 24"))
    shown.locator(".lane-tabs button[data-lane=s0]").click()
    assert shown.locator(".inspector .tree .rejected").count() == 0
    shown.keyboard.press("v")
    expect(shown.locator(".proof-count")).to_have_text("24 of 24 tokens the same in all 4 lanes")
