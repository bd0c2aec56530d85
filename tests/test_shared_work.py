"""Work that a server does once for all requests is on no lane's clock, and is reported: in race, bench and score."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from specrace.core import clock
from specrace.core.events import LaneInfo, Started
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.lab.bench.benchmark import Bench, BenchPrompt
from specrace.lab.bench.summary import summarise
from specrace.lab.scoring.score import Scoreboard, ScoredLane
from specrace.ngrams import past as past_module
from specrace.ngrams.counts import NGramCounts
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.sources import CorpusTables, Sources
from tests.lab.parts import mostly_copying
from tests.parts import TableTarget, random_prompt

# The time that it takes to add an answer to an index, or to tokenise the documents, on the clock of these tests. All
# other work together takes less, so `ms // SLOW_MS` is how often that was done within a time.
SLOW_MS = 1e6
LANES = ("vanilla", "trie", "suffix", "fusion", "vllm-suffix")
# The lanes that draft from earlier answers.
READ_PAST = LANES[2:]


class Clock:
    """A clock that runs a tenth of a millisecond each time it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        """Seconds."""
        self.now += 1e-4
        return self.now

    def spend(self) -> None:
        """Let `SLOW_MS` pass."""
        self.now += SLOW_MS / 1000.0


@pytest.fixture(autouse=True)
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock; each addition of an answer to an index of earlier answers takes `SLOW_MS`."""
    slow_clock = Clock()
    enter = past_module._Answer.enter

    def enter_slowly(self: past_module._Answer, index: object, prompt_tail: int | None) -> None:
        slow_clock.spend()
        enter(self, index, prompt_tail)

    monkeypatch.setattr(past_module._Answer, "enter", enter_slowly)
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=slow_clock.perf_counter))
    monkeypatch.setattr(clock, "waited_ms", lambda: 0.0)
    return slow_clock


def start(sources: Sources, lanes: tuple[str, ...] = LANES) -> dict[str, LaneInfo]:
    """What a race reports about its lanes before their first step.

    `build_ms`: the lane's own preparation, on its clock; `shared_ms`: its share in the server's, on no clock.
    """
    spec = RaceSpec(lanes, max_new_tokens=4)
    started = next(iter(race(TableTarget(), random_prompt(random.Random(1)), spec, sources=sources)))
    assert isinstance(started, Started)
    return {info.lane: info for info in started.lanes}


def test_a_race_has_indexes_of_earlier_answers_on_no_clock() -> None:
    past = PastOutputs([(2, 3, 4), (5, 6, 7)])
    for _ in range(2):  # the second race finds the indexes built
        infos = start(Sources(past=past))
        assert all(info.build_ms < SLOW_MS for info in infos.values())
        for name in LANES:
            assert infos[name].shared_ms // SLOW_MS == (2 if name in READ_PAST else 0), name


def test_a_race_reports_the_time_of_the_documents_tables(slow_clock: Clock) -> None:
    def tokenize() -> list[list[int]]:
        slow_clock.spend()
        return [[2, 3, 4, 2, 3]]

    tables = CorpusTables(tokenize)
    counts, suffixes = tables.counts, tables.suffixes
    assert tables.counts_ms // SLOW_MS == tables.suffixes_ms // SLOW_MS == 1
    # Bigram drafts from the counts of the documents, rest from their suffix index, and trie from neither.
    sources = Sources(counts, suffixes, corpus_ms=tables.counts_ms, corpus_index_ms=tables.suffixes_ms)
    infos = start(sources, ("trie", "bigram", "rest"))
    reported = {name: infos[name].shared_ms for name in ("vanilla", "trie", "bigram", "rest")}
    assert reported == {"vanilla": 0.0, "trie": 0.0, "bigram": tables.counts_ms, "rest": tables.suffixes_ms}
    assert all(info.build_ms < SLOW_MS for info in infos.values())


def test_the_bench_has_shared_work_on_no_clock_and_reports_it() -> None:
    prompts = [BenchPrompt(str(seed), random_prompt(random.Random(seed))) for seed in range(3)]
    spec = RaceSpec((*LANES, "bigram"), max_new_tokens=8)
    sources = Sources(NGramCounts(), corpus_ms=7.0)
    results = Bench(TableTarget(), spec, repetitions=2, sources=sources).run(prompts)
    for number, result in enumerate(results):
        for name, runs in result.runs.items():
            assert all(run.build_ms <= run.metrics.decode_ms < SLOW_MS for run in runs)
            # Before question `number`, as many answers were kept.
            expected = number if name in READ_PAST else 0
            assert all(run.shared_ms // SLOW_MS == expected for run in runs), (name, number)
    lanes = {lane["lane"]: lane for lane in summarise(results, str)["lanes"]}
    assert lanes["suffix"]["shared_ms"] // SLOW_MS == 2 and lanes["bigram"]["shared_ms"] == 7.0
    assert lanes["trie"]["build_ms"] > 0.0 == lanes["trie"]["shared_ms"]


def test_a_score_has_shared_work_on_no_clock_and_reports_it() -> None:
    board = Scoreboard([ScoredLane.of(name, {}) for name in LANES], keep_outputs=True)
    for transcript in mostly_copying(3):
        board.add(transcript)
    rows = {row["lane"]: row for row in board.groups()}
    assert all(row["build_ms_per_output"] < SLOW_MS / 10 for row in rows.values())
    assert {name: row["shared_ms"] // SLOW_MS for name, row in rows.items()} == {
        name: 2 if name in READ_PAST else 0 for name in LANES
    }


def test_indexes_of_the_latest_answers_alone_are_measured_too() -> None:
    # `metered` outputs measure the time of building (`built_ms`) and of what is used (`used_ms`).
    outputs = PastOutputs([(2, 3), (4, 5), (6, 7)]).metered()
    outputs.latest(2).automaton(3)
    assert outputs.meter.built_ms // SLOW_MS == sum(outputs.meter.used_ms.values()) // SLOW_MS == 2
