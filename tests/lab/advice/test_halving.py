"""Successive halving: finalists are scored on all requests, and the recommendation is that of a whole sweep."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace

import pytest

from specrace.core.cost_curve import ASSUMED_GPU
from specrace.lab.advice.candidates import candidates, engine_lanes, pools
from specrace.lab.advice.exports import ENGINES
from specrace.lab.advice.halving import ROUNDS, Halving, contenders, part_of_sweep, sample_order
from specrace.lab.advice.recommend import Recommender
from specrace.lab.scoring.cells import run_sweep
from specrace.lab.scoring.forks import in_forks
from specrace.lab.scoring.score import count_steps, score_output
from specrace.lab.scoring.sweep import SHARD_SIZE, Request, Sweep, grid_lanes
from tests.lab.advice.test_recommend import make_forecast
from tests.lab.parts import mostly_copying, transcript

LANES = ("prompt-lookup", "suffix", "bigram", "vllm-ngram")
# A pool is a set of settings out of which one is recommended, such as those of one engine; by number in the sweep, in
# which 0 is vanilla and each lane has two draft sizes.
POOLS = {"own": [1, 2, 3, 4, 5, 6], "vllm": [7, 8]}


@pytest.fixture(scope="module")
def whole_sweep() -> Sweep:
    """Every setting on every request; the output of one request loops."""
    transcripts = [*mostly_copying(90), transcript([1, 2, 3, 4], [7, 8] * 30)]
    sweep = Sweep.of(grid_lanes(LANES, {}, (4, 8)), transcripts, ASSUMED_GPU)
    run_sweep(sweep, transcripts)
    return sweep


def halved(whole_sweep: Sweep, seed: int = 0, processes: int = 1) -> Halving:
    """Successive halving over the settings and requests of `whole_sweep`, run to its end."""
    transcripts = [*mostly_copying(90), transcript([1, 2, 3, 4], [7, 8] * 30)]
    halving = Halving(replace(whole_sweep, cells={}), transcripts, POOLS, seed=seed)
    for _ in halving.run(processes=processes):
        pass
    return halving


def untimed(recommendation: dict[str, object]) -> dict[str, object]:
    """The parts of a recommendation that depend on no measured time."""
    return {name: recommendation[name] for name in ("lane", "options", "num_draft", "tau")}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_halving_recommends_what_the_whole_sweep_recommends(whole_sweep: Sweep, seed: int) -> None:
    halving = halved(whole_sweep, seed)
    for pool, lanes in POOLS.items():
        names = {whole_sweep.lanes[lane].name for lane in lanes}
        expected = Recommender(whole_sweep, ASSUMED_GPU, tuple(names), seed).recommendation()
        assert untimed(Recommender(halving.finalists(pool), ASSUMED_GPU, (), seed).recommendation()) == untimed(
            expected
        )


@pytest.mark.slow
def test_the_number_of_scored_requests_is_reported_for_each_setting(whole_sweep: Sweep) -> None:
    halving = halved(whole_sweep)
    assert sorted(halving.tried) == list(range(1, 9)) and len(halving.surviving) < 8
    assert {halving.tried[lane].requests for lane in halving.surviving} == {90}
    # A setting that was dropped has been scored on one shard (16 requests) or on four.
    assert {trial.requests for trial in halving.tried.values()} <= {16, 64, 90}
    assert halving.finalists("own").finished and len(halving.finalists("own").requests) == 90
    assert halving.sample("vllm").finished and len(halving.sample("vllm").requests) == 16


def test_looping_requests_are_left_out_and_counted(whole_sweep: Sweep) -> None:
    recommender = Recommender(halved(whole_sweep).all_finalists(), ASSUMED_GPU)
    assert recommender.looping == Recommender(whole_sweep, ASSUMED_GPU).looping == 1
    assert any("1 requests with a looping output" in sentence for sentence in recommender.not_tested)


@pytest.mark.slow
def test_forks_give_the_same_counts(whole_sweep: Sweep) -> None:
    in_one_process, forked = (halved(whole_sweep, processes=processes) for processes in (1, 2))
    counts = [
        {cell: [score.steps for score in scores] for cell, scores in sorted(halving.sweep.cells.items())}
        for halving in (in_one_process, forked)
    ]
    assert counts[0] == counts[1] and in_one_process.surviving == forked.surviving


def test_a_deadline_leaves_fewer_requests_or_none(whole_sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    transcripts = mostly_copying(90)
    halving = Halving(Sweep.of(whole_sweep.lanes, transcripts, ASSUMED_GPU), transcripts, POOLS)
    assert list(halving.run(until=0.0)) == [] and not halving.tried
    # A clock that is a second later at each look; `run` looks once for each setting on each shard.
    clock = iter(range(10_000))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    # The time is enough for all settings on one shard and for the remaining settings on two more.
    halving = Halving(Sweep.of(whole_sweep.lanes, transcripts, ASSUMED_GPU), transcripts, POOLS)
    for _ in halving.run(until=14):
        pass
    scored = len(halving.all_finalists().requests)
    assert halving.tried and 0 < scored < 90 and scored % SHARD_SIZE == 0
    assert halving.all_finalists().finished and Recommender(halving.finalists("own"), ASSUMED_GPU).recommendation()


def test_every_prefix_of_the_sample_has_the_mix_of_categories() -> None:
    requests = [Request("rare" if number % 10 == 0 else "often", 9, 9, number == 5) for number in range(200)]
    order = sample_order(requests, 0)
    assert sorted(order) == [number for number in range(200) if number != 5]
    for size in (20, 60, 100):
        assert sum(requests[number].category == "rare" for number in order[:size]) == size // 10
    assert order == sample_order(requests, 0) != sample_order(requests, 1)
    looping = [Request("none", 9, 9, True)] * 3
    assert sorted(sample_order(looping, 0)) == [0, 1, 2]


def test_contenders_may_still_be_the_fastest() -> None:
    noise = [4.0, 6.0, 5.0, 5.5]
    forecast = make_forecast(
        noise, [value + 0.01 for value in noise], [9.0] * 4, [6.0, 4.0, 5.6, 5.0], rows=[9, 10, 2, 3]
    )
    # The second lane costs a little more on every request. The last one costs more only by chance, and drafts less.
    # The last argument is the maximum number of the fastest; the one with the fewest rows is added to them.
    assert contenders(forecast, [0, 1, 2, 3], 6) == [0, 3]
    assert contenders(forecast, [0, 1, 2, 3], 1) == [0, 3] and contenders(forecast, [1, 2], 6) == [1]


@pytest.mark.slow
def test_counts_equal_those_of_score_output() -> None:
    for lane in candidates(name for engine in ENGINES for name in engine_lanes(engine)):
        for request in mostly_copying(4)[2:]:
            assert count_steps(lane, request, ASSUMED_GPU)[0] == score_output(lane, request).steps


def test_every_engine_has_settings_to_choose_from() -> None:
    lanes = candidates(name for engine in ENGINES for name in engine_lanes(engine))
    lanes_of = pools(lanes, ENGINES)
    assert lanes[0].name == "vanilla" and list(lanes_of) == list(ENGINES)
    assert {lane for numbers in lanes_of.values() for lane in numbers} == set(range(1, len(lanes)))
    assert {lanes[lane].name for lane in lanes_of["transformers"]} == {"prompt-lookup"}


def test_part_of_sweep_keeps_the_chosen_lanes_and_requests(whole_sweep: Sweep) -> None:
    part = part_of_sweep(whole_sweep, [0, 3], ROUNDS[0])
    assert [lane.name for lane in part.lanes] == ["vanilla", whole_sweep.lanes[3].name] and part.finished
    # Lane 3 of the whole sweep is lane 1 of the part.
    assert list(part.scores(1)) == list(whole_sweep.scores(3))[:SHARD_SIZE]


def test_the_failure_of_a_fork_is_raised() -> None:
    def work(job: int) -> int:
        if job == 3:
            raise MemoryError
        if job == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return job * job

    assert sorted(in_forks([0, 1, 2], work, 2)) == [0, 1, 4]
    with pytest.raises(MemoryError):
        list(in_forks([0, 1, 2, 3], work, 2))
    with pytest.raises(RuntimeError, match="ended with -9"):
        list(in_forks([4, 5, 6], work, 2))


def test_closing_the_iterator_ends_the_forks() -> None:
    def work(job: int) -> int:
        time.sleep(0 if job < 2 else 1000)
        return os.getpid()

    results = in_forks([0, 1, 2, 3], work, 2)
    pids = [next(results), next(results)]
    results.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
