"""Races: lane clocks, the order of steps, badges, stopping, draft sizes, and refused settings."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.core.events import Event, Finished, Started, Step, Timing
from specrace.core.sampling_params import SamplingParams
from specrace.core.settings import REJECTION
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, verify
from specrace.drafters import METHODS
from specrace.engine import badge
from specrace.engine.generate import generate
from specrace.engine.lane import Lane
from specrace.engine.race import in_race_time, race
from specrace.engine.spec import DEFAULT_LANES, RaceSpec, plan_lane
from tests.parts import (
    FunctionSession,
    FunctionTarget,
    TableTarget,
    continuation,
    inputs,
    markov,
    random_prompt,
)

PROMPT = (2, 3, 4, 5, 2, 3, 4, 5, 2, 3)
ALL_LANES = tuple(METHODS)


def make_target(**values: Any) -> FunctionTarget:
    """A target with eight tokens, whose text depends on the last two."""
    return FunctionTarget(markov(1, vocab=8), **values)


def steps_of(events: list[Event]) -> list[Step]:
    return [event for event in events if isinstance(event, Step)]


def finished_of(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


def test_events_are_started_steps_finished() -> None:
    events = list(race(make_target(), PROMPT, RaceSpec(ALL_LANES, max_new_tokens=20), about={"question": "?"}))
    started = events[0]
    assert isinstance(started, Started) and started.prompt_tokens == len(PROMPT)
    assert [info.lane for info in started.lanes] == list(ALL_LANES)
    assert started.about["question"] == "?" and started.about["model"] == "a function"
    assert started.about["settings"]["max_new_tokens"] == 20
    assert len(steps_of(events)) == len(events) - 2
    assert not finished_of(events).stopped


class TimedLane:
    """A lane whose steps take `durations` in ms; each step appends the lane's name to `log`."""

    def __init__(self, name: str, durations: list[float], log: list[str]) -> None:
        self.name, self.durations, self.log = name, durations, log
        self.at_ms, self.end = 0.0, ""

    def step(self) -> Step:
        assert not self.end
        self.log.append(self.name)
        self.at_ms += self.durations.pop(0)
        self.end = "" if self.durations else "length"
        # The same tree in each step: the pending token 1, after which the target says 2.
        tree = TokenTree.chain(1)
        timing = Timing(0.0, 0.0, 0.0)
        return Step(self.name, len(self.log), self.at_ms, tree, verify(tree, Scores((2,))), (2,), timing, self.end)


def timed_lanes(log: list[str]) -> list[Any]:
    """Three lanes that share a log of the order in which they step."""
    return [
        TimedLane("slow", [10.0, 10.0], log),
        TimedLane("quick", [3.0, 3.0, 3.0, 3.0], log),
        TimedLane("mixed", [4.0, 9.0], log),
    ]


def test_the_lane_with_the_earliest_clock_steps_next() -> None:
    log: list[str] = []
    list(in_race_time(timed_lanes(log)))
    # The lanes' clocks before these steps: 0, 0, 0, 3, 4, 6, 9 and 10 ms.
    assert log == ["slow", "quick", "mixed", "quick", "mixed", "quick", "quick", "slow"]


def test_steps_are_yielded_in_the_order_in_which_they_end() -> None:
    end_times = [(step.at_ms, step.lane) for step in in_race_time(timed_lanes([]))]
    assert end_times == [
        (3.0, "quick"), (4.0, "mixed"), (6.0, "quick"), (9.0, "quick"),
        (10.0, "slow"), (12.0, "quick"), (13.0, "mixed"), (20.0, "slow"),
    ]  # fmt: skip


@pytest.mark.parametrize("steps", range(9))
def test_all_steps_made_before_a_stop_are_yielded(steps: int) -> None:
    log: list[str] = []
    yielded = list(in_race_time(timed_lanes(log), stop=lambda: len(log) >= steps))
    assert len(log) == steps
    assert sorted(step.lane for step in yielded) == sorted(log)
    assert [step.at_ms for step in yielded] == sorted(step.at_ms for step in yielded)


def test_a_lanes_clock_does_not_move_while_other_lanes_step() -> None:
    events = list(race(make_target(), PROMPT, RaceSpec(ALL_LANES, max_new_tokens=40)))
    for name in ALL_LANES:
        lane_steps = [step for step in steps_of(events) if step.lane == name]
        assert [step.index for step in lane_steps] == list(range(len(lane_steps)))
        for before, after in pairwise(lane_steps):
            assert after.at_ms - before.at_ms == pytest.approx(after.timing.total_ms)


def test_a_races_steps_come_in_race_time() -> None:
    times = [step.at_ms for step in steps_of(list(race(make_target(), PROMPT, RaceSpec(ALL_LANES, max_new_tokens=60))))]
    assert times == sorted(times)


def test_vanilla_is_always_the_first_lane() -> None:
    assert RaceSpec(("trie",)).lanes == ("vanilla", "trie")
    assert RaceSpec(()).lanes == ("vanilla",)
    assert RaceSpec(("trie", "vanilla", "bigram")).lanes == ("vanilla", "trie", "bigram")
    lanes = finished_of(list(race(make_target(), PROMPT, RaceSpec(("trie",), max_new_tokens=5)))).lanes
    assert [lane.lane for lane in lanes] == ["vanilla", "trie"]


def test_results_are_computed_from_the_steps() -> None:
    events = list(race(make_target(), PROMPT, RaceSpec(ALL_LANES, max_new_tokens=50)))
    started, results = events[0], {lane.lane: lane for lane in finished_of(events).lanes}
    assert isinstance(started, Started)
    for info in started.lanes:
        lane_steps, lane = [step for step in steps_of(events) if step.lane == info.lane], results[info.lane]
        assert lane.tokens == sum(len(step.emitted) for step in lane_steps) == 50
        assert lane.steps == len(lane_steps) and lane.tau == lane.tokens / lane.steps
        assert lane.decode_ms == pytest.approx(info.build_ms + sum(step.timing.total_ms for step in lane_steps))
        assert lane.decode_ms == pytest.approx(lane_steps[-1].at_ms)
        assert lane.tokens_per_s == pytest.approx(1000 * lane.tokens / lane.decode_ms)
        assert lane.speedup == pytest.approx(lane.tokens_per_s / results["vanilla"].tokens_per_s)
        assert lane.identical is True and lane.first_difference is None and lane.end == "length"
    assert results["vanilla"].tau == 1.0 and results["vanilla"].speedup == 1.0
    assert max(lane.tau for lane in results.values()) > 1.5


def test_tokens_in_a_loop_are_counted() -> None:
    lanes = finished_of(list(race(FunctionTarget(lambda _: 7), PROMPT, RaceSpec(("trie",), max_new_tokens=50))))
    assert [lane.loop_tokens for lane in lanes.lanes] == [50, 50]


def test_an_end_of_text_token_ends_every_lane_at_the_same_position() -> None:
    expected = continuation(PROMPT, markov(1, vocab=8), 60)
    end = expected[20]
    events = list(race(make_target(eos_ids=frozenset({end})), PROMPT, RaceSpec(ALL_LANES, max_new_tokens=60)))
    for lane in finished_of(events).lanes:
        assert (lane.end, lane.identical, lane.tokens) == ("eos", True, expected.index(end) + 1)


@pytest.mark.parametrize("stop_after", [0, 1, 5, 23])
def test_a_stopped_race_has_the_results_of_its_steps(stop_after: int) -> None:
    events: list[Event] = []
    for event in race(
        make_target(), PROMPT, RaceSpec(ALL_LANES, max_new_tokens=60), stop=lambda: len(steps_of(events)) >= stop_after
    ):
        events.append(event)
    # Steps that were made before the stop, but not yielded yet, are still yielded.
    assert stop_after <= len(steps_of(events)) <= stop_after + len(ALL_LANES)
    finished = finished_of(events)
    assert finished.stopped and len(finished.lanes) == len(ALL_LANES)
    for lane in finished.lanes:
        assert lane.end == "stopped" and lane.first_difference is None and lane.identical is not False
        assert lane.tokens == sum(len(step.emitted) for step in steps_of(events) if step.lane == lane.lane)
        assert math.isfinite(lane.speedup)


def test_a_lane_without_output_is_not_called_identical() -> None:
    lanes = finished_of(list(race(make_target(), PROMPT, RaceSpec(ALL_LANES), stop=lambda: True))).lanes
    assert {lane.identical for lane in lanes if lane.lane != "vanilla"} == {None}


def test_a_stop_after_the_last_step_has_no_effect() -> None:
    events: list[Event] = []
    for event in race(make_target(), PROMPT, RaceSpec(max_new_tokens=5), stop=lambda: all_ended(events)):
        events.append(event)
    assert not finished_of(events).stopped


def all_ended(events: list[Event]) -> bool:
    """Whether every lane has taken its last step."""
    return sum(bool(step.end) for step in steps_of(events)) == len(DEFAULT_LANES)


def test_an_unfinished_race_can_be_closed() -> None:
    events = race(make_target(), PROMPT, RaceSpec(max_new_tokens=50))
    assert isinstance(next(events), Started) and isinstance(next(events), Step)
    # Closing raises no error.
    events.close()  # type: ignore[attr-defined]


class FaultyTarget(FunctionTarget):
    """A target that is right in its first `good_lanes` lanes, and later wrong from new token `wrong_from` on."""

    def __init__(self, good_lanes: int, wrong_from: int) -> None:
        super().__init__(markov(1, vocab=8))
        # Before the lanes' sessions, the race opens one for its probe and one for the warm-up.
        self.good_sessions = 2 + good_lanes
        self.wrong_from = wrong_from
        self.num_sessions = 0

    def session(
        self, prefix: Any, room: int, params: SamplingParams | None = None, *_: Any, **__: Any
    ) -> FunctionSession:
        self.num_sessions += 1
        if self.num_sessions <= self.good_sessions:
            return super().session(prefix, room, params)

        def wrong(tokens: Sequence[int]) -> int:
            right = self.next_token(tokens)
            return right if len(tokens) < len(PROMPT) + self.wrong_from else (right + 1) % 8

        return FunctionSession(prefix.tokens, wrong)


@pytest.mark.parametrize("position", [0, 1, 9])
def test_the_first_difference_has_its_position_tokens_and_gap(position: int) -> None:
    lanes = finished_of(list(race(FaultyTarget(1, position), PROMPT, RaceSpec(("trie",), max_new_tokens=20)))).lanes
    right = markov(1, vocab=8)
    difference = lanes[1].first_difference
    assert lanes[0].identical is True and lanes[1].identical is False and difference is not None
    assert (difference.position, difference.gap) == (position, 0.25)
    expected = continuation(PROMPT, right, position + 1)
    # `FunctionTarget` reports token 0 as the second best.
    assert difference.best == (str(expected[position]), "0")


def test_a_difference_is_explained_with_the_races_sampling_params() -> None:
    faulty = FaultyTarget(1, 3)
    list(race(faulty, PROMPT, RaceSpec(("trie",), max_new_tokens=20, temperature=0.7, seed=8)))
    assert faulty.used_params[-1] == SamplingParams(0.7, seed=8)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_difference_names_vanillas_token_first(temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each position, the comparison is made to report a difference there."""
    target = TableTarget(scale=1.0)
    prompt = random_prompt(random.Random(0))
    num_not_greedy = 0
    for position in range(8):
        monkeypatch.setattr(badge, "compare", lambda *_, position=position, **__: (False, position))
        events = list(race(target, prompt, RaceSpec((), max_new_tokens=8, temperature=temperature, seed=4)))
        vanilla_tokens = [step.emitted[0] for step in steps_of(events)]
        difference = finished_of(events).lanes[0].first_difference
        assert difference is not None and difference.position == position
        assert difference.best[0] == str(vanilla_tokens[position])
        greedy_token = target.top_two([*prompt, *vanilla_tokens[:position]], SamplingParams())[0][0]
        num_not_greedy += vanilla_tokens[position] != greedy_token
    assert (num_not_greedy > 0) == (temperature > 0), "sampling must differ from greedy decoding somewhere"


def test_the_sampling_params_reach_every_lane() -> None:
    target = make_target()
    list(race(target, PROMPT, RaceSpec(ALL_LANES, max_new_tokens=3, temperature=0.7, top_p=0.9, top_k=5, seed=8)))
    # The probe's session has no sampling parameters.
    params_of_sessions = [params for params in target.used_params if params]
    assert set(params_of_sessions) == {SamplingParams(0.7, 0.9, 5, 8)} and len(params_of_sessions) > len(ALL_LANES)


def test_in_race_time_steps_no_lane_that_has_ended() -> None:
    done = Lane("done", METHODS["vanilla"].build(inputs(PROMPT)), FunctionSession(PROMPT, markov(1)), PROMPT,
                max_new_tokens=0, num_draft=0)  # fmt: skip
    assert list(in_race_time([done])) == [] and done.end == "length"


# Draft sizes.


def test_num_draft_may_be_0_and_does_not_apply_to_vanilla() -> None:
    spec = RaceSpec(ALL_LANES, num_draft=0)
    assert {plan_lane(spec, name, "cpu").num_draft for name in ALL_LANES} == {0}
    assert plan_lane(RaceSpec(ALL_LANES, num_draft=7), "vanilla", "cpu").num_draft == 0
    assert plan_lane(RaceSpec(ALL_LANES, num_draft=7), "lookahead", "cpu").num_draft == 7
    assert plan_lane(RaceSpec(ALL_LANES), "trie", "cuda").num_draft == 32
    for step in steps_of(list(race(make_target(), PROMPT, RaceSpec(ALL_LANES, num_draft=3, max_new_tokens=30)))):
        assert step.tree.num_draft <= 3


def test_options_reach_their_lane_and_determine_its_draft_size() -> None:
    spec = RaceSpec(
        ("lookahead", "trie"), options={"lookahead": {"n": "4", "window": 2, "guesses": 1}, "trie": {"n": 5}}
    )
    assert plan_lane(spec, "lookahead", "cpu").options["n"] == 4
    assert plan_lane(spec, "lookahead", "cuda").options["window"] == 2
    assert plan_lane(spec, "lookahead", "cpu").num_draft == (4 - 1) * (2 + 1) - 1  # (n - 1) (window + guesses) - root
    events = list(race(make_target(), PROMPT, spec))
    started = events[0]
    assert isinstance(started, Started)
    infos = {info.lane: info for info in started.lanes}
    assert infos["trie"].options == {"n": 5, "prefix": 3, "static": False}
    assert infos["lookahead"].num_draft == 8


def test_a_method_races_more_than_once_with_other_options_each_time() -> None:
    """The lanes' own options come before those that all lanes of the method share."""
    lanes = ("trie", "trie:n=03", "trie:static=yes:n=13")
    spec = RaceSpec(lanes, max_new_tokens=30, options={"trie": {"prefix": 2, "n": 7}})
    assert spec.lanes == ("vanilla", "trie", "trie:n=3", "trie:n=13:static=true")
    events = list(race(make_target(), PROMPT, spec))
    started = events[0]
    assert isinstance(started, Started)
    assert [(info.lane, info.title, info.options) for info in started.lanes[1:]] == [
        ("trie", "N-gram trie (n=7, prefix=2)", {"n": 7, "prefix": 2, "static": False}),
        ("trie:n=3", "N-gram trie (n=3, prefix=2)", {"n": 3, "prefix": 2, "static": False}),
        ("trie:n=13:static=true", "N-gram trie (n=13, prefix=2, static=true)", {"n": 13, "prefix": 2, "static": True}),
    ]
    results = finished_of(events).lanes
    assert [lane.lane for lane in results] == list(spec.lanes)
    assert all(lane.identical for lane in results)
    drafted = {lane: [step.tree for step in steps_of(events) if step.lane == lane] for lane in spec.lanes}
    assert drafted["trie"] != drafted["trie:n=13:static=true"], "the options must reach the lanes"
    named = spec.with_options_in_names()
    assert named.lanes == ("vanilla", "trie:n=7:prefix=2", "trie:n=3:prefix=2", "trie:n=13:prefix=2:static=true")
    assert [plan_lane(named, name, "cpu") for name in named.lanes] == [
        plan_lane(spec, name, "cpu") for name in spec.lanes
    ]


def test_a_name_leaves_out_shared_options_that_are_defaults_on_every_device() -> None:
    options = {"lookahead": {"n": 3, "pool_from_prompt": False}, "trigram": {"sampled": False}}
    spec = RaceSpec(("lookahead", "trigram"), temperature=1, verifier=REJECTION, options=options)
    assert [METHODS["lookahead"].defaults(device)["n"] for device in ("cpu", "cuda")] == [3, 5]
    assert spec.with_options_in_names().lanes == ("vanilla", "lookahead:n=3", "trigram:sampled=false")


@pytest.mark.parametrize(
    ("lanes", "sentence"),
    [
        (("trie", "trie"), "The lane trie is given twice; leave one out, or give one an option"),
        (("vanilla", "vanilla"), "The lane vanilla is given twice; leave one out."),
        (("trie:n=5", "trie:n=05"), "The lane trie:n=5 is given twice"),
        (("trie:n=7", "trie"), "The lanes trie:n=7 and trie are alike"),
    ],
)
def test_two_lanes_alike_are_refused(lanes: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        RaceSpec(lanes, options={"trie": {"n": 7}})


@pytest.mark.parametrize(
    "values",
    [
        {"lanes": ("mamba",)},
        {"lanes": ("trie:n",)},
        {"lanes": ("trie:=3",)},
        {"lanes": ("trie:n=3:n=4",)},
        {"lanes": ("trie:depth=3",)},
        {"lanes": ("trie:n=1",)},
        {"lanes": ("trie:" + "n=3:" * 200,)},
        {"lanes": "trie"},
        {"lanes": ("",)},
        {"num_draft": -1},
        {"num_draft": 1025},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"temperature": -math.inf},
        {"temperature": -0.5},
        {"temperature": 11.0},
        {"top_p": 0.0},
        {"top_p": math.nan},
        {"top_p": 1.5},
        {"top_k": -1},
        {"seed": -1},
        {"seed": 2**64},
        {"max_new_tokens": 0},
        {"max_new_tokens": -3},
        {"max_new_tokens": 4097},
        {"options": {"trie": {"depth": 4}}},
        {"options": {"trie": {"n": 1}}},
        {"options": {"trie": {"n": "many"}}},
        {"options": {"mamba": {}}},
        {"options": {"vanilla": {"n": 3}}},
    ],
    ids=str,
)
def test_a_spec_out_of_bounds_is_refused_in_one_sentence(values: dict[str, Any]) -> None:
    with pytest.raises(InputError) as error:
        RaceSpec(**values)
    message = str(error.value)
    assert message.endswith(".") and "\n" not in message and len(message) < 400


def test_generate_refuses_bad_methods_and_options() -> None:
    cases: tuple[tuple[str, dict[str, Any]], ...] = (
        ("mamba", {}),
        ("trie", {"n": 1}),
        ("trie", {"depth": 2}),
        ("trie", {"temperature": -1}),
    )
    for method, options in cases:
        with pytest.raises(InputError):
            list(generate(make_target(), method, PROMPT, **options))


def test_a_prompt_that_does_not_fit_is_refused_before_the_first_event() -> None:
    events = race(make_target(max_context=80), PROMPT, RaceSpec(ALL_LANES, max_new_tokens=70))
    with pytest.raises(InputError):
        next(events)


def test_the_tokens_of_generates_steps_are_the_targets_text() -> None:
    for method in ALL_LANES:
        steps = list(generate(make_target(), method, PROMPT, max_new_tokens=33))
        assert [token for step in steps for token in step.emitted] == continuation(PROMPT, markov(1, vocab=8), 33)


@pytest.mark.slow
@pytest.mark.parametrize("prompt", [(5,), PROMPT])
def test_every_lane_prints_vanillas_text_under_extreme_settings(prompt: tuple[int, ...]) -> None:
    target = TableTarget()
    extremes: list[dict[str, Any]] = [
        {"max_new_tokens": 1},
        {"max_new_tokens": 2, "num_draft": 300},
        {"num_draft": 0},
        {"num_draft": 1},
        {"temperature": 1e-6},
        {"temperature": 10.0, "seed": 2**53},
        {"temperature": 1.0, "top_p": 1e-9},
        {"temperature": 1.0, "top_k": 10**9},
    ]
    for values in extremes:
        lanes = finished_of(list(race(target, prompt, RaceSpec(ALL_LANES, **{"max_new_tokens": 12, **values})))).lanes
        assert all(lane.identical for lane in lanes), values


def test_an_empty_prompt_is_refused() -> None:
    for events in (race(make_target(), (), RaceSpec()), generate(make_target(), "trie", ())):
        with pytest.raises(InputError, match="empty"):
            next(events)
