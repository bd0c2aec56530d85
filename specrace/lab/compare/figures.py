"""The figures of samples: rates, times, tokens per step, acceptance by position; ratios of two servers.

A sample is one answer of a server. A block is the questions that one server is sent in one repetition, at one
concurrency.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from specrace.lab.advice.forecast import CONFIDENCE, RESAMPLES, resamples
from specrace.lab.compare.samples import Block, Sample
from specrace.lab.scoring.measured import MeasuredTally


def rate(samples: Sequence[Sample]) -> float | None:
    """Tokens per second of one request after its first chunk, over all samples; None without a second chunk."""
    decode_ms = sum(sample.decode_ms for sample in samples)
    return 1000.0 * sum(sample.decode_tokens for sample in samples) / decode_ms if decode_ms > 0 else None


def times(samples: Sequence[Sample]) -> dict[str, float | None]:
    """The median and the 99th percentile, in ms, of the time to the first chunk and of the times between chunks."""
    first = [sample.times_ms[0] for sample in samples]
    gaps = [gap for sample in samples for gap in sample.gaps_ms]
    return {
        "first_ms": _percentile(first, 50),
        "first_ms_p99": _percentile(first, 99),
        "between_ms": _percentile(gaps, 50),
        "between_ms_p99": _percentile(gaps, 99),
    }


def _percentile(values: Sequence[float], percent: float) -> float | None:
    return float(np.percentile(values, percent)) if values else None


def drafts(samples: Sequence[Sample]) -> dict[str, Any]:
    """Tokens per step and acceptance as the server counted them; None for what it did not report.

    `rates[i]`: the share of steps with a draft that accepted more than i of its tokens, without tokens past the end.
    """
    tally, by_step = MeasuredTally(), list[int]()
    counted = [(sample, counts) for sample in samples if (counts := sample.measured()) is not None]
    for sample, counts in counted:
        tally.add(counts)
        # `in_text[0]`: the accepted tokens that are certainly not past the end of the text.
        by_step += _accepted_in_text(sample.counts, counts.accepted - counts.in_text[0])
    row = tally.row() if counted else {}
    names = ("tau", "tau_high", "drafted_per_step", "acceptance_rate", "accepted_past_end")
    return {
        **{name: row.get(name) for name in names},
        "counted": len(counted),
        "drafted": tally.drafted if counted else None,
        "accepted": tally.accepted_in_text if counted else None,
        "rates": marginal_rates(by_step),
    }


def _accepted_in_text(counts: Mapping[str, Any], past_end: int) -> list[int]:
    """Accepted tokens that are in the text, for each step with a draft; `past_end` of the last step's are not."""
    accepted = list(counts.get("per_step_accepted") or ())
    if accepted:
        accepted[-1] = max(0, accepted[-1] - past_end)
    return accepted


def marginal_rates(accepted: Sequence[int]) -> list[float]:
    """The share of steps that accepted more than i tokens, for i from 0; `accepted` has a number for each step."""
    if not accepted:
        return []
    return [sum(count > index for count in accepted) / len(accepted) for index in range(max(accepted))]


@dataclass(frozen=True)
class TotalRates:
    """Tokens per second of all requests together: the median and the range over blocks that ran in one go.

    `interrupted`: how many blocks were measured in several sessions. Between sessions the server stood still and lost
    the answers that it had begun, so such a block has no total rate.
    """

    median: float | None
    low: float | None
    high: float | None
    interrupted: int


def total_rates(samples: Sequence[Sample]) -> TotalRates:
    """The total rates of one server at one concurrency."""
    blocks: defaultdict[Block, list[Sample]] = defaultdict(list)
    for sample in samples:
        blocks[sample.block].append(sample)
    uninterrupted = [block for block in blocks.values() if len({sample.session for sample in block}) == 1]
    rates = [
        1000.0 * sum(len(sample.output) for sample in block) / (_end(block) - min(sample.start_ms for sample in block))
        for block in uninterrupted
    ]
    interrupted = len(blocks) - len(uninterrupted)
    if not rates:
        return TotalRates(median=None, low=None, high=None, interrupted=interrupted)
    return TotalRates(median=median(rates), low=min(rates), high=max(rates), interrupted=interrupted)


def _end(block: Sequence[Sample]) -> float:
    return max(sample.end_ms for sample in block)


@dataclass(frozen=True)
class Speedup:
    """How many times as fast as the baseline a server sends a request's tokens, with an interval over `requests`."""

    speedup: float
    low: float
    high: float
    requests: int


def measured_speedup(baseline: Sequence[Sample], other: Sequence[Sample], seed: int) -> Speedup | None:
    """The ratio of two servers' rates, on the questions that both answered in every repetition; None without any.

    All samples are of one concurrency. The interval, at CONFIDENCE (95 %), is from a bootstrap over the questions and
    over the repetitions, because one repetition may have been disturbed as a whole.
    """
    by_server = [{(sample.block.repetition, sample.number): sample for sample in side} for side in (baseline, other)]
    repetitions = sorted({repetition for side in by_server for repetition, _ in side})
    numbers = [
        number
        for number in dict.fromkeys(number for _, number in by_server[0])
        if all(_has_rate(side.get((repetition, number))) for side in by_server for repetition in repetitions)
    ]
    if not numbers:
        return None
    draws, repetition_draws = resamples(len(numbers), seed), _repetition_draws(len(repetitions), seed)
    value, drawn_speedups = 1.0, np.ones(len(draws))
    # The other server's time per token divides the baseline's.
    for side, sign in zip(by_server, (1, -1), strict=True):
        answers = [[side[repetition, number] for number in numbers] for repetition in repetitions]
        # Both are [repetitions, questions].
        ms = np.array([[sample.decode_ms for sample in row] for row in answers])
        tokens = np.array([[sample.decode_tokens for sample in row] for row in answers])
        value *= float(ms.sum() / tokens.sum()) ** sign
        drawn_ms, drawn_tokens = (((repetition_draws @ values) * draws).sum(axis=1) for values in (ms, tokens))
        drawn_speedups *= (drawn_ms / drawn_tokens) ** sign
    low, high = np.percentile(drawn_speedups, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return Speedup(speedup=value, low=float(low), high=float(high), requests=len(numbers))


def _has_rate(sample: Sample | None) -> bool:
    return sample is not None and sample.decode_ms > 0 and sample.decode_tokens > 0


def _repetition_draws(count: int, seed: int) -> np.ndarray:
    """How often each of `count` repetitions is drawn [RESAMPLES, count]; independent of `resamples`."""
    return np.random.default_rng([seed, count]).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)


@dataclass(frozen=True)
class Texts:
    """How many of the `compared` answers have the baseline's text; `first`: see `compare_texts`."""

    same: int
    compared: int
    first: tuple[int, int] | None


def compare_texts(baseline: Sequence[Sample], other: Sequence[Sample]) -> Texts:
    """Compare the answers to the same question in the same repetition.

    `Texts.first` is the first difference: (the question's number, the position of the first different token), or None.
    """
    expected = {(sample.block.repetition, sample.number): sample.output for sample in baseline}
    pairs = [
        (sample.number, expected[key], sample.output)
        for sample in other
        if (key := (sample.block.repetition, sample.number)) in expected
    ]
    different = sorted((number, _first_difference(*texts)) for number, *texts in pairs if texts[0] != texts[1])
    return Texts(len(pairs) - len(different), len(pairs), different[0] if different else None)


def _first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    """The first position at which two different texts differ; the end of the shorter one if it begins the other."""
    differing = (
        index for index, (token, other_token) in enumerate(zip(one, other, strict=False)) if token != other_token
    )
    return next(differing, min(len(one), len(other)))


def memory_factor(samples: Sequence[Sample], order: Sequence[Block]) -> float | None:
    """The factor by which a server's tokens per step changed when a question was repeated; None if none was repeated.

    A drafter that keeps earlier answers finds the answer to a repeated question there, unlike that to a new one. Only
    repetitions with the same answer count. `order`: the blocks in the order in which they were measured.
    """
    position = {block: index for index, block in enumerate(order)}
    answers: defaultdict[int, list[Sample]] = defaultdict(list)
    for sample in sorted(samples, key=lambda sample: position[sample.block]):
        answers[sample.number].append(sample)
    first_steps = later_steps = 0
    for first, *later in answers.values():
        for sample in later:
            counts = first.measured(), sample.measured()
            if sample.output == first.output and counts[0] is not None and counts[1] is not None:
                # `steps[1]` is the largest possible number of steps.
                first_steps += counts[0].steps[1]
                later_steps += counts[1].steps[1]
    return first_steps / later_steps if later_steps else None
