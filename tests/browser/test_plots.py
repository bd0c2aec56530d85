"""The plots of a real race: they show the events' figures, and they can be downloaded."""

from __future__ import annotations

import csv
import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Page, expect

from tests.browser.parts import HOSTILE, open_race, read_rows, steps_of, write_rows
from tests.views.recordings import replace_texts

pytestmark = pytest.mark.browser

PLOTS = ("progress", "accept-length", "time-split", "along")


@pytest.fixture
def page(keep_recording: Callable[..., Page], races: dict[str, Path]) -> Page:
    """A page that shows the greedy race."""
    return keep_recording(races["greedy"])


def download(page: Page, plot: str, kind: str) -> bytes:
    """Download a plot as a file of this kind; returns the file's content."""
    with page.expect_download() as caught:
        page.locator(f"[data-plot={plot}]").get_by_role("button", name=f"as {kind}").click()
    assert caught.value.suggested_filename == f"specrace-{plot}.{kind.lower()}"
    return Path(caught.value.path()).read_bytes()


def table(page: Page, plot: str) -> list[dict[str, str]]:
    """The rows of a plot's CSV file."""
    return list(csv.DictReader(io.StringIO(download(page, plot, "CSV").decode())))


def test_the_csv_files_hold_the_events_figures(page: Page, races: dict[str, Path]) -> None:
    rows = read_rows(races["greedy"])
    lanes = {lane["title"]: steps_of(rows, lane["lane"]) for lane in rows[0]["lanes"]}
    progress, lengths, split, along = (table(page, plot) for plot in PLOTS)
    for title, steps in lanes.items():
        tokens = 0
        lane_rows = [row for row in progress if row["lane"] == title]
        for row, bar, step in zip(lane_rows, [row for row in along if row["lane"] == title], steps, strict=True):
            assert (int(bar["first_token"]), int(bar["tokens_in_step"])) == (tokens, len(step["emitted"]))
            tokens += len(step["emitted"])
            assert int(row["tokens"]) == tokens
            assert float(row["race_time_s"]) == pytest.approx(step["at_ms"] / 1000, rel=1e-6)
        counted = {int(row["tokens_in_step"]): int(row["steps"]) for row in lengths if row["lane"] == title}
        for length in range(1, 20):
            assert counted.get(length, 0) == sum(len(step["emitted"]) == length for step in steps)
        mean = next(row for row in split if row["lane"] == title)
        for column, timing in (("draft_ms", "draft_ms"), ("model_ms", "target_ms"), ("cache_ms", "keep_ms")):
            expected = sum(step["timing"][timing] for step in steps) / len(steps)
            assert float(mean[column]) == pytest.approx(expected, rel=1e-6)


def test_bars_start_at_zero_and_have_the_right_length(page: Page, races: dict[str, Path]) -> None:
    steps = steps_of(read_rows(races["greedy"]), "trie")
    bars = page.locator("[data-plot=along] [data-lane=trie] rect").evaluate_all(
        "bars => bars.map(bar => Number(bar.getAttribute('height')))"
    )
    max_emitted = max(len(row["emitted"]) for lane in ("trie", "suffix", "trigram", "jacobi", "lookahead")
               for row in steps_of(read_rows(races["greedy"]), lane))  # fmt: skip
    # The tallest bar of all lanes is 30 units high.
    assert bars == pytest.approx([30 * len(row["emitted"]) / max_emitted for row in steps], abs=0.01)
    split = page.locator("[data-plot=time-split] [data-lane=trie] rect").evaluate_all(
        "bars => bars.map(bar => [Number(bar.getAttribute('x')), Number(bar.getAttribute('width'))])"
    )
    axis = page.locator("[data-plot=time-split] .axis").get_attribute("x1")
    assert split[0][0] == pytest.approx(float(axis or 0))


def read_png(data: bytes) -> tuple[int, int, int]:
    """Width, height and the number of different byte values in a PNG of 8-bit RGBA without interlacing."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    offset, packed = 8, b""
    while offset < len(data):
        size, name = struct.unpack(">I4s", data[offset : offset + 8])
        packed += data[offset + 8 : offset + 8 + size] if name == b"IDAT" else b""
        offset += 12 + size
    return width, height, len(set(zlib.decompress(packed)))


def test_the_png_and_svg_files_are_pictures_in_both_themes(page: Page) -> None:
    """The SVG files need no stylesheet."""
    for _ in ("light", "dark"):
        for plot in PLOTS:
            root = ElementTree.fromstring(download(page, plot, "SVG"))
            width, height, num_values = read_png(download(page, plot, "PNG"))
            assert (width, height) == (2 * int(root.get("width", 0)), 2 * int(root.get("height", 0)))
            # An empty picture has only a few different bytes.
            assert num_values > 60
            texts = [node for node in root.iter() if node.tag.endswith("}text") and node.text]
            assert len(texts) > 5 and all("fill" in str(node.attrib) for node in texts)
            assert any("smollm2" in str(node.text) or "tiny" in str(node.text) for node in texts)
            assert width > 400 and height > 200
        page.keyboard.press("d")


def test_axes_have_units_and_lanes_have_names(page: Page) -> None:
    words = {plot: " ".join(page.locator(f"[data-plot={plot}] svg text").all_text_contents()) for plot in PLOTS}
    axes = {
        "progress": "race time (s)",
        "accept-length": "tokens in a step",
        "time-split": "time of a step (ms)",
        "along": "position in the answer (tokens)",
    }
    for plot, axis in axes.items():
        assert axis in words[plot]
        assert all(title in words[plot] for title in ("Vanilla", "Trigram", "Jacobi", "Lookahead", "N-gram trie"))
    dashes = page.locator("[data-plot=progress] g.line .stairs:first-child").evaluate_all(
        "lines => lines.map(line => line.getAttribute('stroke-dasharray'))"
    )
    assert len(set(dashes)) == len(dashes) == 6


def test_a_click_on_a_bar_shows_its_step(page: Page) -> None:
    page.locator("[data-plot=along] [data-lane=suffix] rect").nth(4).click()
    expect(page.locator(".inspector[data-lane=suffix][data-step='4']")).to_be_visible()


def test_the_cost_curve_is_drawn_if_it_was_measured(page: Page, races: dict[str, Path], tmp_path: Path) -> None:
    expect(page.locator(".no-curve")).to_contain_text("specrace calibrate")
    expect(page.locator(".no-curve")).to_contain_text("N-gram trie 7")
    rows = read_rows(races["greedy"])
    contexts = [{"context": 512, "row_ms": 3.0, "ratio": [1.0, 1.2, 1.5, 3.5]}]
    rows[0]["about"]["cost_curve"] = {"rows": [1, 2, 16, 64], "ratio": [1.0, 1.2, 1.5, 3.5], "contexts": contexts}
    open_race(page, write_rows(tmp_path / "curve.jsonl", rows))
    expect(page.locator(".no-curve")).to_have_count(0)
    curve = page.locator("[data-plot=cost-curve]")
    expect(curve).to_contain_text("512 tokens of text before them")
    expect(curve).to_contain_text("Most draft tokens a step: Trigram 6, Jacobi 6, Lookahead 15, N-gram trie 7")
    # Lanes with drafts of one size share a point.
    expect(curve.locator("text.label").first).to_contain_text("Trigram, Jacobi")
    assert curve.locator("circle").count() == curve.locator("text.label").count() == 3
    assert table(page, "cost-curve")[2] == {"rows": "16", "cost_ratio": "1.5"}


def test_an_answer_from_right_to_left_is_in_order(page: Page, races: dict[str, Path], tmp_path: Path) -> None:
    """The words of several steps are in the order of one text. Characters that change the direction are left out."""
    rows = read_rows(races["greedy"])
    vanilla_rows = [row for row in rows[1:-1] if row["lane"] == "vanilla"]
    first_tokens = [row["emitted"][0] for row in vanilla_rows[:3]]
    words = dict(zip(first_tokens, ("אחת", " שתיים", " \u202dשלוש"), strict=True))
    replace_texts(rows, lambda token, text: words.get(token, text))
    open_race(page, write_rows(tmp_path / "hebrew.jsonl", rows))
    words = page.locator('.pane[data-lane="vanilla"] .text .own-token')
    lefts = [words.nth(number).bounding_box()["x"] for number in range(3)]
    assert lefts[0] > lefts[1] > lefts[2]
    assert "\u202d" not in page.locator('.pane[data-lane="vanilla"] .text').inner_text()


def test_titles_of_a_hostile_recording_do_no_harm(page: Page, races: dict[str, Path], tmp_path: Path) -> None:
    rows = read_rows(races["greedy"])
    for lane in rows[0]["lanes"]:
        lane["title"] = HOSTILE
    open_race(page, write_rows(tmp_path / "hostile.jsonl", rows))
    assert page.evaluate("window.__pwn") is None
    assert page.locator("#stage-host img, #stage-host script").count() == 0
    # A spreadsheet must not read a name as a formula.
    rows[0]["lanes"][1]["title"] = "=HYPERLINK(1)"
    open_race(page, write_rows(tmp_path / "formula.jsonl", rows))
    assert {row["lane"] for row in table(page, "time-split")} >= {"'=HYPERLINK(1)"}
