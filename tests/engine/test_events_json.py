"""Events survive JSON, and anything that is no event is refused with ValueError."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrace.core.events import (
    Difference,
    Event,
    Finished,
    LaneInfo,
    LaneResult,
    LaneSpread,
    Repeated,
    Started,
    Step,
    Timing,
)
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, verify
from specrace.engine.recording import FORMAT, MAX_NUMBER, from_json, to_json
from tests.parts import trees

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
MS = st.floats(0, 1e9)
COUNT = st.integers(0, 10**6)
TOKENS = st.integers(0, 2**31)
OPTIONS = st.dictionaries(TEXT, st.booleans() | COUNT, max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-MAX_NUMBER, MAX_NUMBER) | st.floats(-1e15, 1e15) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
INFOS = st.builds(LaneInfo, TEXT, TEXT, COUNT, OPTIONS, MS)
STARTED = st.builds(Started, st.lists(INFOS, max_size=3).map(tuple), COUNT, MS, st.dictionaries(TEXT, JSON, max_size=3))
DIFFERENCES = st.builds(Difference, COUNT, st.tuples(TEXT, TEXT), MS)
RESULTS = st.builds(
    LaneResult, TEXT, COUNT, COUNT, MS, MS, MS, MS, MS, MS, st.none() | st.booleans(), st.none() | DIFFERENCES,
    TEXT, COUNT, TEXT,
)  # fmt: skip
SPREADS = st.builds(LaneSpread, TEXT, MS, MS, MS, MS)
REPEATED = st.builds(Repeated, COUNT, st.lists(SPREADS, max_size=3).map(tuple), st.booleans(), TEXT)
FINISHED = st.builds(Finished, st.lists(RESULTS, max_size=3).map(tuple), st.booleans())


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """A step with a tree of any shape, with and without the optional fields."""
    tree = draw(trees(max_draft=8))
    if draw(st.booleans()):
        tree = TokenTree(tree.tokens, tree.parents)
    one_a_node: dict[str, Any] = {"min_size": len(tree), "max_size": len(tree)}
    top = draw(st.none() | st.lists(st.lists(TOKENS, max_size=2).map(tuple), **one_a_node).map(tuple))
    scores = Scores(tuple(draw(st.lists(TOKENS, **one_a_node))), top)
    verdict = verify(tree, scores)
    emitted = (*(tree.tokens[node] for node in verdict.path[1:]), verdict.bonus)
    timing = Timing(draw(MS), draw(MS), draw(MS))
    texts, pieces = tuple(draw(st.lists(TEXT, max_size=3))), tuple(draw(st.lists(TEXT, max_size=3)))
    end = draw(st.sampled_from(["", "eos", "length"]))
    return Step(draw(TEXT), draw(COUNT), draw(MS), tree, verdict, emitted, timing, end, texts, pieces)


@given(STARTED | FINISHED | REPEATED | steps())
def test_an_event_comes_back_equal_through_json(event: Event) -> None:
    assert from_json(json.loads(json.dumps(to_json(event)))) == event


def test_the_step_that_comes_back_is_a_whole_one() -> None:
    tree = TokenTree((1, 2, 3), (-1, 0, 0), (1.0, 0.5, 0.5), (-1, 4, 9))
    step = Step("trie", 3, 12.5, tree, verify(tree, Scores((3, 0, 7))), (3, 7), Timing(1.0, 2.0, 3.0), "eos")
    reloaded = from_json(json.loads(json.dumps(to_json(step))))
    assert isinstance(reloaded, Step)
    assert reloaded.tree.depths == (0, 1, 1) and reloaded.verdict.accepted == 1 and reloaded.timing.total_ms == 6.0
    assert isinstance(reloaded.tree.tokens, tuple) and isinstance(reloaded.verdict.scores.targets, tuple)


def test_every_event_says_its_type_and_the_first_its_format() -> None:
    assert to_json(Started((), 1, 0.0))["format"] == FORMAT
    assert to_json(Finished(()))["type"] == "finished"


def _rows() -> dict[str, dict[str, Any]]:
    tree = TokenTree((1, 2), (-1, 0))
    step = Step("trie", 0, 1.0, tree, verify(tree, Scores((2, 5), ((2,), (5,)))), (2, 5), Timing(1.0, 1.0, 1.0))
    lane = LaneResult(
        "trie", 2, 1, 2.0, 1.0, 1.0, 3.0, 9.0, 1.0, False, Difference(0, ("a", "b"), 0.1), "length", 0, "text"
    )
    started = Started((LaneInfo("trie", "Trie", 4),), 3, 1.0, {"question": "?"})
    repeated = Repeated(3, (LaneSpread("trie", 1.2, 1.1, 1.3, 90.0),), False, "Medians of 3 runs.")
    events: tuple[Event, ...] = (started, step, Finished((lane,)), repeated)
    return {row["type"]: row for row in (json.loads(json.dumps(to_json(event))) for event in events)}


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(leaf for key, inner in items for leaf in _leaves(inner, (*path, key)))]


@pytest.mark.parametrize("kind", ["started", "step", "finished", "repeated"])
def test_a_missing_field_is_refused_unless_it_has_a_default(kind: str) -> None:
    row = _rows()[kind]
    defaults = {"about", "end", "texts", "pieces", "checks", "note", "stopped", "pace", "cut"}
    for name in row.keys() - defaults:
        with pytest.raises(ValueError):
            from_json({key: value for key, value in row.items() if key != name})


@pytest.mark.parametrize("junk", [None, [], {}, "x", 5, True, float("inf"), float("nan"), [[1]], {"a": 1}, -7])
@pytest.mark.parametrize("kind", ["started", "step", "finished", "repeated"])
def test_junk_anywhere_raises_nothing_but_value_error(kind: str, junk: Any) -> None:
    row = _rows()[kind]
    for path in _leaves(row)[1:]:
        changed = copy.deepcopy(row)
        parent = changed
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = junk
        with suppress(ValueError):
            from_json(changed)


@pytest.mark.parametrize("row", [None, [], "started", 3, {}, {"type": "lap"}, {"type": None}, {"type": ["step"]}])
def test_what_is_no_event_is_refused(row: Any) -> None:
    with pytest.raises(ValueError):
        from_json(row)


def test_another_format_is_named() -> None:
    row = {**_rows()["started"], "format": FORMAT + 1}
    with pytest.raises(ValueError, match=f"format {FORMAT + 1}.* reads {FORMAT}"):
        from_json(row)


@pytest.mark.parametrize("tokens", [["a", "b"], [1.5, 2], [None, 2], [[1], 2]])
def test_tokens_that_are_no_ints_are_refused(tokens: Any) -> None:
    row = _rows()["step"]
    row["tree"]["tokens"] = tokens
    with pytest.raises(ValueError):
        from_json(row)


def test_a_step_can_be_told_apart_by_what_narrators_add() -> None:
    step = from_json(_rows()["step"])
    assert isinstance(step, Step)
    assert from_json(to_json(replace(step, texts=("a", "b"), pieces=("x", "y")))) != step


HOSTILE: dict[str, Any] = {
    "400 digits": 10**400,
    "400 digits below zero": -(10**400),
    "infinity": float("inf"),
    "no number": float("nan"),
    "a text without end": "x" * 1_000_000,
    "900 levels": json.loads("[" * 900 + "]" * 900),
    "another kind": [{"a": "b"}],
    "true": True,
    "nothing": None,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("field", ["index", "at_ms", "lane", "emitted"])
def test_a_hostile_value_is_refused_in_a_few_words(name: str, field: str) -> None:
    with pytest.raises(ValueError) as refusal:
        from_json({**_rows()["step"], field: HOSTILE[name]})
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize("name", ["400 digits", "infinity", "no number", "a text without end", "900 levels"])
def test_no_description_holds_a_hostile_value(name: str) -> None:
    for about in ({"x": HOSTILE[name]}, {"settings": {"x": [HOSTILE[name]]}}):
        with pytest.raises(ValueError):
            from_json({**_rows()["started"], "about": about})


@pytest.mark.parametrize(("field", "value"), [("index", "3"), ("index", 3.0), ("at_ms", "3.5"), ("lane", 3)])
def test_no_value_is_taken_for_one_of_another_type(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        from_json({**_rows()["step"], field: value})


def test_the_words_of_older_versions_are_read() -> None:
    row = _rows()["started"]
    row["lanes"][0]["rule"] = "rejection"
    del row["lanes"][0]["verifier"], row["lanes"][0]["prefill_ms"]
    row["about"]["settings"] = {"seed": 1, "sampling_rule": "rejection"}
    started = from_json(row)
    assert isinstance(started, Started)
    assert started.lanes[0].verifier == started.about["settings"]["verifier"] == "rejection"
    assert from_json(to_json(started)) == started


class Version(str):
    """A subclass of str, like the type of `torch.__version__`."""


def test_a_library_s_own_kind_of_text_or_number_is_written_as_a_plain_one() -> None:
    row = to_json(Started((), 1, 0.0, {"torch": Version("2.13"), "ms": np.float64(0.5)}))
    assert json.loads(json.dumps(row))["about"] == {"torch": "2.13", "ms": 0.5}
    assert type(row["about"]["torch"]) is str and type(row["about"]["ms"]) is float
