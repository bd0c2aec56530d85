"""Prepares a race: reads the prompt, warms everything up, and makes the lanes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from specrace.core.cost_curve import CostCurve, assumed_curve, row_counts
from specrace.core.events import LaneInfo
from specrace.core.rejection import Coins
from specrace.core.sampling_params import SamplingParams
from specrace.core.settings import REJECTION
from specrace.core.tree import TokenTree
from specrace.drafters import Drafter, DrafterInputs
from specrace.drafters.base import DraftModel
from specrace.engine.lane import Lane, TargetSession
from specrace.engine.pace import PaceKeeper, PaceTarget, timed
from specrace.engine.refit import refit
from specrace.engine.spec import LanePlan, RaceSpec, plan_lane, plan_lanes
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.sources import Sources

# After this time only the lanes' largest trees are still warmed up.
WARM_UP_S = 2.0


class Prefix(Protocol):
    """A prompt's KV cache, computed once and cloned by every lane."""

    @property
    def ms(self) -> float:
        """The time of the prefill, in milliseconds."""


class RaceTarget(PaceTarget, Protocol):
    """The part of a target that a race uses; `specrace.model.target.Target` implements it."""

    @property
    def device_type(self) -> str:
        """ "cpu" or "cuda"."""

    @property
    def vocab_size(self) -> int:
        """The size of the vocabulary."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """End-of-text tokens."""

    def check_length(self, prompt_tokens: int, max_new_tokens: int, num_draft: int) -> None:
        """Raises InputError if these do not fit the model's context."""

    def prefill(self, prompt: Sequence[int]) -> Any:
        """Read the prompt; returns a `Prefix`."""

    def session(
        self, prefix: Any, room: int, params: SamplingParams | None = None, num_top: int = 0, rows: Sequence[int] = (1,)
    ) -> TargetSession:
        """A session on a clone of the prefix, with room for `room` more tokens.

        Its scores include the `num_top` likeliest tokens at every node. CUDA graphs are captured for the row counts in
        `rows`.
        """

    def draft_model(self) -> DraftModel | None:
        """The model that drafts for this target; None if it has none."""

    def top_two(self, tokens: Sequence[int], params: SamplingParams) -> tuple[tuple[int, int], float]:
        """(the two best tokens under `params` after `tokens`, the chosen one first; the gap between them)."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of `tokens`."""

    def describe(self) -> dict[str, Any]:
        """Model, dtype, device, versions."""


@dataclass(frozen=True)
class RaceSetup:
    """What all runs of a race share."""

    target: RaceTarget
    spec: RaceSpec
    prefix: Prefix
    inputs: DrafterInputs
    # Refitted to the machine as it is now.
    curve: CostCurve | None
    pace: PaceKeeper
    sources: Sources

    def make_lanes(self, names: Iterable[str]) -> list[Lane]:
        """New lanes, in this order."""
        shared = (self.prefix, self.inputs, self.spec, self.curve, self.pace)
        return [make_lane(self.target, name, *shared) for name in names]


def prepare(
    target: RaceTarget,
    prompt: Sequence[int],
    spec: RaceSpec,
    sources: Sources,
    curve: CostCurve | None,
    pace: PaceKeeper,
) -> RaceSetup:
    """Choose the number of threads, read the prompt, and warm up everything that the lanes will use."""
    pace.choose_threads()
    # The race has read the prompt before, for the probe. The time of this second, warm prefill is reported.
    prefix = target.prefill(prompt)
    warm_up(target, prefix, prompt, spec, curve)
    curve = refit(target, prefix, prompt, spec, curve)
    inputs = make_drafter_inputs(target, prompt, spec, curve or assumed_curve(target.device_type), sources)
    for name, plan in plan_lanes(spec, target.device_type, curve).items():
        if plan.method.needs_draft_model:
            warm_up_draft_model(make_lane(target, name, prefix, inputs, spec, curve))
    return RaceSetup(target, spec, prefix, inputs, curve, pace, sources)


def needs_draft_model(spec: RaceSpec) -> bool:
    """Whether a lane drafts with a model."""
    return any(plan.method.needs_draft_model for plan in plan_lanes(spec, "cpu").values())


def lane_info(lane: Lane, plan: LanePlan, setup: RaceSetup) -> LaneInfo:
    """What a race reports about a lane before its first step."""
    model = setup.inputs.draft_model if plan.method.needs_draft_model else None
    return LaneInfo(
        lane.name,
        plan.method.title,
        lane.num_draft,
        dict(plan.options),
        build_ms=lane.at_ms,
        verifier=plan.verifier,
        prefill_ms=0.0 if model is None else model.prefill_ms,
        shared_ms=shared_ms(lane, plan, setup.sources),
    )


def shared_ms(lane: Lane, plan: LanePlan, sources: Sources) -> float:
    """The time spent on what the lane reads and a server builds once for all requests; on no lane's clock."""
    tables = {"": 0.0, "corpus": sources.corpus_ms, "corpus_index": sources.corpus_index_ms}
    return lane.shared_ms + tables[plan.method.corpus_part_with(plan.options)]


def make_drafter_inputs(
    target: RaceTarget, prompt: Sequence[int], spec: RaceSpec, curve: CostCurve, sources: Sources
) -> DrafterInputs:
    """The inputs of the lanes' drafters. If a lane drafts with a model, the draft model reads the prompt here."""
    draft_model = target.draft_model() if needs_draft_model(spec) else None
    return DrafterInputs(
        tuple(prompt),
        target.vocab_size,
        spec.seed,
        sources.corpus,
        sources.corpus_index,
        PastOutputs.of(sources.past),
        spec.sampling_params(),
        None if draft_model is None else draft_model.after(prompt),
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
    """A lane with a new drafter, and a session on a clone of the prefix.

    The time to build the drafter is on the lane's clock, except that of indexes of earlier answers (`Lane.shared_ms`).
    """
    plan = plan_lane(spec, name, target.device_type, curve)
    room = spec.max_new_tokens + plan.num_draft + 1
    past = PastOutputs.of(inputs.past).metered()
    inputs = replace(inputs, room=room, past=past)
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
        build_ms=max(0.0, build_ms - past.meter.built_ms),
        shared_ms=sum(past.meter.used_ms.values()),
        coins=coins,
        curve=curve,
        pace=pace,
    )


def warm_up(target: RaceTarget, prefix: Prefix, prompt: Sequence[int], spec: RaceSpec, curve: CostCurve | None) -> None:
    """Run everything that the lanes will use before any clock starts, because a first use takes longer.

    That is a forward for every tree size up to the largest, with the sampler, and the draft model if a lane needs it.
    After `WARM_UP_S`, only the lanes' largest trees are still run: the slower the model, the less a first use matters.
    """
    plans = plan_lanes(spec, target.device_type, curve).values()
    num_top = max(plan.method.num_top_with(plan.options) for plan in plans)
    budgets = [plan.num_draft for plan in plans]
    session = target.session(prefix, max(budgets) + 2, spec.sampling_params(), num_top, row_counts(max(budgets) + 1))
    rejects = any(plan.verifier == REJECTION for plan in plans)
    end_s = time.monotonic() + WARM_UP_S
    for rows in warm_up_rows(budgets):
        tree = TokenTree.chain(prompt[-1], [prompt[-1]] * (rows - 1))
        for _ in range(2):
            session.score(tree)
            if rejects:
                session.score_distributions(tree)
        if time.monotonic() > end_s and rows - 1 not in budgets:
            break
    session.keep((0,))
    draft_model = target.draft_model() if needs_draft_model(spec) else None
    if draft_model is not None:
        draft_model.after(prompt)


def warm_up_rows(budgets: Sequence[int]) -> list[int]:
    """The sizes of the lanes' largest trees in descending order, then all other sizes in descending order."""
    largest = {budget + 1 for budget in budgets}
    return [*sorted(largest, reverse=True), *sorted(set(range(1, max(largest))) - largest, reverse=True)]


def warm_up_draft_model(lane: Lane) -> None:
    """Draft twice with a lane that is not used afterwards: after the prompt, and after a fully accepted draft.

    After a fully accepted draft, the draft model has two tokens to read: its last draft token and the bonus.
    """
    for _ in range(2):
        tree = lane.drafter.propose(lane.context, lane.num_draft)
        lane.context += [*tree.tokens[1:], tree.tokens[-1]]
