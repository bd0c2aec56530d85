"""Drafters' notes: correct, bounded, written off the clock, and stored in a recording."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specrace.core.cost_curve import assumed_curve
from specrace.core.events import Step, Timing
from specrace.core.note import MAX_FACTS, MAX_ROW_TOKENS, MAX_ROWS, Note, NoteRow
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, Verdict, verify
from specrace.drafters import METHODS, DrafterInputs
from specrace.drafters.fusion.drafter import FusionDrafter
from specrace.drafters.lookahead import LookaheadDrafter
from specrace.drafters.ngram_table import TrigramDrafter
from specrace.drafters.trie import TrieDrafter
from specrace.engine.lane import Lane
from specrace.engine.recording import from_json, to_json
from specrace.ngrams.counts import NGramCounts
from tests.parts import VOCAB, FunctionSession, inputs, random_prompt


def next_token(tokens: Sequence[int]) -> int:
    """Usually what followed an earlier occurrence of the last token, so that most drafts are accepted, but not all."""
    last = tokens[-1]
    for position in range(len(tokens) - 2, 0, -1):
        if tokens[position - 1] == last and len(tokens) % 7:
            return tokens[position]
    return 2 + (7 * last + len(tokens)) % (VOCAB - 2)


def steps_of(name: str, prompt: Sequence[int], **options: Any) -> list[Step]:
    """The steps of a lane with `next_token` as its target."""
    method = METHODS[name]
    drafter = method.build(inputs(prompt), **options)
    budget = method.budget("cpu", method.defaults("cpu") | options)
    session = FunctionSession(prompt, next_token)
    lane = Lane(name, drafter, session, prompt, max_new_tokens=60, num_draft=budget)  # type: ignore[arg-type]
    steps = []
    while not lane.end:
        steps.append(lane.step())
    return steps


@pytest.fixture(params=range(5))
def prompt(request: pytest.FixtureRequest) -> tuple[int, ...]:
    """Five random prompts."""
    return random_prompt(random.Random(request.param), max_tokens=80)


def occurrences(text: Sequence[int], ngram: Sequence[int]) -> int:
    """How often `ngram` occurs in `text`."""
    size = len(ngram)
    return sum(tuple(text[start : start + size]) == tuple(ngram) for start in range(len(text) - size + 1))


def test_note_of_the_trie_has_the_match_and_each_nodes_count(prompt: tuple[int, ...]) -> None:
    text, counted = list(prompt), 0
    for step in steps_of("trie", prompt, prefix=1):
        note, tree = step.note, step.tree
        assert note is not None
        length = note.facts["matched tokens"]
        if tree.num_draft:
            assert length == 1 and note.rows[0].tokens == (text[-1],) and len(note.counts) == len(tree)
            for node in range(1, len(tree)):
                path = [text[-1], *(tree.tokens[ancestor] for ancestor in tree.path_to(node)[1:])]
                assert note.counts[node] == occurrences(text, path)
                counted += 1
        text += step.emitted
    assert counted > 20


def test_note_of_the_trigram_has_the_row_of_each_token_and_the_back_off(prompt: tuple[int, ...]) -> None:
    text, num_rows = list(prompt), {"bigram": 0, "trigram": 0}
    for step in steps_of("trigram", prompt):
        assert step.note is not None
        drafted_text = [*text, *step.tree.tokens[1:]]
        for index, row in enumerate(step.note.rows[: step.tree.num_draft]):
            context = drafted_text[: len(text) + index]
            last = context[-2:] if row.label.startswith("trigram") else context[-1:]
            assert row.after == tuple(last)
            assert row.tokens[0] == step.tree.tokens[index + 1]
            assert row.counts == tuple(occurrences(text, [*last, token]) for token in row.tokens)
            num_rows["trigram" if len(last) == 2 else "bigram"] += 1
            if len(last) == 1 and len(context) > 1:
                total = sum(occurrences(text, [*context[-2:], token]) for token in range(VOCAB))
                assert f"trigram only {total}×" in row.label
        text += step.emitted
    assert num_rows["bigram"]


def test_note_of_lookahead_has_its_window_and_pool_hits(prompt: tuple[int, ...]) -> None:
    hits, remaining = 0, 60
    for step in steps_of("lookahead", prompt, n=4, window=5, guesses=3):
        assert step.note is not None
        tree, rows = step.tree, step.note.rows
        window = [row.tokens for row in rows if row.group == "Window"]
        pool = [row for row in rows if row.group == "Pool"]
        assert step.note.facts["pool hits"] == len(pool)
        for column in range(len(window[0]) if window else 0):
            # Every column is a path below its trunk token, and the trunk begins with the pending token.
            node = 0
            for token in window[0][1 : column + 1]:
                node = tree.children[node][token]
            for row in window[1:]:
                node = tree.children[node][row[column]]
        # The pool is drafted once the window has its N - 1 = 3 rows.
        drafted_pool = pool if len(window) == 3 else []
        for row in drafted_pool:
            node = 0
            # Tokens that cannot be emitted are not drafted; the last of the remaining tokens is the bonus token.
            for token in row.tokens[: remaining - 1]:
                node = tree.children[node][token]
            hits += 1
        remaining -= len(step.emitted)
    assert hits and not remaining


def test_note_of_fusion_has_each_tokens_source_and_the_cut(prompt: tuple[int, ...]) -> None:
    text, sources = list(prompt), set()
    for step in steps_of("fusion", prompt):
        note, tree = step.note, step.tree
        assert note is not None and note.facts["drafted"] == tree.num_draft
        noted = Counter(token for row in note.rows for token in row.tokens)
        drafted = Counter(tree.tokens[1:])
        assert noted == drafted or (noted < drafted and any(len(row.tokens) == MAX_ROW_TOKENS for row in note.rows))
        for row in note.rows:
            source, _, words = row.label.partition(", ")
            sources.add(source)
            length = int(words.split()[0]) if words else 0
            for token in row.tokens:
                nodes = [node for node in range(1, len(tree)) if tree.tokens[node] == token]
                paths = [[*text, *(tree.tokens[ancestor] for ancestor in tree.path_to(node)[1:])] for node in nodes]
                if source == "prompt and output":
                    assert any(occurrences(text, path[-length - 1 :]) for path in paths)
                else:
                    assert source in ("frequent in the text", "came instead of a copy before") and token in text
        if tree.num_draft:
            assert tree.probs is not None
            path_probs = [1.0]
            for node in range(1, len(tree)):
                path_probs.append(path_probs[tree.parents[node]] * tree.probs[node])
            assert note.facts["expected"] == f"{sum(path_probs):.2f} tokens"
            num_candidates = note.facts["candidates"]
            assert isinstance(num_candidates, int) and num_candidates >= tree.num_draft
            assert ("first left out" in note.facts) == (num_candidates > tree.num_draft)
        text += step.emitted
    assert "prompt and output" in sources


def test_note_of_fusion_names_each_source() -> None:
    counts = NGramCounts()
    counts.extend_apart([[2, 3, 11, 12]])
    curve = assumed_curve("cuda")
    drafter_inputs = inputs((1, 2, 1, 4, 2, 3), past=((9, 2, 3, 7),), corpus=counts, curve=curve)
    drafter = FusionDrafter(drafter_inputs, corpus=True)
    tree = drafter.propose((1, 2, 1, 4, 2, 3), 12)
    tokens_by_source = {row.label: row.tokens for row in drafter.note(tree).rows}
    assert tokens_by_source["earlier outputs, 2 tokens matched"] == (7,)
    assert tokens_by_source["the corpus"][0] == 11
    tree = FusionDrafter(drafter_inputs).propose((1, 2, 1, 4, 2, 3), 0)
    assert FusionDrafter(drafter_inputs).note(tree).facts["drafted"] == 0


def test_note_of_the_draft_model_has_its_probabilities(prompt: tuple[int, ...]) -> None:
    for step in steps_of("draft-model", prompt):
        assert step.note is not None and step.tree.probs is not None
        path_probs = [float(np.prod(step.tree.probs[: size + 1])) for size in range(len(step.tree))]
        assert step.note.facts["expected"] == f"{sum(path_probs):.2f} tokens"
        assert step.note.facts["probability of the whole"] == f"{path_probs[-1]:.0%}"


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_note_survives_json_and_is_bounded(name: str, prompt: tuple[int, ...]) -> None:
    for step in steps_of(name, prompt):
        assert from_json(json.loads(json.dumps(to_json(step)))) == step
        if step.note is not None:
            assert len(step.note.facts) <= MAX_FACTS and len(step.note.rows) <= MAX_ROWS
            assert len(step.note.counts) in (0, len(step.tree))


def test_the_note_of_the_widest_window_is_cut() -> None:
    steps = steps_of("lookahead", tuple(range(2, 30)), n=16, window=64, guesses=64, pool_from_prompt=True)
    notes = [step.note for step in steps if step.note is not None]
    assert max(len(note.rows) for note in notes) <= MAX_ROWS
    assert max(len(row.tokens) for note in notes for row in note.rows) == MAX_ROW_TOKENS


class SlowNoteDrafter:
    """A drafter with long notes, each of which takes 60 s on `clock`."""

    def __init__(self) -> None:
        self.num_notes = 0

    def clock(self) -> float:
        return 60.0 * self.num_notes

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        return TokenTree.chain(context[-1])

    def note(self, tree: TokenTree) -> Note:
        self.num_notes += 1
        return Note({str(number): number for number in range(100)})

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Nothing to learn."""


def test_a_note_is_not_on_the_lanes_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = SlowNoteDrafter()
    monkeypatch.setattr(time, "perf_counter", drafter.clock)
    lane = Lane("slow", drafter, FunctionSession((2, 3), next_token), (2, 3), max_new_tokens=5, num_draft=4)  # type: ignore[arg-type]
    steps = [lane.step() for _ in range(5)]
    assert drafter.num_notes == 5
    assert [step.timing.total_ms for step in steps] == [0.0] * 5 and drafter.clock() == 300.0
    assert steps[0].note is not None and len(steps[0].note.facts) == MAX_FACTS


def example_step(note: Note | None) -> Step:
    """A step with one accepted draft token."""
    tree = TokenTree((1, 2), (-1, 0))
    return Step("trie", 0, 1.0, tree, verify(tree, Scores((2, 3))), (2, 3), Timing(1, 1, 1), note=note)


def test_a_recorded_step_without_a_note_can_be_read() -> None:
    row = to_json(example_step(None))
    assert "note" not in row
    assert from_json(row) == example_step(None)


ROW = {"group": "", "label": "", "tokens": [1], "counts": [], "after": [], "pieces": [], "after_text": ""}


@pytest.mark.parametrize(
    "change",
    [
        {"facts": {"a": [1]}}, {"facts": {"a": True}}, {"facts": None}, {"facts": [1]}, {"rows": 3}, {"rows": [{}]},
        {"counts": [0, "1"]}, {"counts": None}, {"rows": [{**ROW, "counts": [1, 2]}]},
        {"rows": [{**ROW, "tokens": [1.5]}]},
    ],
)  # fmt: skip
def test_invalid_notes_are_refused(change: dict[str, Any]) -> None:
    row = to_json(example_step(Note({"a": 1}, (NoteRow("g", "l", (1,), (2,)),), (0, 5))))
    assert from_json(row) == from_json(json.loads(json.dumps(row)))
    with pytest.raises(ValueError, match=r"note|counts"):
        from_json({**row, "note": {**row["note"], **change}})


def test_token_texts_are_added_to_a_note() -> None:
    note = Note({}, (NoteRow("g", "l", (1, 2), after=(3, 4)),)).with_texts(lambda token: f"<{token}>")
    assert note.rows[0].pieces == ("<1>", "<2>") and note.rows[0].after_text == "<3><4>"
    # The token ids are kept.
    assert replace(note.rows[0], pieces=()).tokens == (1, 2)


def test_a_step_without_a_draft_has_a_note() -> None:
    """Trie, trigram and lookahead describe a step without a draft, too."""
    for build in (TrieDrafter, TrigramDrafter, LookaheadDrafter):
        drafter = build(DrafterInputs((2, 3, 2, 3, 2), vocab_size=VOCAB))
        assert drafter.note(drafter.propose((2, 3, 2), 0)) is not None
