"""What the lanes of a race share, and the lanes made from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from specrace.core.cost_curve import CostCurve, assumed_curve, row_counts
from specrace.core.events import LaneInfo
from specrace.core.rejection import Coins
from specrace.core.sampling_params import SamplingParams
from specrace.core.settings import REJECTION
from specrace.drafters import Drafter, DrafterInputs
from specrace.drafters.base import ASSUMED_HEAD_PRICE
from specrace.drafters.sessions import (
    DraftModel,
    Head,
    HeadSession,
    MaskingHeadSession,
    PromptedDraftModel,
    PromptedHead,
)
from specrace.engine.lane import Lane, TargetSession
from specrace.engine.lane_name import method_of
from specrace.engine.pace import PaceKeeper, PaceTarget, timed
from specrace.engine.spec import LanePlan, RaceSpec, plan_lane, plan_lanes
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.sources import Sources


class Prefix(Protocol):
    """A prompt's KV cache, computed once and cloned by every lane."""

    @property
    def ms(self) -> float:
        """The time of the prefill, in milliseconds."""


class RaceTarget(PaceTarget, Protocol):
    """The part of a target that a race uses; `specrace.model.target.Target` implements it."""

    @property
    def device_type(self) -> str:
        """The type of the device, "cpu" or "cuda"."""

    @property
    def chains_only(self) -> bool:
        """Whether the target scores chains only, because its layers keep a state."""

    @property
    def vocab_size(self) -> int:
        """The size of the vocabulary."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """End-of-text tokens."""

    def check_length(self, prompt_tokens: int, max_new_tokens: int, num_draft: int) -> None:
        """Raise InputError if prompt, output and a draft together do not fit the model's context."""

    def prefill(self, prompt: Sequence[int], levels: tuple[int, ...] = ()) -> Any:
        """Read the prompt, and keep its hidden states at `levels`, the inputs of these layers; returns a `Prefix`."""

    def session(
        self,
        prefix: Any,
        room: int,
        params: SamplingParams | None = None,
        num_top: int = 0,
        rows: Sequence[int] = (1,),
        head_session: Any = None,
    ) -> TargetSession:
        """A session on a clone of the prefix, with room for `room` more tokens.

        Its scores include the `num_top` likeliest tokens at every node. CUDA graphs are captured for the row counts in
        `rows`. `head_session`: the lane's `HeadSession`, which gets the hidden states of accepted tokens.
        """

    def draft_models(self) -> Sequence[DraftModel]:
        """The models that draft for this target, the preferred one first; may be empty."""

    def head(self, lane: str) -> Head | None:
        """The trained head with which this lane drafts; None if it has none."""

    def state_copies(self) -> Head:
        """A drafter that copies after similar hidden states of the target, with the interface of a head."""

    def top_two(self, tokens: Sequence[int], params: SamplingParams) -> tuple[tuple[int, int], float]:
        """The two best tokens under `params` after `tokens`, the chosen one first, and the gap between their scores."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of `tokens`."""

    def describe(self) -> dict[str, Any]:
        """Model, dtype, device, versions."""


@dataclass(frozen=True)
class RaceSetup:
    """What all lanes and runs of a race share.

    `prefix`: the target's KV cache of the `prompt`. `curve`: the cost of forwards on this machine after this prompt;
    None if nothing was measured. `head_prices`: lane -> the measured cost of a forward of its head, in one-row forwards
    of the target.
    """

    target: RaceTarget
    prompt: tuple[int, ...]
    prefix: Prefix
    spec: RaceSpec
    curve: CostCurve | None = None
    sources: Sources = field(default_factory=Sources)
    head_prices: Mapping[str, float] = field(default_factory=dict)

    @property
    def plans(self) -> dict[str, LanePlan]:
        """Lane -> its plan on this device."""
        return plan_lanes(self.spec, self.target.device_type, self.curve, chains_only=self.target.chains_only)

    @property
    def draft_models(self) -> Sequence[DraftModel]:
        """The target's first draft models: as many as any lane drafts with, or all if there are fewer."""
        count = max(plan.num_draft_models for plan in self.plans.values())
        return self.target.draft_models()[:count] if count else ()

    @cached_property
    def heads(self) -> dict[str, PromptedHead]:
        """Lane -> its head, which reads the prompt here. Lanes without a head are left out; their drafters refuse."""
        heads = _heads(self.target, self.spec)
        return {lane: head.after(self.prompt, self.prefix) for lane, head in heads.items()}

    @cached_property
    def inputs(self) -> DrafterInputs:
        """The inputs of the lanes' drafters. If a lane drafts with models, these read the prompt here."""
        return DrafterInputs(
            self.prompt,
            self.target.vocab_size,
            self.spec.seed,
            self.sources.corpus,
            self.sources.corpus_index,
            PastOutputs.of(self.sources.past),
            self.spec.sampling_params(),
            tuple(model.after(self.prompt) for model in self.draft_models),
            self.curve or assumed_curve(self.target.device_type),
        )

    def make_lanes(self, names: Iterable[str], pace: PaceKeeper | None = None) -> list[Lane]:
        """New lanes, in this order."""
        return [self.make_lane(name, pace) for name in names]

    def make_lane(self, name: str, pace: PaceKeeper | None = None) -> Lane:
        """A lane with a new drafter, and a session on a clone of the prefix; `pace`, if given, corrects its times.

        The time to build the drafter is on the lane's clock, except the time for indexes of earlier answers
        (`Lane.shared_ms`).
        """
        target, spec = self.target, self.spec
        plan = plan_lane(spec, name, target.device_type, self.curve, chains_only=target.chains_only)
        room = spec.max_new_tokens + plan.num_draft + 1
        past = PastOutputs.of(self.inputs.past).metered()
        head = self.open_head(name, room) if name in self.heads else None
        price = self.head_prices.get(name, ASSUMED_HEAD_PRICE)
        inputs = replace(self.inputs, room=room, past=past, head=head, head_price=price)
        built: list[Drafter] = []
        _, build_ms = timed(lambda: built.append(plan.build(inputs)))
        num_top = plan.method.num_top_with(plan.options)
        rows = row_counts(max_draft(head, plan) + 1)
        # Only a target that has heads needs to accept `head_session`.
        head_argument = {} if head is None else {"head_session": head}
        masking = head if isinstance(head, MaskingHeadSession) else None
        return Lane(
            name,
            built[0],
            target.session(self.prefix, room, spec.sampling_params(), num_top, rows, **head_argument),
            self.prompt,
            max_new_tokens=spec.max_new_tokens,
            num_draft=plan.num_draft,
            eos_ids=target.eos_ids,
            # The indexes that were built now, and all that were used, whenever they were built.
            build_ms=max(0.0, build_ms - past.meter.built_ms),
            shared_ms=sum(past.meter.used_ms.values()),
            coins=Coins(spec.seed, name) if plan.verifier == REJECTION else None,
            # Masks would multiply the rows of padding.
            curve=self.curve if masking is None else None,
            pace=pace,
            chains_only=plan.chains_only,
            masking=masking,
        )

    def open_head(self, lane: str, room: int) -> HeadSession:
        """A session of the head of `lane`, which must have one, for about `room` more tokens."""
        return self.heads[lane].session(self.spec.sampling_params(), room)


def max_draft(head: HeadSession | None, plan: LanePlan) -> int:
    """The largest number of draft tokens in a step; with masks, which multiply the rows, at most the head's depth."""
    return min(plan.num_draft, head.depth) if isinstance(head, MaskingHeadSession) else plan.num_draft


def read_prompt(target: RaceTarget, prompt: Sequence[int], spec: RaceSpec) -> Any:
    """The prompt's prefix, with the hidden states that the lanes' heads read, if there are any."""
    levels = sorted({level for head in _heads(target, spec).values() for level in head.levels})
    return target.prefill(prompt, tuple(levels)) if levels else target.prefill(prompt)


def _heads(target: RaceTarget, spec: RaceSpec) -> dict[str, Head]:
    """Lane -> its head, for the lanes that draft with one and have it."""
    methods = {lane: method_of(lane) for lane in spec.lanes}
    heads = {lane: target.head(method.name) for lane, method in methods.items() if method.needs_head}
    heads |= {lane: target.state_copies() for lane, method in methods.items() if method.needs_states}
    return {lane: head for lane, head in heads.items() if head is not None}


def lane_info(lane: Lane, plan: LanePlan, setup: RaceSetup) -> LaneInfo:
    """What a race reports about a lane before its first step."""
    readers: list[PromptedHead | PromptedDraftModel] = [setup.heads[lane.name]] if lane.name in setup.heads else []
    readers += setup.inputs.draft_models[: plan.num_draft_models]
    return LaneInfo(
        lane.name,
        plan.title,
        lane.num_draft,
        dict(plan.options),
        build_ms=lane.at_ms,
        verifier=plan.verifier,
        prefill_ms=sum(reader.prefill_ms for reader in readers),
        shared_ms=shared_ms(lane, plan, setup.sources),
    )


def shared_ms(lane: Lane, plan: LanePlan, sources: Sources) -> float:
    """The time to build tables that the lane reads and that a server would build once for all requests.

    This time is on no lane's clock.
    """
    tables = {"": 0.0, "corpus": sources.corpus_ms, "corpus_index": sources.corpus_index_ms}
    return lane.shared_ms + tables[plan.method.corpus_part_with(plan.options)]
