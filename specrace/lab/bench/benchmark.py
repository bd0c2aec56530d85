"""The benchmark: prompts x lanes x repetitions, in rotated order; medians and their spread.

A lane is one of our drafting methods; vanilla, the baseline, drafts nothing. A peer is another library's decoder.

What is timed: a lane's clock (`decode_ms`) is the race's. It counts the lane's own steps (drafting, the target's
forward, keeping the accepted KV) and the building of its tables for this prompt, but no prefill. What a server builds
once for all requests, tables of the documents and indexes of earlier answers, is on no clock; `shared_ms` is the time
spent on it so far. `run_ms` covers the whole run: prefill, the session's cache, tables, and every step. A peer's
`run_ms` is the whole call of `generate`; its decode time begins after its first tokens, which are not counted. So
decode is compared with decode, and run with run.

A probe between runs measures the machine's pace: how fast it is at that moment (`specrace.engine.pace`). All times,
including the peers', are corrected to the pace before the prompt's first run, and exclude time spent waiting for a
processor.

Lanes and peers run one after the other, each to its end (solo). In each repetition the lanes are also raced step by
step, as on the page. The two clocks should agree; a difference above 5 % is reported.

Drafters may learn from the outputs of earlier prompts, as on a server that keeps them, but never from an output of the
same prompt, so neither order nor repetitions change what a lane knows. A prompt's output is added after all its runs,
when no clock is running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Protocol, TypeVar

from specrace.core.clock import since_ms, thread_ms
from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError
from specrace.core.events import Difference, Pace
from specrace.core.metrics import LaneMetrics, first_difference, loop_tokens
from specrace.core.settings import MATCH
from specrace.engine.badge import explain_difference
from specrace.engine.lane import Lane
from specrace.engine.lane_name import method_of
from specrace.engine.pace import PaceKeeper, timed
from specrace.engine.prepare import warm_up, warm_up_draft_model, warm_up_heads
from specrace.engine.race import in_race_time
from specrace.engine.refit import refit
from specrace.engine.setup import RaceSetup, RaceTarget, read_prompt, shared_ms
from specrace.engine.spec import RaceSpec, largest_draft, plan_lane, plan_lanes
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.sources import Sources

# Refuses typing errors; a guess.
MAX_REPETITIONS = 1000
# The relative difference between the solo and the race's clock above which a warning is given. Not tuned.
TOLERANCE = 0.05
# Peer -> the lane whose method is the same or the most similar.
COUNTERPARTS = {
    "transformers": "vanilla",
    "transformers-pld": "prompt-lookup",
    "llama-cpp": "vanilla",
    "llama-cpp-ngram-simple": "prompt-lookup",
    "llama-cpp-ngram-map-k": "prompt-lookup",
    "llama-cpp-ngram-map-k4v": "trie",
    "llama-cpp-ngram-mod": "prompt-lookup",
    "llama-cpp-ngram-cache": "trie",
}
T = TypeVar("T")


class BenchTarget(RaceTarget, Protocol):
    """A race's target that can also measure memory and bound the time of a step."""

    def reset_peak_memory(self) -> None:
        """Start measuring peak memory."""

    def peak_memory(self) -> int | None:
        """Peak bytes since the reset; None where unknown."""

    def measure_bandwidth(self) -> None:
        """Measure the memory bandwidth that `step_limit_ms` assumes."""

    def step_limit_ms(self, columns: float, rows: float) -> float:
        """The roofline of a step of `rows` over `columns` of KV cache: ms to move its bytes at full bandwidth."""


@dataclass(frozen=True)
class PeerRun:
    """One run of a peer: the time of the whole call, the time to the first tokens, and the number of these tokens.

    `steps`: how many steps followed the first tokens, None if the peer does not report it. `drafted`, `accepted`: the
    totals of draft tokens.
    """

    tokens: tuple[int, ...]
    run_ms: float
    first_ms: float
    first_tokens: int
    steps: int | None = None
    drafted: int = 0
    accepted: int = 0


class PeerDecoder(Protocol):
    """A decoder of another library for the same model; `settings`: those that a report shows."""

    name: str
    settings: dict[str, Any]

    def run(self, prompt: Sequence[int], max_new_tokens: int) -> PeerRun:
        """Decode once, and time it."""


@dataclass(frozen=True)
class BenchPrompt:
    """A prompt's token ids; `max_new_tokens`, if not None, replaces the spec's value."""

    id: str
    tokens: tuple[int, ...]
    question: str = ""
    max_new_tokens: int | None = None


@dataclass
class LaneRun:
    """One solo run of a lane; `end`: why it ended, as in a `Step`.

    `peak_memory`: in bytes, None where unknown. `limit_ms`: the roofline of a mean step. `build_ms` is a part of the
    decode time; `shared_ms` is on no clock, see `LaneInfo`.
    """

    tokens: tuple[int, ...]
    metrics: LaneMetrics
    prefill_ms: float
    run_ms: float
    peak_memory: int | None
    limit_ms: float
    end: str
    build_ms: float = 0.0
    shared_ms: float = 0.0


@dataclass
class PromptResult:
    """The measurements on one prompt, by lane or peer.

    `interleaved_ms`: a lane's clock in each race with the other lanes, step by step. `differences`: the first
    difference from vanilla's output, None if there is none.
    """

    prompt: BenchPrompt
    runs: dict[str, list[LaneRun]] = field(default_factory=dict)
    interleaved_ms: dict[str, list[float]] = field(default_factory=dict)
    peer_runs: dict[str, list[PeerRun]] = field(default_factory=dict)
    differences: dict[str, Difference | None] = field(default_factory=dict)
    pace: Pace | None = None

    @property
    def loops(self) -> int:
        """The number of tokens in the loop at the end of vanilla's output; 0 if there is none."""
        return loop_tokens(self.runs["vanilla"][0].tokens)

    def decode_ms(self, lane: str) -> float:
        """A lane's decode time, the median over the repetitions."""
        return median(run.metrics.decode_ms for run in self.runs[lane])


class Bench:
    """Runs lanes and peers on prompts. If the spec has no `num_draft`, the cost `curve` sets it.

    `sources`: tables of the documents, from which drafters may draft.
    With `keep_outputs` drafters may draft from vanilla's outputs on earlier prompts.
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
        self.target = target
        self.spec = spec
        self.peers = peers
        self.repetitions = repetitions
        self.curve = curve
        self.keep_outputs = keep_outputs
        self._sources = sources
        # All outputs so far, and those that this prompt's lanes may use.
        self._outputs = self._past = PastOutputs()
        self._warm = False
        # The curve near this prompt's length, refitted to the machine's present speed.
        self._refitted: CostCurve | None = None
        # Lane -> the cost of a forward of its trained head.
        self._head_prices: dict[str, float] = {}
        # Set for each prompt.
        self._pace: PaceKeeper

    def run(
        self, prompts: Iterable[BenchPrompt], on_progress: Callable[[str], object] | None = None
    ) -> list[PromptResult]:
        """Measure every prompt; `on_progress` gets a line before each run. Raises InputError for too long a prompt."""
        prompts = list(prompts)
        for prompt in prompts:
            self._check(prompt)
        report = on_progress or ignore
        return [self._run_prompt(number, prompt, report) for number, prompt in enumerate(prompts)]

    def _spec_of(self, prompt: BenchPrompt) -> RaceSpec:
        return replace(self.spec, max_new_tokens=prompt.max_new_tokens or self.spec.max_new_tokens)

    def _curve_near(self, prompt: BenchPrompt) -> CostCurve | None:
        return None if self.curve is None else self.curve.near(len(prompt.tokens))

    def _check(self, prompt: BenchPrompt) -> None:
        """Raise InputError, which names the prompt, if it is too long with its output and the largest draft."""
        try:
            target, curve = self.target, self._curve_near(prompt)
            largest = largest_draft(self.spec, target.device_type, curve, chains_only=target.chains_only)
            self.target.check_length(len(prompt.tokens), self._spec_of(prompt).max_new_tokens, largest)
        except InputError as error:
            raise InputError(f"Prompt {prompt.id}: {error}") from error

    def _run_prompt(self, number: int, prompt: BenchPrompt, on_progress: Callable[[str], object]) -> PromptResult:
        """Warm up, then run every lane and peer in each repetition, each time starting with a different one."""
        result = PromptResult(prompt)
        self._past = self._outputs.excluding(prompt.tokens)
        self._pace = PaceKeeper.for_target(self.target, self.target.prefill(prompt.tokens), prompt.tokens[-1])
        decoders: list[str | PeerDecoder] = [*self.spec.lanes, *self.peers]
        try:
            self._pace.choose_threads()
            self._warm_up(prompt, on_progress)
            self._pace.start()
            # The bandwidth is measured now, at the pace to which the lanes' times are corrected.
            self.target.measure_bandwidth()
            for first in range(number, number + self.repetitions):
                for decoder in _rotate(decoders, first):
                    on_progress(f"{prompt.id}: {decoder if isinstance(decoder, str) else decoder.name}")
                    if isinstance(decoder, str):
                        result.runs.setdefault(decoder, []).append(self._run_lane(decoder, prompt))
                    else:
                        result.peer_runs.setdefault(decoder.name, []).append(self._run_peer(decoder, prompt))
                on_progress(f"{prompt.id}: all lanes, step by step")
                for lane, ms in self._race(prompt, first % len(decoders)).items():
                    result.interleaved_ms.setdefault(lane, []).append(ms)
        finally:
            self._pace.release()
        result.pace = self._pace.summary()
        self._compare(result)
        if self.keep_outputs:
            self._outputs.add(result.runs["vanilla"][0].tokens, prompt.tokens)
        return result

    def _run_peer(self, peer: PeerDecoder, prompt: BenchPrompt) -> PeerRun:
        """Run a peer once; correct its times by the mean pace before and after it, and by the time spent waiting.

        `slowdown`: how many times as long a probe takes as before the prompt's first run.
        """
        runs: list[PeerRun] = []
        self._pace.refresh()
        slowdown_before = self._pace.slowdown
        wall_ms, running_ms = timed(lambda: runs.append(peer.run(prompt.tokens, self._spec_of(prompt).max_new_tokens)))
        self._pace.refresh()
        scale = running_ms / wall_ms * 2.0 / (slowdown_before + self._pace.slowdown)
        return replace(runs[0], run_ms=scale * runs[0].run_ms, first_ms=scale * runs[0].first_ms)

    def _warm_up(self, prompt: BenchPrompt, on_progress: Callable[[str], object]) -> None:
        """Run every shape that this prompt needs; before the first prompt also run every lane and peer once."""
        on_progress(f"{prompt.id}: warming up")
        # What reading the prompt leaves, such as its KV cache, from which every lane begins.
        prefix = read_prompt(self.target, prompt.tokens, self.spec)
        setup = RaceSetup(self.target, prompt.tokens, prefix, self._spec_of(prompt), self._curve_near(prompt))
        warm_up(setup)
        self._refitted = refit(setup)
        self._head_prices = warm_up_heads(setup)
        self._open_lanes(prompt, prefix)
        if not self._warm:
            for name in self.spec.lanes:
                self._run_lane(name, prompt)
            for peer in self.peers:
                peer.run(prompt.tokens, self._spec_of(prompt).max_new_tokens)
            self._warm = True

    def _open_lanes(self, prompt: BenchPrompt, prefix: Any) -> None:
        """Open all lanes at once: with CUDA graphs, each then gets its own KV cache and captures what it needs."""
        lanes = [self._make_lane(name, prompt, prefix) for name in self.spec.lanes]
        for lane in lanes:
            if method_of(lane.name).needs_draft_model:
                warm_up_draft_model(lane)

    def _make_lane(self, name: str, prompt: BenchPrompt, prefix: Any) -> Lane:
        # The setup is for this lane alone, so that a draft model reads the prompt only for lanes that use it.
        spec = replace(self._spec_of(prompt), lanes=(name,))
        sources = replace(self._sources, past=self._past)
        setup = RaceSetup(
            self.target, prompt.tokens, prefix, spec, self._refitted, sources, head_prices=self._head_prices
        )
        return setup.make_lane(name, self._pace)

    def _run_lane(self, name: str, prompt: BenchPrompt) -> LaneRun:
        """Run a lane once, solo: prefill, build, decode."""
        self._pace.refresh()
        # Prefill and tables are also corrected to the pace, because a peer's whole run is.
        slowdown_before = self._pace.slowdown
        self.target.reset_peak_memory()
        began = thread_ms()
        prefix = read_prompt(self.target, prompt.tokens, replace(self.spec, lanes=(name,)))
        lane = self._make_lane(name, prompt, prefix)
        # Everything before the first step except the tables, which are on the lane's clock. The thread's clock and the
        # prefill's differ a little, so `opening_ms` is never less than the prefill.
        opening_ms = max(since_ms(began) - lane.at_ms, prefix.ms) / slowdown_before
        lane.at_ms /= slowdown_before
        build_ms = lane.at_ms
        metrics = LaneMetrics(draft_ms=build_ms)
        while not lane.end:
            self._pace.probe_if_due()
            metrics.add(lane.step())
        peak = self.target.peak_memory()
        # The mean number of tokens in the KV cache.
        middle = len(prompt.tokens) + len(lane.tokens) / 2
        limit = self.target.step_limit_ms(middle, 1 + metrics.drafted_per_step)
        prefill_ms, run_ms = prefix.ms / slowdown_before, opening_ms + metrics.decode_ms
        plan = plan_lane(self.spec, name, self.target.device_type, chains_only=self.target.chains_only)
        lane_shared_ms = shared_ms(lane, plan, self._sources)
        return LaneRun(
            tokens=tuple(lane.tokens),
            metrics=metrics,
            prefill_ms=prefill_ms,
            run_ms=run_ms,
            peak_memory=peak,
            limit_ms=limit,
            end=lane.end,
            build_ms=build_ms,
            shared_ms=lane_shared_ms,
        )

    def _race(self, prompt: BenchPrompt, first: int) -> dict[str, float]:
        """Race the lanes once, and return their clocks; lane number `first` steps first."""
        prefix = read_prompt(self.target, prompt.tokens, self.spec)
        self._pace.refresh()
        lanes = [self._make_lane(name, prompt, prefix) for name in _rotate(self.spec.lanes, first)]
        for lane in lanes:
            lane.at_ms /= self._pace.slowdown
        for _ in in_race_time(lanes, before_step=self._pace.probe_if_due):
            pass
        return {lane.name: lane.at_ms for lane in lanes}

    def _compare(self, result: PromptResult) -> None:
        """Record where each lane and peer first differs from vanilla, if its decoding is meant to match."""
        reference = result.runs["vanilla"][0].tokens
        plans = plan_lanes(self.spec, self.target.device_type, chains_only=self.target.chains_only)
        outputs = {name: runs[0].tokens for name, runs in result.runs.items() if plans[name].verifier == MATCH}
        # A peer that samples draws other random numbers than we do.
        if not self.spec.temperature:
            outputs |= {name: runs[0].tokens for name, runs in result.peer_runs.items()}
        for name, tokens in outputs.items():
            position = first_difference(tokens, reference)
            result.differences[name] = None
            if position is not None:
                context = [*result.prompt.tokens, *reference[:position]]
                result.differences[name] = explain_difference(
                    self.target, context, position, self.spec.sampling_params()
                )


def ignore(_: str) -> None:
    """Ignore a line of progress."""


def _rotate(items: Sequence[T], first: int) -> list[T]:
    """The items, rotated so that number `first` (modulo their count) comes first."""
    first %= len(items)
    return [*items[first:], *items[:first]]
