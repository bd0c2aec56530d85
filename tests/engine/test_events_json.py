"""Events as JSON: an event read back is equal, and JSON that is not an event is refused with ValueError."""

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

# Without lone surrogates (Cs), which JSON files cannot hold.
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
    one_per_node: dict[str, Any] = {"min_size": len(tree), "max_size": len(tree)}
    top = draw(st.none() | st.lists(st.lists(TOKENS, max_size=2).map(tuple), **one_per_node).map(tuple))
    scores = Scores(tuple(draw(st.lists(TOKENS, **one_per_node))), top)
    verdict = verify(tree, scores)
    emitted = (*(tree.tokens[node] for node in verdict.path[1:]), verdict.bonus)
    timing = Timing(draw(MS), draw(MS), draw(MS))
    texts, pieces = tuple(draw(st.lists(TEXT, max_size=3))), tuple(draw(st.lists(TEXT, max_size=3)))
    end = draw(st.sampled_from(["", "eos", "length"]))
    return Step(draw(TEXT), draw(COUNT), draw(MS), tree, verdict, emitted, timing, end, texts, pieces)


@given(STARTED | FINISHED | REPEATED | steps())
def test_an_event_read_back_from_json_is_equal(event: Event) -> None:
    assert from_json(json.loads(json.dumps(to_json(event)))) == event


def test_a_step_read_back_from_json_has_tuples_and_derived_fields() -> None:
    tree = TokenTree((1, 2, 3), (-1, 0, 0), (1.0, 0.5, 0.5), (-1, 4, 9))
    step = Step("trie", 3, 12.5, tree, verify(tree, Scores((3, 0, 7))), (3, 7), Timing(1.0, 2.0, 3.0), "eos")
    reloaded = from_json(json.loads(json.dumps(to_json(step))))
    assert isinstance(reloaded, Step)
    assert reloaded.tree.depths == (0, 1, 1) and reloaded.verdict.accepted == 1 and reloaded.timing.total_ms == 6.0
    assert isinstance(reloaded.tree.tokens, tuple) and isinstance(reloaded.verdict.scores.targets, tuple)


def test_events_have_a_type_and_started_has_the_format() -> None:
    assert to_json(Started((), 1, 0.0))["format"] == FORMAT
    assert to_json(Finished(()))["type"] == "finished"


def _rows() -> dict[str, dict[str, Any]]:
    """Event type -> an event of this type as JSON."""
    tree = TokenTree((1, 2), (-1, 0))
    step = Step("trie", 0, 1.0, tree, verify(tree, Scores((2, 5), ((2,), (5,)))), (2, 5), Timing(1.0, 1.0, 1.0))
    lane = LaneResult(
        "trie", 2, 1, 2.0, 1.0, 1.0, 3.0, 9.0, 1.0, False, Difference(0, ("a", "b"), 0.1), "length", 0, "text"
    )
    started = Started((LaneInfo("trie", "Trie", 4),), 3, 1.0, {"question": "?"})
    repeated = Repeated(3, (LaneSpread("trie", 1.2, 1.1, 1.3, 90.0),), False, "Medians of 3 runs.")
    events: tuple[Event, ...] = (started, step, Finished((lane,)), repeated)
    return {row["type"]: row for row in (json.loads(json.dumps(to_json(event))) for event in events)}


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """For a JSON value and each value inside it: the keys that lead there."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    return [path, *(inner_path for key, inner in items for inner_path in _paths(inner, (*path, key)))]


@pytest.mark.parametrize("kind", ["started", "step", "finished", "repeated"])
def test_a_missing_field_is_refused_unless_it_has_a_default(kind: str) -> None:
    row = _rows()[kind]
    defaults = {"about", "end", "texts", "pieces", "checks", "note", "stopped", "pace", "cut"}
    for name in row.keys() - defaults:
        with pytest.raises(ValueError):
            from_json({key: value for key, value in row.items() if key != name})


@pytest.mark.parametrize("junk", [None, [], {}, "x", 5, True, float("inf"), float("nan"), [[1]], {"a": 1}, -7])
@pytest.mark.parametrize("kind", ["started", "step", "finished", "repeated"])
def test_junk_in_any_field_raises_only_value_error(kind: str, junk: Any) -> None:
    row = _rows()[kind]
    for path in _paths(row)[1:]:
        changed = copy.deepcopy(row)
        parent = changed
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = junk
        # Any other exception fails the test.
        with suppress(ValueError):
            from_json(changed)


@pytest.mark.parametrize("row", [None, [], "started", 3, {}, {"type": "lap"}, {"type": None}, {"type": ["step"]}])
def test_json_that_is_not_an_event_is_refused(row: Any) -> None:
    with pytest.raises(ValueError):
        from_json(row)


def test_the_error_for_another_format_names_both_formats() -> None:
    row = {**_rows()["started"], "format": FORMAT + 1}
    with pytest.raises(ValueError, match=f"format {FORMAT + 1}.* reads {FORMAT}"):
        from_json(row)


@pytest.mark.parametrize("tokens", [["a", "b"], [1.5, 2], [None, 2], [[1], 2]])
def test_tokens_that_are_not_integers_are_refused(tokens: Any) -> None:
    row = _rows()["step"]
    row["tree"]["tokens"] = tokens
    with pytest.raises(ValueError):
        from_json(row)


def test_steps_with_different_texts_are_not_equal() -> None:
    step = from_json(_rows()["step"])
    assert isinstance(step, Step)
    assert from_json(to_json(replace(step, texts=("a", "b"), pieces=("x", "y")))) != step


HOSTILE: dict[str, Any] = {
    "400 digits": 10**400,
    "400 digits below zero": -(10**400),
    "infinity": float("inf"),
    "NaN": float("nan"),
    "a million characters": "x" * 1_000_000,
    "900 levels": json.loads("[" * 900 + "]" * 900),
    "a list of objects": [{"a": "b"}],
    "true": True,
    "null": None,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("field", ["index", "at_ms", "lane", "emitted"])
def test_a_hostile_value_is_refused_with_a_short_message(name: str, field: str) -> None:
    with pytest.raises(ValueError) as error:
        from_json({**_rows()["step"], field: HOSTILE[name]})
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("name", ["400 digits", "infinity", "NaN", "a million characters", "900 levels"])
def test_a_description_with_a_hostile_value_is_refused(name: str) -> None:
    for about in ({"x": HOSTILE[name]}, {"settings": {"x": [HOSTILE[name]]}}):
        with pytest.raises(ValueError):
            from_json({**_rows()["started"], "about": about})


@pytest.mark.parametrize(("field", "value"), [("index", "3"), ("index", 3.0), ("at_ms", "3.5"), ("lane", 3)])
def test_values_are_not_converted_to_another_type(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        from_json({**_rows()["step"], field: value})


def test_field_names_of_older_versions_are_read() -> None:
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


def test_subclasses_of_str_and_float_are_written_as_plain_values() -> None:
    row = to_json(Started((), 1, 0.0, {"torch": Version("2.13"), "ms": np.float64(0.5)}))
    assert json.loads(json.dumps(row))["about"] == {"torch": "2.13", "ms": 0.5}
    assert type(row["about"]["torch"]) is str and type(row["about"]["ms"]) is float
