"""What a drafter is: it proposes a tree, and is told what the target made of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Protocol, cast, get_args, get_origin, get_type_hints, runtime_checkable

import numpy as np

from specrace.core.cost_curve import ASSUMED_GPU, CostCurve
from specrace.core.errors import InputError
from specrace.core.note import Note
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.ngrams.counts import NGramCounts
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import SuffixIndex


class DraftSession(Protocol):
    """A draft model on one text, with a cache of its own. Each reading is one forward."""

    @property
    def room(self) -> int:
        """How many tokens it can still read."""

    def likeliest(self, tokens: Sequence[int]) -> tuple[int, float]:
        """Read `tokens` (one at least); the likeliest token after them, and its probability."""

    def distribution(self, tokens: Sequence[int]) -> np.ndarray:
        """Read `tokens` (one at least); the next token's distribution after temperature, top-k, top-p, float64 [V]."""

    def rewind(self, count: int) -> None:
        """Forget all but the first `count` tokens that were read."""


class PromptedDraftModel(Protocol):
    """A draft model that has read all of the prompt but its last token, which took it `prefill_ms`."""

    prefill_ms: float

    def session(self, params: SamplingParams, room: int = 0, rows: Sequence[int] = (1,)) -> DraftSession:
        """A session behind the prompt. As far as is known it will read `room` tokens more, `rows` of them at a time."""


class DraftModel(Protocol):
    """A smaller language model with the target's vocabulary. `specrace.model.draft_model.DraftModel` is one."""

    def after(self, prompt: Sequence[int]) -> PromptedDraftModel:
        """The model behind `prompt`. Raises InputError where it does not fit."""


@dataclass(frozen=True)
class Material:
    """All that a drafter may know before the first step. Nothing in it is changed during a race.

    Of a corpus there are its n-gram counts and a suffix index; `past` are outputs of earlier requests. `params` are how
    the target's tokens are chosen, for drafters that sample theirs the same way; `curve` what verifying rows costs, for
    drafters that cut their own trees; `room` how many tokens may follow all but the last of the prompt, drafts
    included, 0 where that is not known.
    """

    prompt: tuple[int, ...]
    vocab_size: int
    seed: int = 0
    corpus: NGramCounts | None = None
    corpus_index: SuffixIndex | None = None
    past: PastOutputs | tuple[tuple[int, ...], ...] = ()
    params: SamplingParams = field(default_factory=SamplingParams)
    draft_model: PromptedDraftModel | None = None
    curve: CostCurve = ASSUMED_GPU
    room: int = 0


class Drafter(Protocol):
    """Made anew for each generation, so there is no reset and nothing leaks between lanes.

    A class may say more of itself, in class attributes: `num_top`, the k of `Scores.top` that it learns from (an
    instance's own counts, where options decide it); `needs_target_outputs`, why it cannot be scored without its model;
    `scored_part`, what of it is, where not all; `needs_draft_model`, true where it drafts with one; `takes_depth`, true
    of a `DepthDrafter`.
    """

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """A tree whose root is `context[-1]` (prompt and output so far) with at most `budget` guesses."""

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Learn from a step: the accepted path, the bonus, and the target's token at every node, rejected or not.

        `tree` is what was scored: the proposal, without what was over the budget or too deep to count.
        """


# Deeper than any tree.
ANY_DEPTH = 1 << 30


class DepthDrafter(Drafter, Protocol):
    """A drafter that proposes otherwise where the text is about to end; what others propose is pruned then."""

    takes_depth: ClassVar[bool]

    def propose(self, context: Sequence[int], budget: int, depth: int = ANY_DEPTH) -> TokenTree:
        """As any drafter; at most `depth` guesses in a row may count."""


def draft(drafter: Drafter, context: Sequence[int], budget: int, left: int) -> TokenTree:
    """The tree to score where `left` tokens may still be said: a draft of at most `budget` guesses, none too deep.

    One of those tokens is the target's own, so at most `left` - 1 guesses in a row can count.
    """
    depth = left - 1
    if depth < 1:
        budget = 0
    if getattr(drafter, "takes_depth", False):
        tree = cast(DepthDrafter, drafter).propose(context, budget, depth)
    else:
        tree = drafter.propose(context, budget)
    return tree.cut(budget).pruned(depth)


class SamplingDrafter(Drafter, Protocol):
    """A drafter whose option `sampled` makes it draw its guesses, in a chain, from distributions that it hands over."""

    def distributions(self) -> np.ndarray:
        """What the k guesses of the last proposal were drawn from, [k, V]."""


@runtime_checkable
class TellingDrafter(Drafter, Protocol):
    """A drafter that has more to tell of a draft than its tree, for those who watch; asked off the clock."""

    def note(self, tree: TokenTree) -> Note:
        """What it knew when it proposed `tree`; called right after that, before anything is learnt from the step."""


@dataclass(frozen=True)
class Bounds:
    """The range of a whole-number option, and what it does in one line."""

    low: int
    high: int
    help: str


@dataclass(frozen=True)
class Flag:
    """What a yes-or-no option does, in one line."""

    help: str


@dataclass(frozen=True)
class Option:
    """A drafter's keyword argument as faces list it."""

    name: str
    default: int | bool
    bounds: Bounds | Flag


@dataclass(frozen=True)
class Profile:
    """How many accepted tokens a method's draft nodes are assumed to bring: `first`, and each next one `decay` of it.

    `price` is what drafting a node is assumed to cost, as a share of the target's forward over one row.

    An assumption is needed for a default only; how many nodes pay depends on the text, and --num-draft overrides it.
    """

    first: float
    decay: float
    price: float = 0.0

    def gains(self, count: int) -> tuple[float, ...]:
        """The tokens that the first `count` nodes bring, each."""
        return tuple(self.first * self.decay**index for index in range(count))


# Copying from a prompt: 8 nodes bring 0.8 tokens on Spec-Bench's RAG, 1.7 on its summaries, 2.9 with the bundled model,
# and 16 about a sixth more. Guesses that nothing in the prompt stands for fade sooner.
COPYING = Profile(0.5, 0.8)
NGRAM = Profile(0.4, 0.7)
# A draft model is right more often, and every node is a forward of its own (0.4 of the target's for the bundled pair,
# a twentieth where the target is large).
MODEL = Profile(0.85, 0.9, price=0.2)


@dataclass(frozen=True)
class Method:
    """A registered way to draft.

    `num_draft` is the default number of draft nodes a step, or a function of the options where they decide it.
    `accelerator` holds the defaults that differ on a GPU. `scored_as` builds what is scored in the method's place,
    where a transcript cannot tell all that it needs; the options that this fixes are its class's `scored_options`.
    `profile` is what its draft nodes are assumed to bring, for a default `num_draft` from a machine's cost curve; None
    where options alone decide the size, and where the drafter cuts each tree by that curve itself, so that `num_draft`
    is only the most it may draft.
    """

    name: str
    title: str
    summary: str
    build: Callable[..., Drafter]
    num_draft: int | Callable[[Mapping[str, int]], int]
    accelerator: Mapping[str, int] = field(default_factory=dict)
    scored_as: Callable[..., Drafter] | None = None
    profile: Profile | None = COPYING

    @property
    def options(self) -> tuple[Option, ...]:
        """The drafter's options, read from the annotations of its constructor."""
        hints = get_type_hints(self.build.__init__, include_extras=True)  # type: ignore[misc]
        found = []
        for name, parameter in inspect.signature(self.build).parameters.items():
            if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                continue
            hint = hints[name]
            bounds = get_args(hint)[1] if get_origin(hint) is Annotated else Flag(name)
            found.append(Option(name, parameter.default, bounds))
        return tuple(found)

    @property
    def num_top(self) -> int:
        """How many of the target's likeliest tokens the drafter wants to see at every node."""
        number: int = getattr(self.build, "num_top", 0)
        return number

    @property
    def needs_draft_model(self) -> bool:
        """Whether it drafts with a smaller model."""
        return bool(getattr(self.build, "needs_draft_model", False))

    @property
    def samples(self) -> bool:
        """Whether it can draw its drafts and say from what (a `SamplingDrafter`), as rejection sampling needs."""
        return hasattr(self.build, "distributions") and any(option.name == "sampled" for option in self.options)

    def defaults(self, device: str) -> dict[str, int | bool]:
        """Option values on a kind of device ("cpu", "cuda")."""
        values = {option.name: option.default for option in self.options}
        if device != "cpu":
            values |= {name: value for name, value in self.accelerator.items() if name in values}
        return values

    def budget(self, device: str, options: Mapping[str, int]) -> int:
        """The default `num_draft` on a kind of device, with these options."""
        if callable(self.num_draft):
            return self.num_draft(options)
        return self.num_draft if device == "cpu" else self.accelerator.get("num_draft", self.num_draft)

    def check(self, values: Mapping[str, Any]) -> dict[str, int | bool]:
        """`values` converted and within bounds. Raises InputError naming the option."""
        options = {option.name: option for option in self.options}
        checked: dict[str, int | bool] = {}
        for name, value in values.items():
            if name not in options:
                known = ", ".join(f"{self.name}.{each}" for each in options) or "none"
                raise InputError(f"The lane {self.name} has no option {name!r}; it has: {known}.")
            checked[name] = _convert(f"{self.name}.{name}", options[name], value)
        return checked


def _convert(label: str, option: Option, value: Any) -> int | bool:
    if isinstance(option.bounds, Flag):
        text = str(value).strip().lower()
        if text in ("true", "yes", "1", "on"):
            return True
        if text in ("false", "no", "0", "off"):
            return False
        raise InputError(f"{label} is {value!r}; give true or false.")
    low, high = option.bounds.low, option.bounds.high
    try:
        number = int(str(value))
    except ValueError:
        raise InputError(f"{label} is {value!r}; give a whole number from {low} to {high}.") from None
    if not low <= number <= high:
        raise InputError(f"{label} is {number}; give a whole number from {low} to {high}.")
    return number
