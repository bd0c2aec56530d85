"""Lane clocks and the correction for the machine's pace, on a simulated machine whose clock the tests advance.

A probe is a forward over one row between steps; the slowdown is its time now over its time at the start. Only what a
lane does is on its clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from specrace.core import clock
from specrace.core.clock import waited_ms
from specrace.core.events import Event, Finished, LaneInfo, LaneResult, Pace, Repeated, Started, Step, Timing
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores
from specrace.engine import pace, prepare
from specrace.engine.lane import Lane
from specrace.engine.pace import PaceKeeper, jump_share, long_step_share, pace_range
from specrace.engine.race import race
from specrace.engine.recording import from_json, to_json
from specrace.engine.setup import RaceSetup
from specrace.engine.spec import RaceSpec, plan_lane
from specrace.views.frames import RaceView, report
from specrace.views.shown import ShownPace
from tests.engine.test_race import PROMPT
from tests.parts import FunctionSession, FunctionTarget, ScriptedDrafter, markov

LANES = ("vanilla", "trie", "prompt-lookup", "bigram", "lookahead", "fusion")
# Values that `tests/conftest.py` changes when the first test begins, after this file was imported.
USUAL = (
    (prepare, "WARM_UP_S", prepare.WARM_UP_S),
    (pace, "PROBE_EVERY", pace.PROBE_EVERY),
    (pace, "UNUSUAL", pace.UNUSUAL),
    (pace, "WINDOW", pace.WINDOW),
)


class Machine:
    """A simulated machine: its clock moves only in `work` and `wait`.

    `slowdown` maps the time in seconds to the factor by which work takes longer.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waited_ms = 0.0
        self.slowdown: Callable[[float], float] = lambda _: 1.0

    def work(self, ms: float) -> None:
        """Do work that takes `ms` milliseconds at a slowdown of 1."""
        self.now_s += ms * self.slowdown(self.now_s) / 1000

    def wait(self, ms: float) -> None:
        """Wait `ms` milliseconds for a processor."""
        self.now_s += ms / 1000
        self.waited_ms += ms


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A simulated machine whose clocks the engine reads."""
    simulated = Machine()
    clocks = SimpleNamespace(perf_counter=lambda: simulated.now_s, monotonic=lambda: simulated.now_s)
    for module in (clock, pace, prepare):
        monkeypatch.setattr(module, "time", clocks)
    for module in (clock, pace):
        monkeypatch.setattr(module, "waited_ms", lambda: simulated.waited_ms)
    for module, name, value in USUAL:
        monkeypatch.setattr(module, name, value)
    return simulated


class WorkingSession(FunctionSession):
    """A session whose forwards take time on the target's machine."""

    def __init__(self, prompt: Sequence[int], target: WorkingTarget, params: SamplingParams | None) -> None:
        super().__init__(prompt, target.next_token)
        self.target, self.params = target, params

    def score(self, tree: TokenTree) -> Scores:
        self.target.work(len(tree), self.params is not None and self.params.temperature > 0)
        return super().score(tree)


class WorkingTarget(FunctionTarget):
    """A target whose forwards take 1 ms on the machine, and 1/8 ms more for each further row.

    The first forward over each number of rows, with and without sampling, takes 40 ms more. `two_thread_factor` maps
    the time in seconds to the factor on all these times while two threads are used.
    """

    def __init__(self, machine: Machine, threads: int = 1) -> None:
        super().__init__(markov(1, vocab=8))
        self.machine, self.threads = machine, threads
        self.used_threads = threads
        self.thread_counts = [threads]
        self.two_thread_factor: Callable[[float], float] = lambda _: 0.6
        # (rows, whether tokens were sampled) of all forwards so far.
        self.warm: set[tuple[int, bool]] = set()

    def use_threads(self, count: int) -> None:
        self.used_threads = count
        self.thread_counts.append(count)

    def session(
        self, prefix: Any, room: int, params: SamplingParams | None = None, *_: Any, **__: Any
    ) -> WorkingSession:
        return WorkingSession(prefix.tokens, self, params)

    def work(self, rows: int, samples: bool) -> None:
        """Spend the time of one forward."""
        factor = self.two_thread_factor(self.machine.now_s) if self.used_threads > 1 else 1.0
        first_use_ms = 0 if (rows, samples) in self.warm else 40
        self.machine.work(factor * (1 + (rows - 1) / 8 + first_use_ms))
        self.warm.add((rows, samples))


def run_race(
    machine: Machine,
    lanes: Sequence[str] = LANES,
    target: WorkingTarget | None = None,
    disturb: Callable[[], object] | None = None,
    steps_before: int = 40,
    **settings: Any,
) -> tuple[list[Step], Finished]:
    """A race's steps and its Finished event; `disturb` is called once, after `steps_before` steps."""
    events: list[Event] = []
    for event in race(target or WorkingTarget(machine), PROMPT, RaceSpec(tuple(lanes), **settings)):
        events.append(event)
        if disturb is not None and len(events) == steps_before + 1:
            disturb()
    assert isinstance(events[-1], Finished)
    return [event for event in events if isinstance(event, Step)], events[-1]


def speedups(finished: Finished) -> dict[str, float]:
    """Lane -> its speedup."""
    return {lane.lane: lane.speedup for lane in finished.lanes}


# A lane's clock.


class SlowDrafter(ScriptedDrafter):
    """A drafter that drafts two tokens in 3 ms and observes in 2 ms."""

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
    """A session that scores in 20 ms and keeps in 5 ms."""

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
    """A lane whose steps take 30 ms, after a build time of 7 ms."""
    session, drafter = SlowSession(machine), SlowDrafter(machine)
    return Lane("slow", drafter, session, PROMPT, max_new_tokens=9, num_draft=2, build_ms=7.0, pace=keeper)


def test_a_steps_time_is_that_of_draft_target_and_keep(machine: Machine) -> None:
    lane = slow_lane(machine)
    machine.work(100)  # work outside the lane, which is not on its clock
    steps = [lane.step(), lane.step()]
    for step in steps:
        timing = step.timing
        assert (timing.draft_ms, timing.target_ms, timing.keep_ms) == pytest.approx((3 + 2, 20, 5))
        assert timing.total_ms == pytest.approx(30)
    assert [step.at_ms for step in steps] == pytest.approx([7 + 30, 7 + 60])


def test_time_spent_waiting_for_a_processor_is_not_counted(machine: Machine) -> None:
    class WaitingSession(SlowSession):
        def score(self, tree: TokenTree) -> Scores:
            machine.wait(70)
            return super().score(tree)

    lane = slow_lane(machine)
    lane.session = WaitingSession(machine)
    timing = lane.step().timing
    assert (timing.draft_ms, timing.target_ms, timing.keep_ms) == pytest.approx((5, 20, 5))


def test_step_times_are_divided_by_the_slowdown(machine: Machine) -> None:
    keeper = PaceKeeper(lambda: machine.work(10), WorkingTarget(machine))
    keeper.start()
    machine.slowdown = lambda _: 2.5
    keeper.refresh()
    assert keeper.reference_ms == pytest.approx(10) and keeper.slowdown == pytest.approx(2.5)
    timing = slow_lane(machine, keeper).step().timing
    assert (timing.draft_ms, timing.target_ms, timing.keep_ms) == pytest.approx((5, 20, 5))


def test_probes_that_seem_to_take_no_time_end_no_race(machine: Machine) -> None:
    """On a busy machine, a probe's time less its waits may be 0."""
    machine.slowdown = lambda _: 0.0
    *_, finished = race(WorkingTarget(machine), PROMPT, RaceSpec(("trie",), max_new_tokens=8))
    assert isinstance(finished, Finished) and all(lane.identical for lane in finished.lanes)


def test_no_probe_runs_before_the_start(machine: Machine) -> None:
    """The benchmark warms up before the start; the unusual times of first uses must not trigger probes."""
    target = WorkingTarget(machine, threads=2)
    keeper = PaceKeeper(lambda: machine.work(10), target)
    lane = slow_lane(machine, keeper)
    while not lane.end:
        keeper.probe_if_due()
        lane.step()
    assert keeper.summary().probes == 0 and target.thread_counts == [2]


def test_the_waited_time_never_decreases() -> None:
    assert 0.0 <= waited_ms() <= waited_ms()


def test_the_waited_time_is_0_where_the_system_does_not_count_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_schedstat", SimpleNamespace(file=None))
    assert waited_ms() == 0.0


@pytest.mark.parametrize("preempted_read", [1, 2])
def test_a_wait_between_the_two_reads_of_the_clock_is_not_counted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, preempted_read: int
) -> None:
    """Such a wait once made a build time of 1 ms into -4 ms, so that the recording could not be opened."""
    num_reads = 0

    def perf_counter() -> float:
        """The time, after which the thread loses its processor for 5 ms if this is the preempted read."""
        nonlocal num_reads
        num_reads += 1
        now_s = machine.now_s
        if num_reads == preempted_read:
            machine.wait(5.0)
        return now_s

    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=perf_counter))
    began = clock.thread_ms()
    machine.now_s += 0.001
    assert clock.since_ms(began) == pytest.approx(1.0)
    assert clock.since_ms(clock.thread_ms() + 1.0) == 0.0


# Warm-up.


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("order", [1, -1])
def test_no_step_includes_the_cost_of_a_first_use(machine: Machine, temperature: float, order: int) -> None:
    """The first use of each tree size and of the sampler takes 40 ms more, in whichever order the lanes run."""
    steps, _ = run_race(machine, LANES[::order], max_new_tokens=40, temperature=temperature)
    assert {step.lane for step in steps} == set(LANES)
    for step in steps:
        # The largest forward has 33 rows. A smaller tree may be padded, because more rows can be cheaper.
        assert step.timing.target_ms <= 1 + 32 / 8, (step.lane, step.index)
    first_steps = {step.lane: step for step in reversed(steps)}
    assert first_steps["vanilla"].timing.total_ms == pytest.approx(1)


def test_a_slow_model_is_warmed_up_with_the_largest_trees(machine: Machine) -> None:
    machine.slowdown = lambda _: 100.0
    target = WorkingTarget(machine)
    spec = RaceSpec(LANES)
    prepare.warm_up(RaceSetup(target, PROMPT, target.prefill(PROMPT), spec))
    largest = {plan_lane(spec, name, "cpu").num_draft + 1 for name in LANES}
    assert largest <= {rows for rows, _ in target.warm} < set(range(1, 34))  # but not every size up to 33


# The pace.


@pytest.mark.parametrize("steps_before", [10, 40, 150])
@pytest.mark.parametrize("factor", [0.5, 1.6, 2.4])
def test_a_change_of_pace_does_not_change_the_speedups(machine: Machine, factor: float, steps_before: int) -> None:
    """Even lanes that take only a dozen long steps keep their speedups."""
    _, quiet_race = run_race(machine, max_new_tokens=80)

    def change() -> None:
        machine.slowdown = lambda _: factor

    steps, changed_race = run_race(machine, disturb=change, steps_before=steps_before, max_new_tokens=80)
    assert changed_race.pace is not None and not changed_race.pace.disturbed
    assert changed_race.pace.low == pytest.approx(min(1, factor), rel=0.01)
    assert changed_race.pace.high == pytest.approx(max(1, factor), rel=0.01)
    for name, speedup in speedups(quiet_race).items():
        assert speedups(changed_race)[name] == pytest.approx(speedup, rel=0.01)
    assert [step.at_ms for step in steps] == sorted(step.at_ms for step in steps)


def test_a_single_slow_step_keeps_its_measured_time(machine: Machine) -> None:
    """The probe after the slow step takes its usual time, so the machine has not slowed down."""
    keeper = PaceKeeper(lambda: machine.work(10), WorkingTarget(machine))
    keeper.start()
    probes = keeper.summary().probes
    corrected = keeper.correct("lane", 1, Timing(1, 20, 1))
    assert (corrected.total_ms, keeper.summary().probes) == (pytest.approx(22), probes + 1)
    assert keeper.correct("lane", 9, Timing(1, 20, 1)).target_ms == pytest.approx(20), (
        "a step with more rows may take longer, and must not be probed"
    )
    assert keeper.summary().probes == probes + 1


def test_a_pace_that_changes_every_200_ms_does_not_change_the_speedups(machine: Machine) -> None:
    _, quiet_race = run_race(machine, max_new_tokens=600)
    machine.slowdown = lambda now_s: 1.5 if int(now_s / 0.2) % 2 else 1.0
    _, drifting_race = run_race(machine, max_new_tokens=600)
    assert drifting_race.pace is not None and not drifting_race.pace.disturbed
    for name, speedup in speedups(quiet_race).items():
        assert speedups(drifting_race)[name] == pytest.approx(speedup, rel=0.1)


def test_speedups_are_wrong_without_probes(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vanilla runs longest, so a slowdown hits its last tokens, and every speedup grows."""
    # At infinity these two thresholds are never reached, so no probe runs after the start.
    for threshold in ("PROBE_EVERY", "UNUSUAL"):
        monkeypatch.setattr(pace, threshold, float("inf"))
    _, quiet_race = run_race(machine, ("trie",), max_new_tokens=200)

    def slow_down() -> None:
        machine.slowdown = lambda _: 2.4

    _, changed_race = run_race(machine, ("trie",), disturb=slow_down, max_new_tokens=200)
    assert speedups(changed_race)["trie"] > 1.2 * speedups(quiet_race)["trie"]


def every_seventh_call_slow() -> Callable[[float], float]:
    """A slowdown of 8 for every seventh piece of work, which makes the times of the probes jump."""
    calls = count()
    return lambda _: 8.0 if next(calls) % 7 == 0 else 1.0


def test_a_race_on_a_machine_that_jumps_is_disturbed(machine: Machine) -> None:
    machine.slowdown = every_seventh_call_slow()
    _, finished = run_race(machine, max_new_tokens=200)
    assert finished.pace is not None and finished.pace.disturbed and "do not count" in finished.pace.note


def test_a_race_with_one_very_long_step_is_disturbed(machine: Machine) -> None:
    """One of 200 steps takes 80 ms longer and lies between two probes, which do not notice it."""

    class DelayedTarget(WorkingTarget):
        num_single_rows = 0

        def work(self, rows: int, samples: bool) -> None:
            super().work(rows, samples)
            if rows == 1:
                self.num_single_rows += 1
                if self.num_single_rows == 181:
                    machine.work(80)

    _, finished = run_race(machine, ("vanilla",), DelayedTarget(machine), max_new_tokens=200)
    assert finished.pace is not None and finished.pace.jumps == 0 and finished.pace.disturbed


def test_a_race_on_a_quiet_machine_is_not_disturbed(machine: Machine) -> None:
    _, finished = run_race(machine, max_new_tokens=120)
    race_pace = finished.pace
    assert race_pace is not None and not race_pace.disturbed and race_pace.probes > pace.WINDOW
    assert (race_pace.low, race_pace.high, race_pace.jumps, race_pace.waited_ms) == pytest.approx((1, 1, 0, 0))
    assert race_pace.probe_ms == pytest.approx(1)


def test_a_race_with_a_lane_faster_than_its_tokens_per_step_is_disturbed(machine: Machine) -> None:
    """Forwards over one row take three times as long in a lane as in the probe, so no other check notices."""

    class UnevenSession(WorkingSession):
        def score(self, tree: TokenTree) -> Scores:
            # The probe's session has no sampling parameters.
            if self.params is not None and len(tree) == 1:
                machine.work(2.0)
            return super().score(tree)

    class UnevenTarget(WorkingTarget):
        def session(
            self, prefix: Any, room: int, params: SamplingParams | None = None, *_: Any, **__: Any
        ) -> WorkingSession:
            return UnevenSession(prefix.tokens, self, params)

    _, finished = run_race(machine, ("trie",), UnevenTarget(machine), max_new_tokens=200)
    trie, race_pace = finished.lanes[1], finished.pace
    assert trie.speedup > 1.1 * trie.tau
    assert race_pace is not None and race_pace.disturbed and "faster than its tokens per step allow" in race_pace.note


# Repeated runs.


def race_five_times(machine: Machine, after_run: Callable[[int], object] | None = None) -> Repeated:
    """The summary of five runs; after each run, `after_run` gets the number of runs so far."""
    num_runs = 0

    def again(_: Repeated) -> bool:
        nonlocal num_runs
        num_runs += 1
        if after_run is not None:
            after_run(num_runs)
        return num_runs < 5

    *_, last = race(WorkingTarget(machine), PROMPT, RaceSpec(("trie",), max_new_tokens=200), again=again)
    assert isinstance(last, Repeated)
    return last


def test_each_run_measures_a_new_reference(machine: Machine) -> None:
    """A machine that gets slower between runs may be steady within each run."""

    def slow_down(num_runs: int) -> None:
        machine.slowdown = lambda _: 4.0**num_runs

    last = race_five_times(machine, slow_down)
    assert (last.runs, last.disturbed) == (5, False)
    assert last.lanes[1].low == pytest.approx(last.lanes[1].high, rel=0.02)


def test_disturbed_runs_are_left_out_of_the_summary(machine: Machine) -> None:
    def disturb_two_runs(num_runs: int) -> None:
        machine.slowdown = every_seventh_call_slow() if num_runs in (2, 4) else lambda _: 1.0

    last = race_five_times(machine, disturb_two_runs)
    assert (last.runs, last.disturbed) == (3, False)
    assert last.lanes[1].low == pytest.approx(last.lanes[1].high, rel=0.02)


def test_a_race_with_every_run_disturbed_is_disturbed(machine: Machine) -> None:
    machine.slowdown = every_seventh_call_slow()
    last = race_five_times(machine)
    assert last.disturbed and last.note.startswith("The machine was busy in 5 of 5 runs")


# Threads.


def uneven_threads(now_s: float) -> float:
    """The factor on times with two threads that wait for each other, which changes every millisecond."""
    return 30.0 if int(1000 * now_s) % 2 else 20.0


def test_all_threads_are_used_on_a_quiet_machine(machine: Machine) -> None:
    target = WorkingTarget(machine, threads=2)
    _, finished = run_race(machine, ("trie",), target)
    assert finished.pace is not None and finished.pace.threads == 2 and set(target.thread_counts) == {2}


def test_one_thread_is_used_if_two_threads_would_wait_for_each_other(machine: Machine) -> None:
    target = WorkingTarget(machine, threads=2)
    forwards = count()
    target.two_thread_factor = lambda _: 20.0 if next(forwards) % 2 else 5.0
    _, finished = run_race(machine, ("trie",), target)
    assert finished.pace is not None and finished.pace.threads == 1 and not finished.pace.disturbed
    assert target.used_threads == 2, "after the race all threads must be used again"


def test_a_race_whose_threads_start_to_wait_goes_on_with_one_thread_and_is_disturbed(machine: Machine) -> None:
    target = WorkingTarget(machine, threads=2)

    def slow_down_two_threads() -> None:
        target.two_thread_factor = lambda _: 50.0

    steps, finished = run_race(machine, ("trie",), target, slow_down_two_threads, max_new_tokens=200)
    assert finished.pace is not None and finished.pace.threads == 1 and finished.pace.disturbed
    # With two threads the rest of the race would take more than 5 s.
    assert len(steps) > 200 and machine.now_s < 5


def test_each_run_chooses_its_number_of_threads(machine: Machine) -> None:
    target = WorkingTarget(machine, threads=2)
    target.two_thread_factor = uneven_threads
    used_between_runs: list[int] = []

    def again(_: Repeated) -> bool:
        used_between_runs.append(target.used_threads)
        target.two_thread_factor = lambda _: 0.6
        return len(used_between_runs) < 2

    *_, last = race(target, PROMPT, RaceSpec(("trie",)), again=again)
    assert isinstance(last, Repeated) and used_between_runs == [2, 2]
    # The second run chose two threads, and after it all threads were set again.
    assert target.thread_counts[-2:] == [2, 2]


def test_closing_a_race_early_restores_all_threads(machine: Machine) -> None:
    target = WorkingTarget(machine, threads=2)
    target.two_thread_factor = uneven_threads
    events = race(target, PROMPT, RaceSpec(("trie",)))
    assert isinstance(next(events), Started)
    events.close()  # type: ignore[attr-defined]
    assert target.used_threads == 2


# The numbers that decide whether a race was disturbed.


def test_pace_range_and_jump_share() -> None:
    assert pace_range([2.0] * 5 + [4.0] * 5, 2.0) == (1.0, 2.0)
    assert pace_range([2.0] * 3, 2.0) == (1.0, 1.0)
    assert jump_share([1.0] * 9 + [9.0] + [1.0] * 10) == 0.0, "a single jump must not be counted"
    assert jump_share(([1.0] * 9 + [9.0]) * 2) == pytest.approx(0.1)
    assert jump_share([1.0] * 10 + [3.0] * 10) == 0.0, "a lasting change of pace must not count as a jump"


def test_probes_that_took_no_measurable_time_disturb_a_race(machine: Machine) -> None:
    keeper = PaceKeeper(lambda: machine.work(10), WorkingTarget(machine))
    keeper.start()
    keeper._probes[:] = [0.0] * 9 + [10.0] * 9
    summary = keeper.summary()
    assert summary.disturbed and "from what no clock could measure" in summary.note


def test_long_steps_are_compared_with_steps_of_the_same_size() -> None:
    usual = [(1, 1.0)] * 20
    assert long_step_share({"vanilla": usual, "trie": [(9, 5.0)] * 20}) == 0.0
    # The trie's long step of 10 ms exceeds three times the usual 1 ms by 7 of its 17 ms.
    assert long_step_share({"vanilla": usual, "trie": [*[(1, 1.0)] * 7, (1, 10.0)]}) == pytest.approx(7 / 17)
    assert long_step_share({"trie": [(1, 1.0), (2, 90.0)]}) == 0.0, (
        "a single step of a size must not count: it has no usual time"
    )


# The views.


@pytest.mark.parametrize("disturbed", [False, True])
def test_frames_and_report_say_whether_the_race_was_disturbed(machine: Machine, disturbed: bool) -> None:
    events = list(race(WorkingTarget(machine), PROMPT, RaceSpec(("trie",), max_new_tokens=30)))
    started, finished = events[0], events[-1]
    assert isinstance(started, Started) and isinstance(finished, Finished) and finished.pace is not None
    note = "The machine was disturbed." if disturbed else finished.pace.note
    race_pace = Pace(**{**vars(finished.pace), "disturbed": disturbed, "note": note})
    view = RaceView()
    for event in (*events[:-1], Finished(finished.lanes, False, race_pace)):
        view.add(event)
    end = view.ending()
    assert end.pace == ShownPace(disturbed, note)
    assert ("these figures do not count" in end.headline) == disturbed == ("fastest" not in end.headline)
    assert "printed the same text" in end.headline
    assert report(started, Finished(finished.lanes, False, race_pace))["pace"]["disturbed"] == disturbed


def test_a_recording_from_before_the_pace_was_measured_has_no_pace() -> None:
    # A result's tokens, steps, times and so on; their values do not matter here.
    positional_fields = (1, 1, 1.0, 0.0, 0.0, 5.0, 200.0, 1.0, True, None, "eos", 0)
    result = LaneResult("vanilla", *positional_fields)
    view = RaceView()
    view.add(Started((LaneInfo("vanilla", "Vanilla", 0),), 3, 1.0))
    view.add(from_json(to_json(Finished((result,))) | {"pace": None}))
    assert view.ending().pace is None
