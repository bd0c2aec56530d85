"""A finished lane's result, which its badge shows: its metrics, and whether its text is vanilla's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specrace.core.events import Difference, LaneResult
from specrace.core.metrics import LaneMetrics, compare, loop_tokens
from specrace.core.rejection import SAME_DISTRIBUTION
from specrace.core.sampling_params import SamplingParams
from specrace.engine.lane import Lane
from specrace.engine.setup import RaceTarget


def lane_result(
    target: RaceTarget, lane: Lane, vanilla: Lane, metrics: Mapping[str, LaneMetrics], params: SamplingParams
) -> LaneResult:
    """A lane's metrics, and how its text compares with vanilla's.

    A lane under rejection sampling draws a different text from the same distribution, so it is not compared.
    """
    identical, difference = None, None
    # Only a lane under rejection sampling has coins.
    if lane.coins is None:
        identical, position = compare(lane.tokens, vanilla.tokens, ended=bool(lane.end and vanilla.end))
        if position is not None:
            before = vanilla.context[: vanilla.num_prompt + position]
            difference = explain_difference(target, before, position, params)
    return LaneResult(
        lane=lane.name,
        **metrics[lane.name].summary(),
        speedup=metrics[lane.name].speedup(metrics[vanilla.name]),
        identical=identical,
        first_difference=difference,
        end=lane.end or "stopped",
        loop_tokens=loop_tokens(lane.tokens),
        note="" if lane.coins is None else SAME_DISTRIBUTION,
    )


def explain_difference(target: RaceTarget, before: Sequence[int], position: int, params: SamplingParams) -> Difference:
    """The target's two best tokens at output `position`, scored again after the tokens `before` it, prompt included."""
    (best, second), gap = target.top_two(before, params)
    return Difference(position, (target.decode([best]), target.decode([second])), gap)
