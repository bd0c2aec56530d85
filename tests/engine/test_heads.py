"""What a race prepares for lanes with trained heads: the prompt's levels, warm forwards, prices and sessions.

Levels are the hidden states that a head reads; a price is the cost of its forward, in one-row forwards of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from specrace.core.cost_curve import CostCurve, row_counts
from specrace.core.events import Started
from specrace.core.sampling_params import SamplingParams
from specrace.drafters.base import ASSUMED_HEAD_PRICE
from specrace.drafters.head_tree import HeadTreeDrafter
from specrace.drafters.sessions import Head
from specrace.engine import prepare as preparing
from specrace.engine.prepare import prepare, warm_up_heads, warm_up_rows
from specrace.engine.race import race
from specrace.engine.setup import RaceSetup, lane_info, read_prompt
from specrace.engine.spec import RaceSpec
from specrace.ngrams.sources import Sources
from tests.parts import FunctionPrefix, TableTarget, record_sizes

PROMPT = (2, 3, 4, 5, 2, 3)
CURVE = CostCurve((1, 33), (1.0, 2.0))
# Up to 9 new tokens, and 5 draft tokens a step.
SPEC = RaceSpec(("eagle",), 9, 5, temperature=0.5, seed=3)


class RecordingHead:
    """A head that has read the prompt in 7 ms; `opened` and `asked` hold the arguments of its sessions' calls.

    It guesses the tokens 8 and 9 after every path, or nothing if it `knows` nothing.
    """

    depth, room, prefill_ms = 4, 1000, 7.0

    def __init__(self, levels: tuple[int, ...] = (1,), depths_per_forward: int = 1, *, knows: bool = True) -> None:
        self.levels, self.depths_per_forward, self.knows = levels, depths_per_forward, knows
        self.read: list[tuple[Sequence[int], Any]] = []
        self.opened: list[tuple[SamplingParams, int]] = []
        self.asked: list[tuple[list[tuple[int, ...]], int]] = []

    def after(self, prompt: Sequence[int], prefix: Any) -> RecordingHead:
        self.read.append((prompt, prefix))
        return self

    def session(self, params: SamplingParams, room: int, *, coupled: bool = True) -> RecordingHead:
        self.opened.append((params, room))
        return self

    def begin(self, root: int) -> None:
        assert root == PROMPT[-1]

    def likeliest(self, paths: Sequence[tuple[int, ...]], k: int) -> list[list[tuple[int, float]]]:
        self.asked.append((list(paths), k))
        return [[(8, 0.6), (9, 0.3)] if self.knows else [] for _ in paths]


class HeadTarget(TableTarget):
    """A target with heads; records prompts' `levels`, sessions' arguments (`opened`), rows of forwards (`scored`)."""

    def __init__(self, **heads: Head) -> None:
        super().__init__()
        self.heads = heads
        self.levels: list[tuple[int, ...] | None] = []
        self.opened: list[tuple[Any, ...]] = []
        self.scored: list[int] = []

    def prefill(self, prompt: Sequence[int], *levels: tuple[int, ...]) -> FunctionPrefix:
        self.levels += levels or (None,)
        return super().prefill(prompt)

    def session(self, prefix: Any, *arguments: Any, head_session: Any = None) -> Any:
        self.opened.append((*arguments, head_session))
        return record_sizes(super().session(prefix, *arguments), self.scored)


def setup_of(target: HeadTarget, spec: RaceSpec = SPEC) -> RaceSetup:
    return RaceSetup(target, PROMPT, target.prefill(PROMPT), spec, CURVE)


@pytest.fixture
def fixed_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forward of the target takes half a millisecond, one of a head 6 ms."""

    def timed(run: Callable[[], object]) -> tuple[float, float]:
        run()
        # The wall time, which must not be used, and the thread's time. A target's forward is timed as a `partial`.
        return 99.0, 0.5 if isinstance(run, partial) else 6.0

    monkeypatch.setattr(preparing, "timed", timed)
    monkeypatch.setattr(preparing, "WARM_UP_S", 1e9)


def test_the_prompt_is_read_with_every_level_that_a_head_of_the_lanes_reads() -> None:
    target = HeadTarget(eagle=RecordingHead((5, 2)), medusa=RecordingHead((9, 5)), hybrid=RecordingHead((4,)))
    read_prompt(target, PROMPT, RaceSpec(("medusa", "eagle", "trie")))
    # A target without heads need not accept levels.
    read_prompt(target, PROMPT, RaceSpec(("trie",)))
    assert target.levels == [(2, 5, 9), None]


def test_a_lane_gets_its_head_with_its_room_and_its_price() -> None:
    head = RecordingHead()
    target = HeadTarget(eagle=head)
    setup = setup_of(target)
    lane = setup.make_lane("eagle")
    # The output, a draft, and its root.
    room = SPEC.max_new_tokens + 5 + 1
    assert head.read == [(PROMPT, setup.prefix)] and head.opened == [(SPEC.sampling_params(), room)]
    assert target.opened == [(room, SPEC.sampling_params(), 0, row_counts(6), head)]
    assert isinstance(lane.drafter, HeadTreeDrafter)
    assert lane.drafter.head is head and lane.drafter.price == ASSUMED_HEAD_PRICE
    # The time in which the head read the prompt is reported apart from the lane's clock.
    assert lane_info(lane, setup.plans["eagle"], setup).prefill_ms == head.prefill_ms
    plain = setup_of(target, RaceSpec(("trie",)))
    assert lane_info(plain.make_lane("trie"), plain.plans["trie"], plain).prefill_ms == 0.0


@pytest.mark.usefixtures("fixed_times")
def test_a_race_measures_what_a_head_costs_and_its_lane_drafts_by_it() -> None:
    setup = prepare(HeadTarget(eagle=RecordingHead()), PROMPT, SPEC, Sources(), CURVE)
    assert setup.head_prices == {"eagle": 6.0 / 0.5}
    drafter = setup.make_lane("eagle").drafter
    assert isinstance(drafter, HeadTreeDrafter) and drafter.price == 12.0
    assert prepare(HeadTarget(), PROMPT, RaceSpec(("trie",)), Sources(), CURVE).head_prices == {}


def test_a_race_reports_the_time_in_which_its_prompt_was_read() -> None:
    started = next(race(TableTarget(), PROMPT, RaceSpec(("trie",))))
    assert isinstance(started, Started) and started.prefill_ms == FunctionPrefix(PROMPT).ms


@pytest.mark.usefixtures("fixed_times")
def test_everything_that_a_lane_with_a_head_runs_is_warmed_up() -> None:
    head = RecordingHead()
    target = HeadTarget(eagle=head)
    warm_up_heads(setup_of(target))
    assert head.opened == [(SPEC.sampling_params(), 5 + 2)]
    assert target.opened == [(5 + 2, SPEC.sampling_params(), 0, row_counts(6), head)]
    # Each size twice; then one row five times to measure it, and once more, which is kept.
    assert target.scored == [rows for rows in warm_up_rows([5]) for _ in range(2)] + [1] * 6
    assert head.asked == [([()], 4), ([(8,), (9,)], 4)] * 5


@pytest.mark.usefixtures("fixed_times")
def test_after_the_time_limit_only_the_largest_trees_are_warmed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "WARM_UP_S", -1.0)
    target = HeadTarget(eagle=RecordingHead())
    assert warm_up_heads(setup_of(target)) == {"eagle": 12.0}
    assert target.scored == [6, 6, 5, 5] + [1] * 6


@pytest.mark.usefixtures("fixed_times")
@pytest.mark.parametrize(("depths_per_forward", "knows"), [(2, True), (1, False)])
def test_a_second_forward_is_timed_only_where_a_draft_of_two_levels_takes_one(
    depths_per_forward: int, knows: bool
) -> None:
    head = RecordingHead(depths_per_forward=depths_per_forward, knows=knows)
    warm_up_heads(setup_of(HeadTarget(eagle=head)))
    assert head.asked == [([()], 4)] * 5
