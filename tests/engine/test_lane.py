"""A lane's steps on a target that is a function: a step's fields, where a text ends, padded rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from specrace.core.cost_curve import CostCurve
from specrace.core.note import Note
from specrace.core.rejection import Coins
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores
from specrace.drafters.ngram_table import BigramDrafter
from specrace.drafters.prompt_lookup import PromptLookupDrafter
from specrace.engine.lane import Lane
from tests.parts import VOCAB, FunctionSession, Scripted, function_lane, inputs

PROMPT = (2, 3, 4)
# Two and three rows cost more than four.
CLIFF = CostCurve((1, 2, 3, 4, 8, 64), (1.0, 1.5, 1.6, 1.2, 1.5, 5.0))


def following(tokens: Sequence[int]) -> int:
    return (tokens[-1] + 1) % VOCAB


def counting(context: Sequence[int], budget: int) -> TokenTree:
    """A chain of right guesses, one more than the budget."""
    return TokenTree.chain(context[-1], [(context[-1] + ahead) % VOCAB for ahead in range(1, budget + 2)])


class RecordingSession(FunctionSession):
    """A session that remembers the trees it scored and gives two likely tokens at each node."""

    def __init__(self, prompt: Sequence[int]) -> None:
        super().__init__(prompt, following)
        self.trees: list[TokenTree] = []

    def score(self, tree: TokenTree) -> Scores:
        self.trees.append(tree)
        targets = super().score(tree).targets
        return Scores(targets, tuple((target, 0) for target in targets))

    def score_distributions(self, tree: TokenTree) -> np.ndarray:
        return np.eye(VOCAB)[list(self.score(tree).targets)]


def test_steps_say_where_they_stand_and_which_was_the_last() -> None:
    lane = function_lane(PROMPT, Scripted(counting), following, max_new_tokens=8, num_draft=2)
    assert lane.at_ms == 0.0
    steps = [lane.step() for _ in range(3)]
    assert [(step.lane, step.index, step.emitted) for step in steps] == [
        ("tested", 0, (5, 6, 7)), ("tested", 1, (8, 9, 10)), ("tested", 2, (11, 12)),
    ]  # fmt: skip
    assert [step.end for step in steps] == ["", "", "length"] and lane.end == "length"
    # One of the last two tokens is the target's own.
    assert [step.tree.num_draft for step in steps] == [2, 2, 1]
    assert all(step.checks is None and step.note is None for step in steps)
    assert lane.tokens == [5, 6, 7, 8, 9, 10, 11, 12] and lane.remaining == 0
    assert [step.at_ms for step in steps] == pytest.approx(
        np.cumsum([step.timing.total_ms for step in steps]), abs=1e-9
    )


def test_the_last_token_is_not_drafted_for() -> None:
    drafter = Scripted(counting)
    lane = function_lane(PROMPT, drafter, following, max_new_tokens=4, num_draft=2)
    assert [lane.step().emitted for _ in range(2)] == [(5, 6, 7), (8,)]
    assert drafter.budgets == [2, 0]
    ended = function_lane(PROMPT, Scripted(counting), following, max_new_tokens=0)
    assert ended.end == "length" and ended.tokens == []


@pytest.mark.parametrize(("eos", "expected"), [(5, (5,)), (6, (5, 6)), (7, (5, 6, 7))])
def test_a_text_ends_with_its_first_end_token(eos: int, expected: tuple[int, ...]) -> None:
    lane = function_lane(PROMPT, Scripted(counting), following, num_draft=2, eos_ids=frozenset({eos, eos + 1}))
    step = lane.step()
    assert (step.emitted, step.end, lane.end, tuple(lane.tokens)) == (expected, "eos", "eos", expected)


def test_the_end_token_at_the_limit_is_an_end() -> None:
    lane = function_lane(PROMPT, Scripted(counting), following, max_new_tokens=2, num_draft=2, eos_ids=frozenset({6}))
    assert lane.step().end == "eos"
    lane = function_lane(PROMPT, Scripted(counting), following, max_new_tokens=2, num_draft=2, eos_ids=frozenset({7}))
    assert lane.step().end == "length"


def test_rows_that_fill_up_are_run_and_forgotten() -> None:
    """Three rows cost more than four, so they are padded if the lane may run four."""
    for num_draft, rows in ((3, 4), (2, 3)):
        session = RecordingSession(PROMPT)
        drafter = Scripted(lambda context, budget: counting(context, budget).cut(2))
        lane = Lane("tested", drafter, session, PROMPT, max_new_tokens=9, num_draft=num_draft, curve=CLIFF)
        step = lane.step()
        assert len(session.trees[0]) == rows and session.trees[0].cut(2).tokens == step.tree.tokens == (4, 5, 6)
        assert step.verdict.scores == Scores((5, 6, 7), ((5, 0), (6, 0), (7, 0)))
        assert drafter.told == [(step.tree, step.verdict)]
    plain = RecordingSession(PROMPT)
    Lane("tested", Scripted(counting), plain, PROMPT, max_new_tokens=9, num_draft=2).step()
    assert len(plain.trees[0]) == 3


def test_what_only_fills_up_is_not_drawn_from_either() -> None:
    drafter_inputs = inputs((4, 5, 6, 4), params=SamplingParams(1.0))
    session = RecordingSession(drafter_inputs.prompt)
    drafter = BigramDrafter(drafter_inputs, sampled=True)
    lane = Lane("bigram", drafter, session, drafter_inputs.prompt, max_new_tokens=9, num_draft=3,
                coins=Coins(1, "bigram"), curve=CostCurve((1, 4, 5, 64), (1.0, 2.0, 1.0, 9.0)))  # fmt: skip
    step = lane.step()
    assert len(session.trees[0]) == 4 and step.checks is not None and 1 <= len(step.checks) <= 3
    first, coin = step.checks[0], Coins(1, "bigram").at(len(drafter_inputs.prompt))[0]
    guess = step.tree.tokens[1]
    assert (first.p, first.coin) == (float(guess == 5), coin)
    assert first.q == pytest.approx(drafter.distributions()[0][guess])


def test_a_teller_is_asked_and_its_note_bounded() -> None:
    session = FunctionSession((2, 3, 2), following)
    lane = Lane("tested", PromptLookupDrafter(inputs((2, 3, 2))), session, (2, 3, 2), max_new_tokens=3, num_draft=2)
    assert lane.step().note == Note({"matched tokens": 1})


def test_building_is_on_the_clock() -> None:
    session = FunctionSession(PROMPT, following)
    lane = Lane("tested", Scripted(counting), session, PROMPT, max_new_tokens=3, num_draft=0, build_ms=7.0)
    assert lane.at_ms == 7.0
    step = lane.step()
    assert step.at_ms == lane.at_ms == pytest.approx(7.0 + step.timing.total_ms)
