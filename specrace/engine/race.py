"""The race: lanes take turns on one device; the lane with the earliest clock steps next."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from specrace.core.cost_curve import CostCurve, assumed_curve, row_counts
from specrace.core.events import Difference, Event, Finished, LaneInfo, LaneResult, Repeated, Started, Step
from specrace.core.metrics import LaneMetrics, compare, loop_tokens
from specrace.core.rejection import NOTE, Coins
from specrace.core.sampling_params import SamplingParams
from specrace.core.settings import MATCH, REJECTION
from specrace.core.tree import TokenTree
from specrace.drafters import Drafter, DrafterInputs
from specrace.drafters.base import DraftModel
from specrace.engine.lane import Lane, TargetSession
from specrace.engine.pace import PaceKeeper, PaceTarget, timed
from specrace.engine.refit import refit
from specrace.engine.repeats import Run, summarise
from specrace.engine.spec import LanePlan, RaceSpec, plan_lane, plan_lanes
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.sources import Sources

WARM_UP_S = 2.0


class Prefix(Protocol):
    """A prompt's KV, computed once; `ms` is what that took."""

    @property
    def ms(self) -> float:
        """Milliseconds of prefill."""


class RaceTarget(PaceTarget, Protocol):
    """What a race needs of a target; `specrace.model.target.Target` implements it."""

    @property
    def device_type(self) -> str:
        """ "cpu" or "cuda"."""

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """End-of-text tokens."""

    def check_length(self, prompt_tokens: int, max_new_tokens: int, num_draft: int) -> None:
        """Raises InputError if they do not fit the context."""

    def prefill(self, prompt: Sequence[int]) -> Any:
        """A `Prefix`."""

    def session(
        self, prefix: Any, room: int, params: SamplingParams | None = None, num_top: int = 0, rows: Sequence[int] = (1,)
    ) -> TargetSession:
        """A session on a clone of the prefix, whose scores include the `num_top` likeliest tokens at every node.

        CUDA graphs are prepared for forwards of up to each of `rows` nodes.
        """

    def draft_model(self) -> DraftModel | None:
        """The model that drafts for this one, if any."""

    def top_two(self, tokens: Sequence[int], params: SamplingParams) -> tuple[tuple[int, int], float]:
        """The two best tokens under `params` after `tokens`, the chosen one first, and their gap."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of `tokens`."""

    def describe(self) -> dict[str, Any]:
        """Model, dtype, device, versions."""


def race(
    target: RaceTarget,
    prompt: Sequence[int],
    spec: RaceSpec,
    *,
    sources: Sources = Sources(),  # noqa: B008  it is frozen
    about: Mapping[str, Any] | None = None,
    curve: CostCurve | None = None,
    stop: Callable[[], bool] = lambda: False,
    again: Callable[[Repeated], bool] = lambda _: False,
) -> Iterator[Event]:
    """Started, the lanes' Steps in race time, Finished. `stop` is called before every step.

    Drafters draft from the prompt, the output and the `sources`. Where the spec has no `num_draft`, the machine's cost
    `curve` sets it. While `again`, given the figures so far, is true, all lanes run once more: without Steps, but with
    a Repeated at the end. A target takes one thread at a time: races in two would score each other's trees. Raises
    InputError before the first event if the prompt does not fit the model or a lane lacks its sources.
    """
    prompt = tuple(prompt)
    near = None if curve is None else curve.near(len(prompt))
    plans = plan_lanes(spec, target.device_type, near)
    target.check_length(len(prompt), spec.max_new_tokens, max(plan.num_draft for plan in plans.values()))
    pace = PaceKeeper.on(target, target.prefill(prompt), prompt[-1])
    try:
        setup = prepare(target, prompt, spec, sources, near, pace)
        plans = plan_lanes(spec, target.device_type, setup.curve)
        untouched = setup.with_own_automata()
        lanes = setup.make_lanes(spec.lanes)
        # One that was measured, as it is at this moment.
        shown = curve if curve is None or setup.curve is near else setup.curve
        described = target.describe() | {"settings": spec.as_json(), "cost_curve": shown and shown.as_json()}
        infos = tuple(lane_info(lane, plans[lane.name], setup.inputs) for lane in lanes)
        yield Started(infos, len(prompt), setup.prefix.ms, described | dict(about or {}))
        metrics = start_metrics(lanes)
        yield from run(lanes, metrics, pace, stop)
    finally:
        pace.release()
    results = tuple(lane_result(target, lane, lanes[0], metrics, spec.sampling_params()) for lane in lanes)
    stopped, steady = any(not lane.end for lane in lanes), pace.summary(metrics)
    outputs = {lane.name: lane.tokens for lane in lanes}
    del lanes  # with their KV
    yield Finished(results, stopped, steady)
    if not stopped:
        yield from repeat(untouched, Run(metrics, steady.disturbed), outputs, stop, again)


@dataclass(frozen=True)
class RaceSetup:
    """What the runs of a race share."""

    target: RaceTarget
    spec: RaceSpec
    prefix: Prefix
    inputs: DrafterInputs
    # As it is at this moment.
    curve: CostCurve | None
    pace: PaceKeeper

    def make_lanes(self, names: Iterable[str]) -> list[Lane]:
        """New lanes in this order."""
        shared = (self.prefix, self.inputs, self.spec, self.curve, self.pace)
        return [make_lane(self.target, name, *shared) for name in names]

    def with_own_automata(self) -> RaceSetup:
        """The same, except that automata of past outputs that are built from now on are not shared with this one."""
        return replace(self, inputs=replace(self.inputs, past=PastOutputs.of(self.inputs.past).copy()))


def prepare(
    target: RaceTarget,
    prompt: Sequence[int],
    spec: RaceSpec,
    sources: Sources,
    curve: CostCurve | None,
    pace: PaceKeeper,
) -> RaceSetup:
    """Choose the number of threads, read the prompt, and warm up everything that lanes will use."""
    pace.choose_threads()
    prefix = target.prefill(prompt)  # a second time, warm: its time is reported
    warm_up(target, prefix, prompt, spec, curve)
    curve = refit(target, prefix, prompt, spec, curve)
    inputs = make_drafter_inputs(target, prompt, spec, curve or assumed_curve(target.device_type), sources)
    for name, plan in plan_lanes(spec, target.device_type, curve).items():
        if plan.method.needs_draft_model:
            warm_up_draft_model(make_lane(target, name, prefix, inputs, spec, curve))
    return RaceSetup(target, spec, prefix, inputs, curve, pace)


def start_metrics(lanes: Iterable[Lane]) -> dict[str, LaneMetrics]:
    """The lanes' totals before the first step: the building of their tables."""
    return {lane.name: LaneMetrics(draft_ms=lane.at_ms) for lane in lanes}


def run(
    lanes: Sequence[Lane], metrics: Mapping[str, LaneMetrics], pace: PaceKeeper, stop: Callable[[], bool]
) -> Iterator[Step]:
    """The steps of one run in race time, which are added to `metrics`."""
    pace.start()
    for step in in_race_time(lanes, stop, pace.probe_if_due):
        metrics[step.lane].add(step)
        yield step


def repeat(
    setup: RaceSetup,
    first: Run,
    outputs: Mapping[str, list[int]],
    stop: Callable[[], bool],
    again: Callable[[Repeated], bool],
) -> Iterator[Repeated]:
    """Run all lanes while `again` asks for it, and yield the figures of all runs after each.

    Another lane is the first in each run: at equal clocks it steps first, and what lanes share it builds. A run that is
    stopped does not count and is the last. `outputs` are those of the first run, by lane.
    """
    runs, names = [first], list(first.lanes)
    while again(summarise(runs)):
        turn = len(runs) % len(names)
        found = run_quietly(setup.with_own_automata(), [*names[turn:], *names[:turn]], outputs, stop)
        if found is None:
            return
        runs.append(found)
        yield summarise(runs)


def run_quietly(
    setup: RaceSetup, names: Sequence[str], outputs: Mapping[str, list[int]], stop: Callable[[], bool]
) -> Run | None:
    """One run of these lanes, without Steps; None if it was stopped."""
    pace = setup.pace
    try:
        pace.choose_threads()
        lanes = setup.make_lanes(names)
        metrics = start_metrics(lanes)
        for _ in run(lanes, metrics, pace, stop):
            pass
    finally:
        pace.release()
    if not all(lane.end for lane in lanes):
        return None
    other_text = any(lane.tokens != outputs[lane.name] for lane in lanes)
    return Run(metrics, pace.summary(metrics).disturbed, other_text)


def needs_draft_model(spec: RaceSpec) -> bool:
    """Whether a lane drafts with a model."""
    return any(plan.method.needs_draft_model for plan in plan_lanes(spec, "cpu").values())


def lane_info(lane: Lane, plan: LanePlan, inputs: DrafterInputs) -> LaneInfo:
    """What a race reports of a lane before its first step."""
    model = inputs.draft_model if plan.method.needs_draft_model else None
    prefill_ms = 0.0 if model is None else model.prefill_ms
    return LaneInfo(
        lane.name, plan.method.title, lane.num_draft, dict(plan.options), lane.at_ms, plan.verifier, prefill_ms
    )


def in_race_time(
    lanes: Sequence[Lane], stop: Callable[[], bool] = lambda: False, between: Callable[[], object] = lambda: None
) -> Iterator[Step]:
    """Steps of all lanes in the order of their ends, as if each lane had a device to itself.

    A step is held back until no running lane can end one earlier; on `stop` the held steps are yielded. `between` is
    called before each turn.
    """
    queue = [(lane.at_ms, number) for number, lane in enumerate(lanes) if not lane.end]
    heapq.heapify(queue)
    # (at_ms, lane, index) is unique, so steps themselves are never compared.
    waiting: list[tuple[float, int, int, Step]] = []
    while queue and not stop():
        between()
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


def make_drafter_inputs(
    target: RaceTarget, prompt: Sequence[int], spec: RaceSpec, curve: CostCurve, sources: Sources
) -> DrafterInputs:
    """The inputs of the lanes' drafters; the draft model reads the prompt here, if a lane drafts with it."""
    drafting = target.draft_model() if needs_draft_model(spec) else None
    return DrafterInputs(
        tuple(prompt),
        target.vocab_size,
        spec.seed,
        sources.corpus,
        sources.corpus_index,
        PastOutputs.of(sources.past),
        spec.sampling_params(),
        None if drafting is None else drafting.after(prompt),
        curve,
    )


def make_lane(
    target: RaceTarget,
    name: str,
    prefix: Prefix,
    inputs: DrafterInputs,
    spec: RaceSpec,
    curve: CostCurve | None = None,
    pace: PaceKeeper | None = None,
) -> Lane:
    """A lane with a new drafter, whose build time is on its clock, and a session on a clone of the prefix."""
    plan = plan_lane(spec, name, target.device_type, curve)
    room = spec.max_new_tokens + plan.num_draft + 1
    inputs = replace(inputs, room=room)
    built: list[Drafter] = []
    _, build_ms = timed(lambda: built.append(plan.method.build(inputs, **plan.options)))
    drafter = built[0]
    num_top = plan.method.num_top_with(plan.options)
    session = target.session(prefix, room, spec.sampling_params(), num_top, row_counts(plan.num_draft + 1))
    coins = Coins(spec.seed, name) if plan.verifier == REJECTION else None
    return Lane(
        name,
        drafter,
        session,
        inputs.prompt,
        max_new_tokens=spec.max_new_tokens,
        num_draft=plan.num_draft,
        eos_ids=target.eos_ids,
        build_ms=build_ms,
        coins=coins,
        curve=curve,
        pace=pace,
    )


def warm_up(target: RaceTarget, prefix: Prefix, prompt: Sequence[int], spec: RaceSpec, curve: CostCurve | None) -> None:
    """Run every shape that the lanes will use before a clock starts, so that no lane pays for its first use.

    That is every number of rows up to the largest tree, the sampler, and the draft model if a lane needs it. After
    `WARM_UP_S` only the lanes' largest trees are still run: the slower the model, the less a first use matters.
    """
    plans = plan_lanes(spec, target.device_type, curve).values()
    num_top, budgets = max(plan.method.num_top_with(plan.options) for plan in plans), [plan.num_draft for plan in plans]
    session = target.session(prefix, max(budgets) + 2, spec.sampling_params(), num_top, row_counts(max(budgets) + 1))
    rejects = any(plan.verifier == REJECTION for plan in plans)
    until = time.monotonic() + WARM_UP_S
    for rows in warm_up_rows(budgets):
        tree = TokenTree.chain(prompt[-1], [prompt[-1]] * (rows - 1))
        for _ in range(2):
            session.score(tree)
            if rejects:
                session.score_distributions(tree)
        if time.monotonic() > until and rows - 1 not in budgets:
            break
    session.keep((0,))
    drafting = target.draft_model() if needs_draft_model(spec) else None
    if drafting is not None:
        drafting.after(prompt)


def warm_up_rows(budgets: Sequence[int]) -> list[int]:
    """The sizes of the lanes' largest trees, then all smaller ones, each in descending order."""
    largest = {budget + 1 for budget in budgets}
    return [*sorted(largest, reverse=True), *sorted(set(range(1, max(largest))) - largest, reverse=True)]


def warm_up_draft_model(lane: Lane) -> None:
    """Draft twice with a throw-away lane: after the prompt, and after a fully accepted draft (two tokens a read)."""
    for _ in range(2):
        tree = lane.drafter.propose(lane.context, lane.num_draft)
        lane.context += [*tree.tokens[1:], tree.tokens[-1]]


def lane_result(
    target: RaceTarget, lane: Lane, vanilla: Lane, metrics: Mapping[str, LaneMetrics], params: SamplingParams
) -> LaneResult:
    """A lane's figures and its badge. A lane under rejection sampling draws its own text and is not compared."""
    identical, difference = None, None
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
        note="" if lane.coins is None else NOTE,
    )


def explain_difference(target: RaceTarget, before: Sequence[int], position: int, params: SamplingParams) -> Difference:
    """The target's two best tokens at output `position`, rescored after the tokens `before` it, prompt included."""
    (best, second), gap = target.top_two(before, params)
    return Difference(position, (target.decode([best]), target.decode([second])), gap)


def generate(
    target: RaceTarget,
    method: str,
    prompt: Sequence[int],
    *,
    max_new_tokens: int = 128,
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
    seed: int = 0,
    num_draft: int | None = None,
    verifier: str = MATCH,
    sources: Sources = Sources(),  # noqa: B008  it is frozen
    curve: CostCurve | None = None,
    **options: Any,
) -> Iterator[Step]:
    """The Steps of one method; their `emitted` tokens, joined, are the output. `sources` and `curve` are as in `race`.

    >>> tokens = [t for step in generate(target, "trie", ids, n=13) for t in step.emitted]  # doctest: +SKIP
    """
    spec = RaceSpec((method,), max_new_tokens, num_draft, temperature, top_p, top_k, seed, {method: options}, verifier)
    near = None if curve is None else curve.near(len(prompt))
    target.check_length(len(prompt), spec.max_new_tokens, plan_lane(spec, method, target.device_type, near).num_draft)
    inputs = make_drafter_inputs(target, prompt, spec, near or assumed_curve(target.device_type), sources)
    lane = make_lane(target, method, target.prefill(prompt), inputs, spec, near)
    while not lane.end:
        yield lane.step()
