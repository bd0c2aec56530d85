"""Figures of samples whose times and drafts are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specrace.lab.compare.figures import (
    compare_texts,
    drafts,
    marginal_rates,
    measured_speedup,
    memory_factor,
    rate,
    times,
    total_rates,
)
from specrace.lab.compare.samples import Block, Sample, plan_blocks
from tests.lab.compare.parts import sample


def side(server: str, sizes: list[int], step_ms: float, *, repetitions: int = 3) -> list[Sample]:
    """A server's answers to ten questions in every repetition; the steps of question n take n ms more."""
    return [
        sample(server, number, sizes, step_ms=step_ms + number, repetition=repetition)
        for repetition in range(repetitions)
        for number in range(10)
    ]


def test_a_rate_counts_the_tokens_and_the_time_after_the_first_chunk() -> None:
    assert rate([sample("a", 0, [1, 3, 2], step_ms=20.0)]) == pytest.approx(1000 * 5 / 40)
    assert rate([sample("a", 0, [4])]) is None


def test_times_are_those_to_the_first_chunk_and_between_chunks() -> None:
    figures = times([sample("a", 0, [1] * 5, step_ms=10.0), sample("a", 1, [1] * 5, step_ms=30.0)])
    assert figures["first_ms"] == 100.0 and figures["between_ms"] == 20.0
    assert figures["between_ms_p99"] == pytest.approx(30.0)
    assert times([sample("a", 0, [4])])["between_ms"] is None


def test_servers_that_take_the_same_time_have_a_speedup_of_one_without_any_width() -> None:
    speedup = measured_speedup(side("a", [1] * 9, 10.0), side("b", [1] * 9, 10.0), seed=1)
    assert speedup is not None and speedup.requests == 10
    assert (speedup.speedup, speedup.low, speedup.high) == pytest.approx((1.0, 1.0, 1.0))


def test_twice_the_tokens_in_a_step_are_twice_the_speed() -> None:
    speedup = measured_speedup(side("a", [1] * 9, 10.0), side("b", [1, *[2] * 4], 10.0), seed=1)
    assert speedup is not None
    assert (speedup.speedup, speedup.low, speedup.high) == pytest.approx((2.0, 2.0, 2.0))


def test_the_interval_shows_how_much_repetitions_differ() -> None:
    steady = side("a", [1] * 9, 10.0)
    disturbed = [
        replace(answer, times_ms=tuple(100 + 3 * (ms - 100) for ms in answer.times_ms))
        if answer.block.repetition == 1
        else answer
        for answer in side("b", [1] * 9, 10.0)
    ]
    speedup = measured_speedup(steady, disturbed, seed=1)
    # One of three repetitions takes three times as long. A bootstrap draws it three times, or not at all, often enough.
    assert speedup is not None and speedup.speedup == pytest.approx(3 / 5)
    assert speedup.low == pytest.approx(1 / 3) and speedup.high == pytest.approx(1.0)


def test_only_questions_that_both_answered_in_every_repetition_count() -> None:
    all_but_one = [
        answer for answer in side("b", [1, 2, 2], 10.0) if (answer.number, answer.block.repetition) != (3, 1)
    ]
    speedup = measured_speedup(side("a", [1] * 5, 10.0), all_but_one, seed=1)
    assert speedup is not None and speedup.requests == 9
    assert measured_speedup(side("a", [1] * 5, 10.0), [], seed=1) is None


def test_a_total_rate_needs_a_block_that_ran_in_one_go() -> None:
    # An answer of 11 tokens takes 100 ms to the first, and 10 ms to each of the others.
    answers = [sample("a", 0, [1] * 11), sample("a", 1, [1] * 11, start_ms=100.0)]
    total = total_rates(answers)
    assert total.median == pytest.approx(1000 * 22 / 300) and total.interrupted == 0
    interrupted = [answers[0], replace(answers[1], session=1)]
    assert total_rates(interrupted).median is None and total_rates(interrupted).interrupted == 1
    uninterrupted = [sample("a", number, [1] * 11, repetition=1) for number in (0, 1)]
    assert total_rates([*interrupted, *uninterrupted]).median == pytest.approx(1000 * 22 / 200)


def test_acceptance_by_position_leaves_out_tokens_past_the_end() -> None:
    # The last draft of the first answer had three tokens accepted. Its step has two, so the third is past the end.
    figures = drafts([sample("a", 0, [1, 3, 5, 2], past_end=2), sample("a", 1, [1, 2, 1])])
    assert (figures["tau"], figures["accepted"], figures["accepted_past_end"]) == (15 / 7, 9, 1)
    assert figures["rates"] == [1.0, 0.75, 0.25, 0.25]
    assert figures["drafted"] == 16 and figures["counted"] == 2


def test_marginal_rates_are_shares_of_all_drafts() -> None:
    assert marginal_rates([0, 2, 1, 0]) == [0.5, 0.25]
    assert marginal_rates([]) == [] and marginal_rates([0, 0]) == []


def test_counts_that_contradict_the_answer_are_left_out() -> None:
    contradictory = replace(sample("a", 0, [1, 3]), counts={"num_draft_tokens": 1, "num_accepted_draft_tokens": 9})
    figures = drafts([contradictory])
    assert contradictory.measured() is None and (figures["tau"], figures["counted"]) == (None, 0)


def test_texts_are_compared_in_the_same_repetition_and_the_first_difference_is_named() -> None:
    baseline_answers = [sample("a", number, [1] * 4, output=[7, 8, 9, number]) for number in range(3)]
    equal_answers = [sample("b", number, [1] * 4, output=[7, 8, 9, number]) for number in range(2)]
    texts = compare_texts(baseline_answers, [*equal_answers, sample("b", 2, [1] * 4, output=[7, 1, 9, 2])])
    assert (texts.same, texts.compared, texts.first) == (2, 3, (2, 1))
    with_shorter_text = compare_texts(baseline_answers[:1], [sample("b", 0, [1] * 3, output=[7, 8, 9])])
    assert with_shorter_text.first == (0, 3)


def test_a_server_that_finds_its_earlier_answers_is_noticed() -> None:
    order = list(plan_blocks(["a"], [1], 2))
    first = [sample("a", number, [1] * 8) for number in range(4)]
    again = [sample("a", number, [1] * 8, repetition=1) for number in range(4)]
    assert memory_factor([*first, *again], order) == 1.0
    copied = [sample("a", number, [1, 5, 2], repetition=1) for number in range(4)]
    assert memory_factor([*copied, *first], order) == pytest.approx(8 / 3)
    other_text = [replace(answer, output=(9,) * 8) for answer in copied]
    assert memory_factor([*first, *other_text], order) is None
    assert memory_factor(first, order) is None


def test_servers_take_turns_and_every_repetition_begins_with_the_next_one() -> None:
    blocks = list(plan_blocks(["a", "b"], [1, 4], 2))
    assert blocks == [
        Block("a", 1, 0), Block("a", 4, 0), Block("b", 1, 0), Block("b", 4, 0),
        Block("b", 1, 1), Block("b", 4, 1), Block("a", 1, 1), Block("a", 4, 1),
    ]  # fmt: skip
