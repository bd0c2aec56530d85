"""Recorded races with servers, in an exported file: what was measured is shown, and nothing is invented."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from playwright.sync_api import Page, expect

from specrace.core.events import Event, Step
from specrace.engine.recording import save
from specrace.ui import serve
from specrace.ui.stage.html_file import read_recordings, write_html
from specrace.views.detokenize import Narrator
from specrace.workbench import Workbench
from tests.browser.apps import open_front_door
from tests.browser.parts import open_race, race, share
from tests.parts import continuation
from tests.servers.replies import (
    as_json,
    chat_events,
    recorded,
    recorded_routes,
    serving,
    stream,
    vllm_answering,
    vllm_chunk,
    vllm_end,
)
from tests.servers.test_race import NGRAM, PROMPT, decode, make_target, run
from tests.servers.test_texts import run as run_beside_text

pytestmark = pytest.mark.browser
SERVED_TEXT = ".pane[data-lane=vllm] .text"
LANES = ("vanilla", "fusion", "vllm", "again")

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


def test_a_server_that_streams_text_has_its_text_and_no_invented_token(
    open_page: Callable[..., Page], tmp_path: Path
) -> None:
    save(run_beside_text(stream(*chat_events(HOSTILE, " and", " more"))), tmp_path / "race.jsonl")
    file = tmp_path / "race.html"
    file.write_text(write_html(read_recordings([tmp_path / "race.jsonl"])), encoding="utf-8")
    page = open_page(file.as_uri(), 1280, 720, ready=False)
    expect(page.locator(".stage[data-mode=result]")).to_be_visible()
    pane = page.locator(".pane[data-lane=tested]")
    expect(pane.locator(".text")).to_contain_text(f"{HOSTILE} and more")
    expect(pane.locator("footer")).to_contain_text("no boxesits stream is text without token ids")
    assert page.locator(".results tr[data-lane=tested] td").all_inner_texts()[1:8] == ["–"] * 7
    expect(page.locator(".results tr[data-lane=tested] td").last).to_have_text("differs at character 0")
    page.locator(".lane-tabs button[data-lane=tested]").click()
    expect(page.locator(".inspector .words")).to_contain_text("A chunk of text as tested")
    assert page.locator(".inspector .tree *").count() == 0
    page.keyboard.press("v")
    expect(page.locator(".proof-notes")).to_contain_text("(differs at character 0)")
    assert page.evaluate("window.__pwn") is None


def boxes_of(page: Page, lane: str) -> list[str]:
    """The words in a pane's boxes, without blanks at their ends."""
    return [text.strip() for text in page.locator(f".pane[data-lane={lane}] .text .run").all_inner_texts()]


def choose_servers(page: Page, names: list[str], reference: str) -> None:
    """Tick these servers in the settings, and choose their reference."""
    page.locator("#settings-button").click()
    for name in names:
        page.locator("#servers").get_by_label(name, exact=True).check()
    page.get_by_label("Servers are compared with").click()
    page.get_by_role("option", name=reference, exact=True).click()
    page.locator("#settings-button").click()


def test_a_live_race_beside_a_server_is_saved_replayed_and_shared(
    open_page: Callable[..., Page], bundled: Workbench, loading_app: str, tmp_path: Path
) -> None:
    """The server answers as vLLM 0.32.0 did; it is gone when its lane is replayed. Its boxes are what it accepted.

    It is named twice: the lane `again` is compared with the lane `vllm`, which was chosen as the servers' reference.
    """
    chunks = [json.loads(data) for data in recorded("vllm")["post"]["events"][:-2]]
    tokens = [chunk["choices"][0]["token_ids"] for chunk in chunks]
    metrics = json.loads(recorded("vllm")["post"]["events"][-2])["metrics"]["speculative_decoding"]
    accepted = iter(metrics["per_step_accepted"])
    expected = [
        str(bundled.target.tokenizer.decode(step[: next(accepted)], skip_special_tokens=True)).strip()
        for step in tokens
        if len(step) > 1
    ]
    assert len(expected) == metrics["num_spec_steps"] == 5
    with serving(recorded_routes("vllm")) as address, pytest.MonkeyPatch.context() as patch:
        patch.setattr(serve, "loader", lambda _: lambda _report: bundled)
        named = [argument for name in ("vllm", "again") for argument in ("--server", f"{name}={address.url}")]
        racer = open_page(f"{open_front_door(*named)}?tokens=40&lanes=vanilla,fusion")
        choose_servers(racer, ["vllm", "again"], reference="vllm")
        race(racer, "Who coined the term prompt injection?")
    assert boxes_of(racer, "vllm") == expected
    titles = [box.get_attribute("title") or "" for box in racer.locator(".pane[data-lane=vllm] .text .run").all()]
    # The fifth draft passes the limit of 40 tokens.
    assert [int(title.split()[0]) for title in titles] == [*metrics["per_step_accepted"][:4], 4]
    assert racer.locator(SERVED_TEXT).inner_text() == racer.locator(".pane[data-lane=vanilla] .text").inner_text()
    file = tmp_path / "race.jsonl"
    with racer.expect_download() as download:
        share(racer, "save")
    download.value.save_as(file)
    assert "127.0.0.1" not in file.read_text(encoding="utf-8")
    racer.context.grant_permissions(["clipboard-read", "clipboard-write"])
    share(racer, "pack")
    expect(racer.locator(".announcer")).to_contain_text("A link that replays this race is copied")
    link = racer.evaluate("navigator.clipboard.readText()")
    check_served(racer, expected)
    words = racer.locator(SERVED_TEXT).inner_text()
    opened = open_page(f"{loading_app}#{link.split('#')[1]}", ready=False)
    # The page that raced may have the medians of further runs.
    parts = (".results tbody", ".results .servers")
    check_served(opened, expected)
    shared = [opened.locator(part).inner_text() for part in parts]
    assert opened.locator(SERVED_TEXT).inner_text() == words
    # What is shown then must be of the file.
    opened.locator(".pane .text .run, .results tbody tr").evaluate_all("nodes => nodes.map((node) => node.remove())")
    open_race(opened, file)
    check_served(opened, expected)
    assert opened.locator(SERVED_TEXT).inner_text() == words
    assert [opened.locator(part).inner_text() for part in parts] == shared


def check_served(page: Page, expected: list[str]) -> None:
    """Check the boxes and the badges of the race beside the server."""
    expect(page.locator(".pane[data-lane=vllm] .text .run")).to_have_count(len(expected))
    assert boxes_of(page, "vllm") == expected
    badges = [page.locator(f".results tr[data-lane={lane}] td").last.inner_text() for lane in LANES]
    assert badges == ["reference", "identical to vanilla", "reference", "identical to vllm"]
    assert page.locator(".pane[data-lane=again] .badge .word").inner_text() == "identical to vllm"
