"""The summary of a benchmark: metrics over all prompts, and for each prompt.

A lane is one of our drafting methods; vanilla, the baseline, drafts nothing. A peer is another library's decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter
from statistics import median
from typing import Any

from specrace.core.metrics import LaneMetrics
from specrace.engine.lane_name import method_of
from specrace.lab.bench.benchmark import COUNTERPARTS, TOLERANCE, LaneRun, PeerRun, PromptResult

# Lanes within 3 % of each other on one prompt count as equally fast: the clocks cannot tell them apart.
NEAR = 1.03


def summarise(results: Sequence[PromptResult], decode: Callable[[Sequence[int]], str]) -> dict[str, Any]:
    """Metrics over all prompts, and for each prompt; `decode`: token ids -> text.

    Prompts with a looping output are listed, but count only if every output loops.
    """
    not_looping = [result for result in results if not result.loops]
    counted = not_looping or list(results)
    lanes = [_lane_metrics(name, counted, results, decode) for name in results[0].runs]
    peers = [_peer_metrics(name, counted, results) for name in results[0].peer_runs]
    warnings = [_clock_warning(lane) for lane in lanes if abs(lane["interleaved_over_solo"] - 1) > TOLERANCE]
    pace = summarise_pace(results)
    if pace["disturbed_prompts"]:
        warnings.append(pace["note"])
    if not not_looping:
        warnings.append("Every output repeats itself: the figures are of loops, which flatter drafters that copy.")
    return {
        "lanes": lanes,
        "peers": peers,
        "comparisons": _comparisons(lanes, peers),
        "pace": pace,
        "counted_prompts": len(counted),
        "loops": [{"id": result.prompt.id, "loop_tokens": result.loops} for result in results if result.loops],
        "cut_at_limit": [result.prompt.id for result in results if result.runs["vanilla"][0].end == "length"],
        "warnings": warnings,
        "prompts": [_prompt_metrics(result, decode) for result in results],
    }


def _rates(name: str, results: Sequence[PromptResult]) -> dict[str, Any]:
    """A lane's main metrics: counts are sums over first runs, times are sums of the medians over repetitions."""
    total = _total(result.runs[name][0].metrics for result in results)
    vanilla = _total(result.runs["vanilla"][0].metrics for result in results)
    decode_ms = sum(result.decode_ms(name) for result in results)
    vanilla_ms = sum(result.decode_ms("vanilla") for result in results)
    rate = total.tokens / decode_ms
    times = {"decode_ms": decode_ms, "tokens_per_s": 1000 * rate, "speedup": rate * vanilla_ms / vanilla.tokens}
    return total.summary() | times


def _lane_metrics(
    name: str, counted: Sequence[PromptResult], results: Sequence[PromptResult], decode: Callable[[Sequence[int]], str]
) -> dict[str, Any]:
    """A lane's metrics over the `counted` prompts; only its identity with vanilla is checked on all `results`."""
    runs = [result.runs[name] for result in counted]
    rates = _rates(name, counted)
    split = {part: _sum_of_medians(runs, f"metrics.{part}_ms") / rates["steps"] for part in ("draft", "target", "keep")}
    # What a step takes beside the target's forward.
    host_ms = split["draft"] + split["keep"]
    peak_memory = max((run.peak_memory or 0 for repetitions in runs for run in repetitions), default=0)
    interleaved = sum(median(result.interleaved_ms[name]) for result in counted)
    return {
        "lane": name,
        **rates,
        **_speedup_range(name, counted),
        **_identity(name, results),
        "text": decode(results[0].runs[name][0].tokens),
        "spread": _spread(runs, "metrics.decode_ms"),
        "interleaved_tokens_per_s": 1000 * rates["tokens"] / interleaved,
        "interleaved_over_solo": rates["decode_ms"] / interleaved,
        **_run_metrics(runs, rates["tokens"]),
        "prefill_ms": _sum_of_medians(runs, "prefill_ms"),
        "build_ms": _sum_of_medians(runs, "build_ms"),
        # This time adds up from prompt to prompt, so the last prompt has the time of the whole benchmark.
        "shared_ms": results[-1].runs[name][-1].shared_ms,
        "split_ms": split,
        "host_ms_per_step": host_ms,
        "host_share": host_ms / (host_ms + split["target"]),
        "fastest_on": sum(_fastest(result) == name for result in counted),
        "near_fastest_on": sum(NEAR * _rate(result, name) >= _rate(result, _fastest(result)) for result in counted),
        "peak_memory_bytes": peak_memory or None,
        "roofline": _roofline([repetitions[0] for repetitions in runs], split["target"]),
    }


def _sum_of_medians(runs: Sequence[Sequence[LaneRun | PeerRun]], name: str) -> float:
    """The sum over the prompts of a value's median over the repetitions; `runs`: by prompt and repetition."""
    return float(sum(median(map(attrgetter(name), repetitions)) for repetitions in runs))


def _total(parts: Iterable[LaneMetrics]) -> LaneMetrics:
    """The sum of the metrics of several runs."""
    total = LaneMetrics()
    for metrics in parts:
        total.merge(metrics)
    return total


def _speedup_range(name: str, counted: Sequence[PromptResult]) -> dict[str, float | None]:
    """The range of the speedup over all prompts: of the repetitions' speedups, and of the speedup from the medians.

    None if each lane ran only once.
    """
    num_runs = len(counted[0].runs[name])
    if num_runs < 2:
        return {"speedup_low": None, "speedup_high": None}
    speedups = [_rates(name, counted)["speedup"]]
    for repetition in range(num_runs):
        total = _total(result.runs[name][repetition].metrics for result in counted)
        vanilla = _total(result.runs["vanilla"][repetition].metrics for result in counted)
        speedups.append(total.speedup(vanilla))
    return {"speedup_low": min(speedups), "speedup_high": max(speedups)}


def summarise_pace(results: Sequence[PromptResult]) -> dict[str, Any]:
    """How steady the machine was over all prompts, and the prompts during which it was disturbed."""
    paces = [result.pace for result in results if result.pace is not None]
    disturbed = [result.prompt.id for result in results if result.pace is not None and result.pace.disturbed]
    low = min((pace.low for pace in paces), default=1.0)
    high = max((pace.high for pace in paces), default=1.0)
    note = f"Times are corrected for the machine's pace, {low:.2f} to {high:.2f} times that at a prompt's start."
    if disturbed:
        number = f"{len(disturbed)} of {len(results)} prompts"
        note = f"The machine was disturbed on {number} ({', '.join(disturbed[:8])}): measure again when it is quiet."
    return {
        "probes": sum(pace.probes for pace in paces),
        "low": low,
        "high": high,
        "jumps": max((pace.jumps for pace in paces), default=0.0),
        "waited_ms": sum(pace.waited_ms for pace in paces),
        "threads": sorted({pace.threads for pace in paces}),
        "disturbed_prompts": disturbed,
        "note": note,
    }


def _fastest(result: PromptResult) -> str:
    """The lane with the highest rate in the races on a prompt."""
    return max(result.runs, key=lambda name: _rate(result, name))


def _rate(result: PromptResult, name: str) -> float:
    """A lane's tokens per millisecond in the races on a prompt.

    Lanes of a race take turns, so they meet the same pace; a lane's run alone may be seconds after another's, and a few
    short runs on one prompt differ by more than the lanes do.
    """
    return result.runs[name][0].metrics.tokens / median(result.interleaved_ms[name])


def _roofline(first_runs: Sequence[LaneRun], target_ms: float) -> dict[str, float]:
    """The roofline of a mean step, and its share of the target's time."""
    steps = sum(run.metrics.steps for run in first_runs)
    limit = sum(run.limit_ms * run.metrics.steps for run in first_runs) / steps
    return {"limit_ms_per_step": limit, "target_ms_per_step": target_ms, "of_limit": limit / target_ms}


def _run_metrics(runs: Sequence[Sequence[LaneRun | PeerRun]], tokens: int) -> dict[str, float]:
    run_ms = _sum_of_medians(runs, "run_ms")
    return {"run_ms": run_ms, "run_tokens_per_s": 1000 * tokens / run_ms}


def _spread(runs: Sequence[Sequence[LaneRun | PeerRun]], name: str) -> float:
    """The median over the prompts of a value's relative spread, (maximum - minimum) / median over the repetitions."""
    samples = [list(map(attrgetter(name), repetitions)) for repetitions in runs]
    return float(median((max(values) - min(values)) / median(values) for values in samples))


def _identity(name: str, results: Sequence[PromptResult]) -> dict[str, Any]:
    """Whether every output, including those that loop, is vanilla's, and the first output that is not."""
    compared = [(result.prompt.id, result.differences[name]) for result in results if name in result.differences]
    different = [{"prompt": prompt, **asdict(difference)} for prompt, difference in compared if difference is not None]
    return {
        "identical": not different if compared else None,
        "identical_prompts": len(compared) - len(different),
        "first_difference": different[0] if different else None,
    }


def _peer_metrics(name: str, counted: Sequence[PromptResult], results: Sequence[PromptResult]) -> dict[str, Any]:
    """A peer's metrics over the `counted` prompts; only its identity with vanilla is checked on all `results`."""
    runs = [result.peer_runs[name] for result in counted]
    first_runs = [repetitions[0] for repetitions in runs]
    tokens = sum(len(run.tokens) for run in first_runs)
    decode_tokens = tokens - sum(run.first_tokens for run in first_runs)
    decode_ms = sum(median(run.run_ms - run.first_ms for run in repetitions) for repetitions in runs)
    return {
        "peer": name,
        "tokens": tokens,
        "decode_tokens": decode_tokens,
        "decode_ms": decode_ms,
        "tokens_per_s": 1000 * decode_tokens / decode_ms if decode_ms else 0.0,
        "first_ms": _sum_of_medians(runs, "first_ms"),
        **_draft_metrics(first_runs, decode_tokens),
        **_identity(name, results),
        "spread": _spread(runs, "run_ms"),
        **_run_metrics(runs, tokens),
    }


def _draft_metrics(first_runs: Sequence[PeerRun], tokens: int) -> dict[str, float | None]:
    """A peer's tokens per step, draft tokens per step and acceptance rate; None if it does not report its steps."""
    steps = sum(run.steps or 0 for run in first_runs)
    drafted = sum(run.drafted for run in first_runs)
    accepted = sum(run.accepted for run in first_runs)
    return {
        "tau": tokens / steps if steps else None,
        "drafted_per_step": drafted / steps if steps else None,
        "acceptance_rate": accepted / drafted if drafted else None,
    }


def _comparisons(lanes: Sequence[Mapping[str, Any]], peers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each peer, how many times as fast the first lane with its method is, in decoding and in the whole run."""
    by_method = {method_of(lane["lane"]).name: lane for lane in reversed(lanes)}
    comparisons = []
    for peer in peers:
        lane = by_method.get(COUNTERPARTS[peer["peer"]])
        if lane is not None and peer["tokens_per_s"]:
            decode = lane["tokens_per_s"] / peer["tokens_per_s"]
            run = lane["run_tokens_per_s"] / peer["run_tokens_per_s"]
            comparisons.append({"lane": lane["lane"], "peer": peer["peer"], "decode": decode, "run": run})
    return comparisons


def _clock_warning(lane: Mapping[str, Any]) -> str:
    percent = 100 * (lane["interleaved_over_solo"] - 1)
    return (
        f"{lane['lane']}: its speed in a race is {percent:+.0f} % against its solo speed, beyond "
        f"{100 * TOLERANCE:.0f} %; the machine is busy, or there are too few repetitions."
    )


def _prompt_metrics(result: PromptResult, decode: Callable[[Sequence[int]], str]) -> dict[str, Any]:
    """The metrics of one prompt."""
    lanes = []
    for name, runs in result.runs.items():
        row = {"lane": name, **_rates(name, [result]), "identical": _identity(name, [result])["identical"]}
        difference = result.differences.get(name)
        text = decode(runs[0].tokens)
        lanes.append(row | {"first_difference": difference and asdict(difference), "end": runs[0].end, "text": text})
    peers = [_peer_metrics(name, [result], [result]) for name in result.peer_runs]
    return {
        "id": result.prompt.id,
        "question": result.prompt.question,
        "prompt_tokens": len(result.prompt.tokens),
        "loop_tokens": result.loops,
        "fastest": _fastest(result),
        "lanes": lanes,
        "peers": [{key: peer[key] for key in ("peer", "tokens", "tokens_per_s", "run_ms")} for peer in peers],
    }
