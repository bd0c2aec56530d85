"""Repeated runs: their summary, when there are enough, and that later runs are like the first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from specrace.core.events import Finished, Repeated, Started, Step
from specrace.core.metrics import LaneMetrics, format_speedup, too_fast
from specrace.engine import race as race_module
from specrace.engine import repeats
from specrace.engine.lane import Lane
from specrace.engine.race import race
from specrace.engine.repeats import MIN_RUNS, RepeatUntilNarrow, Run, is_narrow, summarise
from specrace.engine.spec import RaceSpec
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.sources import Sources
from tests.engine.test_race import ALL_LANES, PROMPT, FaultyTarget, make_target


def lane_metrics(ms: float, steps: int = 20, tokens: int = 60) -> LaneMetrics:
    """The metrics of a lane that spent `ms` in forwards."""
    return LaneMetrics(tokens, steps, target_ms=ms)


def make_run(speedup: float, *, disturbed: bool = False, text_differs: bool = False) -> Run:
    """A run in which vanilla prints 60 tokens in 600 ms, and the trie prints 3 tokens per step."""
    return Run({"vanilla": lane_metrics(600, 60), "trie": lane_metrics(600 / speedup)}, disturbed, text_differs)


# The summary.


def test_a_summary_has_median_minimum_and_maximum() -> None:
    summary = summarise([make_run(2.4), make_run(2.0), make_run(2.2)])
    vanilla, trie = summary.lanes
    assert (vanilla.lane, vanilla.speedup, vanilla.low, vanilla.high) == ("vanilla", 1, 1, 1)
    assert (trie.speedup, trie.low, trie.high) == pytest.approx((2.2, 2.0, 2.4))
    assert (vanilla.tokens_per_s, trie.tokens_per_s) == pytest.approx((100, 220))
    assert (summary.runs, summary.disturbed, summary.note) == (3, False, "Speedups are medians of 3 runs.")


def test_a_disturbed_run_does_not_count() -> None:
    summary = summarise([make_run(2.9, disturbed=True), make_run(2.0), make_run(2.2)])
    assert (summary.runs, summary.disturbed) == (2, False) and "1 more was disturbed" in summary.note
    assert (summary.lanes[1].low, summary.lanes[1].high) == pytest.approx((2.0, 2.2))


@pytest.mark.parametrize(("total", "busy"), [(1, 1), (2, 1), (4, 2), (5, 3), (3, 3)])
def test_a_summary_without_a_majority_of_undisturbed_runs_is_disturbed(total: int, busy: int) -> None:
    summary = summarise([make_run(2 + 0.1 * number, disturbed=number < busy) for number in range(total)])
    runs = "1 run" if total == 1 else f"{total} runs"
    assert summary.note == f"The machine was busy in {busy} of {runs}: these figures do not count."
    # If all runs were disturbed, the summary is that of all.
    assert summary.disturbed and summary.runs == (total - busy or total)


def test_a_run_faster_than_the_first_runs_tokens_per_step_does_not_count() -> None:
    # Four tokens per step; the first run has three.
    quick_run = Run({"vanilla": lane_metrics(600, 60), "trie": lane_metrics(600 / 3.6, 15)}, False)
    assert not too_fast(quick_run.lanes) and quick_run.lanes["trie"].tau == 4
    summary = summarise([make_run(2.0), quick_run, make_run(2.1)])
    assert summary.runs == 2 and summary.lanes[1].high == pytest.approx(2.1)


def test_the_note_counts_the_runs_with_another_text() -> None:
    assert summarise([make_run(2.0), make_run(2.1, text_differs=True)]).note == (
        "Speedups are medians of 2 runs. In 1 of the runs a lane's text differed from the first run's."
    )


def test_a_speedup_above_1_1_times_the_tokens_per_step_is_too_fast() -> None:
    for speedup, expected in ((3.2, False), (3.4, True), (49.0, True)):
        assert too_fast(make_run(speedup).lanes) is expected
    # A lane with fewer tokens than vanilla is not judged.
    shorter_lanes = {"vanilla": lane_metrics(600, 60), "trie": lane_metrics(80, 10, tokens=30)}
    assert shorter_lanes["trie"].speedup(shorter_lanes["vanilla"]) > 1.1 * shorter_lanes["trie"].tau and not too_fast(
        shorter_lanes
    )


@pytest.mark.parametrize(
    ("speedup", "words"), [(2.449, "2.4×"), (2.45, "2.5×"), (1, "1.0×"), (0.04, "0.0×"), (15.96, "16.0×")]
)
def test_a_formatted_speedup_has_one_decimal(speedup: float, words: str) -> None:
    assert format_speedup(speedup) == words


# When there are enough runs.


def test_a_range_is_narrow_up_to_a_tenth_of_the_median_over_enough_undisturbed_runs() -> None:
    close_runs = [make_run(2.0), *[make_run(2.1)] * (MIN_RUNS - 1)]
    assert is_narrow(summarise(close_runs)) and not is_narrow(summarise(close_runs[:-1]))
    assert not is_narrow(summarise([*close_runs, make_run(2.4)])) and is_narrow(
        summarise([*close_runs, make_run(2.4)]), 0.2
    )
    busy_runs = [make_run(2.0, disturbed=True)] * MIN_RUNS
    assert not is_narrow(summarise([*close_runs, *busy_runs]))


class Clock:
    """A clock that the test sets."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


def test_runs_are_repeated_until_narrow_or_up_to_a_number_or_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(repeats, "time", clock)
    wide_summary = summarise([make_run(2.0), make_run(3.0)])
    narrow_summary = summarise([make_run(2.0)] * MIN_RUNS)
    again = RepeatUntilNarrow(budget_s=20, max_runs=3)
    assert [again(wide_summary) for _ in range(3)] == [True, True, False]
    again = RepeatUntilNarrow(budget_s=20)
    assert again(wide_summary) and not again(narrow_summary)
    again = RepeatUntilNarrow(budget_s=20)
    answers = []
    for clock.now_s in (5.0, 10.0, 15.0, 19.9, 23.0):
        answers.append(again(wide_summary))
    assert answers == [True, True, True, True, False], (
        "another run of 3.1 s would end 1.1 s too late, so it must not start"
    )


# A repeated race.


class AllowRuns:
    """An `again` that allows `count` further runs, and records the summaries that it is called with."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.summaries: list[Repeated] = []

    def __call__(self, summary: Repeated) -> bool:
        self.summaries.append(summary)
        return len(self.summaries) <= self.count


def test_further_runs_yield_a_summary_each_and_no_steps() -> None:
    again = AllowRuns(3)
    events = list(race(make_target(), PROMPT, RaceSpec(ALL_LANES, max_new_tokens=20), again=again))
    end = next(number for number, event in enumerate(events) if isinstance(event, Finished))
    started, later = events[0], events[end + 1 :]
    assert isinstance(started, Started) and all(isinstance(event, Step) for event in events[1:end])
    assert len(later) == 3 and all(isinstance(event, Repeated) for event in later)
    assert again.summaries[1:] == later, "`again` must be called after each run, the last one included"
    assert [spread.lane for spread in again.summaries[-1].lanes] == list(ALL_LANES)
    for summary in again.summaries:
        assert all(spread.low <= spread.speedup <= spread.high for spread in summary.lanes)
        assert "differed" not in summary.note


def test_a_race_is_run_once_by_default() -> None:
    assert isinstance(list(race(make_target(), PROMPT, RaceSpec(max_new_tokens=9)))[-1], Finished)


def test_each_run_begins_with_another_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[list[str]] = []
    in_race_time = race_module.in_race_time

    def record_order(lanes: Sequence[Lane], *arguments: Any) -> Iterator[Step]:
        orders.append([lane.name for lane in lanes])
        return in_race_time(lanes, *arguments)

    monkeypatch.setattr(race_module, "in_race_time", record_order)
    list(race(make_target(), PROMPT, RaceSpec(("trie", "bigram"), max_new_tokens=9), again=AllowRuns(3)))
    assert orders == [
        ["vanilla", "trie", "bigram"], ["trie", "bigram", "vanilla"], ["bigram", "vanilla", "trie"],
        ["vanilla", "trie", "bigram"],
    ]  # fmt: skip


@pytest.mark.parametrize("steps", [0, 1, 7])
def test_a_stopped_further_run_is_the_last_and_does_not_count(steps: int) -> None:
    """The third run is stopped after a number of steps."""
    again = AllowRuns(10)
    num_calls = 0

    def stop() -> bool:
        nonlocal num_calls
        if len(again.summaries) == 2:
            num_calls += 1
        return num_calls > steps

    events = list(race(make_target(), PROMPT, RaceSpec(ALL_LANES, max_new_tokens=60), stop=stop, again=again))
    assert isinstance(events[-1], Repeated) and len(again.summaries) == 2
    assert num_calls == steps + 1, "`stop` must be called before every step"


def test_a_stopped_race_is_not_repeated() -> None:
    again = AllowRuns(1)
    events = list(race(make_target(), PROMPT, RaceSpec(ALL_LANES), stop=lambda: True, again=again))
    assert isinstance(events[-1], Finished) and events[-1].stopped
    assert again.summaries == []


def test_runs_whose_text_differs_from_the_first_are_counted() -> None:
    """Only the two lanes of the first run are right."""
    *_, last = race(FaultyTarget(2, 5), PROMPT, RaceSpec(("trie",), max_new_tokens=20), again=AllowRuns(2))
    assert isinstance(last, Repeated) and "In 2 of the runs a lane's text differed" in last.note


def test_the_indexes_of_earlier_answers_are_built_once_for_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Building them is on no lane's clock, so later runs gain nothing from it."""
    builds = 0
    build = PastOutputs._build

    def count(self: PastOutputs, key: Any) -> Any:
        nonlocal builds
        builds += 1
        return build(self, key)

    monkeypatch.setattr(PastOutputs, "_build", count)
    spec, past = RaceSpec(("suffix", "fusion"), max_new_tokens=20), PastOutputs([PROMPT])
    for _ in range(2):
        list(race(make_target(), PROMPT, spec, sources=Sources(past=past), again=AllowRuns(2)))
    assert builds == len(past._indexes) == 2
