"""A lane's metrics against their definitions, and the detection of loops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrace.core.events import Difference, LaneInfo, Served, Step, Timing
from specrace.core.metrics import (
    LOOP_PERIOD,
    LOOP_REPEATS,
    LOOP_TOKENS,
    LaneMetrics,
    compare,
    describe_difference,
    first_difference,
    format_speedup,
    loop_tokens,
    start_metrics,
    text_to_compare,
    too_fast,
)
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, verify


def _step(draft: list[int], targets: list[int], emitted: int) -> Step:
    """A step with a chain as its draft; `targets` has the target's token at each node; `emitted` tokens are output.

    It takes 2 ms: 0.5 for the draft, 1.25 for the forward, 0.25 for the rest.
    """
    tree = TokenTree.chain(0, draft)
    verdict = verify(tree, Scores(tuple(targets)))
    tokens = (*(tree.tokens[node] for node in verdict.path[1:]), verdict.bonus)[:emitted]
    return Step("tested", 0, 0.0, tree, verdict, tokens, Timing(0.5, 1.25, 0.25))


def test_tau_counts_emitted_tokens_and_the_rate_counts_draft_tokens() -> None:
    metrics = LaneMetrics()
    metrics.add(_step([5, 6, 7], [5, 6, 9, 0], emitted=3))  # two accepted and the bonus
    metrics.add(_step([5], [8, 0], emitted=1))  # none accepted
    metrics.add(_step([], [4], emitted=1))  # nothing drafted
    assert (metrics.tokens, metrics.steps, metrics.drafted, metrics.accepted) == (5, 3, 4, 2)
    assert metrics.tau == 5 / 3
    assert metrics.acceptance_rate == 2 / 4
    assert metrics.drafted_per_step == 4 / 3


def test_tau_leaves_out_tokens_past_the_length_limit() -> None:
    metrics = LaneMetrics()
    metrics.add(_step([5, 6, 7], [5, 6, 7, 8], emitted=2))
    assert (metrics.tokens, metrics.tau) == (2, 2.0)


def test_accepted_tokens_past_the_length_limit_do_not_count() -> None:
    """Five draft tokens were right, but only one more token was allowed, so one was emitted."""
    step = _step([5, 6, 7, 8, 9], [5, 6, 7, 8, 9, 3], emitted=1)
    assert step.verdict.accepted == 5 and step.accepted == 1
    metrics = LaneMetrics()
    metrics.add(step)
    assert metrics.accepted == 1 and metrics.acceptance_rate == 1 / 5
    uncut = _step([5, 6], [5, 6, 7], emitted=3)
    assert uncut.accepted == uncut.verdict.accepted == 2


def test_tokens_per_second_is_over_the_sum_of_all_times() -> None:
    metrics = LaneMetrics(draft_ms=4.0)
    for _ in range(2):
        metrics.add(_step([5], [5, 6], emitted=2))
    assert metrics.decode_ms == 4.0 + 2 * 2.0
    assert (metrics.draft_ms, metrics.target_ms, metrics.keep_ms) == (5.0, 2.5, 0.5)
    assert metrics.tokens_per_s == 1000.0 * 4 / 8.0


def test_metrics_before_the_first_step_are_zero() -> None:
    metrics = LaneMetrics()
    assert (metrics.tau, metrics.acceptance_rate, metrics.drafted_per_step, metrics.tokens_per_s) == (0, 0, 0, 0)


def _is_loop(tokens: list[int], length: int, period: int) -> bool:
    """Whether the last `length` tokens repeat with this period."""
    tail = tokens[len(tokens) - length :]
    return all(tail[i] == tail[i - period] for i in range(period, length))


@given(
    st.lists(st.integers(0, 1), max_size=20),
    st.lists(st.integers(0, 1), min_size=1, max_size=26),
    st.integers(0, 20),
    st.integers(0, 5),
)
def test_a_loop_is_the_longest_repeating_tail(head: list[int], cycle: list[int], repeats: int, more: int) -> None:
    tokens = [*head, *cycle * repeats, *cycle[:more]]
    loops = [
        length
        for period in range(1, LOOP_PERIOD + 1)
        for length in range(max(LOOP_TOKENS, LOOP_REPEATS * period), len(tokens) + 1)
        if _is_loop(tokens, length, period)
    ]
    assert loop_tokens(tokens) == max(loops, default=0)


def test_a_repeated_sentence_of_26_tokens_is_a_loop() -> None:
    assert loop_tokens([*range(9), *list(range(26)) * 5]) == 130


def test_loops_by_example() -> None:
    assert loop_tokens([7, 1, 2] + [5, 6] * 20) == 40
    assert loop_tokens([5] * LOOP_TOKENS) == LOOP_TOKENS
    assert loop_tokens([5] * (LOOP_TOKENS - 1)) == 0
    assert loop_tokens([5] * 100 + [6]) == 0
    assert loop_tokens(list(range(200))) == 0
    assert loop_tokens([]) == 0


@pytest.mark.parametrize(
    ("tokens", "reference", "position"),
    [
        ([], [], None),
        ([1, 2], [1, 2], None),
        ([1, 2], [1, 3], 1),
        ([1, 2], [3, 2], 0),
        ([1], [1, 2], 1),
        ([1, 2], [1], 1),
        ([], [4], 0),
    ],
)
def test_first_difference(tokens: list[int], reference: list[int], position: int | None) -> None:
    assert first_difference(tokens, reference) == position
    assert compare(tokens, reference, ended=True) == (position is None, position)


@pytest.mark.parametrize(
    ("tokens", "reference", "identical", "position"),
    [([], [], None, None), ([1], [], None, None), ([1], [1, 2], True, None), ([1, 3], [1, 2, 4], False, 1)],
)
def test_unfinished_outputs_are_compared_up_to_the_shorter_one(
    tokens: list[int], reference: list[int], identical: bool | None, position: int | None
) -> None:
    assert compare(tokens, reference, ended=False) == (identical, position)


def test_tokens_known_to_agree_are_not_compared_again() -> None:
    # The first tokens, 7 and 1, are taken as equal.
    assert first_difference([7, 2, 3], [1, 2, 4], agreed=1) == 2


def test_a_speedup_is_the_ratio_of_tokens_per_second() -> None:
    fast, slow = LaneMetrics(tokens=6, target_ms=2.0), LaneMetrics(tokens=2, target_ms=2.0)
    assert fast.speedup(slow) == 3.0 and fast.speedup(LaneMetrics()) == 0.0


def test_a_summary_has_the_metrics_of_a_result() -> None:
    metrics = LaneMetrics(tokens=6, steps=2, drafted=8, accepted=4, draft_ms=1.0, target_ms=2.0, keep_ms=1.0)
    assert metrics.summary() == {
        "tokens": 6,
        "steps": 2,
        "tau": 3.0,
        "drafted_per_step": 4.0,
        "acceptance_rate": 0.5,
        "decode_ms": 4.0,
        "tokens_per_s": 1500.0,
    }


def test_merging_adds_every_total() -> None:
    total, other = LaneMetrics(1, 2, 3, 4, 5.0, 6.0, 7.0), LaneMetrics(10, 20, 30, 40, 50.0, 60.0, 70.0)
    total.merge(other)
    assert total == LaneMetrics(11, 22, 33, 44, 55.0, 66.0, 77.0)
    assert other == LaneMetrics(10, 20, 30, 40, 50.0, 60.0, 70.0)


VANILLA = LaneMetrics(tokens=10, steps=10, target_ms=10.0)


@pytest.mark.parametrize(
    ("lane", "expected"),
    [
        (LaneMetrics(tokens=11, steps=11, target_ms=10.0), False),  # 1.1 times vanilla's rate: within the noise
        (LaneMetrics(tokens=11, steps=11, target_ms=9.9), True),
        (LaneMetrics(tokens=10, steps=5, target_ms=5.0), False),  # twice the rate, at two tokens per step
        (LaneMetrics(tokens=10, steps=5, target_ms=4.0), True),
        (LaneMetrics(tokens=9, steps=9, target_ms=1.0), False),  # fewer tokens than vanilla's: not judged
    ],
)
def test_a_lane_is_too_fast_if_its_tokens_per_step_do_not_allow_its_speedup(lane: LaneMetrics, expected: bool) -> None:
    assert too_fast({"vanilla": VANILLA, "trie": lane}) == expected


def test_a_repeated_run_is_judged_by_the_first_runs_tokens_per_step() -> None:
    """Later runs are replayed with the steps of the first, and only their durations count."""
    first = {"vanilla": VANILLA, "trie": LaneMetrics(tokens=10, steps=5)}
    run = {"vanilla": VANILLA, "trie": LaneMetrics(tokens=10, steps=10, target_ms=5.0)}
    assert too_fast(run) and not too_fast(run, first)
    shorter = {"vanilla": LaneMetrics(tokens=11, steps=11), "trie": LaneMetrics(tokens=10, steps=10)}
    assert not too_fast(run, shorter)  # fewer tokens than vanilla's: not judged


def test_a_loop_has_a_period_of_at_most_48_tokens_and_three_repeats() -> None:
    for period in (13, 23, LOOP_PERIOD):
        cycle = list(range(period))
        assert loop_tokens(cycle * LOOP_REPEATS) == LOOP_REPEATS * period
        assert loop_tokens((cycle * LOOP_REPEATS)[1:]) == 0
        assert loop_tokens(cycle * 2) == 0
    assert loop_tokens(list(range(LOOP_PERIOD + 1)) * LOOP_REPEATS) == 0


@pytest.mark.parametrize(
    ("gap", "dtype", "words"),
    [
        (0.004, "bfloat16", "differs at token 12: near tie, gap 0.004, bfloat16"),
        (0.25, "float16", "differs at token 12: near tie, gap 0.250, float16"),
        (0.2504, "float16", "differs at token 12: gap 0.250, float16"),
        (3.0, "", "differs at token 12: gap 3.000"),
    ],
)
def test_a_small_gap_is_described_as_a_near_tie(gap: float, dtype: str, words: str) -> None:
    assert describe_difference(Difference(12, ("a", "b"), gap), dtype) == words


def test_a_speedup_has_one_decimal_rounded_half_up() -> None:
    assert [format_speedup(value) for value in (0, 1.04, 1.05, 1.25, 1.336, 2.4496, 12.95)] == [
        "0.0×", "1.0×", "1.1×", "1.3×", "1.3×", "2.4×", "13.0×",
    ]  # fmt: skip


def served_lane(*, chunks_are_steps: bool, first_tokens: int, **totals: Any) -> LaneMetrics:
    """The metrics of a lane that a server decodes, before its first step; its first chunk has `first_tokens`."""
    served = Served("a server", "a model", chunks_are_steps, first_tokens, **totals)
    metrics = start_metrics(LaneInfo("served", "Served", 4, served=served))
    assert metrics.tokens_per_s == 0.0
    return metrics


def counts(metrics: LaneMetrics) -> tuple[int, int, int, int]:
    """(tokens, steps, draft tokens, accepted draft tokens)."""
    return metrics.tokens, metrics.steps, metrics.drafted, metrics.accepted


def test_our_own_lane_starts_with_the_time_to_build_its_tables() -> None:
    metrics = start_metrics(LaneInfo("trie", "Trie", 4, build_ms=1.5))
    assert (type(metrics), metrics.draft_ms, metrics.decode_ms) == (LaneMetrics, 1.5, 1.5)


def test_a_served_draft_of_unknown_size_leaves_the_total_unknown_until_the_server_reports_it() -> None:
    step = _step([5, 6, 7], [5, 6, 9, 0], emitted=3)
    metrics = served_lane(chunks_are_steps=True, first_tokens=2, drafted=9)
    metrics.add(replace(step, drafted=4))
    assert counts(metrics) == (3, 1, 4, 2)
    # The server does not say how many tokens this draft had, so the total is unknown, which is 0.
    metrics.add(step)
    assert counts(metrics) == (6, 2, 0, 4)
    metrics.add(replace(step, drafted=4))
    assert metrics.drafted == 0
    # With the end, the totals that the server reports replace the counts.
    metrics.add(replace(step, drafted=4, end="length"))
    assert counts(metrics) == (12, 4, 9, 8)
    # The first chunk's two tokens came before the clock started.
    assert metrics.tokens_per_s == 1000.0 * 10 / 8.0
    assert metrics.speedup(LaneMetrics(tokens=1, target_ms=1.0)) == 0.0


@pytest.mark.parametrize(("totals", "expected"), [((5, 20, 7), (6, 5, 20, 7)), ((None,) * 3, (6, 0, 0, 0))])
def test_chunks_that_are_no_steps_count_only_in_the_servers_totals(
    totals: tuple[int | None, ...], expected: tuple[int, ...]
) -> None:
    step = replace(_step([5, 6], [5, 6, 7], emitted=3), drafted=2)
    reported = dict(zip(("steps", "drafted", "accepted"), totals, strict=True))
    metrics = served_lane(chunks_are_steps=False, first_tokens=1, **reported)
    metrics.add(step)
    assert counts(metrics) == (3, 0, 0, 0)
    metrics.add(replace(step, end="eos"))
    assert counts(metrics) == expected


@pytest.mark.parametrize(("tokens", "first", "per_s"), [(12, 1, 1000.0 * 11 / 2.0), (12, 0, 0.0), (None, 1, 0.0)])
def test_without_ids_a_rate_needs_the_servers_count_and_that_of_the_first_chunk(
    tokens: int | None, first: int, per_s: float
) -> None:
    metrics = served_lane(chunks_are_steps=True, first_tokens=first, sends_ids=False, tokens=tokens)
    step = _step([], [4], emitted=0)
    metrics.add(replace(step, timing=Timing(0.0, 0.0, 0.0)))
    assert (metrics.tokens, metrics.tokens_per_s) == (0, 0.0)
    metrics.add(replace(step, end="length"))
    assert (metrics.tokens, metrics.tokens_per_s) == (tokens or 0, per_s)


def test_a_served_lane_with_a_chunk_but_no_time_has_no_rate() -> None:
    metrics = served_lane(chunks_are_steps=True, first_tokens=1)
    metrics.add(replace(_step([], [4], emitted=1), timing=Timing(0.0, 0.0, 0.0)))
    assert (metrics.tokens, metrics.tokens_per_s) == (1, 0.0)


def test_blanks_and_a_cut_last_character_do_not_make_texts_differ() -> None:
    assert text_to_compare(" the sum \ufffd\ufffd\n") == text_to_compare("the sum\ufffd") == "the sum"
    assert text_to_compare("\ufffd the suX\ufffd") == "\ufffd the suX"
