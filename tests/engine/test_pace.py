"""The clock and the machine's pace, on a machine whose clock the test turns: measured, left out, corrected, refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from specrace.core import clock
from specrace.core.clock import waited_ms
from specrace.core.events import Event, Finished, LaneInfo, LaneResult, Pace, Repeated, Started, Step, Timing
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores
from specrace.engine import pace
from specrace.engine.lane import Lane
from specrace.engine.pace import PaceKeeper, jump_share, long_step_share, pace_range
from specrace.engine.race import race
from specrace.engine.recording import from_json, to_json
from specrace.engine.spec import RaceSpec, plan_lane
from specrace.views.frames import RaceView, report
from tests.engine.test_race import PROMPT
from tests.parts import FunctionSession, FunctionTarget, Scripted, markov

# The package's own `race` is the function.
setup = import_module("specrace.engine.setup")
LANES = ("vanilla", "trie", "prompt-lookup", "bigram", "lookahead", "fusion")


class Machine:
    """A clock that moves when work is done. `slow` is the factor by which work takes longer, by the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waited = 0.0
        self.slow: Callable[[float], float] = lambda _: 1.0

    def work(self, ms: float) -> None:
        """Do work that takes `ms` milliseconds on a machine that is not slow."""
        self.now += ms * self.slow(self.now) / 1000

    def wait(self, ms: float) -> None:
        """Wait to run for `ms` milliseconds while the system runs something else."""
        self.now += ms / 1000
        self.waited += ms


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine whose clocks the engine reads."""
    tested = Machine()
    clocks = SimpleNamespace(perf_counter=lambda: tested.now, monotonic=lambda: tested.now)
    for module in (clock, pace, setup):
        monkeypatch.setattr(module, "time", clocks)
    for module in (clock, pace):
        monkeypatch.setattr(module, "waited_ms", lambda: tested.waited)
    monkeypatch.setattr(setup, "WARM_UP_S", 2.0)
    return tested


class WorkingSession(FunctionSession):
    """A session whose forwards take a millisecond, and an eighth more for each further row."""

    def __init__(self, prompt: Sequence[int], target: WorkingTarget, params: SamplingParams | None) -> None:
        super().__init__(prompt, target.next_token)
        self.target, self.params = target, params

    def score(self, tree: TokenTree) -> Scores:
        self.target.run(len(tree), self.params is not None and self.params.temperature > 0)
        return super().score(tree)


class WorkingTarget(FunctionTarget):
    """A target whose forwards take time on a machine; the first use of each number of rows, and of the sampler behind
    them, costs 40 ms more. `slow_threads` is the factor on all times with two threads.
    """

    def __init__(self, machine: Machine, threads: int = 1) -> None:
        super().__init__(markov(1, vocab=8))
        self.machine, self.threads = machine, threads
        self.used, self.changes = threads, [threads]
        self.slow_threads: Callable[[float], float] = lambda _: 0.6
        self.seen: set[tuple[int, bool]] = set()

    def use_threads(self, count: int) -> None:
        self.used = count
        self.changes.append(count)

    def session(
        self, prefix: Any, room: int, params: SamplingParams | None = None, *_: Any, **__: Any
    ) -> WorkingSession:
        return WorkingSession(prefix.tokens, self, params)

    def run(self, rows: int, samples: bool) -> None:
        threads = self.slow_threads(self.machine.now) if self.used > 1 else 1.0
        self.machine.work(threads * (1 + (rows - 1) / 8 + 40 * ((rows, samples) not in self.seen)))
        self.seen.add((rows, samples))


def run_race(
    machine: Machine,
    lanes: Sequence[str] = LANES,
    target: WorkingTarget | None = None,
    midway: Callable[[], object] = lambda: None,
    moment: int = 40,
    **settings: Any,
) -> tuple[list[Step], Finished]:
    """A race's steps and its end; `midway` is called after `moment` steps."""
    events: list[Event] = []
    for event in race(target or WorkingTarget(machine), PROMPT, RaceSpec(tuple(lanes), **settings)):
        events.append(event)
        if len(events) == moment + 1:
            midway()
    assert isinstance(events[-1], Finished)
    return [event for event in events if isinstance(event, Step)], events[-1]


def speedups(finished: Finished) -> dict[str, float]:
    return {lane.lane: lane.speedup for lane in finished.lanes}


# A lane's clock.


class SlowDrafter(Scripted):
    """A drafter that takes 3 ms to propose two tokens and 2 ms to observe."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(lambda context, _: TokenTree.chain(context[-1], [2, 3]))
        self.machine = machine

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        self.machine.work(3)
        return super().propose(context, budget)

    def observe(self, tree: TokenTree, verdict: Any) -> None:
        self.machine.work(2)
        super().observe(tree, verdict)


class SlowSession(FunctionSession):
    """A session that takes 20 ms to score and 5 ms to keep."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(PROMPT, markov(1))
        self.machine = machine

    def score(self, tree: TokenTree) -> Scores:
        self.machine.work(20)
        return super().score(tree)

    def keep(self, path: Sequence[int]) -> None:
        self.machine.work(5)
        super().keep(path)


def slow_lane(machine: Machine, keeper: PaceKeeper | None = None) -> Lane:
    session, drafter = SlowSession(machine), SlowDrafter(machine)
    return Lane("slow", drafter, session, PROMPT, max_new_tokens=9, num_draft=2, build_ms=7.0, pace=keeper)


def test_a_step_is_draft_target_and_keep_and_nothing_else(machine: Machine) -> None:
    tested = slow_lane(machine)
    machine.work(100)  # somebody else's turn
    steps = [tested.step(), tested.step()]
    for step in steps:
        timing = step.timing
        assert (timing.draft_ms, timing.target_ms, timing.keep_ms) == pytest.approx((3 + 2, 20, 5))
        assert timing.total_ms == pytest.approx(30)
    assert [step.at_ms for step in steps] == pytest.approx([7 + 30, 7 + 60])


def test_waiting_for_a_processor_is_on_no_clock(machine: Machine) -> None:
    tested = slow_lane(machine)
    tested.session.score = lambda tree: (machine.wait(70), SlowSession.score(tested.session, tree))[1]  # type: ignore
    timing = tested.step().timing
    assert (timing.draft_ms, timing.target_ms, timing.keep_ms) == pytest.approx((5, 20, 5))


def test_a_lane_runs_at_the_pace_of_the_start(machine: Machine) -> None:
    keeper = PaceKeeper(lambda: machine.work(10), WorkingTarget(machine))
    keeper.start()
    machine.slow = lambda _: 2.5
    keeper.refresh()
    assert keeper.reference_ms == pytest.approx(10) and keeper.slowdown == pytest.approx(2.5)
    timing = slow_lane(machine, keeper).step().timing
    assert (timing.draft_ms, timing.target_ms, timing.keep_ms) == pytest.approx((5, 20, 5))


def test_nothing_is_probed_or_chosen_before_the_start(machine: Machine) -> None:
    """The benchmark warms up before the start, where every first step is unusual."""
    target = WorkingTarget(machine, threads=2)
    keeper = PaceKeeper(lambda: machine.work(10), target)
    lane = slow_lane(machine, keeper)
    while not lane.end:
        keeper.probe_if_due()
        lane.step()
    assert keeper.summary().probes == 0 and target.changes == [2]


def test_the_system_tells_what_a_thread_waited() -> None:
    assert 0.0 <= waited_ms() <= waited_ms()


def test_where_no_system_tells_nothing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_schedstat", SimpleNamespace(file=None))
    assert waited_ms() == 0.0


@pytest.mark.parametrize("reading", [1, 2])
def test_a_wait_between_the_clocks_two_counts_is_in_no_time(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, reading: int
) -> None:
    """A table that took 1 ms was saved with -4 ms in one of 150 races on a busy machine, and did not open again."""
    readings = 0

    def preempted() -> float:
        nonlocal readings
        readings += 1
        now = machine.now
        if readings == reading:
            machine.wait(5.0)
        return now

    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=preempted))
    began = clock.thread_ms()
    machine.now += 0.001
    assert clock.since_ms(began) == pytest.approx(1.0)
    assert clock.since_ms(clock.thread_ms() + 1.0) == 0.0


# Warm-up.


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("order", [1, -1])
def test_no_lane_pays_for_being_the_first(machine: Machine, temperature: float, order: int) -> None:
    """The first use of every tree size and of the sampler costs 40 ms more, which no lane's step may include."""
    steps, _ = run_race(machine, LANES[::order], max_new_tokens=40, temperature=temperature)
    assert {step.lane for step in steps} == set(LANES)
    for step in steps:
        # A lane may run more rows than its tree has, where the curve says that they are cheaper.
        assert step.timing.target_ms <= 1 + 32 / 8, (step.lane, step.index)
    firsts = {step.lane: step for step in reversed(steps)}
    assert firsts["vanilla"].timing.total_ms == pytest.approx(1)


def test_a_model_too_slow_to_warm_every_size_still_warms_the_largest(machine: Machine) -> None:
    machine.slow = lambda _: 100.0
    target = WorkingTarget(machine)
    spec = RaceSpec(LANES)
    setup.warm_up(target, target.prefill(PROMPT), PROMPT, spec, None)
    largest = {plan_lane(spec, name, "cpu").num_draft + 1 for name in LANES}
    assert largest <= {rows for rows, _ in target.seen} < set(range(1, 34))


# The pace.


@pytest.mark.parametrize("moment", [10, 40, 150])
@pytest.mark.parametrize("factor", [0.5, 1.6, 2.4])
def test_a_machine_that_changes_its_pace_changes_no_speedup(machine: Machine, factor: float, moment: int) -> None:
    """Whenever the pace changes, not even lanes of a dozen long steps change their speedup."""
    _, quiet = run_race(machine, max_new_tokens=80)

    def change() -> None:
        machine.slow = lambda _: factor

    steps, changed = run_race(machine, midway=change, moment=moment, max_new_tokens=80)
    assert changed.pace is not None and not changed.pace.disturbed
    assert changed.pace.low == pytest.approx(min(1, factor), rel=0.01)
    assert changed.pace.high == pytest.approx(max(1, factor), rel=0.01)
    for name, speedup in speedups(quiet).items():
        assert speedups(changed)[name] == pytest.approx(speedup, rel=0.01)
    assert [step.at_ms for step in steps] == sorted(step.at_ms for step in steps)


def test_a_step_that_is_slow_by_itself_is_not_taken_for_the_machine(machine: Machine) -> None:
    """The probe after it measures the usual pace, so the step's time stays as measured."""
    keeper = PaceKeeper(lambda: machine.work(10), WorkingTarget(machine))
    keeper.start()
    probes = keeper.summary().probes
    slow = keeper.correct("lane", 1, Timing(1, 20, 1))
    assert (slow.total_ms, keeper.summary().probes) == (pytest.approx(22), probes + 1)
    assert keeper.correct("lane", 9, Timing(1, 20, 1)).target_ms == pytest.approx(20), "more rows may take longer"
    assert keeper.summary().probes == probes + 1


def test_a_machine_that_drifts_all_the_time_changes_no_speedup(machine: Machine) -> None:
    _, quiet = run_race(machine, max_new_tokens=600)
    machine.slow = lambda now: 1.5 if int(now / 0.2) % 2 else 1.0
    _, drifting = run_race(machine, max_new_tokens=600)
    assert drifting.pace is not None and not drifting.pace.disturbed
    for name, speedup in speedups(quiet).items():
        assert speedups(drifting)[name] == pytest.approx(speedup, rel=0.1)


def test_without_its_pace_the_same_race_is_told_wrong(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without probes vanilla's last tokens count as slower, and every speedup grows."""
    for never in ("PROBE_EVERY", "UNUSUAL"):
        monkeypatch.setattr(pace, never, float("inf"))
    _, quiet = run_race(machine, ("trie",), max_new_tokens=200)
    _, changed = run_race(
        machine, ("trie",), midway=lambda: setattr(machine, "slow", lambda _: 2.4), max_new_tokens=200
    )
    assert speedups(changed)["trie"] > 1.2 * speedups(quiet)["trie"]


def test_a_machine_that_jumps_gives_figures_that_do_not_count(machine: Machine) -> None:
    jumps = iter(range(10**9))
    machine.slow = lambda _: 8.0 if next(jumps) % 7 == 0 else 1.0
    _, finished = run_race(machine, max_new_tokens=200)
    assert finished.pace is not None and finished.pace.disturbed and "do not count" in finished.pace.note


def test_a_step_that_is_held_up_is_seen(machine: Machine) -> None:
    """One step of two hundred takes 80 times as long and lies between two probes."""
    target = WorkingTarget(machine)
    held = iter(range(10**9))
    plain = target.run

    def run(rows: int, samples: bool) -> None:
        plain(rows, samples)
        if rows == 1 and next(held) == 180:
            machine.work(80)

    target.run = run  # type: ignore[method-assign]
    _, finished = run_race(machine, ("vanilla",), target, max_new_tokens=200)
    assert finished.pace is not None and finished.pace.jumps == 0 and finished.pace.disturbed


def test_a_quiet_machine_is_called_steady(machine: Machine) -> None:
    _, finished = run_race(machine, max_new_tokens=120)
    steady = finished.pace
    assert steady is not None and not steady.disturbed and steady.probes > pace.WINDOW
    assert (steady.low, steady.high, steady.jumps, steady.waited_ms) == pytest.approx((1, 1, 0, 0))
    assert steady.probe_ms == pytest.approx(1)


def test_a_lane_that_its_tokens_per_step_do_not_allow_disturbs_the_race(machine: Machine) -> None:
    """Forwards over one row take three times as long in a lane as in the probe, so no other check notices."""

    class Uneven(WorkingSession):
        def score(self, tree: TokenTree) -> Scores:
            machine.work(2.0 * (self.params is not None and len(tree) == 1))
            return super().score(tree)

    target = WorkingTarget(machine)
    target.session = lambda prefix, *arguments, **_: Uneven(
        prefix.tokens, target, arguments[1] if len(arguments) > 1 else None
    )  # type: ignore
    _, finished = run_race(machine, ("trie",), target, max_new_tokens=200)
    trie, race_pace = finished.lanes[1], finished.pace
    assert trie.speedup > 1.1 * trie.tau
    assert race_pace is not None and race_pace.disturbed and "faster than its tokens per step allow" in race_pace.note


# Repeated runs.


def repeated_race(machine: Machine, between: Callable[[int], object], runs: int = 5) -> list[Repeated]:
    """The summaries of a race of `runs` runs; before each further run `between` gets the number of runs so far."""

    def again(_: Repeated) -> bool:
        between(done := len(summaries) + 1)
        return done < runs

    summaries: list[Repeated] = []
    for event in race(WorkingTarget(machine), PROMPT, RaceSpec(("trie",), max_new_tokens=200), again=again):
        summaries += [event] if isinstance(event, Repeated) else []
    return summaries


def test_each_run_has_a_reference_of_its_own(machine: Machine) -> None:
    """A machine that gets slower between runs may be steady within each run."""
    last = repeated_race(machine, lambda done: setattr(machine, "slow", lambda _: 4.0**done))[-1]
    assert (last.runs, last.disturbed) == (5, False)
    assert last.lanes[1].low == pytest.approx(last.lanes[1].high, rel=0.02)


def test_a_program_that_jumps_in_some_runs_takes_them_out_of_the_count(machine: Machine) -> None:
    jumps = iter(range(10**9))

    def busy_in_two(done: int) -> None:
        machine.slow = (lambda _: 8.0 if next(jumps) % 7 == 0 else 1.0) if done in (2, 4) else (lambda _: 1.0)

    last = repeated_race(machine, busy_in_two)[-1]
    assert (last.runs, last.disturbed) == (3, False)
    assert last.lanes[1].low == pytest.approx(last.lanes[1].high, rel=0.02)


def test_a_program_that_jumps_in_most_runs_is_said(machine: Machine) -> None:
    jumps = iter(range(10**9))
    machine.slow = lambda _: 8.0 if next(jumps) % 7 == 0 else 1.0
    last = repeated_race(machine, lambda _: None)[-1]
    assert last.disturbed and last.note.startswith("The machine was busy in 5 of 5 runs")


# Threads.


def test_on_a_quiet_machine_all_threads_are_used(machine: Machine) -> None:
    target = WorkingTarget(machine, threads=2)
    _, finished = run_race(machine, ("trie",), target)
    assert finished.pace is not None and finished.pace.threads == 2 and set(target.changes) == {2}


def test_threads_that_wait_for_each_other_are_not_used(machine: Machine) -> None:
    target = WorkingTarget(machine, threads=2)
    uneven = iter(range(10**9))
    target.slow_threads = lambda _: 20.0 if next(uneven) % 2 else 5.0
    _, finished = run_race(machine, ("trie",), target)
    assert finished.pace is not None and finished.pace.threads == 1 and not finished.pace.disturbed
    assert target.used == 2, "the next user may use all threads"


def test_a_program_that_comes_in_mid_race_costs_threads_and_the_figures(machine: Machine) -> None:
    target = WorkingTarget(machine, threads=2)
    steps, finished = run_race(
        machine, ("trie",), target, lambda: setattr(target, "slow_threads", lambda _: 50.0), max_new_tokens=200
    )
    assert finished.pace is not None and finished.pace.threads == 1 and finished.pace.disturbed
    assert len(steps) > 200 and machine.now < 5, "one thread goes on at its own pace"


def test_each_run_may_use_all_threads_again(machine: Machine) -> None:
    target = WorkingTarget(machine, threads=2)
    target.slow_threads = lambda now: 20.0 + 10 * (int(1000 * now) % 2)
    used: list[int] = []

    def again(_: Repeated) -> bool:
        used.append(target.used)
        target.slow_threads = lambda _: 0.6
        return len(used) < 2

    *_, last = race(target, PROMPT, RaceSpec(("trie",)), again=again)
    assert isinstance(last, Repeated) and used == [2, 2], "between runs others may use all threads"
    assert target.changes[-2:] == [2, 2], "chosen for the second run, and given back"


def test_a_race_that_is_given_up_gives_its_threads_back(machine: Machine) -> None:
    target = WorkingTarget(machine, threads=2)
    target.slow_threads = lambda now: 20.0 + 10 * (int(1000 * now) % 2)
    events = race(target, PROMPT, RaceSpec(("trie",)))
    assert isinstance(next(events), Started)
    events.close()  # type: ignore[attr-defined]
    assert target.used == 2


# The numbers behind it.


def test_range_and_jumps() -> None:
    assert pace_range([2.0] * 5 + [4.0] * 5, 2.0) == (1.0, 2.0)
    assert pace_range([2.0] * 3, 2.0) == (1.0, 1.0)
    assert jump_share([1.0] * 9 + [9.0] + [1.0] * 10) == 0.0, "one alone proves nothing"
    assert jump_share(([1.0] * 9 + [9.0]) * 2) == pytest.approx(0.1)
    assert jump_share([1.0] * 10 + [3.0] * 10) == 0.0, "another pace is no jump"


def test_long_steps_count_against_their_like() -> None:
    usual = [(1, 1.0)] * 20
    assert long_step_share({"vanilla": usual, "trie": [(9, 5.0)] * 20}) == 0.0
    assert long_step_share({"vanilla": usual, "trie": [*[(1, 1.0)] * 7, (1, 10.0)]}) == pytest.approx(7 / 17)
    assert long_step_share({"trie": [(1, 1.0), (2, 90.0)]}) == 0.0, "of a size that hardly ran nothing is usual"


# The views.


@pytest.mark.parametrize("disturbed", [False, True])
def test_every_face_is_told(machine: Machine, disturbed: bool) -> None:
    events = list(race(WorkingTarget(machine), PROMPT, RaceSpec(("trie",), max_new_tokens=30)))
    started, finished = events[0], events[-1]
    assert isinstance(started, Started) and isinstance(finished, Finished) and finished.pace is not None
    note = "The machine was disturbed." if disturbed else finished.pace.note
    race_pace = Pace(**{**vars(finished.pace), "disturbed": disturbed, "note": note})
    view = RaceView()
    for event in (*events[:-1], Finished(finished.lanes, False, race_pace)):
        view.add(event)
    frame = view.keyframe()
    assert frame["pace"] == {"disturbed": disturbed, "note": note}
    assert ("Race again" in frame["headline"]) == disturbed == ("fastest" not in frame["headline"])
    assert "printed the same text" in frame["headline"]
    assert report(started, Finished(finished.lanes, False, race_pace))["pace"]["disturbed"] == disturbed


def test_an_older_recording_knows_no_pace() -> None:
    figures = (1, 1, 1.0, 0.0, 0.0, 5.0, 200.0, 1.0, True, None, "eos", 0)
    result = LaneResult("vanilla", *figures)
    view = RaceView()
    view.add(Started((LaneInfo("vanilla", "Vanilla", 0),), 3, 1.0))
    view.add(from_json(to_json(Finished((result,))) | {"pace": None}))
    assert view.keyframe()["pace"] is None
