"""Which of many settings are worth scoring on all requests: successive halving (Jamieson and Talwalkar, 2016).

All are scored on a sample of the requests, those that may still be the best on a larger one, and the finalists on all.
A setting is judged within its pools, one for each engine: it goes on while it is within two standard errors of the
pool's fastest, by differences on the same requests. The sample has the log's share of each category. Outputs that loop
are left out, as in `recommend`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from specrace.core.clock import own_ms
from specrace.core.cost_curve import ASSUMED_GPU, CostCurve
from specrace.lab.forecast import Forecast, forecast, is_twin
from specrace.lab.forks import in_forks
from specrace.lab.recommend import CLOSE
from specrace.lab.score import ScoredLane, count_steps
from specrace.lab.sweep import SHARD, Cell, Request, RequestScore, Scored, Sweep
from specrace.lab.transcripts import Transcript

# Shards on which all settings are scored, and then those that are left; the finalists are scored on all.
ROUNDS = (1, 4)
# So many of a pool are left after each of these rounds, and of those as good the one that drafts least.
LEFT = (6, 1)
ERRORS = 2.0


@dataclass(frozen=True)
class Tried:
    """A setting, the number of requests that it was scored on, and its figures on these."""

    lane: ScoredLane
    requests: int
    tau: float
    speedup: float


@dataclass(frozen=True)
class Round:
    """How far a round is: `done` of `cells`, of so many settings on so many requests."""

    settings: int
    requests: int
    done: int
    cells: int


class Halving:
    """The settings of a sweep without scores, whose first lane is vanilla, judged by a cost curve at a batch size.

    `pools` are the numbers of the lanes to choose from, by name. `tried`: by lane, each setting that was scored, with
    the figures of its last round.
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
        self.sweep = replace(sweep, requests=requests, cells={}, left_out=len(sweep.requests) - len(order))
        self.pools, self.batch, self.curve = pools, batch, sweep.curve or ASSUMED_GPU
        self.left = sorted({lane for pool in pools.values() for lane in pool})
        self.tried: dict[int, Tried] = {}
        for shard in range(self._shards):
            own = self.sweep.requests[shard * SHARD : (shard + 1) * SHARD]
            self.sweep.cells[0, shard] = tuple(RequestScore(((0, 0, each.output_tokens),), 0.0, 0.0) for each in own)

    @property
    def _shards(self) -> int:
        return -(-len(self.sweep.requests) // SHARD)

    def run(self, *, processes: int = 1, until: float = float("inf")) -> Iterator[Round]:
        """Score, round by round. It stops when monotonic time is `until`; then fewer requests are scored."""
        done = 0
        for shards, most in zip((*ROUNDS, self._shards), (*LEFT, 0), strict=True):
            shards = min(shards, self._shards)
            yield from self._score(range(done, shards), processes, until)
            done = self._common_shards()
            if done == 0:
                return
            self._note(done)
            if done == self._shards or done < shards:
                return
            self.left = self._survivors(done, most)

    def finalists(self, pool: str) -> Sweep:
        """Vanilla and the settings of a pool that are left, on the requests that all that are left were scored on."""
        return part(self.sweep, [0, *(lane for lane in self.pools[pool] if lane in self.left)], self._common_shards())

    def all_finalists(self) -> Sweep:
        """The same of all pools."""
        return part(self.sweep, [0, *self.left], self._common_shards())

    def sample(self, pool: str) -> Sweep:
        """Vanilla and all settings of a pool on the first round's requests."""
        return part(self.sweep, [0, *self.pools[pool]], min(ROUNDS[0], self._shards))

    def _score(self, shards: range, processes: int, until: float) -> Iterator[Round]:
        # To and fro, so that each of two processes gets a costly lane every other time.
        cells = [(lane, shard) for shard in shards for lane in (self.left, self.left[::-1])[shard % 2]]
        about = (len(self.left), min(shards.stop * SHARD, len(self.sweep.requests)))
        scored = in_forks(cells, partial(self._cell), processes)
        for done in count(1):
            found = next(scored, None)
            if found is None or time.monotonic() > until:
                break
            self.sweep.cells[found[0]] = found[1]
            yield Round(*about, done, len(cells))
        if hasattr(scored, "close"):
            scored.close()

    def _cell(self, cell: Cell) -> Scored:
        number, shard = cell
        lane, own = self.sweep.lanes[number], self._transcripts[shard * SHARD : (shard + 1) * SHARD]
        return cell, tuple(_request_score(lane, each, self.curve) for each in own)

    def _common_shards(self) -> int:
        """How many shards, from the first, all that are left were scored on."""
        return next(
            shard for shard in count() if any((lane, shard) not in self.sweep.cells for lane in (0, *self.left))
        )

    def _forecast(self, lanes: Sequence[int], shards: int) -> Forecast:
        return forecast(part(self.sweep, lanes, shards), self.curve, (self.batch,))[0]

    def _note(self, shards: int) -> None:
        found = self._forecast([0, *self.left], shards)
        for place, lane in enumerate(self.left, 1):
            figures = float(found.tau[place]), float(found.speedup[place])
            self.tried[lane] = Tried(self.sweep.lanes[lane], len(found.tokens), *figures)

    def _survivors(self, shards: int, most: int) -> list[int]:
        found, places = self._forecast(self.left, shards), {lane: place for place, lane in enumerate(self.left)}
        pools = [[places[lane] for lane in pool if lane in places] for pool in self.pools.values()]
        return sorted({self.left[place] for pool in pools if pool for place in contenders(found, pool, most)})


def contenders(found: Forecast, lanes: Sequence[int], most: int) -> list[int]:
    """The `most` fastest of those that may still be the fastest, and the one that drafts least of those as good."""
    ranked = sorted(lanes, key=lambda lane: -found.speedup[lane])
    best = ranked[0]
    near = [lane for lane in ranked if lane == best or _behind(found, best, lane) <= ERRORS * found.errors(best, lane)]
    as_good = [lane for lane in near if _behind(found, best, lane) <= CLOSE * found.speedup[best]]
    thriftiest = min(as_good, key=lambda lane: found.drafted_per_step[lane])
    return list(dict.fromkeys([*near[:most], thriftiest]))


def _behind(found: Forecast, best: int, lane: int) -> float:
    return float(found.speedup[best] - found.speedup[lane])


def sample_order(requests: Sequence[Request], seed: int) -> list[int]:
    """The numbers of the requests that do not loop, all if every one does; each head has the categories' shares."""
    numbers = [number for number, each in enumerate(requests) if not each.looping] or list(range(len(requests)))
    random.Random(seed).shuffle(numbers)
    by_category: dict[str, list[int]] = {}
    for number in numbers:
        by_category.setdefault(requests[number].category, []).append(number)
    places = {number: (rank + 0.5) / len(own) for own in by_category.values() for rank, number in enumerate(own)}
    return sorted(numbers, key=lambda number: places[number])


def part(sweep: Sweep, lanes: Sequence[int], shards: int) -> Sweep:
    """Some lanes of a sweep on its first shards, whose cells are finished."""
    cells = {(number, shard): sweep.cells[lane, shard] for number, lane in enumerate(lanes) for shard in range(shards)}
    requests = sweep.requests[: shards * SHARD]
    return replace(sweep, lanes=tuple(sweep.lanes[lane] for lane in lanes), requests=requests, cells=cells)


def _request_score(lane: ScoredLane, transcript: Transcript, curve: CostCurve) -> RequestScore:
    # The forecast leaves out the drafting time of another engine's drafter.
    clock = float if is_twin(lane.name) else own_ms
    steps, draft_ms, build_ms = count_steps(lane, transcript, curve, clock)
    return RequestScore(tuple(sorted((*step, times) for step, times in steps.items())), draft_ms, build_ms)
