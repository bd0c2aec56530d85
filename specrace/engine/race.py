"""The race: lanes take turns on one device; the lane with the earliest clock steps next."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from specrace.core.cost_curve import CostCurve
from specrace.core.events import Event, Finished, Repeated, Started, Step
from specrace.core.metrics import LaneMetrics
from specrace.engine.badge import lane_result
from specrace.engine.lane import Lane
from specrace.engine.pace import PaceKeeper
from specrace.engine.prepare import prepare
from specrace.engine.repeats import Run, summarise
from specrace.engine.setup import RaceSetup, RaceTarget, lane_info
from specrace.engine.spec import RaceSpec, largest_draft
from specrace.ngrams.sources import Sources


def never(*_: object) -> bool:
    """False, the default of `stop` and `again`: the race is not stopped, and not repeated."""
    return False


def race(
    target: RaceTarget,
    prompt: Sequence[int],
    spec: RaceSpec,
    *,
    sources: Sources = Sources(),  # noqa: B008  Sources is frozen
    about: Mapping[str, Any] | None = None,
    curve: CostCurve | None = None,
    stop: Callable[[], bool] = never,
    again: Callable[[Repeated], bool] = never,
) -> Iterator[Event]:
    """Race the lanes, and yield Started, their Steps in race time, and Finished.

    Drafters draft from the prompt, the output and the `sources`. If the spec has no `num_draft`, the machine's cost
    `curve` determines it. `about` is added to the description of the race. `stop` is called before every step, and ends
    the race if it returns true. After each run `again` is called with the results so far; as long as it returns true,
    all lanes run once more, which yields a Repeated but no Steps. Only one thread at a time may race a target. Raises
    InputError before the first event if the prompt does not fit the model or a lane lacks its sources.
    """
    prompt = tuple(prompt)
    prompt_curve = None if curve is None else curve.near(len(prompt))  # the costs after a prompt of this length
    max_draft = largest_draft(spec, target.device_type, prompt_curve, chains_only=target.chains_only)
    target.check_length(len(prompt), spec.max_new_tokens, max_draft)
    pace = PaceKeeper.for_target(target, target.prefill(prompt), prompt[-1])
    try:
        pace.choose_threads()
        setup = prepare(target, prompt, spec, sources, prompt_curve)
        plans = setup.plans
        lanes = setup.make_lanes(spec.lanes, pace)
        infos = tuple(lane_info(lane, plans[lane.name], setup) for lane in lanes)
        # The whole curve is reported unless it was refitted for this prompt. An assumed curve is not reported.
        reported = curve if curve is None or setup.curve is prompt_curve else setup.curve
        yield Started(infos, len(prompt), setup.prefix.ms, _describe(target, spec, reported) | dict(about or {}))
        metrics = start_metrics(lanes)
        yield from run(lanes, metrics, pace, stop)
    finally:
        pace.release()
    results = tuple(lane_result(target, lane, lanes[0], metrics, spec.sampling_params()) for lane in lanes)
    stopped = any(not lane.end for lane in lanes)
    steadiness = pace.summary(metrics)
    outputs = {lane.name: lane.tokens for lane in lanes}
    del lanes  # to free their KV caches
    yield Finished(results, stopped, steadiness)
    if not stopped:
        yield from repeat(setup, pace, Run(metrics, steadiness.disturbed), outputs, stop, again)


def _describe(target: RaceTarget, spec: RaceSpec, curve: CostCurve | None) -> dict[str, Any]:
    """The description of a race: that of the target, the settings, and the cost curve if there is one."""
    return target.describe() | {"settings": spec.as_json(), "cost_curve": None if curve is None else curve.as_json()}


def repeat(
    setup: RaceSetup,
    pace: PaceKeeper,
    first: Run,
    outputs: Mapping[str, list[int]],
    stop: Callable[[], bool],
    again: Callable[[Repeated], bool],
) -> Iterator[Repeated]:
    """Run all lanes again as long as `again` returns true; after each run, yield the results of all runs so far.

    Each run begins with another lane, because the first lane steps first at equal clocks. A run that is stopped
    does not count, and is the last. `outputs`: lane -> its output in the first run.
    """
    runs = [first]
    names = list(first.lanes)
    while again(summarise(runs)):
        start = len(runs) % len(names)
        latest = run_without_steps(setup, pace, [*names[start:], *names[:start]], outputs, stop)
        if latest is None:
            return
        runs.append(latest)
        yield summarise(runs)


def run(
    lanes: Sequence[Lane], metrics: Mapping[str, LaneMetrics], pace: PaceKeeper, stop: Callable[[], bool]
) -> Iterator[Step]:
    """Run the lanes once; yield their steps in race time, and add the steps to `metrics`."""
    pace.start()
    for step in in_race_time(lanes, stop, pace.probe_if_due):
        metrics[step.lane].add(step)
        yield step


def run_without_steps(
    setup: RaceSetup,
    pace: PaceKeeper,
    names: Sequence[str],
    outputs: Mapping[str, list[int]],
    stop: Callable[[], bool],
) -> Run | None:
    """Run these lanes once and return the totals, without yielding the steps; None if the run was stopped."""
    try:
        pace.choose_threads()
        lanes = setup.make_lanes(names, pace)
        metrics = start_metrics(lanes)
        for _ in run(lanes, metrics, pace, stop):
            pass
    finally:
        pace.release()
    if not all(lane.end for lane in lanes):
        return None
    text_differs = any(lane.tokens != outputs[lane.name] for lane in lanes)
    return Run(metrics, pace.summary(metrics).disturbed, text_differs)


def start_metrics(lanes: Iterable[Lane]) -> dict[str, LaneMetrics]:
    """Lane -> its totals before the first step, which hold only the time to build its tables."""
    return {lane.name: LaneMetrics(draft_ms=lane.at_ms) for lane in lanes}


def in_race_time(
    lanes: Sequence[Lane], stop: Callable[[], bool] = never, before_step: Callable[[], object] | None = None
) -> Iterator[Step]:
    """Yield the steps of all lanes in the order in which they end, as if each lane had a device to itself.

    A step is held back until no running lane can have an earlier one. When `stop` returns true, no more steps are
    taken, and those held back are yielded. `before_step` is called before each step.
    """
    queue = [(lane.at_ms, number) for number, lane in enumerate(lanes) if not lane.end]
    heapq.heapify(queue)
    # (at_ms, lane number, step index) is unique, so the heap never compares the steps themselves.
    waiting: list[tuple[float, int, int, Step]] = []
    while queue and not stop():
        if before_step is not None:
            before_step()
        _, number = heapq.heappop(queue)
        lane = lanes[number]
        step = lane.step()
        heapq.heappush(waiting, (step.at_ms, number, step.index, step))
        if not lane.end:
            heapq.heappush(queue, (lane.at_ms, number))
        while waiting and (not queue or waiting[0][0] <= queue[0][0]):
            yield heapq.heappop(waiting)[-1]
    while waiting:
        yield heapq.heappop(waiting)[-1]
