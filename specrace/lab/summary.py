"""The bench's figures: over all prompts, and for each prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter
from statistics import median
from typing import Any

from specrace.core.metrics import LaneMetrics
from specrace.lab.bench import COUNTERPARTS, TOLERANCE, LaneRun, PeerRun, PromptResult

# Lanes within 3 % of each other on one prompt are as fast: clocks say no more.
NEAR = 1.03


def summarise(results: Sequence[PromptResult], decode: Callable[[Sequence[int]], str]) -> dict[str, Any]:
    """Figures over all prompts, and for each prompt. Prompts whose output loops are listed and not counted."""
    straight = [each for each in results if not each.loops]
    counted = straight or list(results)
    lanes = [_lane_figures(name, counted, results, decode) for name in results[0].runs]
    peers = [_peer_figures(name, counted, results) for name in results[0].peer_runs]
    warnings = [_clock_warning(lane) for lane in lanes if abs(lane["interleaved_over_solo"] - 1) > TOLERANCE]
    pace = summarise_pace(results)
    warnings += [pace["note"]] if pace["disturbed_prompts"] else []
    if not straight:
        warnings.append("Every output repeats itself: the figures are of loops, which flatter drafters that copy.")
    return {
        "lanes": lanes,
        "peers": peers,
        "comparisons": _comparisons(lanes, peers),
        "pace": pace,
        "counted_prompts": len(counted),
        "loops": [{"id": each.prompt.id, "loop_tokens": each.loops} for each in results if each.loops],
        "cut_at_limit": [each.prompt.id for each in results if each.runs["vanilla"][0].end == "length"],
        "warnings": warnings,
        "prompts": [_prompt_figures(each, decode) for each in results],
    }


def _rates(name: str, found: Sequence[PromptResult]) -> dict[str, Any]:
    """A lane's main figures: counts are sums over the first runs, times sums of medians."""
    own, vanilla = (_total(each.runs[lane][0].metrics for each in found) for lane in (name, "vanilla"))
    thread_ms, vanilla_ms = (sum(each.decode_ms(lane) for each in found) for lane in (name, "vanilla"))
    rate = own.tokens / thread_ms
    times = {"decode_ms": thread_ms, "tokens_per_s": 1000 * rate, "speedup": rate * vanilla_ms / vanilla.tokens}
    return own.summary() | times


def _lane_figures(
    name: str, counted: Sequence[PromptResult], results: Sequence[PromptResult], decode: Callable[[Sequence[int]], str]
) -> dict[str, Any]:
    """A lane over all counted prompts."""
    runs, rates = [each.runs[name] for each in counted], _rates(name, counted)
    split = {part: _sum_of_medians(runs, f"metrics.{part}_ms") / rates["steps"] for part in ("draft", "target", "keep")}
    host = split["draft"] + split["keep"]
    interleaved = sum(median(each.interleaved_ms[name]) for each in counted)
    return {
        "lane": name,
        **rates,
        **_speedup_range(name, counted),
        **_identity(name, results),
        "text": decode(results[0].runs[name][0].tokens),
        "spread": _spread(runs, "metrics.decode_ms"),
        "interleaved_tokens_per_s": 1000 * rates["tokens"] / interleaved,
        "interleaved_over_solo": rates["decode_ms"] / interleaved,
        **_run_figures(runs, rates["tokens"]),
        "prefill_ms": _sum_of_medians(runs, "prefill_ms"),
        "split_ms": split,
        "host_ms_per_step": host,
        "host_share": host / (host + split["target"]),
        "fastest_on": sum(_fastest(each) == name for each in counted),
        "near_fastest_on": sum(NEAR * _rate(each, name) >= _rate(each, _fastest(each)) for each in counted),
        "peak_memory_bytes": max((run.peak_memory or 0 for each in runs for run in each), default=0) or None,
        "roofline": _roofline([each[0] for each in runs], split["target"]),
    }


def _sum_of_medians(runs: Sequence[Sequence[LaneRun | PeerRun]], name: str) -> float:
    """Over the prompts, of a value's median over the repetitions."""
    return float(sum(median(map(attrgetter(name), each)) for each in runs))


def _total(found: Iterable[LaneMetrics]) -> LaneMetrics:
    total = LaneMetrics()
    for metrics in found:
        total.merge(metrics)
    return total


def _speedup_range(name: str, counted: Sequence[PromptResult]) -> dict[str, float | None]:
    """The lowest and the highest speedup over all prompts: a repetition's, or that of the medians. Null without
    repetitions.
    """
    found = [_rates(name, counted)["speedup"]]
    for turn in range(len(counted[0].runs[name])):
        own, vanilla = (_total(each.runs[lane][turn].metrics for each in counted) for lane in (name, "vanilla"))
        found.append(own.speedup(vanilla))
    low, high = (min(found), max(found)) if len(found) > 2 else (None, None)
    return {"speedup_low": low, "speedup_high": high}


def summarise_pace(results: Sequence[PromptResult]) -> dict[str, Any]:
    """How steady the machine was over all prompts, and the prompts during which it was disturbed."""
    paces = [each.pace for each in results if each.pace is not None]
    disturbed = [each.prompt.id for each in results if each.pace is not None and each.pace.disturbed]
    low, high = min((each.low for each in paces), default=1.0), max((each.high for each in paces), default=1.0)
    note = f"Times are corrected for the machine's pace, {low:.2f} to {high:.2f} times that at a prompt's start."
    if disturbed:
        number = f"{len(disturbed)} of {len(results)} prompts"
        note = f"The machine was disturbed on {number} ({', '.join(disturbed[:8])}): measure again when it is quiet."
    return {
        "probes": sum(each.probes for each in paces),
        "low": low,
        "high": high,
        "jumps": max((each.jumps for each in paces), default=0.0),
        "waited_ms": sum(each.waited_ms for each in paces),
        "threads": sorted({each.threads for each in paces}),
        "disturbed_prompts": disturbed,
        "note": note,
    }


def _fastest(found: PromptResult) -> str:
    """The lane with the most tokens a second on a prompt."""
    return max(found.runs, key=lambda name: _rate(found, name))


def _rate(found: PromptResult, name: str) -> float:
    """A lane's tokens a millisecond on a prompt."""
    return found.runs[name][0].metrics.tokens / found.decode_ms(name)


def _roofline(firsts: Sequence[LaneRun], target_ms: float) -> dict[str, float]:
    """The roofline of a mean step, and its share of the target's time."""
    limit = sum(run.limit_ms * run.metrics.steps for run in firsts) / sum(run.metrics.steps for run in firsts)
    return {"limit_ms_per_step": limit, "target_ms_per_step": target_ms, "of_limit": limit / target_ms}


def _run_figures(runs: Sequence[Sequence[LaneRun | PeerRun]], tokens: int) -> dict[str, float]:
    run_ms = _sum_of_medians(runs, "run_ms")
    return {"run_ms": run_ms, "run_tokens_per_s": 1000 * tokens / run_ms}


def _spread(runs: Sequence[Sequence[LaneRun | PeerRun]], name: str) -> float:
    """(maximum - minimum) / median over the repetitions; its median over the prompts."""
    samples = [list(map(attrgetter(name), each)) for each in runs]
    return float(median((max(each) - min(each)) / median(each) for each in samples))


def _identity(name: str, results: Sequence[PromptResult]) -> dict[str, Any]:
    """Whether every output, loops included, is vanilla's, and the first one that is not."""
    compared = [(each.prompt.id, each.differences[name]) for each in results if name in each.differences]
    different = [{"prompt": prompt, **asdict(each)} for prompt, each in compared if each is not None]
    return {
        "identical": not different if compared else None,
        "identical_prompts": len(compared) - len(different),
        "first_difference": different[0] if different else None,
    }


def _peer_figures(name: str, counted: Sequence[PromptResult], results: Sequence[PromptResult]) -> dict[str, Any]:
    """A peer over all counted prompts."""
    runs = [each.peer_runs[name] for each in counted]
    tokens = sum(len(each[0].tokens) for each in runs)
    after = tokens - sum(each[0].first_tokens for each in runs)
    decode_ms = sum(median(run.run_ms - run.first_ms for run in each) for each in runs)
    return {
        "peer": name,
        "tokens": tokens,
        "decode_tokens": after,
        "decode_ms": decode_ms,
        "tokens_per_s": 1000 * after / decode_ms if decode_ms else 0.0,
        "first_ms": _sum_of_medians(runs, "first_ms"),
        **_draft_figures([each[0] for each in runs], after),
        **_identity(name, results),
        "spread": _spread(runs, "run_ms"),
        **_run_figures(runs, tokens),
    }


def _draft_figures(firsts: Sequence[PeerRun], tokens: int) -> dict[str, float | None]:
    """A peer's tokens per step, draft tokens per step and acceptance rate; null where it does not report its steps."""
    steps = sum(run.steps or 0 for run in firsts)
    drafted, accepted = sum(run.drafted for run in firsts), sum(run.accepted for run in firsts)
    return {
        "tau": tokens / steps if steps else None,
        "drafted_per_step": drafted / steps if steps else None,
        "acceptance_rate": accepted / drafted if drafted else None,
    }


def _comparisons(lanes: Sequence[Mapping[str, Any]], peers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The speedup of each peer's counterpart over it: of decode, and of the whole run."""
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
        f"{lane['lane']}: its speed in a race is {percent:+.0f} % against its solo speed, beyond "
        f"{100 * TOLERANCE:.0f} %; the machine is busy, or there are too few repetitions."
    )


def _prompt_figures(found: PromptResult, decode: Callable[[Sequence[int]], str]) -> dict[str, Any]:
    """The figures of one prompt."""
    lanes = []
    for name, runs in found.runs.items():
        row = {"lane": name, **_rates(name, [found]), "identical": _identity(name, [found])["identical"]}
        difference = found.differences.get(name)
        text = decode(runs[0].tokens)
        lanes.append(row | {"first_difference": difference and asdict(difference), "end": runs[0].end, "text": text})
    peers = [_peer_figures(name, [found], [found]) for name in found.peer_runs]
    return {
        "id": found.prompt.id,
        "question": found.prompt.question,
        "prompt_tokens": len(found.prompt.tokens),
        "loop_tokens": found.loops,
        "fastest": _fastest(found),
        "lanes": lanes,
        "peers": [{key: peer[key] for key in ("peer", "tokens", "tokens_per_s", "run_ms")} for peer in peers],
    }
