"""What the bench measured, as figures: over all prompts, and each prompt's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from specrace.lab.bench import COUNTERPARTS, TOLERANCE, PromptResult


def summarise(results: Sequence[PromptResult], decode: Callable[[Sequence[int]], str]) -> dict[str, Any]:
    """Figures over all prompts, and each prompt's own. Outputs that loop are told apart and left out of the figures."""
    straight = [each for each in results if not each.loops]
    counted = straight or list(results)
    lanes = [_lane_figures(name, counted, results, decode) for name in results[0].runs]
    peers = [_peer_figures(name, counted, results) for name in results[0].peer_runs]
    warnings = [_clock_warning(lane) for lane in lanes if abs(lane["interleaved_over_solo"] - 1) > TOLERANCE]
    pace = summarise_pace(results)
    warnings += [pace["note"]] if pace["disturbed_prompts"] else []
    if not straight:
        warnings.append("Every output repeats itself: these figures are of loops, which flatter drafters that copy.")
    return {
        "lanes": lanes,
        "peers": peers,
        "comparisons": _comparisons(lanes, peers),
        "pace": pace,
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
        **_speedup_range(name, counted),
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


def _speedup_range(name: str, counted: Sequence[PromptResult]) -> dict[str, float | None]:
    """The least and the largest speedup over all prompts in one repetition; null where nothing was repeated."""
    repetitions = range(len(counted[0].runs[name]))
    if len(repetitions) < 2:
        return {"speedup_low": None, "speedup_high": None}
    rates = {
        lane: [
            sum(each.runs[lane][turn].metrics.tokens for each in counted)
            / sum(each.runs[lane][turn].metrics.decode_ms for each in counted)
            for turn in repetitions
        ]
        for lane in (name, "vanilla")
    }
    found = [own / base for own, base in zip(rates[name], rates["vanilla"], strict=True)]
    return {"speedup_low": min(found), "speedup_high": max(found)}


def summarise_pace(results: Sequence[PromptResult]) -> dict[str, Any]:
    """How steady the machine was over all prompts: the extremes, and the prompts whose figures do not count."""
    paces = [each.pace for each in results if each.pace is not None]
    disturbed = [each.prompt.id for each in results if each.pace is not None and each.pace.disturbed]
    low, high = min((each.low for each in paces), default=1.0), max((each.high for each in paces), default=1.0)
    note = (
        f"Times are corrected for the machine's pace, {low:.2f} to {high:.2f} times that before a prompt's first run."
    )
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
