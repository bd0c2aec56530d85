"""The specification of a race, and the plan of each lane for a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specrace.core.cost_curve import ASSUMED_CPU, CostCurve, best_budget
from specrace.core.errors import InputError
from specrace.core.sampling_params import SamplingParams
from specrace.core.settings import MATCH, REJECTION, SETTINGS
from specrace.drafters import find_method
from specrace.drafters.base import Drafter, DrafterInputs, Method
from specrace.engine.lane_name import parse_lane, parse_lanes, with_shared_options

DEFAULT_LANES = ("vanilla", "trigram", "lookahead", "trie", "fusion")
# The settings of `specrace.core.settings` that are fields of a spec.
SPEC_SETTINGS = ("max_new_tokens", "num_draft", "temperature", "top_p", "top_k", "seed", "verifier")


@dataclass(frozen=True)
class RaceSpec:
    """The lanes and settings of a race. Vanilla, the baseline, is always the first lane.

    A lane is a method's name, or a name with options of its own (`specrace.engine.lane_name`), so that a method can
    race more than once. `options`: method -> options of all its lanes that have no value of their own for them. If
    `num_draft` is None, each lane's draft size comes from a cost curve or from its method's default (`plan_lane`).
    Under the verifier "rejection", lanes that can sample their drafts are verified by rejection sampling, the others by
    sample-and-match. Raises InputError for unknown lanes and options, for values out of bounds and for two lanes that
    are alike.
    """

    lanes: tuple[str, ...] = DEFAULT_LANES
    max_new_tokens: int = SETTINGS["max_new_tokens"].default
    num_draft: int | None = SETTINGS["num_draft"].default
    temperature: float = SETTINGS["temperature"].default
    top_p: float = SETTINGS["top_p"].default
    top_k: int = SETTINGS["top_k"].default
    seed: int = SETTINGS["seed"].default
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    verifier: str = MATCH

    def __post_init__(self) -> None:
        for name, values in self.options.items():
            find_method(name).check(values)
        names = parse_lanes(self.lanes, self.options)
        object.__setattr__(self, "lanes", ("vanilla", *(name for name in names if name != "vanilla")))
        for name in SPEC_SETTINGS:
            object.__setattr__(self, name, SETTINGS[name].check(getattr(self, name)))
        if self.verifier == REJECTION and not self.temperature:
            raise InputError("Rejection sampling needs a temperature above 0; raise it, or choose the verifier match.")

    def with_options_in_names(self) -> RaceSpec:
        """Return the same race with all options in the lanes' names, so that every name of a lane shows them."""
        return replace(self, lanes=with_shared_options(self.lanes, self.options), options={})

    def sampling_params(self) -> SamplingParams:
        """The sampling parameters of the target."""
        return SamplingParams(self.temperature, self.top_p, self.top_k, self.seed)

    def as_json(self) -> dict[str, Any]:
        """The settings, by name."""
        return {name: getattr(self, name) for name in SPEC_SETTINGS}


@dataclass(frozen=True)
class LanePlan:
    """A lane's method and settings on a device; `num_draft`: the largest number of draft tokens in a step.

    `title`: the method's title, with the options that are set for this lane alone or that differ from the method's
    defaults. `chains_only`: whether the lane must draft without branches.
    """

    title: str
    method: Method
    options: Mapping[str, float | bool]
    verifier: str
    num_draft: int
    chains_only: bool = False

    @property
    def num_draft_models(self) -> int:
        """The number of draft models that it drafts with."""
        return self.method.draft_models_with(self.options)

    def build(self, inputs: DrafterInputs) -> Drafter:
        """A new drafter."""
        build = self.method.on_chains.build if self.chains_only else None
        return (build or self.method.build)(inputs, **self.options)


def plan_lane(
    spec: RaceSpec, name: str, device: str, curve: CostCurve | None = None, *, chains_only: bool = False
) -> LanePlan:
    """The plan of a lane on the device "cpu" or "cuda": the spec's values, or else the method's defaults there.

    If the spec has no `num_draft`, the cost `curve` determines it for methods that have a profile. On a CPU, the
    assumed curve is used if `curve` is None. `chains_only`: whether the target scores chains only; raises InputError
    for a method that cannot draft them.
    """
    if curve is None and device == "cpu":
        # Fusion sizes its trees by this curve, too, and the other lanes' steps should not cost more than fusion's.
        curve = ASSUMED_CPU
    lane = parse_lane(name)
    method = lane.method
    sampled = {"sampled": True} if spec.verifier == REJECTION and method.samples else {}
    defaults = method.defaults(device) | sampled
    options = defaults | method.check(spec.options.get(method.name, {})) | lane.options
    if chains_only:
        options |= _options_on_chains(name, method, options)
    shown_options = {key: value for key, value in options.items() if key in lane.options or value != defaults[key]}
    rejects = spec.verifier == REJECTION and method.samples and options["sampled"]
    num_draft = method.budget(device, options)
    if name != "vanilla" and spec.num_draft is not None:
        num_draft = spec.num_draft
    elif curve is not None and method.profile is not None and num_draft:
        # At least one token, because a lane in a race should draft even if that does not pay.
        max_draft = curve.rows[-1] - 1
        num_draft = best_budget(
            curve, method.profile.gains(max_draft), min_draft=min(1, max_draft), price=method.profile.price
        )
    return LanePlan(lane.title(shown_options), method, options, REJECTION if rejects else MATCH, num_draft, chains_only)


def _options_on_chains(name: str, method: Method, options: Mapping[str, float | bool]) -> Mapping[str, float | bool]:
    """The options that a method needs to draft without branches. Raises InputError if it cannot."""
    if method.on_chains.refuses and (reason := method.on_chains.refuses(options)):
        raise InputError(
            f"The lane {name} needs branches ({reason}), but layers of this model keep a state, which follows one "
            f"branch only; leave out {name}."
        )
    return method.on_chains.options


def plan_lanes(
    spec: RaceSpec, device: str, curve: CostCurve | None = None, *, chains_only: bool = False
) -> dict[str, LanePlan]:
    """Lane -> its plan, in the spec's order."""
    return {name: plan_lane(spec, name, device, curve, chains_only=chains_only) for name in spec.lanes}


def largest_draft(spec: RaceSpec, device: str, curve: CostCurve | None = None, *, chains_only: bool = False) -> int:
    """The largest `num_draft` of the lanes."""
    return max(plan.num_draft for plan in plan_lanes(spec, device, curve, chains_only=chains_only).values())
