"""The bench: prompts x lanes x repetitions, whole runs in turn and in rotated order, medians and their spread.

What is timed. A lane's clock (`decode_ms`) is the race's: draft + target + keep of its own steps, and the building of
its tables; prefill is not on it. `run_ms` is the time of the whole: prefill, the session's cache, tables, and
every step. A peer's `run_ms` is the whole call of `generate`, and its decode time what follows its first output, whose
tokens are not counted either. So decode is compared with decode, and run with run.

A probe beside each run, on no clock, tells how fast the machine is (`specrace.engine.pace`); all times, peers' too, are
corrected to its pace before the prompt's first run, and what threads waited for a processor is left out.

A lane runs to its end by itself (solo), lanes and peers one after the other. In each repetition the lanes are also
raced step by step, as the page does it; the two clocks should agree, and where they differ by more than 5 % the bench
says so.

Drafters may learn from the outputs of the prompts before, as on a server that remembers: never from an output of the
same prompt, in whatever repetition, so that neither order nor repetitions change what a lane knows. A prompt's output
joins them once all its runs are over, off every clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Protocol

from specrace.core.clock import own_ms
from specrace.core.cost_curve import CostCurve, assumed_curve
from specrace.core.errors import InputError
from specrace.core.events import Difference, Pace
from specrace.core.metrics import LaneMetrics, first_difference, loop_tokens
from specrace.core.settings import MATCH
from specrace.drafters import find_method
from specrace.engine.lane import Lane
from specrace.engine.pace import PaceKeeper, timed
from specrace.engine.race import (
    RaceTarget,
    explain_difference,
    gather,
    in_race_time,
    make_lane,
    warm_up,
    warm_up_draft_model,
)
from specrace.engine.spec import RaceSpec, largest_draft, plan_lanes
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.sources import Sources

MAX_REPETITIONS = 1000
TOLERANCE = 0.05
# A peer, and the lane that does the same.
COUNTERPARTS = {"transformers": "vanilla", "transformers-pld": "prompt-lookup"}


class BenchTarget(RaceTarget, Protocol):
    """A race's target that tells its memory and the least time of a step."""

    def reset_peak_memory(self) -> None:
        """Begin to watch."""

    def peak_memory(self) -> int | None:
        """Most bytes in use since then; None where that cannot be told."""

    def step_limit_ms(self, columns: float, rows: float) -> float:
        """Time in which the device copies the bytes that a step of `rows` over so many cache columns must move."""


class PeerOutput(Protocol):
    """What a peer's run tells."""

    tokens: tuple[int, ...]
    run_ms: float
    first_ms: float
    first_tokens: int


class PeerDecoder(Protocol):
    """Another way to decode the same model."""

    name: str

    @property
    def settings(self) -> dict[str, Any]:
        """What it was given."""

    def run(self, prompt: Sequence[int], max_new_tokens: int) -> Any:
        """A `PeerOutput`."""


@dataclass(frozen=True)
class BenchPrompt:
    """A prompt's ids; `max_new_tokens`, where given, goes before the spec's."""

    id: str
    tokens: tuple[int, ...]
    question: str = ""
    max_new_tokens: int | None = None


@dataclass
class LaneRun:
    """One run of a lane by itself."""

    tokens: tuple[int, ...]
    metrics: LaneMetrics
    prefill_ms: float
    run_ms: float
    peak_memory: int | None
    limit_ms: float


@dataclass
class PromptResult:
    """All that was measured on one prompt."""

    prompt: BenchPrompt
    runs: dict[str, list[LaneRun]] = field(default_factory=dict)
    interleaved_ms: dict[str, list[float]] = field(default_factory=dict)
    peer_runs: dict[str, list[Any]] = field(default_factory=dict)
    differences: dict[str, Difference | None] = field(default_factory=dict)
    pace: Pace | None = None

    @property
    def loops(self) -> int:
        """How many tokens at the end of vanilla's output repeat themselves."""
        return loop_tokens(self.runs["vanilla"][0].tokens)

    def decode_ms(self, lane: str) -> float:
        """Median over the repetitions."""
        return median(run.metrics.decode_ms for run in self.runs[lane])


class Bench:
    """Runs the prompts. `curve` gives the draft sizes that the spec leaves open.

    With `keep_outputs` vanilla's outputs stay for the prompts that come later.
    """

    def __init__(
        self,
        target: BenchTarget,
        spec: RaceSpec,
        *,
        peers: Sequence[PeerDecoder] = (),
        repetitions: int = 3,
        sources: Sources = Sources(),  # noqa: B008  it is frozen
        curve: CostCurve | None = None,
        keep_outputs: bool = True,
    ) -> None:
        if not 1 <= repetitions <= MAX_REPETITIONS:
            raise InputError(f"The number of repetitions is {repetitions}; give 1 to {MAX_REPETITIONS}.")
        self.target, self.spec, self.peers, self.repetitions = target, spec, peers, repetitions
        self._sources, self.curve = sources, curve
        self.keep_outputs = keep_outputs
        self._outputs = self._past = PastOutputs()
        self._warm = False
        self._pace: PaceKeeper

    def run(self, prompts: Iterable[BenchPrompt], report: Callable[[str], object] = str) -> list[PromptResult]:
        """Every prompt's measurements; `report` is told before each run. Raises InputError where one does not fit."""
        prompts = list(prompts)
        for prompt in prompts:
            self._check(prompt)
        return [self._run_prompt(number, prompt, report) for number, prompt in enumerate(prompts)]

    def _spec_of(self, prompt: BenchPrompt) -> RaceSpec:
        return replace(self.spec, max_new_tokens=prompt.max_new_tokens or self.spec.max_new_tokens)

    def _near(self, prompt: BenchPrompt) -> CostCurve | None:
        return None if self.curve is None else self.curve.near(len(prompt.tokens))

    def _check(self, prompt: BenchPrompt) -> None:
        try:
            largest = largest_draft(self.spec, self.target.device_type, self._near(prompt))
            self.target.check_length(len(prompt.tokens), self._spec_of(prompt).max_new_tokens, largest)
        except InputError as error:
            raise InputError(f"Prompt {prompt.id}: {error}") from error

    def _run_prompt(self, number: int, prompt: BenchPrompt, report: Callable[[str], object]) -> PromptResult:
        """Warm up, then so many repetitions of every lane and peer, each time beginning with another one."""
        found = PromptResult(prompt)
        self._past = self._outputs.of_others(prompt.tokens)
        self._pace = PaceKeeper.on(self.target, self.target.prefill(prompt.tokens), prompt.tokens[-1])
        try:
            self._pace.choose_threads()
            self._warm_up(prompt, report)
            self._pace.start()
            contestants: list[str | PeerDecoder] = [*self.spec.lanes, *self.peers]
            for repetition in range(self.repetitions):
                first = (number + repetition) % len(contestants)
                self._repeat(found, (*contestants[first:], *contestants[:first]), report)
                report(f"{prompt.id}: all lanes, step by step")
                for lane, ms in self._race(prompt, first).items():
                    found.interleaved_ms.setdefault(lane, []).append(ms)
        finally:
            self._pace.release()
        found.pace = self._pace.summary()
        self._compare(found)
        if self.keep_outputs:
            self._outputs.add(found.runs["vanilla"][0].tokens, prompt.tokens)
        return found

    def _repeat(
        self, found: PromptResult, contestants: Sequence[str | PeerDecoder], report: Callable[[str], object]
    ) -> None:
        """Run every contestant once, in this order."""
        prompt = found.prompt
        for each in contestants:
            name = each if isinstance(each, str) else each.name
            report(f"{prompt.id}: {name}")
            if isinstance(each, str):
                found.runs.setdefault(name, []).append(self._run_lane(name, prompt))
            else:
                found.peer_runs.setdefault(name, []).append(self._run_peer(each, prompt))

    def _run_peer(self, peer: PeerDecoder, prompt: BenchPrompt) -> Any:
        """A peer's run, its times corrected by the pace before it and after it."""
        runs: list[Any] = []
        self._pace.catch_up()
        before = self._pace.slowdown
        wall_ms, own = timed(lambda: runs.append(peer.run(prompt.tokens, self._spec_of(prompt).max_new_tokens)))
        self._pace.catch_up()
        scale = own / wall_ms * 2.0 / (before + self._pace.slowdown)
        return replace(runs[0], run_ms=scale * runs[0].run_ms, first_ms=scale * runs[0].first_ms)

    def _warm_up(self, prompt: BenchPrompt, report: Callable[[str], object]) -> None:
        """Every shape of this prompt, and before the first one a whole run of everything."""
        report(f"{prompt.id}: warming up")
        prefix = self.target.prefill(prompt.tokens)
        warm_up(self.target, prefix, prompt.tokens, self._spec_of(prompt), self._near(prompt))
        for name in self.spec.lanes:
            if find_method(name).needs_draft_model:
                warm_up_draft_model(self._make_lane(name, prompt, prefix))
        if not self._warm:
            for name in self.spec.lanes:
                self._run_lane(name, prompt)
            for peer in self.peers:
                peer.run(prompt.tokens, self._spec_of(prompt).max_new_tokens)
            self._warm = True

    def _make_lane(self, name: str, prompt: BenchPrompt, prefix: Any) -> Lane:
        near = self._near(prompt)
        curve = near or assumed_curve(self.target.device_type)
        material = gather(self.target, prompt.tokens, self.spec, curve, replace(self._sources, past=self._past))
        return make_lane(self.target, name, prefix, material, self._spec_of(prompt), near, self._pace)

    def _run_lane(self, name: str, prompt: BenchPrompt) -> LaneRun:
        """Prefill, build and decode, alone from begin to end."""
        self._pace.catch_up()
        self.target.reset_peak_memory()
        began = own_ms()
        prefix = self.target.prefill(prompt.tokens)
        lane = self._make_lane(name, prompt, prefix)
        # All before the first step, of which the lane's clock has the tables. A clock's reading may be off by a wait.
        opening_ms = max(own_ms() - began - lane.at_ms, prefix.ms)
        metrics = LaneMetrics(draft_ms=lane.at_ms)
        while not lane.end:
            self._pace.look()
            metrics.add(lane.step())
        peak = self.target.peak_memory()
        middle = len(prompt.tokens) + len(lane.tokens) / 2
        limit = self.target.step_limit_ms(middle, 1 + metrics.drafted_per_step)
        return LaneRun(tuple(lane.tokens), metrics, prefix.ms, opening_ms + metrics.decode_ms, peak, limit)

    def _race(self, prompt: BenchPrompt, first: int) -> dict[str, float]:
        """Each lane's clock where all take turns step by step, beginning with the lane number `first`."""
        prefix = self.target.prefill(prompt.tokens)
        first %= len(self.spec.lanes)
        names = (*self.spec.lanes[first:], *self.spec.lanes[:first])
        lanes = [self._make_lane(name, prompt, prefix) for name in names]
        self._pace.catch_up()
        for _ in in_race_time(lanes, between=self._pace.look):
            pass
        return {lane.name: lane.at_ms for lane in lanes}

    def _compare(self, found: PromptResult) -> None:
        """Where each lane and peer first differs from vanilla, if it prints what vanilla prints at all."""
        reference = found.runs["vanilla"][0].tokens
        outputs = {name: runs[0].tokens for name, runs in found.runs.items()}
        plans = plan_lanes(self.spec, self.target.device_type)
        outputs = {name: tokens for name, tokens in outputs.items() if plans[name].verifier == MATCH}
        if not self.spec.temperature:
            outputs |= {name: runs[0].tokens for name, runs in found.peer_runs.items()}
        for name, tokens in outputs.items():
            position = first_difference(tokens, reference)
            found.differences[name] = None
            if position is not None:
                before, params = [*found.prompt.tokens, *reference[:position]], self.spec.sampling_params()
                found.differences[name] = explain_difference(self.target, before, position, params)
