"""The speedup that scored steps would have on a machine, from its cost curve; with intervals over requests.

A step with d draft tokens costs a forward over 1 + d rows, and the drafter's own time; the drafter's tables are built
once a request. Vanilla pays a forward over one row for every token. All costs are in forwards over one row. An engine
that fills short drafts up pays for the rows of a full one in every step but the first, which reads the prompt.

In a batch of B requests a step's forward is over B (1 + d) rows, and all draft at the same time. The curve is of one
request's rows, so what a batch adds to attention is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specrace.core.cost_curve import CostCurve
from specrace.drafters import find_method
from specrace.lab.score import ScoredLane
from specrace.lab.sweep import Sweep

RESAMPLES = 2000
LEVEL = 0.95
# Half the width of a normal interval at LEVEL, in standard errors.
HALF_WIDTH = 1.96


def forecast(sweep: Sweep, curve: CostCurve, batches: Sequence[int] = (1,)) -> list[Forecast]:
    """The forecast for every lane and request of a finished sweep, for each batch size."""
    requests = range(len(sweep.requests))
    shape = (len(sweep.lanes), len(requests))
    found = [Forecast(np.empty(len(requests)), *(np.zeros(shape) for _ in range(4))) for _ in batches]
    curves = [curve.near(sweep.requests[number].prompt_tokens) for number in requests]
    places = {near: [number for number in requests if curves[number] == near] for near in dict.fromkeys(curves)}
    for number, lane in enumerate(sweep.lanes):
        sizes, own_ms = np.zeros((len(requests), lane.num_draft + 1)), np.zeros(len(requests))
        for request, score in sweep.scores(number):
            for size, _, count in score.steps:
                sizes[request, size] += count
            own_ms[request] = 0.0 if is_twin(lane.name) else score.draft_ms + score.build_ms
        for batch, each in zip(batches, found, strict=True):
            each.tokens[:] = [request.output_tokens for request in sweep.requests]
            each.steps[number] = sizes.sum(axis=1)
            each.idle[number] = sizes[:, 0]
            each.drafted[number] = sizes @ np.arange(lane.num_draft + 1)
            for near, own in places.items():
                row_ms = (near.row_ms or np.inf) * near.at(batch)
                rows = sizes[own] if lane.filled is None else _filled(sizes[own])
                each.cost[number, own] = rows @ step_costs(near, lane, batch) + own_ms[own] / row_ms
    return found


@dataclass(frozen=True)
class Forecast:
    """Of each request `tokens` [n]; of each lane and request, [lanes, n], its `steps`, those without a draft (`idle`),
    `drafted` tokens and `cost`."""

    tokens: np.ndarray
    steps: np.ndarray
    idle: np.ndarray
    drafted: np.ndarray
    cost: np.ndarray

    def of_requests(self, chosen: Sequence[int]) -> Forecast:
        """The same for some of the requests."""
        picked = list(chosen)
        parts = (self.steps, self.idle, self.drafted, self.cost)
        return Forecast(self.tokens[picked], *(each[:, picked] for each in parts))

    @property
    def tau(self) -> np.ndarray:
        """Tokens per step of each lane."""
        return np.asarray(self.tokens.sum() / self.steps.sum(axis=1))

    @property
    def speedup(self) -> np.ndarray:
        """Over vanilla, of each lane."""
        return np.asarray(self.tokens.sum() / self.cost.sum(axis=1))

    @property
    def drafted_per_step(self) -> np.ndarray:
        """Draft tokens per step of each lane."""
        return np.asarray(self.drafted.sum(axis=1) / self.steps.sum(axis=1))

    def errors(self, lane: int, other: int | None = None) -> float:
        """The standard error of a lane's speedup, or of its difference to another's on the same requests.

        By linearisation of the ratio, so without chance. Infinite for a single request.
        """
        count = len(self.tokens)
        if count < 2:
            return float("inf")
        parts = self._influence(lane) - (0.0 if other is None else self._influence(other))
        return float(np.sqrt((parts**2).sum() / (count * (count - 1))))

    def _influence(self, lane: int) -> np.ndarray:
        cost = self.cost[lane]
        return np.asarray((self.tokens - self.speedup[lane] * cost) / cost.mean())

    def intervals(self, lane: int, seed: int) -> dict[str, tuple[float, float]]:
        """Bootstrap intervals over requests of a lane's "tau" and "speedup": percentiles at LEVEL."""
        draws = resamples(len(self.tokens), seed)
        totals = {"tau": self.steps[lane], "speedup": self.cost[lane]}
        return {name: ratio_interval(draws, self.tokens, each) for name, each in totals.items()}


def resamples(count: int, seed: int) -> np.ndarray:
    """How often each of `count` requests is drawn in a bootstrap [RESAMPLES, count]."""
    return np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)


def ratio_interval(draws: np.ndarray, above: np.ndarray, below: np.ndarray) -> tuple[float, float]:
    """The interval at LEVEL of a ratio of sums over requests, [n] each; draws without any `below` are left out."""
    tops, bottoms = draws @ above, draws @ below
    low, high = np.percentile((tops / np.maximum(bottoms, 1e-300))[bottoms > 0], [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return float(low), float(high)


def _filled(sizes: np.ndarray) -> np.ndarray:
    """Steps by draft size [n, sizes], as verified by an engine that fills drafts up; the first step has none."""
    found = np.zeros_like(sizes)
    found[:, 0], found[:, -1] = 1.0, sizes.sum(axis=1) - 1.0
    return found


def median_interval(draws: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """The interval at LEVEL of a median over requests of `values` [n]."""
    order = np.argsort(values)
    reached = draws[:, order].cumsum(axis=1) >= len(values) / 2
    low, high = np.percentile(values[order][reached.argmax(axis=1)], [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return float(low), float(high)


def is_twin(name: str) -> bool:
    """Whether a lane is another engine's drafter: its Python time here is not that engine's."""
    return find_method(name).twin_of != ""


def step_costs(curve: CostCurve, lane: ScoredLane, batch: int = 1) -> list[float]:
    """The cost of a step with 0 to `num_draft` draft tokens. Our own lanes pad a tree where more rows cost less."""
    one = curve.at(batch)
    least = 1 + lane.unscored_rows
    costs = [curve.at(batch * (least + size)) / one for size in range(lane.num_draft + 1)]
    if not is_twin(lane.name):
        for size in range(lane.num_draft - 1, -1, -1):
            costs[size] = min(costs[size], costs[size + 1])
    return costs
