"""The interface of a drafter: it proposes a tree and observes the verdict. And `Method`, its entry in the registry."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal, Protocol, get_args, get_origin, get_type_hints, runtime_checkable

import numpy as np

from specrace.core.cost_curve import ASSUMED_GPU, CostCurve
from specrace.core.errors import InputError
from specrace.core.multi_branch import Draws
from specrace.core.note import Note
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.profile import COPYING, Profile
from specrace.drafters.sessions import HeadSession, PromptedDraftModel
from specrace.ngrams.counts import NGramCounts
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import SuffixIndex

# The cost of a head's forward until it is measured, in one-row forwards of the target; a guess.
ASSUMED_HEAD_PRICE = 0.1


@dataclass(frozen=True)
class DrafterInputs:
    """All that a drafter may know before the first step. The inputs do not change during a race.

    `corpus`, `corpus_index`: n-gram counts and a suffix index of all documents. `past`: outputs of earlier requests.
    `params`: how the target samples, for drafters that sample in the same way. `curve`: the cost of verification, for
    drafters that cut their trees. `draft_models`: smaller models, as many as any lane drafts with, or all if
    there are fewer. `room`: the number of tokens that may follow the prompt, drafts included; 0: unknown.
    `head`: this lane's session of a trained head; `head_price`: the cost of one forward of it, in one-row forwards of
    the target.
    """

    prompt: tuple[int, ...]
    vocab_size: int
    seed: int = 0
    corpus: NGramCounts | None = None
    corpus_index: SuffixIndex | None = None
    past: PastOutputs | tuple[tuple[int, ...], ...] = ()
    params: SamplingParams = field(default_factory=SamplingParams)
    draft_models: tuple[PromptedDraftModel, ...] = ()
    curve: CostCurve = ASSUMED_GPU
    room: int = 0
    head: HeadSession | None = None
    head_price: float = ASSUMED_HEAD_PRICE


class Drafter(Protocol):
    """Proposes drafts and learns from verdicts. Its `Method` says what inputs it needs and what else it can do.

    A new drafter is built for each generation, so there is no reset and nothing leaks between lanes.
    """

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """A tree whose root is `context[-1]`, with at most `budget` draft nodes; `context` is prompt and output."""

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Learn from a step: the accepted path, the bonus token, and the target's token at every node, rejected or not.

        `tree` is what was scored: the proposal, cut to the budget, without nodes too deep to be emitted.
        """


# Deeper than any tree: no limit.
ANY_DEPTH = 1 << 30


class DepthDrafter(ABC):
    """Base class of drafters that are told the greatest depth at which a node can still be emitted.

    Near the length limit deeper nodes are wasted. The trees of other drafters are pruned to that depth; a
    `DepthDrafter` knows it in advance and can draft a wider tree instead.
    """

    @abstractmethod
    def propose(self, context: Sequence[int], budget: int, depth: int = ANY_DEPTH) -> TokenTree:
        """A tree of at most `budget` draft nodes, none deeper than `depth`."""

    @abstractmethod
    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Learn from a step; see `Drafter.observe`."""


def draft(drafter: Drafter, context: Sequence[int], budget: int, remaining: int) -> TokenTree:
    """The tree to score: the drafter's proposal, with at most `budget` draft nodes.

    `remaining` tokens may still be emitted. One of them is the bonus token, so nodes deeper than `remaining` - 1
    cannot be emitted.
    """
    depth = remaining - 1
    if depth < 1:
        budget = 0
    if isinstance(drafter, DepthDrafter):
        tree = drafter.propose(context, budget, depth)
    else:
        tree = drafter.propose(context, budget)
    return tree.cut(budget).pruned(depth)


class SamplingDrafter(Drafter, Protocol):
    """A drafter that, with its option `sampled`, draws a chain of tokens and returns the distributions that it used."""

    def distributions(self) -> np.ndarray:
        """The distributions that the k tokens of the last draft were drawn from, [k, V]."""


@runtime_checkable
class TreeSamplingDrafter(Drafter, Protocol):
    """A drafter that, with its option `sampled`, draws the tokens of a tree, several below one node."""

    def draws(self) -> Draws:
        """The draws that made the last tree."""


@runtime_checkable
class DrafterWithNotes(Drafter, Protocol):
    """A drafter that can describe each of its drafts. The lane calls `note` off the clock."""

    def note(self, tree: TokenTree) -> Note:
        """Details of the draft `tree`, which has just been proposed and not yet been observed."""


class AdjustableDrafter(Drafter, Protocol):
    """A drafter whose inputs may change during its request, in an engine that runs other requests as well."""

    def read_past(self, past: PastOutputs) -> object:
        """From now on, draft from these outputs of earlier requests; call this again after `past` has grown."""

    def change_curve(self, curve: CostCurve) -> None:
        """From now on, size drafts by this cost curve."""


@dataclass(frozen=True)
class Bounds:
    """The inclusive bounds of a number, and its help line. If `low` is a float, the number may be a decimal."""

    low: float
    high: float
    help: str


@dataclass(frozen=True)
class Flag:
    """The help line of a boolean option."""

    help: str


@dataclass(frozen=True)
class Option:
    """An option of a lane: a keyword argument of its drafter."""

    name: str
    default: float | bool
    bounds: Bounds | Flag


# The field of `DrafterInputs` through which a drafter reads all documents; "" if it reads none.
CorpusPart = Literal["", "corpus", "corpus_index"]


@dataclass(frozen=True)
class Scoring:
    """How the command `score` runs a method on transcripts that lack some of its inputs; by default, the whole method.

    `part`: in words, the part of the method that is scored. `build`: makes the drafter that is scored; None: the
    method's `build`. `options`: fixed option values. `unscored_rows`: a function of the options and the draft size that
    returns how many draft tokens each step verifies in addition to the scored ones; None: no such tokens. `refuses`: a
    function of the options that returns why the method cannot be scored with them, "" if it can; None: it always can.
    """

    part: str = ""
    build: Callable[..., Drafter] | None = None
    options: Mapping[str, float | bool] = field(default_factory=dict)
    unscored_rows: Callable[[Mapping[str, Any], int], int] | None = None
    refuses: Callable[[Mapping[str, Any]], str] | None = None


@dataclass(frozen=True)
class OnChains:
    """How a method drafts for a target that scores chains only. By default its trees are cut to their best branch.

    `build` and `options` have the same meaning as in `Scoring`. `refuses`: a function of the options that returns why
    the method needs branches, "" if it does not; None: it never does.
    """

    build: Callable[..., Drafter] | None = None
    options: Mapping[str, float | bool] = field(default_factory=dict)
    refuses: Callable[[Mapping[str, Any]], str] | None = None


@dataclass(frozen=True)
class Method:
    """A registered drafter: how it is built, what it needs and what it can do.

    `num_draft`: the default budget of a step, or a function of the options. `accelerator`: defaults that differ on a
    GPU, of options or of `num_draft`. `profile`: the expected gains of draft tokens, from which a default budget is
    computed with the machine's cost curve; None where options decide the size or the drafter cuts its trees.

    `num_top`: how many of the target's likeliest tokens at each node the drafter learns from, or a function of the
    options. `corpus_part`: the field through which it reads the documents, or a function of the options.
    `needs_draft_model`: it drafts with one of `DrafterInputs.draft_models`, or with as many as its option `models`
    says. `needs_head`: the kind of trained head with which it drafts, "" if none. `needs_states`: it copies what
    followed tokens with similar hidden states (`sessions.PlacingHeadSession`). `samples`: it is a `SamplingDrafter` or
    a `TreeSamplingDrafter`, which rejection sampling requires.

    `needs_target_outputs`: why `score` cannot run the drafter without the model, "" if it can. `scoring`: how the
    method is scored. `on_chains`: how it drafts without branches. `twin_of`: the engine whose drafter is reproduced, ""
    for a method of our own. `padded`: that engine pads every draft to the full budget.

    Raises ValueError if it `samples` but lacks the option `sampled` or a method `distributions` or `draws`, and for
    values of options that the drafter does not have.
    """

    name: str
    title: str
    summary: str
    build: Callable[..., Drafter]
    num_draft: int | Callable[[Mapping[str, Any]], int]
    accelerator: Mapping[str, int] = field(default_factory=dict)
    profile: Profile | None = COPYING
    num_top: int | Callable[[Mapping[str, Any]], int] = 0
    corpus_part: CorpusPart | Callable[[Mapping[str, Any]], CorpusPart] = ""
    needs_draft_model: bool = False
    needs_head: str = ""
    needs_states: bool = False
    samples: bool = False
    needs_target_outputs: str = ""
    scoring: Scoring = field(default_factory=Scoring)
    on_chains: OnChains = field(default_factory=OnChains)
    twin_of: str = ""
    padded: bool = False

    def __post_init__(self) -> None:
        names = inspect.signature(self.build).parameters.keys()
        returns_draws = hasattr(self.build, "distributions") or hasattr(self.build, "draws")
        if self.samples and not ("sampled" in names and returns_draws):
            raise ValueError(f"{self.name} samples, but lacks the option sampled or the method distributions or draws")
        fixed_options = self.scoring.options.keys() | self.on_chains.options.keys()
        unknown = (self.accelerator.keys() | fixed_options) - names - {"num_draft"}
        if unknown:
            raise ValueError(f"{self.name} has no option {', '.join(sorted(unknown))}")

    @cached_property
    def options(self) -> tuple[Option, ...]:
        """The keyword-only arguments of the constructor, with their annotations."""
        hints = get_type_hints(self.build.__init__, include_extras=True)  # type: ignore[misc]
        options = []
        for name, parameter in inspect.signature(self.build).parameters.items():
            if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                continue
            hint = hints[name]
            # An argument without bounds or a help line is a flag; its name serves as the help line.
            bounds = get_args(hint)[1] if get_origin(hint) is Annotated else Flag(name)
            options.append(Option(name, parameter.default, bounds))
        return tuple(options)

    def draft_models_with(self, options: Mapping[str, Any]) -> int:
        """The number of draft models that the drafter uses, with these options."""
        return int(options.get("models", 1)) if self.needs_draft_model else 0

    def num_top_with(self, options: Mapping[str, Any]) -> int:
        """The number of the target's likeliest tokens per node that the drafter learns from, with these options."""
        return self.num_top(options) if callable(self.num_top) else self.num_top

    def corpus_part_with(self, options: Mapping[str, Any]) -> CorpusPart:
        """The field through which the drafter reads all documents, with these options; "" if it reads none."""
        return self.corpus_part(options) if callable(self.corpus_part) else self.corpus_part

    def defaults(self, device: str) -> dict[str, float | bool]:
        """Default option values on a device type ("cpu", "cuda")."""
        values = {option.name: option.default for option in self.options}
        if device != "cpu":
            values |= {name: value for name, value in self.accelerator.items() if name in values}
        return values

    def budget(self, device: str, options: Mapping[str, Any]) -> int:
        """The default `num_draft` on a device type, with these options."""
        if callable(self.num_draft):
            return self.num_draft(options)
        return self.num_draft if device == "cpu" else self.accelerator.get("num_draft", self.num_draft)

    def check(self, values: Mapping[str, Any]) -> dict[str, float | bool]:
        """`values` in the options' types. Raises InputError for an unknown option or a value out of bounds."""
        options = {option.name: option for option in self.options}
        checked: dict[str, float | bool] = {}
        for name, value in values.items():
            if name not in options:
                known = ", ".join(f"{self.name}.{option}" for option in options) or "none"
                raise InputError(f"The lane {self.name} has no option {name!r}; it has: {known}.")
            checked[name] = _convert(f"{self.name}.{name}", options[name], value)
        return checked


def _convert(label: str, option: Option, value: Any) -> float | bool:
    """`value` in the type of `option`. Raises InputError, in which `label` names the option."""
    if isinstance(option.bounds, Flag):
        text = str(value).strip().lower()
        if text in ("true", "yes", "1", "on"):
            return True
        if text in ("false", "no", "0", "off"):
            return False
        raise InputError(f"{label} is {value!r}; give true or false.")
    low, high = option.bounds.low, option.bounds.high
    decimal = isinstance(low, float)
    try:
        number = float(str(value)) if decimal else int(str(value))
    except ValueError:
        number = None
    if number is None or not low <= number <= high:
        raise InputError(f"{label} is {value!r}; give a {'' if decimal else 'whole '}number from {low} to {high}.")
    return number
