"""The benchmark: what it counts and compares, on a target that is a table of logits."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.core.events import Difference
from specrace.core.metrics import LaneMetrics
from specrace.engine.badge import explain_difference
from specrace.engine.setup import RaceSetup
from specrace.engine.spec import RaceSpec
from specrace.lab.bench.benchmark import Bench, BenchPrompt, LaneRun, PeerRun, PromptResult
from specrace.lab.bench.summary import summarise
from tests.parts import TableTarget, random_prompt


def prompts(count: int) -> list[BenchPrompt]:
    """Random prompts with the ids p0, p1, ..."""
    return [BenchPrompt(f"p{number}", random_prompt(random.Random(number))) for number in range(count)]


def words(tokens: Any) -> str:
    """Stands in for a tokenizer's `decode`."""
    return " ".join(map(str, tokens))


def test_lanes_are_measured_on_every_prompt() -> None:
    progress: list[str] = []
    results = Bench(TableTarget(), RaceSpec(("trie", "prompt-lookup"), max_new_tokens=30), repetitions=2).run(
        prompts(3), progress.append
    )
    # For each prompt a warm-up; in each repetition the three lanes alone, then all lanes step by step.
    assert len(progress) == 3 * (1 + 2 * 4)
    for result in results:
        assert set(result.runs) == {"vanilla", "trie", "prompt-lookup"} and not result.peer_runs
        assert all(len(runs) == 2 for runs in result.runs.values())
        assert len({run.tokens for runs in result.runs.values() for run in runs}) == 1
        assert all(
            run.run_ms >= run.metrics.decode_ms + run.prefill_ms for runs in result.runs.values() for run in runs
        )
    summary = summarise(results, words)
    assert [lane["identical"] for lane in summary["lanes"]] == [True] * 3
    assert summary["lanes"][0]["tau"] == 1.0 and summary["lanes"][0]["speedup"] == pytest.approx(1.0)


def test_each_repetition_starts_with_a_different_lane() -> None:
    target = TableTarget()
    progress: list[str] = []
    Bench(target, RaceSpec(("trie",), max_new_tokens=4), repetitions=2).run(prompts(2), progress.append)
    order = [line.partition(": ")[2] for line in progress]
    assert order == [
        "warming up", "vanilla", "trie", "all lanes, step by step", "trie", "vanilla", "all lanes, step by step",
        "warming up", "trie", "vanilla", "all lanes, step by step", "vanilla", "trie", "all lanes, step by step",
    ]  # fmt: skip


@pytest.mark.parametrize("keep", [True, False])
def test_lanes_know_the_earlier_outputs_of_other_prompts_only(keep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds in every lane and repetition, alone and step by step; no lane knows an output of its own prompt."""
    pasts_seen: dict[str, list[list[tuple[int, ...]]]] = {}
    names = {"one": 1, "other": 2, "one again": 1, "last": 3}
    bench_prompts = [BenchPrompt(name, random_prompt(random.Random(seed))) for name, seed in names.items()]
    bench = Bench(TableTarget(), RaceSpec(("suffix", "fusion"), max_new_tokens=9), repetitions=2, keep_outputs=keep)
    upcoming = iter(bench_prompts)
    # The prompt that is being measured, as the only item.
    current: list[BenchPrompt] = []
    make_lane = RaceSetup.make_lane

    def record_setup(setup: RaceSetup, *values: Any) -> Any:
        pasts_seen[current[0].id].append(list(setup.sources.past))
        return make_lane(setup, *values)

    def on_progress(what: str) -> None:
        if what.endswith("warming up"):
            current[:] = [next(upcoming)]
            pasts_seen[current[0].id] = []

    monkeypatch.setattr(RaceSetup, "make_lane", record_setup)
    text_of = {result.prompt.id: result.runs["vanilla"][0].tokens for result in bench.run(bench_prompts, on_progress)}
    expected = {"one": [], "other": ["one"], "one again": ["other"], "last": ["one", "other", "one again"]}
    for name, pasts in pasts_seen.items():
        # Three lanes run in two repetitions, alone and step by step; the warm-up makes further lanes.
        assert len(pasts) >= 2 * 2 * 3
        assert all(past == [text_of[earlier] for earlier in expected[name] if keep] for past in pasts)


def run_of(tokens: list[int], steps: int, ms: float) -> LaneRun:
    """A run whose steps took `ms`: an eighth for drafting, an eighth for keeping, the rest for forwards.

    Each step drafted four tokens, and could not have been faster than 0.3 ms.
    """
    metrics = LaneMetrics(
        tokens=len(tokens),
        steps=steps,
        drafted=4 * steps,
        accepted=len(tokens) - steps,
        draft_ms=ms / 8,
        target_ms=ms * 6 / 8,
        keep_ms=ms / 8,
    )
    return LaneRun(tuple(tokens), metrics, prefill_ms=5.0, run_ms=ms + 10, peak_memory=1000, limit_ms=0.3, end="length")


def result_of(name: str, tokens: list[int], vanilla: list[float], trie: list[float], race: float) -> PromptResult:
    """A prompt's result: the ms of the two lanes in each repetition, and the trie's ms when lanes run step by step.

    A peer's two runs take 130 and 150 ms, 10 of them up to its first token.
    """
    return PromptResult(
        BenchPrompt(name, (1, 2)),
        {
            "vanilla": [run_of(tokens, len(tokens), ms) for ms in vanilla],
            "trie": [run_of(tokens, len(tokens) // 4, ms) for ms in trie],
        },
        {"vanilla": [vanilla[0]] * 3, "trie": [race] * 3},
        {"transformers": [PeerRun(tuple(tokens), 130.0, 10.0, 1), PeerRun(tuple(tokens), 150.0, 10.0, 1)]},
        {"vanilla": None, "trie": None, "transformers": Difference(3, ("a", "b"), 0.01)},
    )


def test_metrics_are_sums_of_medians_and_loops_are_left_out() -> None:
    not_looping = result_of("one", list(range(40)), [80, 100, 1000], [40, 50, 60], 50.0)
    looping = result_of("two", [7, 8] * 50, [10, 10, 10], [1, 1, 1], 1.0)
    summary = summarise([not_looping, looping], words)
    vanilla, trie = summary["lanes"]
    assert (vanilla["tokens"], vanilla["decode_ms"], vanilla["tokens_per_s"]) == (40, 100, pytest.approx(400))
    assert (trie["steps"], trie["tau"], trie["speedup"]) == (10, 4.0, pytest.approx(2.0))
    assert trie["drafted_per_step"] == 4.0 and trie["acceptance_rate"] == pytest.approx(0.75)
    # The spread of 40 to 60 ms over the median of 50 ms; a run takes 10 ms more than its steps.
    assert trie["spread"] == pytest.approx(20 / 50) and trie["run_tokens_per_s"] == pytest.approx(1000 * 40 / 60)
    # Drafting and keeping take an eighth of the time each, and forwards the rest.
    assert trie["host_share"] == pytest.approx(0.25) and trie["host_ms_per_step"] == pytest.approx(50 / 4 / 10)
    # A step's forward takes 50 * 6/8 / 10 ms, and could take 0.3 ms.
    assert trie["roofline"]["of_limit"] == pytest.approx(0.3 / (50 * 6 / 8 / 10)) and trie["fastest_on"] == 1
    assert summary["counted_prompts"] == 1 and summary["loops"] == [{"id": "two", "loop_tokens": 100}]
    peer = summary["peers"][0]
    assert (peer["decode_tokens"], peer["decode_ms"]) == (39, 130) and peer["run_ms"] == 140
    assert peer["identical"] is False and peer["first_difference"]["prompt"] == "one"
    comparison = summary["comparisons"][0]
    # The peer decodes 39 tokens in 130 ms, which is 300 tokens per second.
    assert comparison["decode"] == pytest.approx(400 / 300) and comparison["run"] == pytest.approx(
        (40 / 110) / (40 / 140)
    )
    assert [row["id"] for row in summary["prompts"]] == ["one", "two"] and summary["prompts"][0]["fastest"] == "trie"


@pytest.mark.parametrize(("race", "near", "fastest"), [(104.0, 0, 0), (102.0, 1, 0), (99.0, 1, 1)])
def test_the_fastest_lane_of_a_prompt_is_that_of_its_races(race: float, near: int, fastest: int) -> None:
    """Alone, the trie took half of vanilla's time, but the race decides; there vanilla takes 100 ms, and a lane within
    3 % of the fastest is near it.
    """
    summary = summarise([result_of("one", list(range(40)), [100, 100, 100], [50, 50, 50], race)], words)
    trie = summary["lanes"][1]
    assert (trie["near_fastest_on"], trie["fastest_on"]) == (near, fastest)
    assert summary["prompts"][0]["fastest"] == ("trie" if fastest else "vanilla")


def test_a_speedup_lies_in_its_range() -> None:
    """Each prompt has one slow run, in a repetition of its own, so no repetition is as fast as the medians."""
    trie_times = ([100, 50, 50], [50, 100, 50], [50, 50, 100])
    results = [
        result_of(str(name), list(range(40)), [100] * 3, trie_ms, 50.0) for name, trie_ms in enumerate(trie_times)
    ]
    trie = summarise(results, words)["lanes"][1]
    assert (trie["speedup"], trie["speedup_low"], trie["speedup_high"]) == (2.0, pytest.approx(1.5), 2.0)
    run_once = summarise([result_of("one", list(range(40)), [100], [50], 50.0)], words)["lanes"][1]
    assert run_once["speedup_low"] is None and run_once["speedup_high"] is None


def test_disagreeing_clocks_give_a_warning() -> None:
    # Clocks may differ by 5 %.
    tokens = list(range(40))
    agreeing = summarise([result_of("one", tokens, [100, 100, 100], [50, 50, 50], 51.0)], words)
    assert agreeing["warnings"] == []
    summary = summarise([result_of("one", tokens, [100, 100, 100], [50, 50, 50], 60.0)], words)
    assert len(summary["warnings"]) == 1 and "trie" in summary["warnings"][0] and "-17 %" in summary["warnings"][0]


def test_a_warning_says_when_every_output_loops() -> None:
    summary = summarise([result_of("two", [7, 8] * 50, [10, 10, 10], [1, 1, 1], 1.0)], words)
    assert "loops" in summary["warnings"][-1] and summary["lanes"][0]["tokens"] == 100


def test_a_prompt_that_is_too_long_is_refused_before_anything_runs() -> None:
    target = TableTarget(max_context=64)
    progress: list[str] = []
    long_prompt = BenchPrompt("the long one", tuple([3] * 60))
    with pytest.raises(InputError, match="the long one"):
        Bench(target, RaceSpec(("trie",), max_new_tokens=20)).run([*prompts(1), long_prompt], progress.append)
    assert not progress


@pytest.mark.parametrize("repetitions", [0, -1, 10**6])
def test_repetitions_have_bounds(repetitions: int) -> None:
    with pytest.raises(InputError, match="repetitions"):
        Bench(TableTarget(), RaceSpec(), repetitions=repetitions)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_difference_is_explained_with_the_sampling_params(temperature: float) -> None:
    target = TableTarget(scale=1.0)
    bench = Bench(target, RaceSpec((), max_new_tokens=12, temperature=temperature, seed=4), repetitions=1)
    result = bench.run(prompts(1))[0]
    text = result.runs["vanilla"][0].tokens
    ids, params = result.prompt.tokens, bench.spec.sampling_params()
    best = [explain_difference(target, [*ids, *text[:position]], position, params).best[0] for position in range(12)]
    assert best == [str(token) for token in text]


def test_a_prompt_may_have_its_own_output_length() -> None:
    prompt = replace(prompts(1)[0], max_new_tokens=7)
    results = Bench(TableTarget(), RaceSpec((), max_new_tokens=30), repetitions=1).run([prompt])
    assert len(results[0].runs["vanilla"][0].tokens) == 7


def test_a_lane_does_not_pay_for_another_lanes_draft_model(monkeypatch: pytest.MonkeyPatch) -> None:
    make_lane = RaceSetup.make_lane
    lanes_of_setups: list[tuple[str, ...]] = []

    def record_setup(setup: RaceSetup, *values: Any) -> Any:
        lanes_of_setups.append(setup.spec.lanes)
        return make_lane(setup, *values)

    monkeypatch.setattr(RaceSetup, "make_lane", record_setup)
    Bench(TableTarget(), RaceSpec(("trie", "suffix"), max_new_tokens=4), repetitions=1).run(prompts(1))
    assert set(lanes_of_setups) == {("vanilla",), ("vanilla", "trie"), ("vanilla", "suffix")}


def test_prefill_and_tables_are_corrected_for_the_machines_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine runs at half its speed, and the prefill takes 1,000 s."""
    target = TableTarget()
    bench, prefill = Bench(target, RaceSpec(("trie",), max_new_tokens=4), repetitions=1), target.prefill
    monkeypatch.setattr(target, "prefill", lambda tokens: replace(prefill(tokens), ms=1e6))
    # `str` stands for a call that does nothing.
    bench._pace = SimpleNamespace(  # type: ignore[assignment]
        slowdown=2.0, refresh=str, probe_if_due=str, correct=lambda _lane, _rows, timing: timing
    )
    run = bench._run_lane("trie", prompts(1)[0])
    assert run.prefill_ms == 5e5 and run.run_ms == pytest.approx(5e5 + run.metrics.decode_ms)
