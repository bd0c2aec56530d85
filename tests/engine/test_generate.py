"""`generate` passes its arguments on, and a lane's result compares the tokens that both lanes have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from specrace.core.cost_curve import CostCurve
from specrace.core.events import Finished, Step
from specrace.core.metrics import LaneMetrics
from specrace.core.sampling_params import SamplingParams
from specrace.drafters.vanilla import VanillaDrafter
from specrace.engine.badge import lane_result
from specrace.engine.generate import generate
from specrace.engine.lane import Lane
from specrace.engine.race import race
from specrace.engine.setup import RaceTarget
from specrace.engine.spec import RaceSpec, plan_lane
from specrace.ngrams.counts import NGramCounts
from specrace.ngrams.sources import Sources
from specrace.ngrams.suffix_index import SuffixIndex
from tests.parts import VOCAB, TableTarget, function_lane, inputs

PROMPT = (2, 3, 4, 2, 3)


@pytest.fixture(scope="module")
def target() -> TableTarget:
    return TableTarget()


def vanilla_tokens(target: TableTarget, prompt: Sequence[int] = PROMPT, **settings: Any) -> list[int]:
    """The tokens that vanilla prints with these settings of `generate`."""
    return [token for step in generate(target, "vanilla", prompt, **settings) for token in step.emitted]


def first_draft(target: TableTarget, method: str, prompt: Sequence[int], sources: Sources) -> tuple[int, ...]:
    """The tokens of the first step's tree, its root included."""
    return next(generate(target, method, prompt, sources=sources, max_new_tokens=5)).tree.tokens


def test_the_defaults_are_128_tokens_greedy_decoding_and_seed_0(target: TableTarget) -> None:
    explicit = {"max_new_tokens": 128, "temperature": 0.0, "top_p": 1.0, "top_k": 0, "seed": 0}
    # Some of these texts end earlier, with an end-of-text token.
    assert max(len(vanilla_tokens(target, (token, 5, 6))) for token in range(8, 24)) == 128
    assert vanilla_tokens(target) == vanilla_tokens(target, **explicit)
    sampled = vanilla_tokens(target, temperature=5.0)
    assert sampled == vanilla_tokens(target, **(explicit | {"temperature": 5.0}))
    assert sampled != vanilla_tokens(target, temperature=5.0, seed=1)


def test_the_draft_size_and_the_verifier_reach_the_lane(target: TableTarget) -> None:
    steps = list(generate(target, "trie", (2, 3, 4, 5, 2, 3, 4, 5, 2), max_new_tokens=20, num_draft=2))
    assert max(step.tree.num_draft for step in steps) == 2
    sampled_steps = list(generate(target, "bigram", PROMPT, max_new_tokens=5, temperature=1.0, verifier="rejection"))
    assert all(step.checks is not None for step in sampled_steps)


@pytest.mark.parametrize("curve", [None, CostCurve((1, 9), (1.0, 1.0))])
def test_room_is_checked_for_the_lanes_own_draft_size(curve: CostCurve | None, monkeypatch: pytest.MonkeyPatch) -> None:
    target, checked = TableTarget(), list[tuple[int, ...]]()
    monkeypatch.setattr(target, "check_length", lambda *sizes: checked.append(sizes))
    list(generate(target, "trie", PROMPT, max_new_tokens=7, curve=curve))
    assert checked == [(len(PROMPT), 7, plan_lane(RaceSpec(("trie",)), "trie", "cpu", curve).num_draft)]


def test_the_sources_reach_the_drafter(target: TableTarget) -> None:
    corpus = NGramCounts()
    corpus.extend_apart([[9, 7]])
    assert first_draft(target, "bigram", (9,), Sources(corpus))[:2] == (9, 7)
    index = SuffixIndex([(9, 8, 7, 6)])
    assert first_draft(target, "rest", (9, 8), Sources(corpus_index=index)) == (8, 7, 6)
    past = ((9, 8, 7, 6),)
    assert first_draft(target, "suffix", (9, 8), Sources(past=past)) == (8, 7, 6)


def test_a_result_has_the_totals_of_its_lanes_steps(target: TableTarget) -> None:
    events = list(race(target, PROMPT, RaceSpec(("trie",), max_new_tokens=30)))
    metrics = LaneMetrics()
    for event in events:
        if isinstance(event, Step) and event.lane == "trie":
            metrics.add(event)
    result = cast(Finished, events[-1]).lanes[1]
    assert metrics.drafted
    assert (result.drafted_per_step, result.acceptance_rate) == (metrics.drafted_per_step, metrics.acceptance_rate)
    assert (result.tokens, result.steps, result.tau) == (metrics.tokens, metrics.steps, metrics.tau)


class ExplainingTarget:
    """A target with only the methods that `explain_difference` calls."""

    def top_two(self, tokens: Sequence[int], params: SamplingParams) -> tuple[tuple[int, int], float]:
        return (tokens[-1], 0), 0.5

    def decode(self, tokens: Sequence[int]) -> str:
        return str(tokens[0])


def counting_lane(name: str, max_new_tokens: int, steps: int) -> Lane:
    """A lane that has taken `steps` steps, each with a token that is one more than the last."""
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
        ((6, 2), (6, 0), None, None),  # the lane was stopped before its first step
        ((6, 6), (4, 4), False, 4),  # both lanes ended, and vanilla has two more tokens
    ],
)
def test_lanes_are_compared_over_the_tokens_that_both_have(
    vanilla: tuple[int, int], lane: tuple[int, int], identical: bool | None, position: int | None
) -> None:
    """`vanilla` and `lane` each give the largest number of new tokens and the number of steps taken."""
    vanilla_lane = counting_lane("vanilla", *vanilla)
    compared_lane = counting_lane("other", *lane)
    metrics = {"vanilla": LaneMetrics(), "other": LaneMetrics()}
    target = cast(RaceTarget, ExplainingTarget())
    result = lane_result(target, compared_lane, vanilla_lane, metrics, SamplingParams())
    difference = result.first_difference
    assert result.identical is identical
    assert (None if difference is None else difference.position) == position
    assert result.end == (compared_lane.end or "stopped")
    if difference is not None:
        # What `ExplainingTarget` answers after the last common token, 7.
        assert (difference.best, difference.gap) == (("7", "0"), 0.5)
