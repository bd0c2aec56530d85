"""The summary of a comparison: a row for each server and concurrency, compared with the first server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specrace.lab.compare.figures import (
    compare_texts,
    drafts,
    measured_speedup,
    memory_factor,
    rate,
    times,
    total_rates,
)
from specrace.lab.compare.forecasts import Forecaster
from specrace.lab.compare.samples import WARM_UP, Block, Question, Sample, plan_blocks

# Up to this share more tokens per step on repeated questions is no sign of memory: in 16 bits, steps vary a little.
MEMORY_TOLERANCE = 0.02


@dataclass(frozen=True)
class Comparison:
    """What was asked and what was measured so far.

    `servers`: names, the baseline first. `restarted`: those that are started anew for every block. `failed`: the
    sentence of each request that failed. `about`: server -> software and model.
    """

    servers: Sequence[str]
    concurrencies: Sequence[int]
    repetitions: int
    questions: Sequence[Question]
    samples: Sequence[Sample]
    failed: Mapping[tuple[Block, int], str]
    about: Mapping[str, Mapping[str, str]]
    restarted: frozenset[str] = frozenset()

    def of(self, server: str, concurrency: int | None = None, category: str | None = None) -> list[Sample]:
        """A server's samples without warm-ups, of one concurrency and of one category of questions, if given."""
        return [
            sample
            for sample in self.samples
            if sample.number != WARM_UP
            and sample.block.server == server
            and concurrency in (None, sample.block.concurrency)
            and category in (None, self.questions[sample.number].category)
        ]

    @property
    def categories(self) -> list[str]:
        """The categories of the questions, in order of appearance."""
        return list(dict.fromkeys(question.category for question in self.questions))

    @property
    def blocks(self) -> list[Block]:
        """All blocks, in the order in which they are measured."""
        return list(plan_blocks(self.servers, self.concurrencies, self.repetitions))


def summarise(comparison: Comparison, forecaster: Forecaster | None, seed: int) -> dict[str, Any]:
    """The comparison as JSON; a server without a finished request at a concurrency has no row for it."""
    # Those with samples.
    pairs = [
        (server, concurrency)
        for concurrency in comparison.concurrencies
        for server in comparison.servers
        if comparison.of(server, concurrency)
    ]
    categories = comparison.categories if len(comparison.categories) > 1 else []
    return {
        "servers": [{"server": name, **comparison.about.get(name, {})} for name in comparison.servers],
        "baseline": comparison.servers[0],
        "questions": len(comparison.questions),
        "repetitions": comparison.repetitions,
        "rows": [_row(comparison, forecaster, seed, *pair) for pair in pairs],
        "categories": [
            {"category": category, **row}
            for pair in pairs
            for category in categories
            if (row := _figures(comparison, forecaster, seed, *pair, category)) is not None
        ],
        "memory": _memory(comparison),
        "failures": list(dict.fromkeys(comparison.failed.values())),
    }


def _row(
    comparison: Comparison, forecaster: Forecaster | None, seed: int, server: str, concurrency: int
) -> dict[str, Any]:
    """All figures of a server at a concurrency."""
    samples, baseline = comparison.of(server, concurrency), comparison.of(comparison.servers[0], concurrency)
    total = total_rates(samples)
    row = _figures(comparison, forecaster, seed, server, concurrency, None)
    assert row is not None, "the caller left out pairs without samples"
    rates_by_repetition = [
        value
        for repetition in range(comparison.repetitions)
        if (value := rate([sample for sample in samples if sample.block.repetition == repetition])) is not None
    ]
    is_baseline = server == comparison.servers[0]
    texts = None if is_baseline else compare_texts(baseline, samples)
    first_other = None if texts is None or texts.first is None else texts.first
    return row | {
        "failed": sum(block.server == server and block.concurrency == concurrency for block, _ in comparison.failed),
        "tokens_per_s_low": min(rates_by_repetition, default=None),
        "tokens_per_s_high": max(rates_by_repetition, default=None),
        "total_tokens_per_s": total.median,
        "total_low": total.low,
        "total_high": total.high,
        "interrupted_blocks": total.interrupted,
        # Answers whose chunks may hold several steps.
        "joined": sum(sample.counts.get("step_sizes") is None for sample in samples),
        "same_texts": None if texts is None else texts.same,
        "compared_texts": None if texts is None else texts.compared,
        "first_difference": None
        if first_other is None
        else {"question": comparison.questions[first_other[0]].id, "position": first_other[1]},
    }


def _figures(
    comparison: Comparison,
    forecaster: Forecaster | None,
    seed: int,
    server: str,
    concurrency: int,
    category: str | None,
) -> dict[str, Any] | None:
    """The figures that a row and a category both have; None without samples."""
    samples = comparison.of(server, concurrency, category)
    if not samples:
        return None
    baseline = comparison.servers[0]
    speedup = None
    if server != baseline:
        speedup = measured_speedup(comparison.of(baseline, concurrency, category), samples, seed)
    forecast = None
    if forecaster is not None and server == forecaster.server:
        forecast = forecaster.forecast(samples, concurrency, seed)
    return {
        "server": server,
        "concurrency": concurrency,
        "requests": len(samples),
        "tokens": sum(len(sample.output) for sample in samples),
        "tokens_per_s": rate(samples),
        **times(samples),
        **drafts(samples),
        "speedup": None if speedup is None else asdict(speedup),
        "forecast": forecast,
    }


def _memory(comparison: Comparison) -> dict[str, float]:
    """The servers whose drafts come from earlier answers to the same questions, with the `memory_factor` of each."""
    factors: dict[str, float] = {}
    for server in comparison.servers:
        if server in comparison.restarted:
            continue
        factor = memory_factor(comparison.of(server), comparison.blocks)
        if factor is not None and factor > 1.0 + MEMORY_TOLERANCE:
            factors[server] = factor
    return factors
