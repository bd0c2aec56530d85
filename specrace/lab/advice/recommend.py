"""Recommends a lane, a drafting method with its settings, from a sweep and a cost curve, with the evidence.

The choice is deterministic. Among the settings within one standard error of the fastest, and within `CLOSE` of it, the
one whose steps verify the fewest rows is chosen, because it loses least as batches grow. If the normal interval of its
speedup includes 1, the advice is not to draft. Requests with a looping output are left out, because loops flatter
drafters that copy. The reported intervals are bootstrapped over requests (`Forecast.intervals`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

from specrace.core.cost_curve import ASSUMED_GPU, CostCurve
from specrace.core.errors import InputError
from specrace.drafters import METHODS
from specrace.lab.advice.forecast import HALF_WIDTH, Forecast, forecast_sweep, is_twin
from specrace.lab.scoring.score import ScoredLane, why_not_scorable
from specrace.lab.scoring.sweep import Sweep

# Of the numbers below, none is tuned. A speedup this close to the fastest, relative to it, counts as equally good.
CLOSE = 0.05
# The batch sizes for which speedups are reported beside the user's own.
BATCHES = (1, 4, 16, 64, 256)
# With fewer requests than this, the advice says that they are little evidence.
MIN_REQUESTS = 30
# The advice names the lanes that draft in a smaller share of their steps than this.
MIN_DRAFTING = 0.01


@dataclass(frozen=True)
class Recommender:
    """A recommendation from a finished sweep, among the lanes called `names` (all if empty), at a batch size.

    Lanes, which include their settings, and requests are identified by their number in the sweep. Raises InputError for
    a sweep without requests, or without any of the named lanes.
    """

    sweep: Sweep
    curve: CostCurve
    names: Sequence[str] = ()
    seed: int = 0
    batch: int = 1

    def __post_init__(self) -> None:
        if not self.sweep.requests:
            raise InputError("The sweep has no requests; give logs with at least one.")
        if len(self.lanes) < 2:
            raise InputError(f"None of these lanes was swept: {', '.join(self.names)}; sweep them first.")

    @cached_property
    def lanes(self) -> list[int]:
        """The numbers of the lanes that may be recommended; the first is 0, vanilla, which does not draft."""
        return [
            number
            for number, lane in enumerate(self.sweep.lanes)
            if not number or not self.names or lane.name in self.names
        ]

    @cached_property
    def included(self) -> list[int]:
        """The numbers of the requests that count: those whose output does not loop, or all if every output loops."""
        requests = self.sweep.requests
        not_looping = [number for number, request in enumerate(requests) if not request.looping]
        return not_looping or list(range(len(requests)))

    @cached_property
    def options(self) -> list[tuple[str, ...]]:
        """For each included request, its options that may change how an engine drafts."""
        return [self.sweep.requests[number].options for number in self.included]

    @cached_property
    def forecast(self) -> Forecast:
        """The forecast over the included requests, at the batch size."""
        return self._forecasts[self.batch]

    @cached_property
    def _forecasts(self) -> dict[int, Forecast]:
        """The forecast over the included requests, by batch size."""
        batches = sorted({*BATCHES, self.batch})
        forecasts = forecast_sweep(self.sweep, self.curve, batches)
        return {batch: whole.for_requests(self.included) for batch, whole in zip(batches, forecasts, strict=True)}

    @cached_property
    def chosen(self) -> int:
        """The number of the lane to use; 0, vanilla, if drafting does not pay."""
        return choose_lane(self.forecast, self.lanes)

    def lane(self, number: int) -> ScoredLane:
        """The lane with this number."""
        return self.sweep.lanes[number]

    def recommendation(self, number: int | None = None, forecast: Forecast | None = None) -> dict[str, Any]:
        """The metrics of a lane (default: the chosen one) over the requests of a `forecast` (default: all)."""
        number = self.chosen if number is None else number
        forecast = forecast or self.forecast
        lane = self.lane(number)
        intervals = forecast.intervals(number, self.seed)
        return {
            "lane": lane.name,
            "options": dict(lane.options),
            "num_draft": lane.num_draft,
            "tau": float(forecast.tau[number]),
            "tau_low": intervals["tau"][0],
            "tau_high": intervals["tau"][1],
            "speedup": float(forecast.speedup[number]),
            "speedup_low": intervals["speedup"][0],
            "speedup_high": intervals["speedup"][1],
        }

    @cached_property
    def groups(self) -> list[dict[str, Any]]:
        """For each category the recommended lane's metrics, the `best` lane there, and what to do there."""
        rows = []
        for category, indices in self.by_category.items():
            forecast = self.forecast.for_requests(indices)
            best = choose_lane(forecast, self.lanes)
            row = {"category": category, "requests": len(indices), "advice": self._advice(forecast, best)}
            rows.append(row | self.recommendation(forecast=forecast) | {"best": self.recommendation(best, forecast)})
        return rows

    def _advice(self, forecast: Forecast, best: int) -> str:
        """What to do for the requests of a forecast, whose best lane is `best`."""
        if self.chosen and forecast.speedup[self.chosen] > 1.0:
            return "draft"
        if best:
            return "use other settings" if self.lane(best).name == self.lane(self.chosen).name else "use another lane"
        # Some lane looks faster, but too few or too different requests make that uncertain.
        return "not certain" if forecast.speedup[self.lanes[1:]].max() > 1.0 else "switch drafting off"

    @cached_property
    def by_category(self) -> dict[str, list[int]]:
        """Each category's requests, as indices into `included`."""
        by_category: dict[str, list[int]] = {}
        for index, number in enumerate(self.included):
            by_category.setdefault(self.sweep.requests[number].category, []).append(index)
        return by_category

    @cached_property
    def batches(self) -> list[dict[str, Any]]:
        """For each batch size the recommended lane's speedup, and the lane that is best at that size."""
        rows = []
        for batch, forecast in self._forecasts.items():
            number = choose_lane(forecast, self.lanes)
            best = self.lane(number).describe() | {"speedup": float(forecast.speedup[number])}
            rows.append({"batch": batch, "speedup": float(forecast.speedup[self.chosen]), "best": best})
        return rows

    @cached_property
    def best(self) -> int:
        """The number of the lane that drafts best, even if drafting does not pay."""
        return thriftiest(self.forecast, self.lanes[1:])

    def best_among(self, names: Sequence[str]) -> int | None:
        """The number of the lane that drafts best among those called `names`; None if none of them was swept."""
        numbers = [number for number, lane in enumerate(self.sweep.lanes) if number and lane.name in names]
        return thriftiest(self.forecast, numbers) if numbers else None

    @cached_property
    def looping(self) -> int:
        """The number of requests that are left out because their output loops."""
        return len(self.sweep.requests) - len(self.included) + self.sweep.num_looping_left_out

    def profile(self, number: int | None = None, indices: Sequence[int] | None = None) -> dict[str, Any]:
        """The `acceptance_profile` of a lane's steps, by default the chosen one's on all included requests.

        `indices`: only on these requests, as indices into `included`.
        """
        number = self.chosen if number is None else number
        requests = set(self.included if indices is None else (self.included[index] for index in indices))
        steps = Counter[int]()
        for request, score in self.sweep.scores(number):
            if request in requests:
                for _, accepted, count in score.steps:
                    steps[accepted] += count
        return acceptance_profile(steps)

    def mean_per_request(self, number: int) -> float:
        """A lane's mean accept length (bonus token included) in each included request, averaged over the requests."""
        included = set(self.included)
        means = []
        for request, score in self.sweep.scores(number):
            if request in included:
                steps = sum(count for *_, count in score.steps)
                means.append(1.0 + sum(accepted * count for _, accepted, count in score.steps) / steps)
        return sum(means) / len(means)

    @cached_property
    def not_tested(self) -> list[str]:
        """A sentence for each thing that the metrics do not cover."""
        return list(_not_tested(self))


def choose_lane(forecast: Forecast, lanes: Sequence[int]) -> int:
    """The lane to use among `lanes`, the first of which is vanilla: the `thriftiest`, if it is reliably faster."""
    best = thriftiest(forecast, lanes[1:])
    pays = forecast.speedup[best] - HALF_WIDTH * forecast.standard_error(best) > 1.0
    return best if pays else lanes[0]


def thriftiest(forecast: Forecast, lanes: Sequence[int]) -> int:
    """Among the lanes that are as good as the fastest, the one whose steps verify the fewest rows."""
    speedup = forecast.speedup
    best = max(lanes, key=lambda lane: speedup[lane])
    as_good = [
        lane
        for lane in lanes
        if speedup[best] - speedup[lane] <= min(forecast.standard_error(best, lane), CLOSE * speedup[best])
    ]
    return min(as_good, key=lambda lane: (forecast.rows_per_step[lane], -speedup[lane]))


def acceptance_profile(steps: Mapping[int, int]) -> dict[str, Any]:
    """Acceptance rates by draft position. `steps`: number of accepted draft tokens -> number of such steps.

    `marginal_accept_rates`[i]: the share of steps that accept at least the first i + 1 draft tokens.
    `conditional_accept_rates`[i]: the share that accepts token i + 1, among the steps that accept the i before it.
    Lengths, as usual in the field, count the bonus token, so a step that accepts nothing has length 1. Steps without a
    draft count, too. If the last step's draft reaches the end of the output, its bonus token counts, though it is not
    emitted; so the mean length can be above the tokens per step.
    """
    total = sum(steps.values())
    counts = [steps.get(accepted, 0) for accepted in range(max(steps) + 1)]
    at_least = list(accumulate(reversed(counts)))[::-1]
    marginal = [count / total for count in at_least[1:]]
    return {
        "marginal_accept_rates": marginal,
        "conditional_accept_rates": [after / before for before, after in pairwise(at_least)],
        "mean_accept_length": 1.0 + sum(marginal),
        "acceptance_length_histogram": {str(1 + accepted): count for accepted, count in sorted(steps.items())},
    }


def _not_tested(recommender: Recommender) -> Iterator[str]:
    """Yield a sentence for each thing that the metrics do not cover."""
    num_requests = len(recommender.included)
    if num_requests < MIN_REQUESTS:
        yield f"{num_requests} requests are little evidence; score at least {MIN_REQUESTS}."
    swept = {recommender.lane(number).name: recommender.lane(number) for number in recommender.lanes}
    for name, method in METHODS.items():
        reason = why_not_scorable(method)
        if reason and not recommender.names:
            yield f"{name}, which cannot be scored without its model: {reason}."
    for name, lane in swept.items():
        if lane.part:
            yield f"{name} was scored in part: {lane.part}."
        if is_twin(name):
            yield f"{name}: the time that the engine takes to draft, which is not in the forecast."
    # The lane fusion cuts its drafts where they would cost more than they gain, by the cost curve.
    if "fusion" in swept and (recommender.sweep.curve or ASSUMED_GPU) != recommender.curve:
        yield "fusion on this cost curve: in the sweep it cut its drafts by another curve."
    if "fusion" in swept and recommender.batch > 1:
        yield "fusion in batches: it cut its drafts as for a single request."
    if recommender.curve.row_ms is None:
        yield "The drafters' own time, because the cost curve has no milliseconds; measure one with calibrate."
    if not recommender.sweep.keep_outputs:
        yield "Drafts from the outputs of earlier requests, which some engines keep; --keep-outputs tests them."
    yield "Settings that are not in the grid, and temperatures above 0 where the logs are greedy."
    yield "Batches: the cost of attention over their prompts is not in the curve."
    if recommender.looping:
        yield f"{recommender.looping} requests with a looping output: loops flatter drafters that copy."


def idle_lanes(recommender: Recommender) -> Iterator[tuple[int, float]]:
    """Yield (number, share of steps with a draft) of each lane that hardly ever drafts."""
    forecast = recommender.forecast
    for number in recommender.lanes[1:]:
        drafting = 1.0 - float(forecast.idle[number].sum() / forecast.steps[number].sum())
        if drafting < MIN_DRAFTING:
            yield number, drafting


def losing_lanes(recommender: Recommender) -> list[str]:
    """The names of the lanes that are slower than vanilla with every setting that was swept."""
    best: dict[str, float] = {}
    for number in recommender.lanes[1:]:
        name = recommender.lane(number).name
        best[name] = max(best.get(name, 0.0), float(recommender.forecast.speedup[number]))
    return [name for name, speedup in best.items() if speedup < 1.0]


def losing_batch(recommender: Recommender) -> int | None:
    """The smallest batch size above the recommender's from which on the recommended lane never pays; None if none."""
    smallest = None
    for row in reversed(recommender.batches):
        if row["speedup"] > 1.0 or row["batch"] <= recommender.batch:
            break
        smallest = row["batch"]
    return smallest
