"""The race: lanes take turns on one device, and the lane whose own clock is behind goes next."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from specrace.core.cost_curve import CostCurve, assumed_curve, best_budget, row_counts
from specrace.core.errors import InputError
from specrace.core.events import Difference, Event, Finished, LaneInfo, LaneResult, Started, Step
from specrace.core.metrics import LaneMetrics, first_difference, loop_tokens
from specrace.core.rejection import MATCH, NOTE, REJECTION, VERIFIERS, Coins
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.drafters import Drafter, Material, find_method
from specrace.drafters.base import DraftModel
from specrace.engine.lane import Lane, TargetSession
from specrace.engine.pace import PaceKeeper, timed
from specrace.ngrams.counts import NGramCounts
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import SuffixIndex

DEFAULT_LANES = ("vanilla", "trigram", "lookahead", "trie")
MAX_NEW_TOKENS = 4096
MAX_NUM_DRAFT = 1024
WARM_UP_S = 2.0


class Prefix(Protocol):
    """A prompt's KV, computed once; `ms` is what that took."""

    @property
    def ms(self) -> float:
        """Milliseconds of prefill."""


class RaceTarget(Protocol):
    """What a race needs of a target. `specrace.model.target.Target` is one; a test's may be a table."""

    @property
    def device_type(self) -> str:
        """ "cpu" or "cuda"."""

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end a text."""

    @property
    def threads(self) -> int:
        """The most threads that a forward may use; 1 where there is no choice."""

    def use_threads(self, count: int) -> None:
        """Let forwards use so many threads."""

    def check_length(self, prompt_tokens: int, max_new_tokens: int, num_draft: int) -> None:
        """Raises InputError where that does not fit."""

    def prefill(self, prompt: Sequence[int]) -> Any:
        """A `Prefix`."""

    def session(
        self,
        prefix: Any,
        room: int,
        params: SamplingParams | None = None,
        num_top: int = 0,
        rows: Sequence[int] = (1,),
    ) -> TargetSession:
        """A lane's own session on a clone of the prefix; its scores tell the `num_top` likeliest tokens, too.

        What replays recorded forwards gets ready for trees of up to each of `rows` nodes.
        """

    def draft_model(self) -> DraftModel | None:
        """The smaller model that drafts for this one, if any."""

    def top_two(self, tokens: Sequence[int], params: SamplingParams) -> tuple[tuple[int, int], float]:
        """The two tokens that `params` chose between after `tokens`, its choice first, and their gap."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of `tokens`."""

    def describe(self) -> dict[str, Any]:
        """Model, dtype, device, versions."""


@dataclass(frozen=True)
class RaceSpec:
    """What is raced and how. Vanilla always runs, first: the others are measured against it.

    `num_draft` None leaves every lane its method's default. Under the verifier "rejection" the lanes that can draw
    their drafts do so, and are verified by rejection sampling; the others match, as all do under "match". Raises
    InputError for values out of bounds.
    """

    lanes: tuple[str, ...] = DEFAULT_LANES
    max_new_tokens: int = 160
    num_draft: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    verifier: str = MATCH

    def __post_init__(self) -> None:
        names = tuple(dict.fromkeys(("vanilla", *self.lanes)))
        object.__setattr__(self, "lanes", names)
        for name in (*names, *self.options):
            find_method(name)
        for name, values in self.options.items():
            find_method(name).check(values)
        if not 1 <= self.max_new_tokens <= MAX_NEW_TOKENS:
            raise InputError(f"The answer's length is {self.max_new_tokens}; give 1 to {MAX_NEW_TOKENS} new tokens.")
        if self.num_draft is not None and not 0 <= self.num_draft <= MAX_NUM_DRAFT:
            raise InputError(f"The number of draft tokens is {self.num_draft}; give 0 to {MAX_NUM_DRAFT}.")
        if self.verifier not in VERIFIERS:
            raise InputError(f"The verifier is {self.verifier!r}; choose from {', '.join(VERIFIERS)}.")
        if self.verifier == REJECTION and not self.sampling_params().temperature:
            raise InputError("Rejection sampling needs a temperature above 0; raise it, or choose the verifier match.")
        self.sampling_params()

    def sampling_params(self) -> SamplingParams:
        """How tokens are chosen."""
        return SamplingParams(self.temperature, self.top_p, self.top_k, self.seed)

    def lane_options(self, name: str, device: str) -> dict[str, int | bool]:
        """The options of a lane: its method's defaults on this kind of device, then what was asked for."""
        method = find_method(name)
        sampled = {"sampled": True} if self.verifier == REJECTION and method.samples else {}
        return method.defaults(device) | sampled | method.check(self.options.get(name, {}))

    def lane_verifier(self, name: str, device: str) -> str:
        """The verifier of a lane: "match" or "rejection"."""
        sampled = find_method(name).samples and self.lane_options(name, device)["sampled"]
        return REJECTION if self.verifier == REJECTION and sampled else MATCH

    def lane_budget(self, name: str, device: str, curve: CostCurve | None = None) -> int:
        """The most draft nodes of a lane in one step: what was asked for, else what pays on the machine's `curve`.

        Without a curve, and where a method has no profile, it is the method's default.
        """
        method = find_method(name)
        default = method.budget(device, self.lane_options(name, device))
        if name != "vanilla" and self.num_draft is not None:
            return self.num_draft
        if curve is None or method.profile is None or not default:
            return default
        # At least one: who races a lane wants to see it draft, even where vanilla would be as fast.
        most = curve.rows[-1] - 1
        return best_budget(curve, method.profile.gains(most), least=min(1, most), price=method.profile.price)


def race(
    target: RaceTarget,
    prompt: Sequence[int],
    spec: RaceSpec,
    *,
    corpus: NGramCounts | None = None,
    corpus_index: SuffixIndex | None = None,
    past: Iterable[Sequence[int]] = (),
    about: Mapping[str, Any] | None = None,
    curve: CostCurve | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Event]:
    """Started, the lanes' Steps in race time, Finished. `stop` is asked before every step.

    What drafters may draft from beside the prompt is given: a `corpus`, and `past` outputs of this target. Draft
    sizes that the spec leaves open come from the machine's cost `curve`, if there is one. Raises InputError, before
    anything is yielded, when the prompt does not fit the model or a lane lacks what it drafts from.
    """
    prompt = tuple(prompt)
    device = target.device_type
    near = None if curve is None else curve.near(len(prompt))
    target.check_length(len(prompt), spec.max_new_tokens, max(lane_budgets(spec, device, near)))
    pace = PaceKeeper.on(target, target.prefill(prompt), prompt[-1])
    try:
        pace.choose_threads()
        prefix = target.prefill(prompt)  # measured now: the first run of a shape pays for more than the prompt
        warm_up(target, prefix, prompt, spec, near)
        material = gather(target, prompt, spec, near or assumed_curve(device), corpus, corpus_index, past)
        for name in spec.lanes:
            if find_method(name).needs_draft_model:
                warm_up_draft_model(make_lane(target, name, prefix, material, spec, near))
        lanes = [make_lane(target, name, prefix, material, spec, near, pace) for name in spec.lanes]
        described = target.describe() | {"settings": settings(spec), "cost_curve": curve and curve.as_json()}
        infos = tuple(lane_info(lane, spec, device, material) for lane in lanes)
        yield Started(infos, len(prompt), prefix.ms, described | dict(about or {}))
        metrics = {lane.name: LaneMetrics(draft_ms=lane.at_ms) for lane in lanes}
        pace.start()
        for step in in_race_time(lanes, stop, pace.look):
            metrics[step.lane].add(step)
            yield step
    finally:
        pace.release()
    results = tuple(result(target, lane, lanes[0], metrics, spec.sampling_params()) for lane in lanes)
    yield Finished(results, any(not lane.end for lane in lanes), pace.summary())


def lane_budgets(spec: RaceSpec, device: str, curve: CostCurve | None) -> list[int]:
    """The most draft nodes in one step of each lane."""
    return [spec.lane_budget(name, device, curve) for name in spec.lanes]


def needs_draft_model(spec: RaceSpec) -> bool:
    """Whether one of the lanes drafts with a model."""
    return any(find_method(name).needs_draft_model for name in spec.lanes)


def lane_info(lane: Lane, spec: RaceSpec, device: str, material: Material) -> LaneInfo:
    """What a race says of a lane before its first step."""
    method, drafting = find_method(lane.name), material.draft_model
    return LaneInfo(
        lane.name,
        method.title,
        lane.num_draft,
        spec.lane_options(lane.name, device),
        lane.at_ms,
        spec.lane_verifier(lane.name, device),
        drafting.prefill_ms if method.needs_draft_model and drafting is not None else 0.0,
    )


def in_race_time(
    lanes: Sequence[Lane], stop: Callable[[], bool] = lambda: False, between: Callable[[], object] = lambda: None
) -> Iterator[Step]:
    """Steps of all lanes in the order in which as many private devices would show them.

    A step waits until no lane that still runs is behind its end; a stop shows those that wait. `between` is called
    before each turn.
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


def gather(
    target: RaceTarget,
    prompt: Sequence[int],
    spec: RaceSpec,
    curve: CostCurve,
    corpus: NGramCounts | None,
    corpus_index: SuffixIndex | None,
    past: Iterable[Sequence[int]],
) -> Material:
    """All that the lanes' drafters may know; the target's draft model, which has read the prompt, only where one of
    them drafts with it.
    """
    drafting = target.draft_model() if needs_draft_model(spec) else None
    return Material(
        tuple(prompt),
        target.vocab_size,
        spec.seed,
        corpus,
        corpus_index,
        PastOutputs.of(past),
        spec.sampling_params(),
        None if drafting is None else drafting.after(prompt),
        curve,
    )


def make_lane(
    target: RaceTarget,
    name: str,
    prefix: Prefix,
    material: Material,
    spec: RaceSpec,
    curve: CostCurve | None = None,
    pace: PaceKeeper | None = None,
) -> Lane:
    """A fresh drafter (its build time is on the lane's clock) and a session on a clone of the prefix."""
    device = target.device_type
    options, num_draft = spec.lane_options(name, device), spec.lane_budget(name, device, curve)
    room = spec.max_new_tokens + num_draft + 1
    material = replace(material, room=room)
    built: list[Drafter] = []
    _, build_ms = timed(lambda: built.append(find_method(name).build(material, **options)))
    drafter = built[0]
    num_top: int = getattr(drafter, "num_top", 0)
    session = target.session(prefix, room, spec.sampling_params(), num_top, row_counts(num_draft + 1))
    coins = Coins(spec.seed, name) if spec.lane_verifier(name, device) == REJECTION else None
    return Lane(
        name,
        drafter,
        session,
        material.prompt,
        max_new_tokens=spec.max_new_tokens,
        num_draft=num_draft,
        eos_ids=target.eos_ids,
        build_ms=build_ms,
        coins=coins,
        curve=curve,
        pace=pace,
    )


def warm_up(target: RaceTarget, prefix: Prefix, prompt: Sequence[int], spec: RaceSpec, curve: CostCurve | None) -> None:
    """Run all that the lanes will run before a clock starts, so that no lane pays for being the first.

    Every number of rows up to the largest tree is scored, drawn from and kept as the lanes do it, and read by the draft
    model if there is one: whatever is made at the first use of a shape is made here. Of a model so slow that this takes
    more than `WARM_UP_S` the smaller trees stay cold, for the first use is a small part of such a step.
    """
    device, num_top = target.device_type, max(find_method(name).num_top for name in spec.lanes)
    budgets = lane_budgets(spec, device, curve)
    session = target.session(prefix, max(budgets) + 2, spec.sampling_params(), num_top, row_counts(max(budgets) + 1))
    rejects = any(spec.lane_verifier(name, device) == REJECTION for name in spec.lanes)
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
    """The sizes of the lanes' largest trees, then all that are smaller, the largest first: first steps draft little."""
    largest = {budget + 1 for budget in budgets}
    return [*sorted(largest, reverse=True), *sorted(set(range(1, max(largest))) - largest, reverse=True)]


def warm_up_draft_model(lane: Lane) -> None:
    """Let a lane that is made for this, and drops its session after it, draft as it will: once behind the prompt, and
    once behind a draft that was accepted whole, where two tokens are read at a time.
    """
    for _ in range(2):
        tree = lane.drafter.propose(lane.context, lane.num_draft)
        lane.context += [*tree.tokens[1:], tree.tokens[-1]]


def result(
    target: RaceTarget, lane: Lane, vanilla: Lane, metrics: Mapping[str, LaneMetrics], params: SamplingParams
) -> LaneResult:
    """A lane's figures, and its badge: equal to vanilla as far as both got, or where it differs and by how little.

    A lane under rejection sampling draws its own text, so it is not compared.
    """
    own, base = metrics[lane.name], metrics[vanilla.name]
    shared = min(len(lane.tokens), len(vanilla.tokens)) if not (lane.end and vanilla.end) else None
    compared = lane.coins is None
    position = first_difference(lane.tokens[:shared], vanilla.tokens[:shared]) if compared else None
    difference = None if position is None else explain_difference(target, vanilla, position, params)
    return LaneResult(
        lane=lane.name,
        tokens=own.tokens,
        steps=own.steps,
        tau=own.tau,
        drafted_per_step=own.drafted_per_step,
        acceptance_rate=own.acceptance_rate,
        decode_ms=own.decode_ms,
        tokens_per_s=own.tokens_per_s,
        speedup=own.tokens_per_s / base.tokens_per_s if base.tokens_per_s else 0.0,
        identical=position is None if compared and shared != 0 else None,
        first_difference=difference,
        end=lane.end or "stopped",
        loop_tokens=loop_tokens(lane.tokens),
        note="" if compared else NOTE,
    )


def explain_difference(target: RaceTarget, vanilla: Lane, position: int, params: SamplingParams) -> Difference:
    """The two tokens between which the choice fell at the place, scored afresh, and the gap between them."""
    (best, second), gap = target.top_two(vanilla.context[: vanilla.num_prompt + position], params)
    return Difference(position, (target.decode([best]), target.decode([second])), gap)


def settings(spec: RaceSpec) -> dict[str, Any]:
    """The spec's numbers, for the record."""
    names = ("max_new_tokens", "num_draft", "temperature", "top_p", "top_k", "seed", "verifier")
    return {name: getattr(spec, name) for name in names}


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
    corpus: NGramCounts | None = None,
    corpus_index: SuffixIndex | None = None,
    past: Iterable[Sequence[int]] = (),
    curve: CostCurve | None = None,
    **options: Any,
) -> Iterator[Step]:
    """Decode with one method: its Steps, whose `emitted` tokens in a row are the output.

    What it may draft from beside the prompt, and the machine's cost `curve`, are given as in `race`.

    >>> tokens = [t for step in generate(target, "trie", ids, n=13) for t in step.emitted]  # doctest: +SKIP
    """
    spec = RaceSpec((method,), max_new_tokens, num_draft, temperature, top_p, top_k, seed, {method: options}, verifier)
    near = None if curve is None else curve.near(len(prompt))
    target.check_length(len(prompt), max_new_tokens, spec.lane_budget(method, target.device_type, near))
    material = gather(target, prompt, spec, near or assumed_curve(target.device_type), corpus, corpus_index, past)
    lane = make_lane(target, method, target.prefill(prompt), material, spec, near)
    while not lane.end:
        yield lane.step()
