"""A lane's steps with a function as the target: their fields, the end of the text, padding rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from specrace.core.cost_curve import CostCurve
from specrace.core.events import Timing
from specrace.core.note import Note
from specrace.core.rejection import Coins
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores
from specrace.drafters.ngram_table import BigramDrafter
from specrace.drafters.prompt_lookup import PromptLookupDrafter
from specrace.engine.lane import Lane
from tests.parts import VOCAB, FunctionSession, ScriptedDrafter, function_lane, inputs

PROMPT = (2, 3, 4)
# Two and three rows cost more than four.
CLIFF = CostCurve((1, 2, 3, 4, 8, 64), (1.0, 1.5, 1.6, 1.2, 1.5, 5.0))


def count_up(tokens: Sequence[int]) -> int:
    """The target of these tests: each token is one more than the last."""
    return (tokens[-1] + 1) % VOCAB


def draft_right_tokens(context: Sequence[int], budget: int) -> TokenTree:
    """A chain of the target's next tokens, one token longer than the budget."""
    return TokenTree.chain(context[-1], [(context[-1] + ahead) % VOCAB for ahead in range(1, budget + 2)])


def right_drafter() -> ScriptedDrafter:
    """A drafter that is always right and drafts one token more than its budget."""
    return ScriptedDrafter(draft_right_tokens)


class RecordingSession(FunctionSession):
    """A session that records the trees it scores, and returns two likely tokens at each node."""

    def __init__(self, prompt: Sequence[int]) -> None:
        super().__init__(prompt, count_up)
        self.trees: list[TokenTree] = []

    def score(self, tree: TokenTree) -> Scores:
        self.trees.append(tree)
        targets = super().score(tree).targets
        return Scores(targets, tuple((target, 0) for target in targets))

    def score_distributions(self, tree: TokenTree) -> np.ndarray:
        """Distributions that give the target's token probability 1."""
        return np.eye(VOCAB)[list(self.score(tree).targets)]


class RecordingPace:
    """A pace that corrects nothing and records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, Timing]] = []

    def correct(self, lane: str, rows: int, timing: Timing) -> Timing:
        self.calls.append((lane, rows, timing))
        return timing


def test_a_steps_time_is_split_and_corrected_under_the_lanes_name(monkeypatch: pytest.MonkeyPatch) -> None:
    # The clock when the step starts, and after drafting, the note, scoring, keeping the accepted tokens, and observing.
    times_ms = iter((0.0, 1.0, 3.0, 7.0, 20.0, 50.0))
    monkeypatch.setattr("specrace.engine.lane.thread_ms", lambda: next(times_ms))
    lane = function_lane(PROMPT, right_drafter(), count_up, max_new_tokens=8, num_draft=2)
    pace = RecordingPace()
    monkeypatch.setattr(lane, "pace", pace)
    step = lane.step()
    assert step.timing == Timing(draft_ms=1.0 + 30.0, target_ms=4.0, keep_ms=13.0)
    assert pace.calls == [("tested", 3, step.timing)]


def test_steps_have_their_index_time_and_end() -> None:
    lane = function_lane(PROMPT, right_drafter(), count_up, max_new_tokens=8, num_draft=2)
    assert lane.at_ms == 0.0
    steps = [lane.step() for _ in range(3)]
    assert [(step.lane, step.index, step.emitted) for step in steps] == [
        ("tested", 0, (5, 6, 7)), ("tested", 1, (8, 9, 10)), ("tested", 2, (11, 12)),
    ]  # fmt: skip
    assert [step.end for step in steps] == ["", "", "length"] and lane.end == "length"
    # Two tokens remained for the last step; one of them is the bonus.
    assert [step.tree.num_draft for step in steps] == [2, 2, 1]
    assert all(step.checks is None and step.note is None for step in steps)
    assert lane.tokens == [5, 6, 7, 8, 9, 10, 11, 12] and lane.remaining == 0
    assert [step.at_ms for step in steps] == pytest.approx(
        np.cumsum([step.timing.total_ms for step in steps]), abs=1e-9
    )


def test_the_budget_is_one_less_than_the_tokens_that_remain() -> None:
    drafter = right_drafter()
    lane = function_lane(PROMPT, drafter, count_up, max_new_tokens=4, num_draft=2)
    assert [lane.step().emitted for _ in range(2)] == [(5, 6, 7), (8,)]
    assert drafter.budgets == [2, 0]
    # A lane without any tokens to generate has ended before its first step.
    ended = function_lane(PROMPT, right_drafter(), count_up, max_new_tokens=0)
    assert ended.end == "length" and ended.tokens == []


@pytest.mark.parametrize(("eos", "expected"), [(5, (5,)), (6, (5, 6)), (7, (5, 6, 7))])
def test_a_text_ends_with_its_first_end_of_text_token(eos: int, expected: tuple[int, ...]) -> None:
    lane = function_lane(PROMPT, right_drafter(), count_up, num_draft=2, eos_ids=frozenset({eos, eos + 1}))
    step = lane.step()
    assert (step.emitted, step.end, lane.end, tuple(lane.tokens)) == (expected, "eos", "eos", expected)


def test_an_end_of_text_token_at_the_length_limit_ends_the_lane_with_eos() -> None:
    lane = function_lane(PROMPT, right_drafter(), count_up, max_new_tokens=2, num_draft=2, eos_ids=frozenset({6}))
    assert lane.step().end == "eos"
    lane = function_lane(PROMPT, right_drafter(), count_up, max_new_tokens=2, num_draft=2, eos_ids=frozenset({7}))
    assert lane.step().end == "length"


def test_scores_of_padding_rows_are_discarded() -> None:
    """Three rows cost more than four, so the tree is padded to four rows if the lane may draft three tokens."""
    for num_draft, rows in ((3, 4), (2, 3)):
        session = RecordingSession(PROMPT)
        drafter = ScriptedDrafter(lambda context, budget: draft_right_tokens(context, budget).cut(2))
        lane = Lane("tested", drafter, session, PROMPT, max_new_tokens=9, num_draft=num_draft, curve=CLIFF)
        step = lane.step()
        assert len(session.trees[0]) == rows and session.trees[0].cut(2).tokens == step.tree.tokens == (4, 5, 6)
        assert step.verdict.scores == Scores((5, 6, 7), ((5, 0), (6, 0), (7, 0)))
        assert drafter.observed == [(step.tree, step.verdict)]
    session_without_padding = RecordingSession(PROMPT)
    Lane("tested", right_drafter(), session_without_padding, PROMPT, max_new_tokens=9, num_draft=2).step()
    assert len(session_without_padding.trees[0]) == 3


def test_distributions_of_padding_rows_are_discarded() -> None:
    drafter_inputs = inputs((4, 5, 6, 4), params=SamplingParams(1.0))
    session = RecordingSession(drafter_inputs.prompt)
    drafter = BigramDrafter(drafter_inputs, sampled=True)
    lane = Lane("bigram", drafter, session, drafter_inputs.prompt, max_new_tokens=9, num_draft=3,
                coins=Coins(1, "bigram"), curve=CostCurve((1, 4, 5, 64), (1.0, 2.0, 1.0, 9.0)))  # fmt: skip
    step = lane.step()
    assert len(session.trees[0]) == 4 and step.checks is not None and 1 <= len(step.checks) <= 3
    check = step.checks[0]
    coin = Coins(1, "bigram").at(len(drafter_inputs.prompt))[0]
    draft_token = step.tree.tokens[1]
    # After 4, the target prints 5 with probability 1.
    assert (check.p, check.coin) == (float(draft_token == 5), coin)
    assert check.q == pytest.approx(drafter.distributions()[0][draft_token])


def test_a_step_has_its_drafters_note() -> None:
    session = FunctionSession((2, 3, 2), count_up)
    lane = Lane("tested", PromptLookupDrafter(inputs((2, 3, 2))), session, (2, 3, 2), max_new_tokens=3, num_draft=2)
    assert lane.step().note == Note({"matched tokens": 1})


def test_the_build_time_is_on_the_lanes_clock() -> None:
    session = FunctionSession(PROMPT, count_up)
    lane = Lane("tested", right_drafter(), session, PROMPT, max_new_tokens=3, num_draft=0, build_ms=7.0)
    assert lane.at_ms == 7.0
    step = lane.step()
    assert step.at_ms == lane.at_ms == pytest.approx(7.0 + step.timing.total_ms)
