"""The bench: prompts x lanes x repetitions, whole runs in turn and in rotated order, medians and their spread.

What is timed. A lane's clock (`decode_ms`) is the race's: draft + target + keep of its own steps, and the building of
its tables; prefill is not on it. `run_ms` is the wall clock of the whole: prefill, the session's cache, tables, and
every step. A peer's `run_ms` is the whole call of `generate`, and its decode time what follows its first output, whose
tokens are not counted either. So decode is compared with decode, and run with run.

A lane runs to its end by itself (solo), lanes and peers one after the other. In each repetition the lanes are also
raced step by step, as the page does it; the two clocks should agree, and where they differ by more than 5 % the bench
says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any, Protocol

from specrace.cost import CostCurve
from specrace.drafters import Material, find_method
from specrace.errors import InputError
from specrace.events import Difference
from specrace.lane import Lane
from specrace.metrics import LaneMetrics, first_difference, loop_tokens
from specrace.ngrams.counts import NGramCounts
from specrace.ngrams.suffix_index import SuffixIndex
from specrace.race import RaceSpec, RaceTarget, in_race_time, make_lane, warm_up

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

    @property
    def loops(self) -> int:
        """How many tokens at the end of vanilla's output repeat themselves."""
        return loop_tokens(self.runs["vanilla"][0].tokens)

    def decode_ms(self, lane: str) -> float:
        """Median over the repetitions."""
        return median(run.metrics.decode_ms for run in self.runs[lane])


class Bench:
    """Runs the prompts. `curve` gives the draft sizes that the spec leaves open."""

    def __init__(
        self,
        target: BenchTarget,
        spec: RaceSpec,
        *,
        peers: Sequence[PeerDecoder] = (),
        repetitions: int = 3,
        corpus: NGramCounts | None = None,
        corpus_index: SuffixIndex | None = None,
        curve: CostCurve | None = None,
    ) -> None:
        if not 1 <= repetitions <= MAX_REPETITIONS:
            raise InputError(f"The number of repetitions is {repetitions}; give 1 to {MAX_REPETITIONS}.")
        self.target, self.spec, self.peers, self.repetitions = target, spec, peers, repetitions
        self._corpus, self._corpus_index, self._curve = corpus, corpus_index, curve
        self._warm = False

    def run(self, prompts: Iterable[BenchPrompt], report: Callable[[str], object] = str) -> list[PromptResult]:
        """Every prompt's measurements; `report` is told before each run. Raises InputError where one does not fit."""
        prompts = list(prompts)
        for prompt in prompts:
            self._check(prompt)
        return [self._run_prompt(number, prompt, report) for number, prompt in enumerate(prompts)]

    def _spec_of(self, prompt: BenchPrompt) -> RaceSpec:
        return replace(self.spec, max_new_tokens=prompt.max_new_tokens or self.spec.max_new_tokens)

    def _near(self, prompt: BenchPrompt) -> CostCurve | None:
        return None if self._curve is None else self._curve.near(len(prompt.tokens))

    def _budgets(self, prompt: BenchPrompt) -> list[int]:
        device, near = self.target.device_type, self._near(prompt)
        return sorted({self.spec.lane_budget(name, device, near) for name in self.spec.lanes})

    def _check(self, prompt: BenchPrompt) -> None:
        try:
            needed = self._spec_of(prompt).max_new_tokens
            self.target.check_length(len(prompt.tokens), needed, self._budgets(prompt)[-1])
        except InputError as error:
            raise InputError(f"Prompt {prompt.id}: {error}") from error

    def _run_prompt(self, number: int, prompt: BenchPrompt, report: Callable[[str], object]) -> PromptResult:
        """Warm up, then so many repetitions of every lane and peer, each time beginning with another one."""
        found = PromptResult(prompt)
        self._warm_up(prompt, report)
        contestants: list[str | PeerDecoder] = [*self.spec.lanes, *self.peers]
        for repetition in range(self.repetitions):
            first = (number + repetition) % len(contestants)
            for each in (*contestants[first:], *contestants[:first]):
                if isinstance(each, str):
                    report(f"{prompt.id}: {each}")
                    found.runs.setdefault(each, []).append(self._run_lane(each, prompt))
                else:
                    report(f"{prompt.id}: {each.name}")
                    limit = self._spec_of(prompt).max_new_tokens
                    found.peer_runs.setdefault(each.name, []).append(each.run(prompt.tokens, limit))
            report(f"{prompt.id}: all lanes, step by step")
            for lane, ms in self._race(prompt, first).items():
                found.interleaved_ms.setdefault(lane, []).append(ms)
        self._compare(found)
        return found

    def _warm_up(self, prompt: BenchPrompt, report: Callable[[str], object]) -> None:
        """Every shape of this prompt, and before the first one a whole run of everything."""
        report(f"{prompt.id}: warming up")
        num_top = max(find_method(name).num_top for name in self.spec.lanes)
        warm_up(self.target, self.target.prefill(prompt.tokens), prompt.tokens[-1], self._budgets(prompt), num_top)
        if not self._warm:
            for name in self.spec.lanes:
                self._run_lane(name, prompt)
            for peer in self.peers:
                peer.run(prompt.tokens, self._spec_of(prompt).max_new_tokens)
            self._warm = True

    def _make_lane(self, name: str, prompt: BenchPrompt, prefix: Any) -> Lane:
        material = Material(
            prompt.tokens,
            self.target.vocab_size,
            self.spec.seed,
            self._corpus,
            self._corpus_index,
            rule=self.spec.rule(),
        )
        return make_lane(self.target, name, prefix, material, self._spec_of(prompt), self._near(prompt))

    def _run_lane(self, name: str, prompt: BenchPrompt) -> LaneRun:
        """Prefill, build and decode, alone from begin to end."""
        self.target.reset_peak_memory()
        began = time.perf_counter()
        prefix = self.target.prefill(prompt.tokens)
        lane = self._make_lane(name, prompt, prefix)
        metrics = LaneMetrics(draft_ms=lane.at_ms)
        while not lane.end:
            metrics.add(lane.step())
        run_ms = 1000.0 * (time.perf_counter() - began)
        peak = self.target.peak_memory()
        middle = len(prompt.tokens) + len(lane.tokens) / 2
        limit = self.target.step_limit_ms(middle, 1 + metrics.drafted_per_step)
        return LaneRun(tuple(lane.tokens), metrics, prefix.ms, run_ms, peak, limit)

    def _race(self, prompt: BenchPrompt, first: int) -> dict[str, float]:
        """Each lane's clock where all take turns step by step, beginning with the lane number `first`."""
        prefix = self.target.prefill(prompt.tokens)
        first %= len(self.spec.lanes)
        names = (*self.spec.lanes[first:], *self.spec.lanes[:first])
        lanes = [self._make_lane(name, prompt, prefix) for name in names]
        for _ in in_race_time(lanes):
            pass
        return {lane.name: lane.at_ms for lane in lanes}

    def _compare(self, found: PromptResult) -> None:
        """Where each lane and peer first differs from vanilla, if it prints what vanilla prints at all."""
        reference = found.runs["vanilla"][0].tokens
        outputs = {name: runs[0].tokens for name, runs in found.runs.items()}
        device = self.target.device_type
        outputs = {name: tokens for name, tokens in outputs.items() if self.spec.lane_rule(name, device) == "match"}
        if not self.spec.temperature:
            outputs |= {name: runs[0].tokens for name, runs in found.peer_runs.items()}
        for name, tokens in outputs.items():
            position = first_difference(tokens, reference)
            found.differences[name] = None if position is None else self._explain(found.prompt, reference, position)

    def _explain(self, prompt: BenchPrompt, reference: Sequence[int], position: int) -> Difference:
        (best, second), gap = self.target.top_two([*prompt.tokens, *reference[:position]])
        return Difference(position, (self.target.decode([best]), self.target.decode([second])), gap)


def summarise(results: Sequence[PromptResult], decode: Callable[[Sequence[int]], str]) -> dict[str, Any]:
    """Figures over all prompts, and each prompt's own. Outputs that loop are told apart and left out of the figures."""
    straight = [each for each in results if not each.loops]
    counted = straight or list(results)
    lanes = [_lane_figures(name, counted, results, decode) for name in results[0].runs]
    peers = [_peer_figures(name, counted, results) for name in results[0].peer_runs]
    warnings = [_clock_warning(lane) for lane in lanes if abs(lane["interleaved_over_solo"] - 1) > TOLERANCE]
    if not straight:
        warnings.append("Every output repeats itself: these figures are of loops, which flatter drafters that copy.")
    return {
        "lanes": lanes,
        "peers": peers,
        "comparisons": _comparisons(lanes, peers),
        "counted_prompts": len(counted),
        "loops": [{"id": each.prompt.id, "loop_tokens": each.loops} for each in results if each.loops],
        "warnings": warnings,
        "prompts": [_prompt_figures(each, decode) for each in results],
    }


def _lane_figures(
    name: str, counted: Sequence[PromptResult], results: Sequence[PromptResult], decode: Callable[[Sequence[int]], str]
) -> dict[str, Any]:
    """A lane over all counted prompts: counts are sums, times sums of medians."""
    firsts = [each.runs[name][0].metrics for each in counted]
    tokens, steps = sum(m.tokens for m in firsts), sum(m.steps for m in firsts)
    drafted, accepted = sum(m.drafted for m in firsts), sum(m.accepted for m in firsts)
    decode_ms = sum(each.decode_ms(name) for each in counted)
    vanilla_ms = sum(each.decode_ms("vanilla") for each in counted)
    vanilla_tokens = sum(each.runs["vanilla"][0].metrics.tokens for each in counted)
    split = {part: _per_step(name, counted, f"{part}_ms", steps) for part in ("draft", "target", "keep")}
    host = split["draft"] + split["keep"]
    interleaved = sum(median(each.interleaved_ms[name]) for each in counted)
    return {
        "lane": name,
        "tokens": tokens,
        "steps": steps,
        "tau": tokens / steps,
        "drafted_per_step": drafted / steps,
        "acceptance_rate": accepted / drafted if drafted else 0.0,
        "decode_ms": decode_ms,
        "tokens_per_s": 1000 * tokens / decode_ms,
        "speedup": tokens / decode_ms * vanilla_ms / vanilla_tokens,
        **_identity(name, results),
        "text": decode(results[0].runs[name][0].tokens),
        "spread": _spread([[run.metrics.decode_ms for run in each.runs[name]] for each in counted]),
        "interleaved_tokens_per_s": 1000 * tokens / interleaved,
        "interleaved_over_solo": decode_ms / interleaved,
        **_run_figures([each.runs[name] for each in counted], tokens),
        "prefill_ms": sum(median(run.prefill_ms for run in each.runs[name]) for each in counted),
        "split_ms": split,
        "host_ms_per_step": host,
        "host_share": host / (host + split["target"]),
        "fastest_on": sum(_fastest(each) == name for each in counted),
        "peak_memory_bytes": max((run.peak_memory or 0 for each in counted for run in each.runs[name]), default=0)
        or None,
        "roofline": _roofline(name, counted, split["target"]),
    }


def _per_step(name: str, counted: Sequence[PromptResult], part: str, steps: int) -> float:
    total: float = sum(median(getattr(run.metrics, part) for run in each.runs[name]) for each in counted)
    return total / steps


def _fastest(found: PromptResult) -> str:
    """The lane with the most tokens a second on a prompt."""
    return max(found.runs, key=lambda name: found.runs[name][0].metrics.tokens / found.decode_ms(name))


def _roofline(name: str, counted: Sequence[PromptResult], target_ms: float) -> dict[str, float]:
    """The time in which a step's bytes could be copied, and how much of the target's time that is."""
    limits = [(each.runs[name][0].limit_ms, each.runs[name][0].metrics.steps) for each in counted]
    limit = sum(ms * steps for ms, steps in limits) / sum(steps for _, steps in limits)
    return {"limit_ms_per_step": limit, "target_ms_per_step": target_ms, "of_limit": limit / target_ms}


def _run_figures(runs: Sequence[Sequence[Any]], tokens: int) -> dict[str, float]:
    run_ms = sum(median(run.run_ms for run in each) for each in runs)
    return {"run_ms": run_ms, "run_tokens_per_s": 1000 * tokens / run_ms}


def _spread(samples: Sequence[Sequence[float]]) -> float:
    """(largest - smallest) / median over the repetitions; the median of that over the prompts."""
    return median((max(each) - min(each)) / median(each) for each in samples)


def _identity(name: str, results: Sequence[PromptResult]) -> dict[str, Any]:
    """Whether every output is vanilla's, loops included, and the first one that is not."""
    compared = [each for each in results if name in each.differences]
    different = [each for each in compared if each.differences[name] is not None]
    first = None
    if different and (difference := different[0].differences[name]) is not None:
        first = {"prompt": different[0].prompt.id, **asdict(difference)}
    same = len(compared) - len(different)
    return {"identical": not different if compared else None, "identical_prompts": same, "first_difference": first}


def _peer_decode(runs: Sequence[Any]) -> tuple[int, float]:
    """Tokens after the first output, and the median of the time that they took."""
    return len(runs[0].tokens) - runs[0].first_tokens, median(run.run_ms - run.first_ms for run in runs)


def _peer_figures(name: str, counted: Sequence[PromptResult], results: Sequence[PromptResult]) -> dict[str, Any]:
    """A peer over all counted prompts."""
    decodes = [_peer_decode(each.peer_runs[name]) for each in counted]
    after, decode_ms = sum(tokens for tokens, _ in decodes), sum(ms for _, ms in decodes)
    tokens = sum(len(each.peer_runs[name][0].tokens) for each in counted)
    return {
        "peer": name,
        "tokens": tokens,
        "decode_tokens": after,
        "decode_ms": decode_ms,
        "tokens_per_s": 1000 * after / decode_ms if decode_ms else 0.0,
        "first_ms": sum(median(run.first_ms for run in each.peer_runs[name]) for each in counted),
        **_identity(name, results),
        "spread": _spread([[run.run_ms for run in each.peer_runs[name]] for each in counted]),
        **_run_figures([each.peer_runs[name] for each in counted], tokens),
    }


def _comparisons(lanes: Sequence[Mapping[str, Any]], peers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each peer beside the lane that does the same: decode over decode, whole run over whole run."""
    by_name = {lane["lane"]: lane for lane in lanes}
    found = []
    for peer in peers:
        lane = by_name.get(COUNTERPARTS[peer["peer"]])
        if lane is not None and peer["tokens_per_s"]:
            ratios = {key: lane[f"{key}tokens_per_s"] / peer[f"{key}tokens_per_s"] for key in ("", "run_")}
            found.append({"lane": lane["lane"], "peer": peer["peer"], "decode": ratios[""], "run": ratios["run_"]})
    return found


def _clock_warning(lane: Mapping[str, Any]) -> str:
    percent = 100 * (lane["interleaved_over_solo"] - 1)
    return (
        f"{lane['lane']}: step by step with the others it ran {percent:+.0f} % against by itself, more than "
        f"{100 * TOLERANCE:.0f} %; the machine is busy, or repetitions are too few."
    )


def _prompt_figures(found: PromptResult, decode: Callable[[Sequence[int]], str]) -> dict[str, Any]:
    """One prompt's rows."""
    base = found.runs["vanilla"][0].metrics.tokens / found.decode_ms("vanilla")
    lanes = []
    for name, runs in found.runs.items():
        metrics, ms = runs[0].metrics, found.decode_ms(name)
        difference = found.differences.get(name)
        lanes.append(
            {
                "lane": name,
                "tokens": metrics.tokens,
                "steps": metrics.steps,
                "tau": metrics.tau,
                "drafted_per_step": metrics.drafted_per_step,
                "acceptance_rate": metrics.acceptance_rate,
                "decode_ms": ms,
                "tokens_per_s": 1000 * metrics.tokens / ms,
                "speedup": metrics.tokens / ms / base,
                "identical": difference is None if name in found.differences else None,
                "first_difference": difference and asdict(difference),
                "text": decode(runs[0].tokens),
            }
        )
    peers = []
    for name, outputs in found.peer_runs.items():
        after, ms = _peer_decode(outputs)
        run_ms = median(run.run_ms for run in outputs)
        rate = 1000 * after / ms if ms else 0.0
        peers.append({"peer": name, "tokens": len(outputs[0].tokens), "tokens_per_s": rate, "run_ms": run_ms})
    about = {"id": found.prompt.id, "question": found.prompt.question, "prompt_tokens": len(found.prompt.tokens)}
    return {**about, "loop_tokens": found.loops, "fastest": _fastest(found), "lanes": lanes, "peers": peers}
