"""How many steps emitted, drafted and accepted a token at each position, worked out by hand."""

from __future__ import annotations

from specrace.core.events import Step, Timing
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, Verdict
from specrace.lab.scoring.acceptance import Acceptance
from specrace.lab.scoring.score import Scoreboard, ScoredLane
from tests.lab.parts import COPYING, FRESH, transcript

# Two branches below the root: three tokens deep, and one.
TREE = TokenTree((9, 1, 2, 3, 4), (-1, 0, 1, 2, 0))


def step(*emitted: int, path: tuple[int, ...] = (0,), tree: TokenTree = TREE) -> Step:
    """A step that emits these tokens; `path`: the accepted nodes, the root first."""
    verdict = Verdict(path, 0, Scores((0,) * len(tree)))
    return Step("", 0, 0.0, tree, verdict, emitted, Timing(0.0, 0.0, 0.0))


def test_each_position_counts_the_drafts_that_reach_it() -> None:
    counted = Acceptance()
    for counted_step in (
        step(1, 2, 7, path=(0, 1, 2)),
        step(4, 7, path=(0, 4)),
        step(7),
        step(7, tree=TokenTree((9,), (-1,))),
        # The output ends inside the accepted path.
        step(1, path=(0, 1, 2)),
    ):
        counted.add(counted_step)
    expected = {"emitted": [0, 3, 1, 1], "drafted": [4, 4, 4], "accepted": [3, 1, 0]}
    assert (counted.steps, counted.summary()) == (5, expected)
    merged_twice = Acceptance()
    merged_twice.merge(counted)
    merged_twice.merge(counted)
    assert merged_twice.summary() == {name: [2 * count for count in counts] for name, counts in expected.items()}


def test_without_steps_there_are_no_positions() -> None:
    assert Acceptance().summary() == {"emitted": [0], "drafted": [], "accepted": []}


def test_a_scoreboard_reports_its_steps_and_discards_an_interrupted_request() -> None:
    board = Scoreboard([ScoredLane.of("vanilla", {}), ScoredLane.of("prompt-lookup", {}, 3)], by_category=True)
    counted = {lane.name: Acceptance() for lane in board.lanes}
    board.add(
        transcript(COPYING["prompt_ids"], COPYING["output_ids"]), lambda lane, new_step: counted[lane].add(new_step)
    )
    groups = board.groups()
    # The output has eight tokens. Prompt lookup emits 4, 1, 1 and 2 of them, as worked out in test_score.py.
    assert {lane: acceptance.steps for lane, acceptance in counted.items()} == {"vanilla": 8, "prompt-lookup": 4}
    assert counted["prompt-lookup"].summary() == {
        "emitted": [0, 2, 1, 0, 1],
        "drafted": [3, 3, 3],
        "accepted": [2, 1, 1],
    }

    class InterruptedTestError(Exception):
        pass

    def interrupt(lane: str, _: Step) -> None:
        if lane == "prompt-lookup":
            raise InterruptedTestError

    try:
        board.add(transcript(FRESH["prompt_ids"], FRESH["output_ids"]), interrupt)
    except InterruptedTestError:
        assert (board.groups(), board.outputs) == (groups, 1)
    else:
        raise AssertionError("the request was not interrupted")
