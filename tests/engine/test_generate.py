"""`generate` hands on all its arguments, and a lane's result is judged over the text that both lanes have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from specrace.core.events import Finished, Step
from specrace.core.metrics import LaneMetrics
from specrace.core.sampling_params import SamplingParams
from specrace.drafters.vanilla import VanillaDrafter
from specrace.engine.badge import lane_result
from specrace.engine.generate import generate
from specrace.engine.lane import Lane
from specrace.engine.race import race
from specrace.engine.setup import RaceTarget
from specrace.engine.spec import RaceSpec
from specrace.ngrams.counts import NGramCounts
from specrace.ngrams.sources import Sources
from specrace.ngrams.suffix_index import SuffixIndex
from tests.parts import VOCAB, TableTarget, function_lane, inputs

PROMPT = (2, 3, 4, 2, 3)


@pytest.fixture(scope="module")
def target() -> TableTarget:
    return TableTarget()


def text(target: TableTarget, method: str = "vanilla", **values: Any) -> list[int]:
    return [token for step in generate(target, method, PROMPT, **values) for token in step.emitted]


def test_by_default_128_tokens_are_said_greedily_or_by_seed_0(target: TableTarget) -> None:
    explicit = {"max_new_tokens": 128, "temperature": 0.0, "top_p": 1.0, "top_k": 0, "seed": 0}
    prompts = [(token, 5, 6) for token in range(8, 24)]
    outputs = [[token for step in generate(target, "vanilla", prompt) for token in step.emitted] for prompt in prompts]
    assert max(map(len, outputs)) == 128
    assert text(target) == text(target, **explicit)
    assert text(target, temperature=5.0) == text(target, **(explicit | {"temperature": 5.0}))
    assert text(target, temperature=5.0) != text(target, temperature=5.0, seed=1)


def test_sizes_rules_and_documents_reach_the_drafter(target: TableTarget) -> None:
    steps = list(generate(target, "trie", (2, 3, 4, 5, 2, 3, 4, 5, 2), max_new_tokens=20, num_draft=2))
    assert max(step.tree.num_draft for step in steps) == 2
    sampled_steps = list(generate(target, "bigram", PROMPT, max_new_tokens=5, temperature=1.0, verifier="rejection"))
    assert all(step.checks is not None for step in sampled_steps)
    corpus = NGramCounts()
    corpus.extend_apart([[9, 7]])
    assert next(generate(target, "bigram", (9,), sources=Sources(corpus), max_new_tokens=5)).tree.tokens[:2] == (9, 7)
    index = SuffixIndex([(9, 8, 7, 6)])
    assert next(
        generate(target, "rest", (9, 8), sources=Sources(corpus_index=index), max_new_tokens=5)
    ).tree.tokens == (8, 7, 6)
    past = ((9, 8, 7, 6),)
    assert next(generate(target, "suffix", (9, 8), sources=Sources(past=past), max_new_tokens=5)).tree.tokens == (
        8,
        7,
        6,
    )


def test_a_result_has_the_figures_of_the_steps(target: TableTarget) -> None:
    events = list(race(target, PROMPT, RaceSpec(("trie",), max_new_tokens=30)))
    metrics = LaneMetrics()
    for event in events:
        if isinstance(event, Step) and event.lane == "trie":
            metrics.add(event)
    finished = cast(Finished, events[-1]).lanes[1]
    assert metrics.drafted
    assert (finished.drafted_per_step, finished.acceptance_rate) == (metrics.drafted_per_step, metrics.acceptance_rate)
    assert (finished.tokens, finished.steps, finished.tau) == (metrics.tokens, metrics.steps, metrics.tau)


class Explaining:
    """A target with only the methods that explain a difference."""

    def top_two(self, tokens: Sequence[int], params: SamplingParams) -> tuple[tuple[int, int], float]:
        return (tokens[-1], 0), 0.5

    def decode(self, tokens: Sequence[int]) -> str:
        return str(tokens[0])


def bare_lane(name: str, max_new_tokens: int, steps: int) -> Lane:
    """A lane that counts up from the prompt's last token, after `steps` steps."""
    lane = function_lane(
        PROMPT, VanillaDrafter(inputs(PROMPT)), lambda tokens: (tokens[-1] + 1) % VOCAB, max_new_tokens=max_new_tokens
    )
    lane.name = name
    for _ in range(steps):
        lane.step()
    return lane


@pytest.mark.parametrize(
    ("vanilla", "lane", "identical", "position"),
    [
        ((6, 6), (6, 6), True, None),
        ((6, 2), (6, 6), True, None),  # vanilla was stopped
        ((6, 6), (6, 2), True, None),  # the lane was stopped
        ((6, 2), (6, 0), None, None),  # before it said anything
        ((6, 6), (4, 4), False, 4),  # both came to an end, and one said more
    ],
)
def test_lanes_are_compared_as_far_as_both_got(
    vanilla: tuple[int, int], lane: tuple[int, int], identical: bool | None, position: int | None
) -> None:
    base, compared = bare_lane("vanilla", *vanilla), bare_lane("other", *lane)
    metrics = {"vanilla": LaneMetrics(), "other": LaneMetrics()}
    result = lane_result(cast(RaceTarget, Explaining()), compared, base, metrics, SamplingParams())
    assert result.identical is identical
    assert (result.first_difference and result.first_difference.position) == position
    assert result.end == (compared.end or "stopped")
    if result.first_difference is not None:
        assert (result.first_difference.best, result.first_difference.gap) == (("7", "0"), 0.5)
