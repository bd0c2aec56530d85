"""Repeated runs: which count, the note on them, when they suffice, and that a race is repeated as it was run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from specrace.core.events import Event, Finished, Repeated, Started, Step
from specrace.core.metrics import LaneMetrics, format_speedup, too_fast
from specrace.engine import repeats
from specrace.engine.race import race
from specrace.engine.repeats import MIN_RUNS, RepeatUntilNarrow, Run, is_narrow, summarise
from specrace.engine.spec import RaceSpec
from specrace.ngrams.automaton import SuffixAutomaton
from specrace.ngrams.past import PROMPT_TAIL, PastOutputs
from specrace.ngrams.sources import Sources
from tests.engine.test_race import ALL, PROMPT, FaultyTarget, target


def lane(ms: float, steps: int = 20, tokens: int = 60) -> LaneMetrics:
    return LaneMetrics(tokens, steps, target_ms=ms)


def a_run(speedup: float, *, disturbed: bool = False, text_differs: bool = False) -> Run:
    """Vanilla takes 600 ms for 60 tokens; the trie prints 3 tokens a step."""
    return Run({"vanilla": lane(600, 60), "trie": lane(600 / speedup)}, disturbed, text_differs)


# The figures.


def test_the_figures_are_median_minimum_and_maximum() -> None:
    summary = summarise([a_run(2.4), a_run(2.0), a_run(2.2)])
    vanilla, trie = summary.lanes
    assert (vanilla.lane, vanilla.speedup, vanilla.low, vanilla.high) == ("vanilla", 1, 1, 1)
    assert (trie.speedup, trie.low, trie.high) == pytest.approx((2.2, 2.0, 2.4))
    assert (vanilla.tokens_per_s, trie.tokens_per_s) == pytest.approx((100, 220))
    assert (summary.runs, summary.disturbed, summary.note) == (3, False, "Speedups are medians of 3 runs.")


def test_a_disturbed_run_does_not_count() -> None:
    summary = summarise([a_run(2.9, disturbed=True), a_run(2.0), a_run(2.2)])
    assert (summary.runs, summary.disturbed) == (2, False) and "1 more was disturbed" in summary.note
    assert (summary.lanes[1].low, summary.lanes[1].high) == pytest.approx((2.0, 2.2))


@pytest.mark.parametrize(("total", "busy"), [(1, 1), (2, 1), (4, 2), (5, 3), (3, 3)])
def test_too_few_undisturbed_runs_are_said(total: int, busy: int) -> None:
    summary = summarise([a_run(2 + 0.1 * number, disturbed=number < busy) for number in range(total)])
    runs = "1 run" if total == 1 else f"{total} runs"
    assert summary.note == f"The machine was busy in {busy} of {runs}; measure again when it is quiet."
    assert summary.disturbed and summary.runs == (total - busy or total)


def test_a_run_faster_than_the_first_runs_tokens_per_step_does_not_count() -> None:
    quick = Run({"vanilla": lane(600, 60), "trie": lane(600 / 3.6, 15)}, False)
    assert not too_fast(quick.lanes) and quick.lanes["trie"].tau == 4
    summary = summarise([a_run(2.0), quick, a_run(2.1)])
    assert summary.runs == 2 and summary.lanes[1].high == pytest.approx(2.1)


def test_another_text_is_said() -> None:
    assert summarise([a_run(2.0), a_run(2.1, text_differs=True)]).note == (
        "Speedups are medians of 2 runs. In 1 of the runs a lane's text differed from the first run's."
    )


def test_a_speedup_is_bounded_by_the_tokens_per_step() -> None:
    for speedup, fast in ((3.2, False), (3.4, True), (49.0, True)):
        assert too_fast(a_run(speedup).lanes) is fast
    shorter = {"vanilla": lane(600, 60), "trie": lane(100, 10, tokens=30)}
    shorter["trie"].target_ms = 80
    assert shorter["trie"].speedup(shorter["vanilla"]) > 1.1 * shorter["trie"].tau and not too_fast(shorter)


@pytest.mark.parametrize(
    ("speedup", "words"), [(2.449, "2.4×"), (2.45, "2.5×"), (1, "1.0×"), (0.04, "0.0×"), (15.96, "16.0×")]
)
def test_a_speedup_in_words_has_one_decimal(speedup: float, words: str) -> None:
    assert format_speedup(speedup) == words


# Enough.


def test_narrow_is_a_tenth_over_enough_undisturbed_runs() -> None:
    close = [a_run(2.0), *[a_run(2.1)] * (MIN_RUNS - 1)]
    assert is_narrow(summarise(close)) and not is_narrow(summarise(close[:-1]))
    assert not is_narrow(summarise([*close, a_run(2.4)])) and is_narrow(summarise([*close, a_run(2.4)]), 0.2)
    busy = [a_run(2.0, disturbed=True)] * MIN_RUNS
    assert not is_narrow(summarise([*close, *busy]))


def test_until_ends_when_narrow_or_the_runs_or_the_seconds_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(repeats, "time", SimpleNamespace(monotonic=lambda: now[0]))
    wide, narrow = summarise([a_run(2.0), a_run(3.0)]), summarise([a_run(2.0)] * MIN_RUNS)
    again = RepeatUntilNarrow(budget_s=20, max_runs=3)
    assert [again(wide) for _ in range(3)] == [True, True, False]
    again = RepeatUntilNarrow(budget_s=20)
    assert again(wide) and not again(narrow)
    again, answers = RepeatUntilNarrow(budget_s=20), []
    for now[0] in (5.0, 10.0, 15.0, 19.9, 23.0):
        answers.append(again(wide))
    assert answers == [True, True, True, True, False], "a run of 3.1 s would end 1.1 s too late"


# The race.


def times(count: int) -> Callable[[Repeated], bool]:
    """An `again` that allows `count` further runs."""
    further_runs = iter(range(count))
    return lambda _: next(further_runs, None) is not None


def test_after_the_end_the_race_is_run_again_quietly() -> None:
    summaries: list[Repeated] = []
    more = times(3)
    events = list(
        race(
            target(),
            PROMPT,
            RaceSpec(ALL, max_new_tokens=20),
            again=lambda repeated: (summaries.append(repeated), more(repeated))[1],
        )
    )
    end = next(number for number, event in enumerate(events) if isinstance(event, Finished))
    started, later = events[0], events[end + 1 :]
    assert isinstance(started, Started) and all(isinstance(event, Step) for event in events[1:end])
    assert len(later) == 3 and all(isinstance(event, Repeated) for event in later)
    assert summaries[1:] == later, "`again` is asked after each run, the last included"
    assert [spread.lane for spread in summaries[-1].lanes] == list(ALL)
    for summary in summaries:
        assert all(spread.low <= spread.speedup <= spread.high for spread in summary.lanes)
        assert "differed" not in summary.note


def test_by_default_a_race_is_run_once() -> None:
    assert isinstance(list(race(target(), PROMPT, RaceSpec(max_new_tokens=9)))[-1], Finished)


def test_another_lane_steps_first_in_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["specrace.engine.race"]
    orders: list[list[str]] = []
    plain = module.in_race_time
    monkeypatch.setattr(
        module,
        "in_race_time",
        lambda lanes, *rest: (orders.append([lane.name for lane in lanes]), plain(lanes, *rest))[1],
    )
    list(race(target(), PROMPT, RaceSpec(("trie", "bigram"), max_new_tokens=9), again=times(3)))
    assert orders == [
        ["vanilla", "trie", "bigram"], ["trie", "bigram", "vanilla"], ["bigram", "vanilla", "trie"],
        ["vanilla", "trie", "bigram"],
    ]  # fmt: skip


@pytest.mark.parametrize("steps", [0, 1, 7])
def test_a_stop_in_a_repeated_run_ends_it_and_it_does_not_count(steps: int) -> None:
    summaries: list[Repeated] = []
    events: list[Event] = []
    calls = [0]

    def stop() -> bool:
        calls[0] += len(summaries) > 1
        return calls[0] > steps

    for event in race(
        target(),
        PROMPT,
        RaceSpec(ALL, max_new_tokens=60),
        stop=stop,
        again=lambda repeated: not summaries.append(repeated),
    ):
        events.append(event)
    assert isinstance(events[-1], Repeated) and len(summaries) == 2
    assert calls[0] == steps + 1, "`stop` is asked before every step"


def test_a_stopped_race_is_not_repeated() -> None:
    def never(_: Repeated) -> bool:
        raise AssertionError("there is nothing to repeat")

    events = list(race(target(), PROMPT, RaceSpec(ALL), stop=lambda: True, again=never))
    assert isinstance(events[-1], Finished) and events[-1].stopped


def test_a_text_that_changes_from_run_to_run_is_said() -> None:
    """Two lanes of the first run are right, those after them are not."""
    *_, last = race(FaultyTarget(2, 5), PROMPT, RaceSpec(("trie",), max_new_tokens=20), again=times(2))
    assert isinstance(last, Repeated) and "In 2 of the runs a lane's text differed" in last.note


def test_what_is_built_for_one_run_is_built_for_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise later runs would get for free the automaton of past outputs that a lane built in the first run."""
    built: list[int] = []
    plain = PastOutputs.automaton

    def automaton(self: PastOutputs, n: int) -> object:
        built.append((SuffixAutomaton, (n,), PROMPT_TAIL) not in self._indexes)
        return plain(self, n)

    monkeypatch.setattr(PastOutputs, "automaton", automaton)
    past = PastOutputs([PROMPT])
    list(
        race(
            target(),
            PROMPT,
            RaceSpec(("suffix", "fusion"), max_new_tokens=20),
            sources=Sources(past=past),
            again=times(2),
        )
    )
    assert len(built) % 3 == 0
    share = len(built) // 3
    first, second, third = sorted(built[:share]), sorted(built[share : 2 * share]), sorted(built[2 * share :])
    assert first == second == third and any(first)
    assert past._indexes, "it is kept for the next race, as after a race that is run once"
