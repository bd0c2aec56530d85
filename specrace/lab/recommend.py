"""Which lane and settings to use, from a sweep and a cost curve, with the evidence.

The choice has no chance in it. Of the settings within one standard error of the fastest, and within `CLOSE` of it, the
one that drafts the fewest tokens is chosen: it holds best as batches grow. Where even that does not beat vanilla by
its normal interval, the answer is not to draft. Requests whose output loops are left out, because loops flatter
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
from specrace.lab.forecast import HALF_WIDTH, Forecast, forecast, is_twin
from specrace.lab.score import ScoredLane, needs_target
from specrace.lab.sweep import Sweep

CLOSE = 0.05
BATCHES = (1, 4, 16, 64, 256)
# Fewer requests than these are little evidence.
FEW = 30
# A lane that drafts on a lower share of its steps is named.
HARDLY = 0.01


@dataclass(frozen=True)
class Recommender:
    """A recommendation from a finished sweep, among the lanes called `names` (all if empty), at a batch size.

    Raises InputError where none of these was swept.
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
        """The numbers of the lanes that may be recommended; vanilla is the first."""
        return [
            number
            for number, lane in enumerate(self.sweep.lanes)
            if not number or not self.names or lane.name in self.names
        ]

    @cached_property
    def counted(self) -> list[int]:
        """The numbers of the requests that count: those that do not loop, or all if every one does."""
        requests = self.sweep.requests
        return [number for number, each in enumerate(requests) if not each.looping] or list(range(len(requests)))

    @cached_property
    def forecast(self) -> Forecast:
        """The forecast over the requests that count."""
        return self._forecasts[self.batch]

    @cached_property
    def _forecasts(self) -> dict[int, Forecast]:
        sizes = sorted({*BATCHES, self.batch})
        found = forecast(self.sweep, self.curve, sizes)
        return {size: each.of_requests(self.counted) for size, each in zip(sizes, found, strict=True)}

    @cached_property
    def chosen(self) -> int:
        """The number of the lane to use; 0, vanilla, where drafting does not pay."""
        return choose(self.forecast, self.lanes)

    def lane(self, number: int) -> ScoredLane:
        """A lane by its number."""
        return self.sweep.lanes[number]

    def recommendation(self, number: int | None = None, over: Forecast | None = None) -> dict[str, Any]:
        """The figures of a lane, by default the chosen one, `over` the requests of a forecast, by default all."""
        number = self.chosen if number is None else number
        over = over or self.forecast
        lane, found = self.lane(number), over.intervals(number, self.seed)
        return {
            "lane": lane.name,
            "options": dict(lane.options),
            "num_draft": lane.num_draft,
            "tau": float(over.tau[number]),
            "tau_low": found["tau"][0],
            "tau_high": found["tau"][1],
            "speedup": float(over.speedup[number]),
            "speedup_low": found["speedup"][0],
            "speedup_high": found["speedup"][1],
        }

    @cached_property
    def groups(self) -> list[dict[str, Any]]:
        """For each category the recommended lane's figures, the `best` lane there, and what to do there."""
        found = []
        for category, places in self.places.items():
            own = self.forecast.of_requests(places)
            best, here = choose(own, self.lanes), self.recommendation(over=own)
            row = {"category": category, "requests": len(places), "advice": self._advice(own, best), **here}
            found.append(row | {"best": self.recommendation(best, own)})
        return found

    def _advice(self, own: Forecast, best: int) -> str:
        """What to do where the forecast is `own` and the lane to use `best`."""
        if self.chosen and own.speedup[self.chosen] > 1.0:
            return "draft"
        if best:
            return "use other settings" if self.lane(best).name == self.lane(self.chosen).name else "use another lane"
        # Few requests, or such as differ much, prove nothing either way.
        return "not certain" if own.speedup[self.lanes[1:]].max() > 1.0 else "switch drafting off"

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """For each category its requests, as places in `counted`."""
        found: dict[str, list[int]] = {}
        for place, number in enumerate(self.counted):
            found.setdefault(self.sweep.requests[number].category, []).append(place)
        return found

    @cached_property
    def batches(self) -> list[dict[str, Any]]:
        """For each batch size the recommended lane's speedup, and the lane that is best there."""
        found = []
        for batch, own in self._forecasts.items():
            best = choose(own, self.lanes)
            here, lane = float(own.speedup[self.chosen]), self.lane(best).describe()
            found.append({"batch": batch, "speedup": here, "best": lane | {"speedup": float(own.speedup[best])}})
        return found

    @cached_property
    def best(self) -> int:
        """The lane that drafts best, whether or not it pays."""
        return closest(self.forecast, self.lanes[1:])

    def best_of(self, names: Sequence[str]) -> int | None:
        """The same of the lanes called `names`; None if none of them was swept."""
        numbers = [number for number, lane in enumerate(self.sweep.lanes) if number and lane.name in names]
        return closest(self.forecast, numbers) if numbers else None

    @cached_property
    def looping(self) -> int:
        """How many requests are left out because their output loops."""
        return len(self.sweep.requests) - len(self.counted) + self.sweep.left_out

    def profile(self, number: int | None = None, places: Sequence[int] | None = None) -> dict[str, Any]:
        """`acceptance_profile` of a lane's steps, by default the chosen one's on all requests that count.

        `places`: on some of these, as places in `counted`.
        """
        number = self.chosen if number is None else number
        counted = set(self.counted if places is None else (self.counted[place] for place in places))
        steps = Counter[int]()
        for request, score in self.sweep.scores(number):
            if request in counted:
                for _, accepted, count in score.steps:
                    steps[accepted] += count
        return acceptance_profile(steps)

    @cached_property
    def not_tested(self) -> list[str]:
        """What the figures do not cover."""
        return list(_not_tested(self))


def choose(found: Forecast, lanes: Sequence[int]) -> int:
    """The lane to use of `lanes`, whose first is vanilla."""
    best = closest(found, lanes[1:])
    pays = found.speedup[best] - HALF_WIDTH * found.errors(best) > 1.0
    return best if pays else lanes[0]


def closest(found: Forecast, lanes: Sequence[int]) -> int:
    """The lane that drafts the fewest tokens of those that are as good as the fastest."""
    speedup = found.speedup
    best = max(lanes, key=lambda lane: speedup[lane])
    close = [
        lane for lane in lanes if speedup[best] - speedup[lane] <= min(found.errors(best, lane), CLOSE * speedup[best])
    ]
    return min(close, key=lambda lane: (found.drafted_per_step[lane], -speedup[lane]))


def acceptance_profile(steps: Mapping[int, int]) -> dict[str, Any]:
    """Rates by draft position from the number of steps for each number of accepted tokens, with the bonus not counted.

    `marginal_accept_rates`: the first i + 1 draft tokens are all accepted; `conditional_accept_rates`: token i + 1 is,
    given the i before it. Lengths, as in the field, count the bonus token, so a step that accepts nothing has length 1.
    Steps without a draft count, so the mean is that of all steps. A last step that accepts the end of the output counts
    a bonus token that was not emitted: its length is above the tokens per step.
    """
    most, total = max(steps), sum(steps.values())
    counts = [steps.get(accepted, 0) for accepted in range(most + 1)]
    at_least = list(accumulate(reversed(counts)))[::-1]
    marginal = [count / total for count in at_least[1:]]
    return {
        "marginal_accept_rates": marginal,
        "conditional_accept_rates": [after / before for before, after in pairwise(at_least)],
        "mean_accept_length": 1.0 + sum(marginal),
        "acceptance_length_histogram": {str(1 + accepted): count for accepted, count in sorted(steps.items())},
    }


def _not_tested(found: Recommender) -> Iterator[str]:
    """A sentence each."""
    if len(found.counted) < FEW:
        yield f"{len(found.counted)} requests are little evidence; score at least {FEW}."
    swept = {found.lane(number).name: found.lane(number) for number in found.lanes}
    for name, method in METHODS.items():
        reason = needs_target(method)
        if reason and not found.names:
            yield f"{name}: it cannot be scored without its model, {reason}."
    for name, lane in swept.items():
        if lane.part:
            yield f"{name} was scored in part: {lane.part}."
        if is_twin(name):
            yield f"{name}: the time that the engine takes to draft, which is not in the forecast."
    if "fusion" in swept and (found.sweep.curve or ASSUMED_GPU) != found.curve:
        yield "fusion on this cost curve: in the sweep it cut its drafts by another."
    if "fusion" in swept and found.batch > 1:
        yield "fusion in batches: it cut its drafts as for a single request."
    if found.curve.row_ms is None:
        yield "The drafters' own time, because the cost curve has no milliseconds; measure one with calibrate."
    if not found.sweep.keep_outputs:
        yield "Drafts from the outputs of earlier requests, which some engines keep; --keep-outputs tests them."
    yield "Settings that are not in the grid, and temperatures above 0 where the logs are greedy."
    yield "Batches: the cost of attention over their prompts is not in the curve."
    if found.looping:
        yield f"{found.looping} requests whose output loops: they flatter drafters that copy."


def silent(found: Recommender) -> Iterator[tuple[int, float]]:
    """(number, share of steps with a draft) of the lanes that hardly draft."""
    for number in found.lanes[1:]:
        drafting = 1.0 - float(found.forecast.idle[number].sum() / found.forecast.steps[number].sum())
        if drafting < HARDLY:
            yield number, drafting


def losers(found: Recommender) -> list[str]:
    """The names of the lanes that lose with every setting that was swept."""
    best: dict[str, float] = {}
    for number in found.lanes[1:]:
        name = found.lane(number).name
        best[name] = max(best.get(name, 0.0), float(found.forecast.speedup[number]))
    return [name for name, speedup in best.items() if speedup < 1.0]


def stops_at(found: Recommender) -> int | None:
    """The batch, above the one asked for, from which on the recommended lane no longer pays; None if it always does."""
    stop = None
    for row in reversed(found.batches):
        if row["speedup"] > 1.0 or row["batch"] <= found.batch:
            break
        stop = row["batch"]
    return stop
