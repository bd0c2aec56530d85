"""Finds the best of many settings cheaply, by successive halving (Jamieson and Talwalkar, 2016).

First, all settings are scored on a sample of the requests; then those that may still be the best, on a larger sample;
then the finalists, on all requests. Settings compete within pools, one for each engine: a setting survives while it is
within two standard errors of the pool's fastest, measured by differences on the same requests. The samples have the
log's mix of categories. Requests with a looping output are left out, because loops flatter drafters that copy.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from specrace.core.clock import thread_ms
from specrace.core.cost_curve import ASSUMED_GPU, CostCurve
from specrace.lab.advice.forecast import Forecast, forecast_sweep, is_twin
from specrace.lab.advice.recommend import CLOSE
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.forks import in_forks
from specrace.lab.scoring.score import ScoredLane, count_steps
from specrace.lab.scoring.sweep import SHARD_SIZE, Cell, Request, RequestScore, ScoredCell, Sweep

# The number of shards, of SHARD_SIZE requests each, in each round but the last, which uses all of them.
ROUNDS = (1, 4)
# How many of a pool's fastest settings survive each of these rounds. Of the settings about as fast as the fastest, the
# one that verifies the fewest rows survives as well. None of these numbers is tuned; docs/recommend.md has a check.
SURVIVORS = (6, 1)
# A setting within this many standard errors of the fastest may still be the best.
ERRORS = 2.0


@dataclass(frozen=True)
class Tried:
    """A lane with its settings, the number of requests on which it was scored, and its metrics on these."""

    lane: ScoredLane
    requests: int
    tau: float
    speedup: float


@dataclass(frozen=True)
class Round:
    """The progress of a round: `done` of its `cells`, and the numbers of `settings` and `requests` that it scores."""

    settings: int
    requests: int
    done: int
    cells: int


class Halving:
    """Successive halving over an empty sweep's lanes, compared by its cost curve; lane 0 is vanilla, without drafts.

    `pools`: name -> the numbers of the lanes that compete. `batch`: the batch size of the forecast. `surviving`: the
    numbers of the lanes that have not been dropped yet. `tried`: number of a lane -> its metrics in the last round that
    scored it.
    """

    def __init__(
        self,
        sweep: Sweep,
        transcripts: Sequence[Transcript],
        pools: Mapping[str, Sequence[int]],
        *,
        batch: int = 1,
        seed: int = 0,
    ) -> None:
        order = sample_order(sweep.requests, seed)
        self._transcripts = [transcripts[number] for number in order]
        requests = tuple(sweep.requests[number] for number in order)
        self.sweep = replace(sweep, requests=requests, cells={}, num_looping_left_out=len(sweep.requests) - len(order))
        self.pools = pools
        self.batch = batch
        self.curve = sweep.curve or ASSUMED_GPU
        self.surviving = sorted({lane for pool in pools.values() for lane in pool})
        self.tried: dict[int, Tried] = {}
        # Vanilla need not be scored: each of its steps emits one token, without a draft.
        for shard in range(self._num_shards):
            in_shard = self.sweep.requests[shard * SHARD_SIZE : (shard + 1) * SHARD_SIZE]
            self.sweep.cells[0, shard] = tuple(
                RequestScore(steps=((0, 0, request.output_tokens),), draft_ms=0.0, build_ms=0.0) for request in in_shard
            )

    @property
    def _num_shards(self) -> int:
        """The number of shards, of which the last may be smaller."""
        return -(-len(self.sweep.requests) // SHARD_SIZE)

    def run(self, *, processes: int = 1, until: float = float("inf")) -> Iterator[Round]:
        """Score round by round, and yield the progress. It stops at `until` (`time.monotonic`), even in a round."""
        shards_done = 0
        # After the last round, which scores all shards, nothing is dropped.
        for shards, num_fastest in zip((*ROUNDS, self._num_shards), (*SURVIVORS, 0), strict=True):
            shards = min(shards, self._num_shards)
            yield from self._score(range(shards_done, shards), processes, until)
            shards_done = self._common_shards()
            if shards_done == 0:
                return
            self._record(shards_done)
            if shards_done == self._num_shards or shards_done < shards:
                return
            self.surviving = self._survivors(shards_done, num_fastest)

    def finalists(self, pool: str) -> Sweep:
        """Vanilla and a pool's survivors, on the requests on which every survivor was scored."""
        return part_of_sweep(
            self.sweep, [0, *(lane for lane in self.pools[pool] if lane in self.surviving)], self._common_shards()
        )

    def all_finalists(self) -> Sweep:
        """Vanilla and the survivors of all pools, on the requests on which every survivor was scored."""
        return part_of_sweep(self.sweep, [0, *self.surviving], self._common_shards())

    def sample(self, pool: str) -> Sweep:
        """Vanilla and all settings of a pool on the first round's requests."""
        return part_of_sweep(self.sweep, [0, *self.pools[pool]], min(ROUNDS[0], self._num_shards))

    def _score(self, shards: range, processes: int, until: float) -> Iterator[Round]:
        # `in_forks` deals the cells out to the processes in turn. Every other shard has the lanes in reverse order, so
        # that of two processes neither gets all the costly lanes.
        cells = [(lane, shard) for shard in shards for lane in (self.surviving, self.surviving[::-1])[shard % 2]]
        num_requests = min(shards.stop * SHARD_SIZE, len(self.sweep.requests))
        results = in_forks(cells, self._score_cell, processes)
        for done, (cell, scores) in enumerate(results, 1):
            if time.monotonic() > until:
                break
            self.sweep.cells[cell] = scores
            yield Round(settings=len(self.surviving), requests=num_requests, done=done, cells=len(cells))
        # Closing the iterator kills the forks.
        if hasattr(results, "close"):
            results.close()

    def _score_cell(self, cell: Cell) -> ScoredCell:
        number, shard = cell
        lane = self.sweep.lanes[number]
        transcripts = self._transcripts[shard * SHARD_SIZE : (shard + 1) * SHARD_SIZE]
        return cell, tuple(_score_request(lane, transcript, self.curve) for transcript in transcripts)

    def _common_shards(self) -> int:
        """The number of shards, counted from the first, on which every survivor was scored."""
        return next(
            shard for shard in count() if any((lane, shard) not in self.sweep.cells for lane in (0, *self.surviving))
        )

    def _forecast(self, lanes: Sequence[int], shards: int) -> Forecast:
        return forecast_sweep(part_of_sweep(self.sweep, lanes, shards), self.curve, (self.batch,))[0]

    def _record(self, shards: int) -> None:
        """Keep the survivors' metrics on the first `shards`."""
        forecast = self._forecast([0, *self.surviving], shards)
        for row, lane in enumerate(self.surviving, 1):
            metrics = float(forecast.tau[row]), float(forecast.speedup[row])
            self.tried[lane] = Tried(self.sweep.lanes[lane], len(forecast.tokens), *metrics)

    def _survivors(self, shards: int, num_fastest: int) -> list[int]:
        """The contenders of every pool, by their scores on the first `shards`."""
        forecast = self._forecast(self.surviving, shards)
        rows = {lane: row for row, lane in enumerate(self.surviving)}
        pools = [[rows[lane] for lane in pool if lane in rows] for pool in self.pools.values()]
        return sorted(
            {self.surviving[row] for pool in pools if pool for row in contenders(forecast, pool, num_fastest)}
        )


def contenders(forecast: Forecast, lanes: Sequence[int], num_fastest: int) -> list[int]:
    """Up to `num_fastest` lanes that may still be the best, and of those close to it the one with the fewest rows."""
    ranked = sorted(lanes, key=lambda lane: -forecast.speedup[lane])
    best = ranked[0]
    possible = [
        lane
        for lane in ranked
        if lane == best or _gap(forecast, best, lane) <= ERRORS * forecast.standard_error(best, lane)
    ]
    as_good = [lane for lane in possible if _gap(forecast, best, lane) <= CLOSE * forecast.speedup[best]]
    thriftiest = min(as_good, key=lambda lane: forecast.rows_per_step[lane])
    return list(dict.fromkeys([*possible[:num_fastest], thriftiest]))


def _gap(forecast: Forecast, best: int, lane: int) -> float:
    """How far a lane's speedup is below that of the best."""
    return float(forecast.speedup[best] - forecast.speedup[lane])


def sample_order(requests: Sequence[Request], seed: int) -> list[int]:
    """The numbers of the requests that do not loop (or of all if every one loops), in random order.

    For any n, the first n requests have about the same mix of categories as the log.
    """
    not_looping = [number for number, request in enumerate(requests) if not request.looping]
    numbers = not_looping or list(range(len(requests)))
    random.Random(seed).shuffle(numbers)
    by_category: dict[str, list[int]] = {}
    for number in numbers:
        by_category.setdefault(requests[number].category, []).append(number)
    # Each request's place in the order, from 0 to 1: those of a category are spread evenly.
    positions = {
        number: (rank + 0.5) / len(group) for group in by_category.values() for rank, number in enumerate(group)
    }
    return sorted(numbers, key=lambda number: positions[number])


def part_of_sweep(sweep: Sweep, lanes: Sequence[int], shards: int) -> Sweep:
    """Some lanes of a sweep on its first `shards`, all of whose cells must be finished."""
    cells = {(number, shard): sweep.cells[lane, shard] for number, lane in enumerate(lanes) for shard in range(shards)}
    requests = sweep.requests[: shards * SHARD_SIZE]
    return replace(sweep, lanes=tuple(sweep.lanes[lane] for lane in lanes), requests=requests, cells=cells)


def _score_request(lane: ScoredLane, transcript: Transcript, curve: CostCurve) -> RequestScore:
    # Forecasts ignore a twin's drafting time, so reading the clock would be a waste.
    clock = _stopped_clock if is_twin(lane.name) else thread_ms
    steps, draft_ms, build_ms = count_steps(lane, transcript, curve, clock)
    return RequestScore(tuple(sorted((*step, number) for step, number in steps.items())), draft_ms, build_ms)


def _stopped_clock() -> float:
    return 0.0
