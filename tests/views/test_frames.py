from __future__ import annotations

import json
from collections.abc import Sequence
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

LANES = ("vanilla", "trigram", "trie")
PASSAGES = [{"title": "t", "document": "d", "text": "0123456789", "score": 0.5} for _ in range(2)]


@st.composite
def steps(draw: st.DrawFn, lane: str) -> Step:
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
    infos = tuple(LaneInfo(lane, lane.title(), 4) for lane in lanes)
    return Started(
        infos,
        10,
        5.0,
        {"question": "q", "origins": [None, [0, 0, 3], [0, 3, 5], [1, 7, 9]], "passages": PASSAGES, **about},
    )


def result(lane: str, **changes: Any) -> LaneResult:
    values: dict[str, Any] = {
        "lane": lane, "tokens": 2, "steps": 1, "tau": 2.0, "drafted_per_step": 4.0, "acceptance_rate": 0.25,
        "decode_ms": 2.0, "tokens_per_s": 1000.0, "speedup": 1.0, "identical": True, "first_difference": None,
        "end": "eos", "loop_tokens": 0,
    }  # fmt: skip
    return LaneResult(**{**values, **changes})


def step(tokens: Sequence[int], accepted: int, *, lane: str = "trie", emitted: int | None = None, **more: Any) -> Step:
    """A step that drafts a chain after token 0, of which `accepted` tokens are accepted; the bonus is 9."""
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
def test_the_runs_of_a_lane_s_frames_are_those_of_the_whole_race(race: list[Step]) -> None:
    view, parts = RaceView(), [list[Any](), list[Any](), list[Any]()]
    view.add(started())
    for event in race:
        view.add(event)
        index = LANES.index(event.lane)
        parts[index] += view.lane_frame(index)["runs"]
    whole = RaceView()
    for event in (started(), *race):
        whole.add(event)
    assert [join(runs) for runs in parts] == [join(lane["runs"]) for lane in whole.keyframe()["lanes"]]


def join(runs: list[Any]) -> list[Any]:
    """The runs, with neighbouring runs of the target's own tokens joined."""
    joined: list[Any] = []
    for run in runs:
        if run[0] == "own" and joined and joined[-1][0] == "own":
            joined[-1] = ["own", joined[-1][1] + run[1], joined[-1][2] + run[2]]
        else:
            joined.append(run)
    return joined


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(races)
def test_runs_carry_every_token_and_every_text_once(race: list[Step]) -> None:
    view = RaceView()
    view.add(started())
    for event in race:
        view.add(event)
    for number, lane in enumerate(LANES):
        lane_steps = [event for event in race if event.lane == lane]
        runs = view.keyframe()["lanes"][number]["runs"]
        assert sum(run[2] for run in runs) == sum(len(event.emitted) for event in lane_steps)
        assert "".join(run[1] for run in runs) == "".join("".join(event.texts) for event in lane_steps)
        accepted = sum(min(event.verdict.accepted, len(event.emitted)) for event in lane_steps)
        assert sum(run[2] for run in runs if run[0] == "accepted") == accepted


def test_no_draft_and_nothing_accepted_look_different() -> None:
    assert describe_draft(step((), 0))["drafted"] == 0
    assert describe_draft(step((1, 2, 3), 0)) == {
        "step": 0, "drafted": 3, "accepted": 0, "yes": "", "no": ["p1", "p2", "p3"],
    }  # fmt: skip
    assert describe_draft(step((1, 2, 3), 2)) | {"step": 0} == {
        "step": 0, "drafted": 3, "accepted": 2, "yes": "p1p2", "no": ["p3"],
    }  # fmt: skip


def test_an_end_inside_the_accepted_path_cuts_the_run() -> None:
    view = RaceView()
    view.add(started(("vanilla", "trie")))
    view.add(step((1, 2, 3), 3, emitted=2, end="eos"))
    lane = view.keyframe()["lanes"][1]
    assert lane["runs"] == [["accepted", " 1 2", 2]]
    assert (lane["end"], lane["draft"]["accepted"], lane["draft"]["no"]) == ("eos", 2, [])


def test_of_a_long_rejected_branch_a_pane_shows_eight_tokens() -> None:
    assert len(describe_draft(step(tuple(range(40)), 0))["no"]) == 8


def test_accepted_tokens_know_their_place_in_the_passages() -> None:
    origins = [None, [0, 0, 3], [0, 3, 5], [1, 7, 9]]
    assert find_spans(step((1, 2, 3, 4), 4, positions=(-1, 1, 2, 3, 77)), origins) == [[0, 0, 5], [1, 7, 9]]
    assert find_spans(step((1, 2), 2, positions=(-1, 0, -1)), origins) == []
    assert find_spans(step((1, 2), 0, positions=(-1, 1, 2)), origins) == []
    assert find_spans(step((1, 2), 2), origins) == []


def test_sources_tell_where_the_tokens_came_from() -> None:
    origins = [None, [0, 0, 3], [0, 3, 5], [1, 7, 9]]
    assert count_sources(step((1, 2, 3, 4, 5), 5, positions=(-1, 0, 1, 3, 4, -1)), origins) == [1, 1, 1, 1, 1, 1]
    assert count_sources(step((1, 2), 1, positions=(-1, 2, 1)), origins) == [1, 0, 0, 0, 1]
    assert count_sources(step((1, 2), 2, emitted=1), origins) == [0, 1, 0, 0]
    assert count_sources(step((), 0), origins) == [1, 0, 0, 0]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(races)
def test_every_token_has_one_source(race: list[Step]) -> None:
    view = RaceView()
    view.add(started())
    for event in race:
        view.add(event)
    for lane in view.keyframe()["lanes"]:
        assert sum(lane["sources"]) == lane["meters"]["tokens"]
        placed = sum(end - start > 0 for run in lane["runs"] for _, start, end in (run[3] if len(run) > 3 else []))
        assert (placed > 0) == (sum(lane["sources"][4:]) > 0)


def test_a_race_without_passages_has_no_places() -> None:
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
def test_what_is_no_cost_curve_is_not_shown(curve: Any) -> None:
    assert describe_curve(curve, 100) is None


def test_the_cost_curve_is_that_of_the_nearest_context() -> None:
    contexts = [{"context": size, "row_ms": 1.0, "ratio": [1.0, ratio]} for size, ratio in ((100, 1.5), (900, 3.0))]
    curve = {"rows": [1, 4], "ratio": [1.0, 2.0], "contexts": contexts}
    assert describe_curve(curve, 800) == {"rows": [1, 4], "ratio": [1.0, 3.0], "context": 900}


def test_the_live_badge_compares_tokens() -> None:
    view = RaceView()
    view.add(started(("vanilla", "trie")))
    badges = []
    for event in (step((1,), 1), step((), 0, lane="vanilla"), step((), 0, lane="vanilla")):
        view.add(event)
        badges.append(view.keyframe()["lanes"][1]["badge"])
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
def test_the_final_badge(changes: dict[str, Any], stopped: bool, badge: tuple[str, str]) -> None:
    assert final_badge(result("trie", **changes), stopped) == badge


def test_the_headline_names_the_fastest_lane_and_what_differs() -> None:
    race = started(("vanilla", "trie"))
    won = Finished((result("vanilla"), result("trie", speedup=2.13)))
    assert headline(race, won) == (
        "Trie is fastest: 2.1× vanilla, with 2.0 tokens per step. Every lane printed the same text."
    )
    level = Finished((result("vanilla"), result("trie", speedup=1.04)))
    assert headline(race, level).startswith("No lane was faster than vanilla.")
    lost = Finished((result("vanilla"), result("trie", speedup=0.5, identical=False)))
    assert headline(race, lost) == "No lane was faster than vanilla. Trie differs from vanilla."
    assert headline(race, Finished(won.lanes, stopped=True)).startswith("Stopped")


def repeated(trie: float, *, disturbed: bool = False) -> Repeated:
    """The summary of five runs in which the trie's median speedup is `trie`."""
    note = "The machine was busy in 3 of 5 runs." if disturbed else "Speedups are medians of 5 runs."
    lanes = LaneSpread("vanilla", 1.0, 1.0, 1.0, 500.0), LaneSpread("trie", trie, trie - 0.2, trie + 0.25, 900.0)
    return Repeated(5, lanes, disturbed, note)


def test_repeated_runs_replace_the_first_runs_speedup_everywhere() -> None:
    pace = Pace(9, 1.0, 1.0, 1.0, 0.0, 0.0, 2, True, "The machine was disturbed.")
    race, finished = started(("vanilla", "trie")), Finished((result("vanilla"), result("trie", speedup=9.9)), pace=pace)
    view = RaceView()
    for event in (race, step((), 0, lane="vanilla"), step((1,), 1), finished, repeated(3.1), repeated(2.4)):
        view.add(event)
    frame = view.keyframe()
    assert frame["headline"].startswith("Trie is fastest: 2.4× vanilla (2.2 to 2.7 over 5 runs), with 2.0 tokens per")
    assert [(row["speedup"], row["tokens_per_s"]) for row in frame["results"]] == [(1.0, 500.0), (2.4, 900.0)]
    assert frame["repeated"] == {
        "runs": 5, "disturbed": False, "note": "Speedups are medians of 5 runs.",
        "lanes": [[1.0, 1.0, 1.0], [2.4, 2.2, 2.65]],
    }  # fmt: skip
    lanes = report(race, finished, repeated(2.4))["lanes"]
    assert [lanes[1][name] for name in ("speedup", "speedup_low", "speedup_high")] == pytest.approx([2.4, 2.2, 2.65])


def test_repeated_runs_on_a_busy_machine_name_no_winner() -> None:
    race, finished = started(("vanilla", "trie")), Finished((result("vanilla"), result("trie", speedup=2.1)))
    words = headline(race, finished, repeated(2.4, disturbed=True))
    assert words == "The machine was busy in 3 of 5 runs. Every lane printed the same text."
    assert "fastest: 2.1×" in headline(race, finished)


def test_a_race_that_was_run_once_has_no_range() -> None:
    race, finished = started(("vanilla", "trie")), Finished((result("vanilla"), result("trie", speedup=2.1)))
    view = RaceView()
    view.add(race)
    view.add(finished)
    assert view.keyframe()["repeated"] is None
    race_report = report(race, finished)
    assert (race_report["runs"], race_report["repeated"], race_report["lanes"][1]["speedup_low"]) == (1, None, None)


def test_the_results_and_the_headline_round_the_same_figure() -> None:
    """2.4496 rounds to 2.45, which would round to 2.5; both must show 2.4."""
    view = RaceView()
    for event in (started(("vanilla", "trie")), Finished((result("vanilla"), result("trie", speedup=2.4496)))):
        view.add(event)
    frame = view.keyframe()
    assert format_speedup(frame["results"][1]["speedup"]) == "2.4×" and "2.4× vanilla" in frame["headline"]


def test_a_loop_is_said() -> None:
    view = RaceView()
    view.add(started(("vanilla", "trie")))
    view.add(step((9,) * 50, 50))
    assert view.keyframe()["lanes"][1]["loops"] is True


def test_meters_use_each_lanes_own_clock() -> None:
    view = RaceView()
    view.add(started(("vanilla", "trie")))
    view.add(step((), 0, lane="vanilla"))
    view.add(step((1, 2, 3), 2))
    meters = view.keyframe()["lanes"][1]["meters"]
    assert meters == {
        "speedup": 3.0, "tokens_per_s": 1500.0, "tau": 3.0, "accepted": 2, "drafted": 3, "tokens": 3, "steps": 1,
        "ms": 2.0,
    }  # fmt: skip


def test_the_report_is_json_without_the_page_s_own_data() -> None:
    text = json.dumps(report(started(("vanilla",), model="m"), Finished((result("vanilla"),))))
    data = json.loads(text)
    assert data["model"] == "m" and "origins" not in data
    assert data["lanes"][0]["lane"] == "vanilla"
