"""Forecasts the speedup of scored lanes (drafting methods) on a machine, from its cost curve, with intervals.

A step with d draft tokens costs one forward over 1 + d rows and the drafter's own time; a drafter's tables are built
once per request. Vanilla, without drafts, costs a forward over one row for every token. The unit of all costs is a
forward over one row. An engine that pads short drafts verifies a full draft in every step except the first, which reads
the prompt.

In a batch of B requests a step's forward has B (1 + d) rows, and all requests draft at the same time. The curve was
measured on the rows of one request, so it lacks what a batch adds to attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specrace.core.cost_curve import CostCurve
from specrace.drafters import find_method
from specrace.lab.scoring.score import ScoredLane
from specrace.lab.scoring.sweep import Sweep

# The draws of a bootstrap, and the confidence of its intervals: usual numbers, not tuned.
RESAMPLES = 2000
CONFIDENCE = 0.95
# Half the width of a normal interval at CONFIDENCE, in standard errors.
HALF_WIDTH = 1.96


def forecast_sweep(sweep: Sweep, curve: CostCurve, batches: Sequence[int] = (1,)) -> list[Forecast]:
    """The forecast for every lane and request of a finished sweep, for each batch size."""
    requests = range(len(sweep.requests))
    shape = (len(sweep.lanes), len(requests))
    # Filled in below: the tokens, then steps, idle, rows and cost.
    forecasts = [Forecast(np.empty(len(requests)), *(np.zeros(shape) for _ in range(4))) for _ in batches]
    curves = [curve.near(sweep.requests[number].prompt_tokens) for number in requests]
    # The requests, grouped by the curve that was measured nearest to their prompt's length.
    by_curve = {
        near_curve: [number for number in requests if curves[number] == near_curve]
        for near_curve in dict.fromkeys(curves)
    }
    for number, lane in enumerate(sweep.lanes):
        # The number of steps, by request and draft size.
        sizes = np.zeros((len(requests), lane.num_draft + 1))
        drafter_ms = np.zeros(len(requests))
        for request, score in sweep.scores(number):
            for size, _, count in score.steps:
                sizes[request, size] += count
            drafter_ms[request] = 0.0 if is_twin(lane.name) else score.draft_ms + score.build_ms
        verified = sizes if lane.padded_draft is None else _pad_steps(sizes)
        min_rows = 1 + lane.unscored_rows
        for batch, forecast in zip(batches, forecasts, strict=True):
            forecast.tokens[:] = [request.output_tokens for request in sweep.requests]
            forecast.steps[number] = sizes.sum(axis=1)
            forecast.idle[number] = sizes[:, 0]
            forecast.rows[number] = verified @ np.arange(min_rows, min_rows + lane.num_draft + 1)
            for near_curve, numbers in by_curve.items():
                # A curve without milliseconds leaves the drafters' own time out.
                row_ms = (near_curve.row_ms or np.inf) * near_curve.at(batch)
                target_cost = verified[numbers] @ step_costs(near_curve, lane, batch)
                forecast.cost[number, numbers] = target_cost + drafter_ms[numbers] / row_ms
    return forecasts


@dataclass(frozen=True)
class Forecast:
    """The totals of n requests in every lane, from which speedups and their intervals follow.

    `tokens` [n]: output tokens. The others are [lanes, n]: `steps`, `idle` (steps without a draft), `rows` (verified),
    and `cost`, in forwards over one row. Rows include the padding of an engine that pads short drafts, but not the rows
    that our own lanes add where more rows cost less.
    """

    tokens: np.ndarray
    steps: np.ndarray
    idle: np.ndarray
    rows: np.ndarray
    cost: np.ndarray

    def for_requests(self, numbers: Sequence[int]) -> Forecast:
        """The forecast for some of the requests, by number."""
        columns = list(numbers)
        tables = (self.steps, self.idle, self.rows, self.cost)
        return Forecast(self.tokens[columns], *(table[:, columns] for table in tables))

    @property
    def tau(self) -> np.ndarray:
        """Tokens per step of each lane."""
        return np.asarray(self.tokens.sum() / self.steps.sum(axis=1))

    @property
    def speedup(self) -> np.ndarray:
        """Each lane's speedup over vanilla."""
        return np.asarray(self.tokens.sum() / self.cost.sum(axis=1))

    @property
    def rows_per_step(self) -> np.ndarray:
        """Verified rows per step of each lane; 1 for vanilla."""
        return np.asarray(self.rows.sum(axis=1) / self.steps.sum(axis=1))

    def standard_error(self, lane: int, other: int | None = None) -> float:
        """The standard error of a lane's speedup, or of its difference from the `other` lane's on the same requests.

        It comes from the delta method, so it needs no random draws. Infinite for a single request.
        """
        count = len(self.tokens)
        if count < 2:
            return float("inf")
        influence = self._influence(lane) - (0.0 if other is None else self._influence(other))
        return float(np.sqrt((influence**2).sum() / (count * (count - 1))))

    def _influence(self, lane: int) -> np.ndarray:
        """Each request's influence on the lane's speedup, to first order [n]; they sum to 0."""
        cost = self.cost[lane]
        return np.asarray((self.tokens - self.speedup[lane] * cost) / cost.mean())

    def intervals(self, lane: int, seed: int) -> dict[str, tuple[float, float]]:
        """Bootstrap intervals over requests, at CONFIDENCE, for a lane's "tau" and "speedup"."""
        draws = resamples(len(self.tokens), seed)
        totals = {"tau": self.steps[lane], "speedup": self.cost[lane]}
        return {name: ratio_interval(draws, self.tokens, total) for name, total in totals.items()}


def resamples(count: int, seed: int) -> np.ndarray:
    """How often each of `count` requests is drawn in a bootstrap [RESAMPLES, count]."""
    return np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)


def ratio_interval(draws: np.ndarray, numerators: np.ndarray, denominators: np.ndarray) -> tuple[float, float]:
    """The interval at CONFIDENCE of a ratio of sums over requests, [n] each; draws that divide by 0 do not count."""
    numerator_sums = draws @ numerators
    denominator_sums = draws @ denominators
    ratios = (numerator_sums / np.maximum(denominator_sums, 1e-300))[denominator_sums > 0]
    low, high = np.percentile(ratios, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return float(low), float(high)


def _pad_steps(sizes: np.ndarray) -> np.ndarray:
    """Give every step but the first the full draft, and the first none. `sizes` [n, draft sizes]: counts of steps."""
    padded = np.zeros_like(sizes)
    padded[:, 0] = 1.0
    padded[:, -1] = sizes.sum(axis=1) - 1.0
    return padded


def median_interval(draws: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """The interval at CONFIDENCE of a median over requests of `values` [n]."""
    order = np.argsort(values)
    # For each draw, the first of the sorted values at which half of the drawn requests are reached.
    reached = draws[:, order].cumsum(axis=1) >= len(values) / 2
    low, high = np.percentile(values[order][reached.argmax(axis=1)], [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return float(low), float(high)


def is_twin(name: str) -> bool:
    """Whether a lane is a twin: another engine's drafter, whose drafting time here is not that engine's."""
    return find_method(name).twin_of != ""


def step_costs(curve: CostCurve, lane: ScoredLane, batch: int = 1) -> list[float]:
    """The cost of a step with 0 to `num_draft` draft tokens. Our own lanes pad a tree where more rows cost less."""
    one_row = curve.at(batch)
    min_rows = 1 + lane.unscored_rows
    costs = [curve.at(batch * (min_rows + size)) / one_row for size in range(lane.num_draft + 1)]
    if not is_twin(lane.name):
        for size in range(lane.num_draft - 1, -1, -1):
            costs[size] = min(costs[size], costs[size + 1])
    return costs
