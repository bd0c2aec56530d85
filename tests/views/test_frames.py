"""Frames: their texts, drafts, origins and badges; headlines; and the report of a race.

A keyframe shows the whole race so far, a lane frame what is new in one lane. A lane's text comes in pieces: [kind,
text, number of tokens], and the spans of the passages that it was copied from, if any. The kind "own" is the target's
own text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrace.core.events import (
    Difference,
    Finished,
    LaneInfo,
    LaneResult,
    LaneSpread,
    Pace,
    Repeated,
    Started,
    Step,
    Timing,
)
from specrace.core.metrics import format_speedup
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, Verdict
from specrace.views.frames import (
    RaceView,
    count_sources,
    describe_curve,
    describe_draft,
    find_spans,
    read_origins,
    report,
)
from specrace.views.headlines import final_badge, headline
from specrace.views.shown import LaneMeters, ShownCurve, ShownDraft, ShownRepeated

LANES = ("vanilla", "trigram", "trie")
PASSAGES = [{"title": "t", "document": "d", "text": "0123456789", "score": 0.5} for _ in range(2)]


@st.composite
def steps(draw: st.DrawFn, lane: str) -> Step:
    """A step of the lane with a tree of any shape, and with positions if the lane is the trie."""
    size = 1 if lane == "vanilla" else draw(st.integers(1, 6))
    parents = [-1, *(draw(st.integers(0, node - 1)) for node in range(1, size))]
    tree = TokenTree(
        tuple(draw(st.permutations(range(size)))),
        tuple(parents),
        positions=tuple(draw(st.integers(-1, 12)) for _ in range(size)) if lane == "trie" else None,
    )
    path = tree.path_to(draw(st.integers(0, size - 1)))
    bonus = draw(st.integers(0, 9))
    emitted = (*(tree.tokens[node] for node in path[1:]), bonus)
    emitted = emitted[: draw(st.integers(1, len(emitted)))]
    texts = tuple(draw(st.sampled_from(["", "a", " the", "<b>", "${x}"])) for _ in emitted)
    return Step(
        lane=lane, index=0, at_ms=draw(st.floats(0, 100)), tree=tree, verdict=Verdict(path, bonus, Scores((0,) * size)),
        emitted=emitted, timing=Timing(0.1, 1.0, 0.1), texts=texts, pieces=tuple(f"<{n}>" for n in range(size)),
    )  # fmt: skip


def started(lanes: Sequence[str] = LANES, **about: Any) -> Started:
    """The first event of a race about a text with two passages."""
    infos = tuple(LaneInfo(lane, lane.title(), 4) for lane in lanes)
    # An origin says for a prompt token which passage it is from, and which characters of it; None: no passage.
    return Started(
        infos,
        10,
        5.0,
        {"question": "q", "origins": [None, [0, 0, 3], [0, 3, 5], [1, 7, 9]], "passages": PASSAGES, **about},
    )


def result(lane: str, **changes: Any) -> LaneResult:
    """A lane's result with these changes."""
    values: dict[str, Any] = {
        "lane": lane, "tokens": 2, "steps": 1, "tau": 2.0, "drafted_per_step": 4.0, "acceptance_rate": 0.25,
        "decode_ms": 2.0, "tokens_per_s": 1000.0, "speedup": 1.0, "identical": True, "first_difference": None,
        "end": "eos", "loop_tokens": 0,
    }  # fmt: skip
    return LaneResult(**{**values, **changes})


def step(tokens: Sequence[int], accepted: int, *, lane: str = "trie", emitted: int | None = None, **more: Any) -> Step:
    """A step whose draft is the chain `tokens` after token 0; the first `accepted` are accepted, and the bonus is 9.

    Only the first `emitted` tokens are emitted, if given. The step takes 2 ms. The option `positions` has for each node
    the index in prompt and output that its token was copied from; -1: none, or not known.
    """
    tree = TokenTree((0, *tokens), tuple(range(-1, len(tokens))), positions=more.pop("positions", None))
    output = (*tokens[:accepted], 9)[: emitted or accepted + 1]
    verdict = Verdict(tuple(range(accepted + 1)), 9, Scores((0,) * len(tree)))
    return Step(
        lane, 0, 3.0, tree, verdict, output, Timing(0.5, 1.0, 0.5), more.pop("end", ""),
        texts=tuple(f" {token}" for token in output), pieces=tuple(f"p{token}" for token in tree.tokens),
    )  # fmt: skip


races = st.lists(st.sampled_from(LANES).flatmap(steps), min_size=1, max_size=25)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(races)
def test_the_pieces_of_lane_frames_are_those_of_the_keyframe(race: list[Step]) -> None:
    view = RaceView()
    pieces: dict[str, list[Any]] = {lane: [] for lane in LANES}
    view.add(started())
    for event in race:
        view.add(event)
        pieces[event.lane] += view.lane_frame(LANES.index(event.lane)).runs
    fresh = RaceView()
    for event in (started(), *race):
        fresh.add(event)
    for lane, frame in zip(LANES, fresh.keyframe().lanes, strict=True):
        assert join_own(pieces[lane]) == join_own(frame.runs)


def join_own(pieces: list[Any]) -> list[Any]:
    """The pieces, with neighbouring pieces of the target's own tokens joined."""
    joined: list[Any] = []
    for piece in pieces:
        if piece[0] == "own" and joined and joined[-1][0] == "own":
            joined[-1] = ["own", joined[-1][1] + piece[1], joined[-1][2] + piece[2]]
        else:
            joined.append(piece)
    return joined


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(races)
def test_the_pieces_have_every_token_and_text_once(race: list[Step]) -> None:
    view = RaceView()
    view.add(started())
    for event in race:
        view.add(event)
    for number, lane in enumerate(LANES):
        lane_steps = [event for event in race if event.lane == lane]
        pieces = view.keyframe().lanes[number].runs
        assert sum(piece[2] for piece in pieces) == sum(len(event.emitted) for event in lane_steps)
        assert "".join(piece[1] for piece in pieces) == "".join("".join(event.texts) for event in lane_steps)
        accepted = sum(min(event.verdict.accepted, len(event.emitted)) for event in lane_steps)
        assert sum(piece[2] for piece in pieces if piece[0] == "accepted") == accepted


def test_a_draft_frame_has_the_accepted_and_the_rejected_texts() -> None:
    assert describe_draft(step((), 0)).drafted == 0
    assert describe_draft(step((1, 2, 3), 0)) == ShownDraft(0, 3, 0, accepted_texts=[], rejected=["p1", "p2", "p3"])
    assert describe_draft(step((1, 2, 3), 2)) == ShownDraft(0, 3, 2, accepted_texts=["p1", "p2"], rejected=["p3"])


def test_an_end_inside_the_accepted_path_cuts_the_text() -> None:
    view = RaceView()
    view.add(started(("vanilla", "trie")))
    view.add(step((1, 2, 3), 3, emitted=2, end="eos"))
    lane = view.keyframe().lanes[1]
    assert lane.runs == [["accepted", " 1 2", 2]] and lane.end == "eos"
    assert lane.draft is not None and (lane.draft.accepted, lane.draft.rejected) == (2, [])


def test_a_draft_frame_has_at_most_eight_rejected_tokens() -> None:
    assert len(describe_draft(step(tuple(range(40)), 0)).rejected) == 8


def test_spans_are_where_the_accepted_tokens_are_in_the_passages() -> None:
    # The prompt has four tokens (see `started`), so position 77 is in the output.
    origins = [None, [0, 0, 3], [0, 3, 5], [1, 7, 9]]
    assert find_spans(step((1, 2, 3, 4), 4, positions=(-1, 1, 2, 3, 77)), origins) == [[0, 0, 5], [1, 7, 9]]
    assert find_spans(step((1, 2), 2, positions=(-1, 0, -1)), origins) == []
    assert find_spans(step((1, 2), 0, positions=(-1, 1, 2)), origins) == []
    assert find_spans(step((1, 2), 2), origins) == []


def test_tokens_are_counted_by_origin() -> None:
    """The counts: the target's own tokens, drafts of unknown position, copies from output, prompt, passage 0, ..."""
    origins = [None, [0, 0, 3], [0, 3, 5], [1, 7, 9]]
    assert count_sources(step((1, 2, 3, 4, 5), 5, positions=(-1, 0, 1, 3, 4, -1)), origins) == [1, 1, 1, 1, 1, 1]
    assert count_sources(step((1, 2), 1, positions=(-1, 2, 1)), origins) == [1, 0, 0, 0, 1]
    assert count_sources(step((1, 2), 2, emitted=1), origins) == [0, 1, 0, 0]
    assert count_sources(step((), 0), origins) == [1, 0, 0, 0]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(races)
def test_every_token_is_counted_under_one_origin(race: list[Step]) -> None:
    view = RaceView()
    view.add(started())
    for event in race:
        view.add(event)
    for lane in view.keyframe().lanes:
        assert sum(lane.sources) == lane.meters.tokens
        has_spans = any(len(piece) > 3 for piece in lane.runs)
        assert has_spans == (sum(lane.sources[4:]) > 0)


def test_a_race_without_passages_has_no_origins() -> None:
    assert read_origins({}) == read_origins({"origins": None}) == ()
    assert read_origins({"origins": [None, (0, 1, 2)]}) == (None, [0, 1, 2])


@pytest.mark.parametrize(
    "curve",
    [
        None,
        3,
        {},
        {"rows": [2], "ratio": [1]},
        {"rows": [1], "ratio": ["x"]},
        {"rows": [1], "ratio": [1], "contexts": 3},
    ],
)
def test_an_invalid_cost_curve_is_not_shown(curve: Any) -> None:
    assert describe_curve(curve, 100) is None


def test_the_cost_curve_for_the_nearest_context_is_shown() -> None:
    contexts = [{"context": size, "row_ms": 1.0, "ratio": [1.0, ratio]} for size, ratio in ((100, 1.5), (900, 3.0))]
    curve = {"rows": [1, 4], "ratio": [1.0, 2.0], "contexts": contexts}
    assert describe_curve(curve, 800) == ShownCurve([1, 4], [1.0, 3.0], 900)


def test_a_running_lanes_badge_compares_its_tokens_with_vanillas() -> None:
    view = RaceView()
    view.add(started(("vanilla", "trie")))
    badges = []
    # The trie prints 1 9, vanilla prints 9 and then 9 again.
    for event in (step((1,), 1), step((), 0, lane="vanilla"), step((), 0, lane="vanilla")):
        view.add(event)
        badges.append(view.keyframe().lanes[1].badge)
    assert badges[0] == ("same", "identical so far")
    assert badges[1] == badges[2] == ("differs", "differs at token 0")


@pytest.mark.parametrize(
    ("changes", "stopped", "badge"),
    [
        ({}, False, ("identical", "identical to vanilla")),
        ({}, True, ("same", "identical so far")),
        ({"identical": None}, False, ("none", "not compared")),
        (
            {"identical": False, "first_difference": Difference(57, ("a", "b"), 0.004)},
            False,
            ("differs", "differs at token 57: near tie, gap 0.004"),
        ),
        (
            {"identical": False, "first_difference": Difference(3, ("a", "b"), 2.5)},
            False,
            ("differs", "differs at token 3: gap 2.500"),
        ),
    ],
)
def test_a_finished_lanes_badge_says_whether_its_text_is_vanillas(
    changes: dict[str, Any], stopped: bool, badge: tuple[str, str]
) -> None:
    assert final_badge(result("trie", **changes), stopped) == badge


def test_the_headline_names_the_fastest_lane_and_what_differs() -> None:
    start = started(("vanilla", "trie"))
    faster = Finished((result("vanilla"), result("trie", speedup=2.13)))
    assert headline(start, faster) == (
        "Trie is fastest: 2.1× vanilla, with 2.0 tokens per step. Every lane printed the same text."
    )
    as_fast = Finished((result("vanilla"), result("trie", speedup=1.04)))
    assert headline(start, as_fast).startswith("No lane was faster than vanilla.")
    # Decimals that are not shown make no lane the fastest.
    level = Finished((result("vanilla"), result("trie", speedup=3.15), result("fusion", speedup=3.17)))
    assert headline(started(("vanilla", "trie", "fusion")), level).startswith(
        "Trie and Fusion are level: 3.2× vanilla. "
    )
    slower = Finished((result("vanilla"), result("trie", speedup=0.5, identical=False)))
    assert headline(start, slower) == "No lane was faster than vanilla. Trie differs from vanilla."
    assert headline(start, Finished(faster.lanes, stopped=True)).startswith("Stopped")


def repeated(trie: float, *, disturbed: bool = False) -> Repeated:
    """The summary of five runs in which the trie's median speedup is `trie`."""
    note = "The machine was busy in 3 of 5 runs." if disturbed else "Speedups are medians of 5 runs."
    # A lane's median speedup, its minimum and maximum, and the median tokens per second.
    lanes = LaneSpread("vanilla", 1.0, 1.0, 1.0, 500.0), LaneSpread("trie", trie, trie - 0.2, trie + 0.25, 900.0)
    return Repeated(5, lanes, disturbed, note)


def test_frames_and_report_have_the_median_speedups_of_repeated_runs() -> None:
    pace = Pace(9, 1.0, 1.0, 1.0, 0.0, 0.0, 2, True, "The machine was disturbed.")
    start, finished = (
        started(("vanilla", "trie")),
        Finished((result("vanilla"), result("trie", speedup=9.9)), pace=pace),
    )
    view = RaceView()
    for event in (start, step((), 0, lane="vanilla"), step((1,), 1), finished, repeated(3.1), repeated(2.4)):
        view.add(event)
    end = view.ending()
    assert end.headline.startswith("Trie is fastest: 2.4× vanilla (2.2 to 2.7 over 5 runs), with 2.0 tokens per")
    # A range whose ends read alike is left out.
    level = replace(repeated(2.4), lanes=(repeated(2.4).lanes[0], LaneSpread("trie", 2.4, 2.36, 2.44, 900.0)))
    assert headline(start, finished, level).startswith("Trie is fastest: 2.4× vanilla over 5 runs, with 2.0 tokens per")
    assert [(row.speedup, row.tokens_per_s) for row in end.results] == [(1.0, 500.0), (2.4, 900.0)]
    spreads = [(1.0, 1.0, 1.0), (2.4, 2.2, 2.65)]
    assert end.repeated == ShownRepeated(False, "Speedups are medians of 5 runs.", 5, spreads)
    lanes = report(start, finished, repeated(2.4))["lanes"]
    assert [lanes[1][name] for name in ("speedup", "speedup_low", "speedup_high")] == pytest.approx([2.4, 2.2, 2.65])


def test_the_headline_of_disturbed_runs_names_no_fastest_lane() -> None:
    start, finished = started(("vanilla", "trie")), Finished((result("vanilla"), result("trie", speedup=2.1)))
    text = headline(start, finished, repeated(2.4, disturbed=True))
    assert text == "The machine was busy in 3 of 5 runs. Every lane printed the same text."
    assert "fastest: 2.1×" in headline(start, finished)


def test_a_race_that_was_run_once_has_no_range() -> None:
    start, finished = started(("vanilla", "trie")), Finished((result("vanilla"), result("trie", speedup=2.1)))
    view = RaceView()
    view.add(start)
    view.add(finished)
    assert view.ending().repeated is None
    race_report = report(start, finished)
    assert (race_report["runs"], race_report["repeated"], race_report["lanes"][1]["speedup_low"]) == (1, None, None)


def test_the_results_and_the_headline_show_the_same_speedup() -> None:
    """Rounding 2.4496 in two steps, to 2.45 and then to 2.5, would be wrong."""
    view = RaceView()
    for event in (started(("vanilla", "trie")), Finished((result("vanilla"), result("trie", speedup=2.4496)))):
        view.add(event)
    end = view.ending()
    assert format_speedup(end.results[1].speedup) == "2.4×" and "2.4× vanilla" in end.headline


def test_a_lane_that_repeats_a_token_is_shown_as_looping() -> None:
    view = RaceView()
    view.add(started(("vanilla", "trie")))
    view.add(step((9,) * 50, 50))
    assert view.keyframe().lanes[1].loops is True


def test_a_lanes_meters_are_computed_from_its_steps() -> None:
    view = RaceView()
    view.add(started(("vanilla", "trie")))
    view.add(step((), 0, lane="vanilla"))
    view.add(step((1, 2, 3), 2))
    assert view.keyframe().lanes[1].meters == LaneMeters(
        speedup=3.0, tokens_per_s=1500.0, tau=3.0, tokens=3, steps=1, ms=2.0, accepted=2, drafted=3
    )


def test_the_report_is_json_without_the_origins() -> None:
    text = json.dumps(report(started(("vanilla",), model="m"), Finished((result("vanilla"),))))
    data = json.loads(text)
    assert data["model"] == "m" and "origins" not in data
    assert data["lanes"][0]["lane"] == "vanilla"
