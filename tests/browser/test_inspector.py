"""The step inspector draws exactly what the recording of a real race holds."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from specrace.core.tree import TokenTree
from tests.browser.parts import (
    DRAWS_WITHIN_MS,
    HOSTILE,
    Row,
    choose,
    read_rows,
    run_clock,
    steps_of,
    until,
    write_rows,
)
from tests.views.recordings import replace_texts

pytestmark = pytest.mark.browser

MAX_NODES = 32
SIZES = [(1280, 720), (1920, 1080), (390, 844)]

OpenRace = Callable[..., Page]


@pytest.fixture
def page(keep_recording: OpenRace, races: dict[str, Path]) -> Page:
    """A page that shows the greedy race."""
    return keep_recording(races["greedy"])


def kinds(row: Row) -> list[str]:
    """The kind of each node, from the definition of accepted, cut, rejected and unverified."""
    path, parents = row["verdict"]["path"], row["tree"]["parents"]
    kind_of_node = []
    for node, parent in enumerate(parents):
        if not node:
            kind_of_node.append("root")
        elif node in path:
            kind_of_node.append("accepted" if path.index(node) <= len(row["emitted"]) else "cut")
        else:
            kind_of_node.append("rejected" if parent in path else "unverified")
    return kind_of_node


def label_of(piece: str) -> str:
    """A token as the page writes it; a token of only white space becomes a visible sign."""
    if piece.strip():
        return piece.strip()
    if "\n" in piece:
        return "↵"
    return "␣" if piece else "·"


def drawn_nodes(page: Page) -> list[dict[str, Any]]:
    """The nodes of the tree on the page."""
    nodes: list[dict[str, Any]] = page.locator(".tree g.node").evaluate_all(
        """nodes => nodes.map(node => ({
          node: node.dataset.node, kind: node.classList[1], said: node.querySelector('.said').textContent,
          small: node.querySelector('.small')?.textContent ?? '', cross: Boolean(node.querySelector('.cross')),
          x: node.getBoundingClientRect().x, dashed: getComputedStyle(node.querySelector('rect')).strokeDasharray,
          struck: getComputedStyle(node.querySelector('.said')).textDecorationLine,
          bars: Boolean(node.querySelector('.bars')),
          around: getComputedStyle(node).textDecorationLine,
        }))"""
    )
    return nodes


@pytest.mark.parametrize("lane", ["vanilla", "trigram", "jacobi", "lookahead", "trie", "suffix"])
def test_the_tree_and_the_mask_are_those_of_the_step(page: Page, races: dict[str, Path], lane: str) -> None:
    steps = steps_of(read_rows(races["greedy"]), lane)
    for row in random.Random(lane).sample(steps, 6):
        choose(page, lane, row["index"])
        tree = TokenTree(tuple(row["tree"]["tokens"]), tuple(row["tree"]["parents"]))
        nodes = drawn_nodes(page)
        tree_nodes = [node for node in nodes if node["node"] != "bonus"]
        assert len(tree_nodes) == min(len(tree), MAX_NODES)
        # The bonus token is drawn after the tree unless the race ended before it.
        assert len(nodes) - len(tree_nodes) == (len(row["emitted"]) == len(row["verdict"]["path"]))
        if nodes != tree_nodes and row is not steps[-1]:
            assert nodes[-1]["said"] == label_of(steps[row["index"] + 1]["pieces"][0])
        for node in tree_nodes:
            number = int(node["node"])
            assert node["kind"] == kinds(row)[number]
            assert node["said"] == label_of(row["pieces"][number])
            parent = tree.parents[number]
            above = next((candidate for candidate in tree_nodes if int(candidate["node"]) == parent), None)
            assert (above is None) == (number == 0)
            assert above is None or above["x"] < node["x"]
        if len(tree) > 1:
            rows = page.locator(".mask .row path:not(.tick)").evaluate_all(
                "rows => rows.map(row => row.getAttribute('d'))"
            )
            numbers = [int(node["node"]) for node in tree_nodes]
            expected = tree.ancestor_mask()[sorted(numbers)].sum(axis=1).tolist()
            assert [cells.count("M") for cells in rows] == expected
        else:
            expect(page.locator(".mask")).to_have_count(0)


def test_node_kinds_differ_in_form_and_not_only_in_colour(page: Page, races: dict[str, Path]) -> None:
    row = next(
        row for row in steps_of(read_rows(races["greedy"]), "trie")
        if {"accepted", "rejected", "unverified"} <= set(kinds(row))
    )  # fmt: skip
    choose(page, "trie", row["index"])
    forms = {
        (node["kind"], node["bars"], node["cross"], node["struck"] == "line-through", node["dashed"] != "none")
        for node in drawn_nodes(page)
    }
    assert {node["around"] for node in drawn_nodes(page)} == {"none"}
    assert forms == {
        ("root", False, False, False, False), ("accepted", True, False, False, False),
        ("rejected", False, True, True, False), ("unverified", False, False, False, True),
        ("bonus", False, False, False, False),
    }  # fmt: skip


def test_the_nodes_of_the_trie_show_their_counts(page: Page, races: dict[str, Path]) -> None:
    row = next(row for row in steps_of(read_rows(races["greedy"]), "trie") if len(row["pieces"]) > 4)
    choose(page, "trie", row["index"])
    for node in drawn_nodes(page):
        if node["node"] not in ("0", "bonus"):
            assert node["small"] == f"{row['note']['counts'][int(node['node'])]}×"
    expect(page.locator(".facts")).to_contain_text(f"matched tokens{row['note']['facts']['matched tokens']}")


def test_a_tree_of_many_nodes_is_cut_and_the_page_says_so(page: Page, races: dict[str, Path]) -> None:
    """The tree is a chain of 59 draft tokens, none of them accepted."""
    rows = read_rows(races["greedy"])
    row = steps_of(rows, "trie")[3]
    size = 60
    grown_tree = {"tokens": [*row["tree"]["tokens"][:1], *range(1, size)], "parents": list(range(-1, size - 1))}
    row["tree"] = {**row["tree"], **grown_tree, "probs": None, "positions": None}
    row["pieces"] = [f"w{number}" for number in range(size)]
    row["verdict"] = {
        "path": [0], "bonus": row["emitted"][0], "scores": {"targets": [0] * size, "top": None},
    }  # fmt: skip
    del row["note"]
    page.evaluate(
        """row => {
          const stage = document.querySelector('.stage'), reel = { steps: [], results: [{ speedup: 1 }],
            head: { lanes: [{ lane: 'trie', title: 'N-gram trie', num_draft: 60 }] } };
          reel.steps.push({ lane: 0, index: 0, at: 5, event: row });
          const details = { opened: reel.head.lanes, steps: reel.steps, reel, result: [] };
          for (const name in details) stage.dispatchEvent(new CustomEvent(name, { detail: details[name] }));
        }""",
        {**row, "emitted": row["emitted"][:1], "texts": row["texts"][:1]},
    )
    run_clock(page, DRAWS_WITHIN_MS)
    expect(page.locator(".more-nodes")).to_have_text("+28 more nodes")
    tree = page.locator(".tree")
    fades = "({ style }) => ['left', 'right'].map((edge) => parseFloat(style.getPropertyValue(`--fade-${edge}`)) > 0)"
    assert tree.evaluate(fades) == [False, True]
    tree.evaluate("node => node.scrollLeft = node.scrollWidth")
    until(page, lambda: tree.evaluate(fades) == [True, False])
    assert len([node for node in drawn_nodes(page) if node["node"] != "bonus"]) == MAX_NODES


def test_the_time_of_a_step_is_split(page: Page, races: dict[str, Path]) -> None:
    row = steps_of(read_rows(races["greedy"]), "trie")[5]
    choose(page, "trie", 5)
    timing = row["timing"]
    words = page.locator(".split-keys").inner_text()
    for name, part in (("draft", "draft_ms"), ("model", "target_ms"), ("cache", "keep_ms")):
        assert f"{name} {timing[part]:.2f} ms" in " ".join(words.split())
    widths = page.locator(".split i").evaluate_all("parts => parts.map(part => Number(part.style.flexGrow))")
    total = sum(timing.values())
    assert widths == pytest.approx([timing[part] / total for part in ("draft_ms", "target_ms", "keep_ms")], abs=1e-4)


def chips(page: Page, title: str) -> list[list[str]]:
    """The tokens in the table of the part with this title, row by row."""
    rows: list[list[str]] = page.locator(f".part:has(h3:text-is('{title}')) tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.querySelectorAll('.chip')].map(chip => chip.firstChild.textContent))"
    )
    return rows


def pieces(row: Row, group: str) -> list[list[str]]:
    """The tokens in the rows of the step's note that belong to `group`, as the page writes them."""
    group_rows = [note_row for note_row in row["note"]["rows"] if note_row["group"] == group]
    return [[label_of(piece) for piece in note_row["pieces"]] for note_row in group_rows]


def test_lookahead_shows_its_window_and_its_pool(page: Page, races: dict[str, Path]) -> None:
    steps = steps_of(read_rows(races["greedy"]), "lookahead")
    accepted = [row for row in steps if pieces(row, "Pool") and len(row["verdict"]["path"]) > 1]
    assert accepted
    marked = 0
    for number, row in enumerate(accepted):
        if number >= 4 and marked:
            break
        choose(page, "lookahead", row["index"])
        assert chips(page, "Window") == pieces(row, "Window") != []
        assert chips(page, "Pool") == pieces(row, "Pool") != []
        # Accepted tokens that came from the pool are marked in the pool's table.
        marked += page.locator(".part:has(h3:text-is('Pool')) .chip.accepted").count()
    assert marked


def test_the_trigram_shows_its_rows_and_where_it_backs_off(page: Page, races: dict[str, Path]) -> None:
    backed_off = 0
    for row in steps_of(read_rows(races["greedy"]), "trigram")[:12]:
        choose(page, "trigram", row["index"])
        assert chips(page, "Rows of the table") == pieces(row, "Rows of the table")
        words = page.locator(".note-rows").inner_text()
        backed_off += "bigram, seen" in words and "the trigram only" in words
        # The target's token is marked in the rows that have it.
        for number, note_row in enumerate(row["note"]["rows"]):
            target = row["verdict"]["scores"]["targets"][number] if number in row["verdict"]["path"] else None
            table_row = page.locator(".note-rows tbody tr").nth(number)
            assert table_row.locator(".chip.accepted").count() == (target in note_row["tokens"])
    assert backed_off


def test_jacobi_shows_its_trajectory(page: Page, races: dict[str, Path]) -> None:
    steps = steps_of(read_rows(races["greedy"]), "jacobi")
    choose(page, "jacobi", 7)
    table_rows = page.locator(".trajectory tbody tr")
    assert table_rows.count() >= 2
    assert "step 8" in table_rows.last.inner_text()
    # A draft token is in the column of its position in the answer.
    emitted = [token for row in steps for token in row["emitted"]]
    positions = page.locator(".trajectory th").evaluate_all(
        "heads => heads.slice(1).map(head => Number(head.textContent))"
    )
    num_emitted_before = sum(len(row["emitted"]) for row in steps[:7])
    cells = table_rows.last.locator("td").evaluate_all("cells => cells.slice(1).map(cell => cell.textContent)")
    for node in range(1, len(steps[7]["pieces"])):
        assert cells[positions.index(num_emitted_before + node - 1)] == label_of(steps[7]["pieces"][node])
        if node in steps[7]["verdict"]["path"]:
            assert steps[7]["tree"]["tokens"][node] == emitted[num_emitted_before + node - 1]


def test_rejection_sampling_shows_p_q_and_the_coin(open_recording: OpenRace, races: dict[str, Path]) -> None:
    page = open_recording(races["sampled"])
    outcomes = set()
    checked = [row for row in steps_of(read_rows(races["sampled"]), "trigram") if row["checks"]]
    for number, row in enumerate(checked):
        if number >= 10 and len(outcomes) == 2:
            break
        choose(page, "trigram", row["index"])
        table_rows = page.locator(".coins tbody tr").evaluate_all(
            "rows => rows.map(row => [...row.children].map(cell => cell.textContent))"
        )
        assert len(table_rows) == len(row["checks"])
        for table_row, check in zip(table_rows, row["checks"], strict=True):
            assert (
                table_row[1:3] == [f"{check['p']:.3f}", f"{check['q']:.3f}"] and table_row[4] == f"{check['coin']:.3f}"
            )
            is_accepted = check["coin"] * check["q"] < check["p"]
            assert table_row[5].endswith(": accepted") == is_accepted
            outcomes.add(is_accepted)
    assert outcomes == {True, False}


def test_the_inspector_and_the_player_show_the_same_step(page: Page, races: dict[str, Path]) -> None:
    steps = [(row["lane"], row["index"]) for row in read_rows(races["greedy"])[1:-1]]
    choose(page, "trie", 4)
    before = float(page.locator(".scrubber").input_value())
    page.get_by_role("button", name="Step forwards").click()
    expect(page.locator(".inspector")).to_have_attribute("data-step", "5")
    assert float(page.locator(".scrubber").input_value()) > before
    lane, step = steps[steps.index(("trie", 5)) - 1]
    page.locator("[data-do=back]").first.click()
    run_clock(page, DRAWS_WITHIN_MS)
    expect(page.locator(f".inspector[data-lane={lane}][data-step='{step}']")).to_be_visible()
    page.locator(".pane[data-lane=trigram] [data-step='3']").first.click()
    run_clock(page, DRAWS_WITHIN_MS)
    expect(page.locator(".inspector[data-lane=trigram][data-step='3']")).to_be_visible()


def test_the_key_t_opens_and_closes_the_inspector_also_in_present_mode(page: Page) -> None:
    inspector = page.locator(".inspector")
    # The inspector is open below the window: the first press scrolls to it, and the next one closes it.
    expect(inspector).not_to_be_in_viewport()
    page.keyboard.press("t")
    expect(inspector).to_be_in_viewport()
    page.keyboard.press("t")
    expect(inspector).to_be_hidden()
    page.keyboard.press("t")
    expect(inspector).to_be_in_viewport()
    page.keyboard.press("p")
    expect(inspector).to_be_hidden()
    page.keyboard.press("t")
    expect(inspector.locator(".tree svg")).to_be_visible()
    box = inspector.bounding_box()
    assert box and box["y"] >= 0 and box["y"] + box["height"] <= 720
    for pane in page.locator(".pane").all():
        covered = pane.bounding_box()
        assert covered and box["x"] <= covered["x"] and box["y"] <= covered["y"]
        assert box["x"] + box["width"] >= covered["x"] + covered["width"]
        assert box["y"] + box["height"] >= covered["y"] + covered["height"]
    for name in ("audience", "present"):
        page.locator(f".strip [data-do={name}]").click(trial=True)
    page.keyboard.press("t")
    expect(inspector).to_be_hidden()
    page.keyboard.press("t")
    page.keyboard.press("Escape")
    expect(inspector).to_be_hidden()
    page.set_viewport_size({"width": 390, "height": 844})
    page.keyboard.press("t")
    inspector.get_by_role("button", name="Close").click()
    expect(inspector).to_be_hidden()
    page.set_viewport_size({"width": 1280, "height": 720})
    page.keyboard.press("p")
    expect(inspector).to_be_visible()


def test_the_tree_is_drawn_at_most_four_times_a_second(page: Page) -> None:
    page.evaluate(
        """() => {
          window.drawn = [];
          new MutationObserver(() => window.drawn.push(performance.now()))
            .observe(document.querySelector('.tree'), { childList: true });
        }"""
    )
    move_cursor = """step => document.querySelector('.stage')
      .dispatchEvent(new CustomEvent('cursor', { detail: { lane: 0, step } }))"""
    began = page.evaluate("performance.now()")
    for step in range(20):
        page.evaluate(move_cursor, step)
        run_clock(page, 50)
    assert page.evaluate("window.drawn") == [began + 250 * number for number in range(5)]
    expect(page.locator(".inspector[data-lane=vanilla][data-step='19']")).to_be_visible()


def test_hostile_texts_of_a_recording_are_shown_as_text(
    open_recording: OpenRace, races: dict[str, Path], tmp_path: Path
) -> None:
    rows = read_rows(races["greedy"])
    # One token of each note of the steps that are shown is long.
    notes = [row["note"]["rows"] for row in rows[1:-1] if row["index"] == 6 and "note" in row]
    long_tokens = {note_rows[0]["tokens"][-1] for note_rows in notes if note_rows}
    replace_texts(rows, lambda token, _: HOSTILE + ("x" * 10_000 if token in long_tokens else str(token)))
    for row in rows[1:-1]:
        for note_row in row.get("note", {}).get("rows", []):
            note_row |= {"label": HOSTILE, "group": HOSTILE, "after_text": HOSTILE}
        if "note" in row:
            row["note"]["facts"] = {HOSTILE: HOSTILE, "matched tokens": HOSTILE}
    for passage in rows[0]["about"]["passages"]:
        passage["title"] = HOSTILE
    page = open_recording(write_rows(tmp_path / "hostile.jsonl", rows))
    for lane in ("trie", "lookahead", "jacobi", "trigram"):
        choose(page, lane, 6)
        assert page.locator(".inspector").inner_text().count("<img") > 1
    assert page.evaluate("window.__pwn") is None
    assert page.locator("#stage-host img, #stage-host script, #stage-host foreignObject").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_a_recording_without_notes_opens(open_recording: OpenRace, races: dict[str, Path], tmp_path: Path) -> None:
    rows = read_rows(races["greedy"])
    for row in rows:
        row.pop("note", None)
    page = open_recording(write_rows(tmp_path / "old.jsonl", rows))
    choose(page, "trie", 6)
    expect(page.locator(".tree svg")).to_be_visible()
    expect(page.locator(".facts, .note-rows")).to_have_count(0)
    assert all(re.fullmatch(r"(\d+(\.\d)?|<0\.1) %|own|", node["small"]) for node in drawn_nodes(page))


def test_the_inspector_fits_every_window(page: Page) -> None:
    for (width, height), lane in product(SIZES, ("lookahead", "jacobi", "suffix", "trigram")):
        page.set_viewport_size({"width": width, "height": height})
        choose(page, lane, 9)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        outside = page.evaluate(
            """() => [...document.querySelectorAll('.inspector > *, .plot, .part, .source-row')].filter((node) => {
              const box = node.getBoundingClientRect();
              return box.width && box.right > innerWidth + 1;
            }).map((node) => node.className)"""
        )
        assert outside == []
