"""Fusion's calibration: how often a predicted token came, what came instead, and what earlier answers taught.

A hit is a predicted token that came; expected hits are the sum of the predictions' probabilities. The escape mass is
the probability left for tokens without an estimate. `Calibration(8)`: matches have up to eight tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from specrace.core.cost_curve import ASSUMED_CPU
from specrace.drafters import DrafterInputs
from specrace.drafters.fusion.calibration import Calibration
from specrace.drafters.fusion.copies import EarlierAnswers
from specrace.drafters.fusion.drafter import FusionDrafter
from specrace.lab.scoring.score import forced_steps
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import END

FULL_STOP = 3
# A citation, such as " [1]".
OPENING, DIGIT, CLOSING = 4, 5, 6
ANSWER_END, ANSWER_START = 7, 12


def example_requests(num_requests: int) -> list[tuple[list[int], list[int]]]:
    """Prompts and outputs; an output is its prompt's second sentence with a citation in place of the full stop."""
    requests = []
    for index in range(num_requests):
        words = iter(range(100 + 100 * index, 200 + 100 * index))
        sentences = [[next(words) for _ in range(12)] + [FULL_STOP] for _ in range(3)]
        # 8 to 11 are the question, which is the same in every prompt.
        prompt = [*sentences[0], *sentences[1], *sentences[2], 8, 9, 10, 11]
        requests.append((prompt, [ANSWER_START, *sentences[1][:-1], OPENING, DIGIT, CLOSING, ANSWER_END]))
    return requests


def emitted_tokens(prompt: Sequence[int], output: Sequence[int], past: PastOutputs) -> list[tuple[int, ...]]:
    """The tokens that each step of fusion emits if the target writes `output`; a step drafts at most 32 tokens."""
    drafter = FusionDrafter(DrafterInputs(tuple(prompt), vocab_size=5000, curve=ASSUMED_CPU, past=past))
    return [step.emitted for step in forced_steps(drafter, prompt, output, 32)]


def test_the_token_that_replaced_a_copy_is_drafted_next_time() -> None:
    past, steps_of_requests = PastOutputs(), list[list[tuple[int, ...]]]()
    for prompt, output in example_requests(6):
        steps_of_requests.append(emitted_tokens(prompt, output, past))
        past.add(output, prompt)
    first, last = steps_of_requests[0], steps_of_requests[-1]
    # In the first request the citation takes several steps.
    assert not any(OPENING in step for step in first[-3:])
    assert [CLOSING in step for step in first[-3:]] == [False, True, False]
    # One step emits the end of the copy and everything after it.
    assert last[-1][-4:] == (OPENING, DIGIT, CLOSING, ANSWER_END) and len(last) <= 3 < len(first)


def test_estimates_are_revised_by_hits_and_misses_of_the_likeliest_token() -> None:
    calibration = Calibration(8)
    probs = {FULL_STOP: 0.8, 50: 0.1}
    # Nothing was learned yet, so neither the estimates nor the escape mass of 0.1 change.
    assert calibration.revise(probs, 0.1, FULL_STOP) == 0.1 and probs == {FULL_STOP: 0.8, 50: 0.1}
    # After matches of five tokens, an opening bracket came four times where a full stop was predicted.
    for _ in range(4):
        calibration.learn(5, FULL_STOP, 0.9, OPENING)
    escape = calibration.revise(probs, 0.1, FULL_STOP)
    assert probs[FULL_STOP] < 0.4 and probs[OPENING] > probs[50] == 0.1
    assert sum(probs.values()) + escape == pytest.approx(1.0)
    assert calibration.seen_instead_of(FULL_STOP) == {OPENING}
    # 50 came every time, although it was predicted with a probability of only 0.3.
    for _ in range(40):
        calibration.learn(1, 50, 0.3, 50)
    probs = {50: 0.3, 51: 0.3}
    escape = calibration.revise(probs, 0.4, 50)
    assert 0.4 < probs[50] <= Calibration.MAX_PROB and sum(probs.values()) + escape == pytest.approx(1.0)


def test_tokens_that_replaced_short_matches_are_not_stored() -> None:
    calibration = Calibration(8)
    calibration.learn(Calibration.MIN_COPY - 1, 50, 0.9, 51)
    assert not calibration.seen_instead_of(50)
    probs = {50: 0.9}
    calibration.revise(probs, 0.1, 50)
    assert set(probs) == {50} and probs[50] < 0.9


def test_worked_example_of_what_came_instead_of_a_copy() -> None:
    """51 came for 50 in an earlier answer, then 51 and 52 in this one, each time after a match of five tokens."""
    earlier = Calibration(8)
    earlier.learn(5, 50, 0.8, 51)
    # Before any outcome, the factor after a match in the text is 3.6 hits of 4 expected.
    assert earlier.tokens[50].expected == pytest.approx(0.8 * 3.6 / 4)
    calibration = Calibration(8, earlier)
    assert calibration.seen_instead_of(50) == {51}
    for token in (51, 52, 51):
        calibration.learn(5, 50, 0.8, token)
    assert calibration.tokens[50].instead == {51: 2, 52: 1}
    # Each wrong prediction adds 0.8 to the expected hits of matches of five tokens, and so lowers the next factor.
    expected = 0.8 * 3.6 * (1 / 4 + 1 / 4.8 + 1 / 5.6 + 1 / 6.4)
    # A token's prior is two hits of two expected. None of the four predictions came true.
    revised = 0.8 * 2 / (2 + expected)
    probs = {50: 0.8, 51: 0.1}
    escape = calibration.revise(probs, 0.1, 50)
    # 51 came three times instead, and 52 once. Witten and Bell's estimate gives new tokens a weight of 2 for each of
    # the two kinds, so it divides by 3 + 1 + 2 * 2 = 8.
    mass = 0.1 + 0.8 - revised
    assert probs == pytest.approx({50: revised, 51: 0.1 + mass * 3 / 8, 52: mass / 8})
    assert escape == pytest.approx(mass * 4 / 8)


def test_a_match_of_three_tokens_is_a_copy() -> None:
    calibration = Calibration(8)
    calibration.learn(Calibration.MIN_COPY, 50, 0.9, 51)
    assert calibration.seen_instead_of(50) == {51}


def test_a_calibration_starts_from_an_earlier_one_without_changing_it() -> None:
    earlier = Calibration(2)
    for _ in range(400):
        earlier.learn(2, 50, 0.5, 51)
    hits, expected = list(earlier.hits), list(earlier.expected)
    calibration = Calibration(2, earlier)
    # What was learned after matches of two tokens is taken over; matches of one still have their prior, 0.9.
    assert calibration.factor(2, 0.5) == pytest.approx(hits[2] / expected[2])
    assert calibration.expected[2] == Calibration.MAX_EARLIER
    assert calibration.factor(1, 0.5) == pytest.approx(0.9)
    # Outcomes in this request soon outweigh the earlier ones.
    for _ in range(20):
        calibration.learn(2, 52, 0.5, 52)
    assert calibration.factor(2, 0.5) > 0.9
    assert (earlier.hits, earlier.expected) == (hits, expected) and 52 not in earlier.tokens


def test_earlier_answers_are_predicted_token_by_token() -> None:
    """Predictions in an answer come from its prompt and from earlier answers; without the prompt there are none."""
    (_, output), (second_prompt, second_output) = example_requests(2)
    earlier = EarlierAnswers(8)
    earlier.add((), output)
    assert not earlier.calibration.tokens and earlier.model.automaton.tokens[: len(output)] == output
    earlier.add(second_prompt, second_output)
    assert earlier.calibration.seen_instead_of(FULL_STOP) == {OPENING}
    outcomes = earlier.calibration.tokens[CLOSING]
    assert outcomes.hits == 1 and outcomes.expected > 0


def test_the_likeliest_token_of_an_answer_is_predicted_and_not_the_largest() -> None:
    earlier = EarlierAnswers(8)
    earlier.add((2, 4, 2, 4, 2, 9, 2), (4,))
    assert {token: outcomes.hits for token, outcomes in earlier.calibration.tokens.items()} == {4: 1}


def test_the_start_of_an_answer_is_predicted_from_the_end_of_its_prompt() -> None:
    earlier = EarlierAnswers(8)
    earlier.add((50, 51), (1, 2, 3, 4))
    # All of a short prompt is in the index, so that an answer's start is found after it.
    assert earlier.model.automaton.tokens == [50, 51, 1, 2, 3, 4, END]
    earlier.add((1, 2, 3), (4,))
    assert earlier.calibration.tokens[4].hits == 1


def test_the_end_of_an_earlier_output_is_not_a_prediction() -> None:
    """Logged outputs have no end token, so a text that continues after such an end is not a failed copy."""
    earlier, past = EarlierAnswers(8), PastOutputs()
    for number in range(8):
        earlier.add((20 + number,), (40 + number, 8, 9))
        past.add((40 + number, 8, 9), (20 + number,))
    earlier.add((3,), (4, 8, 9, 30))
    assert END not in earlier.calibration.tokens
    drafter = FusionDrafter(DrafterInputs((3,), vocab_size=5000, curve=ASSUMED_CPU, past=past))
    list(forced_steps(drafter, (3,), (4, 8, 9, 30), 32))
    assert END not in drafter.calibration.tokens


def test_an_index_of_answers_is_rebuilt_when_an_answer_is_dropped() -> None:
    class AnswerList:
        """An index that only lists the answers which it was given."""

        def __init__(self) -> None:
            self.pairs = list[tuple[tuple[int, ...], tuple[int, ...]]]()

        def add(self, prompt: Sequence[int], output: Sequence[int]) -> None:
            self.pairs.append((tuple(prompt), tuple(output)))

    past = PastOutputs(max_outputs=2)
    # `PastOutputs.add` takes the output first, and the index's `add` the prompt.
    past.add([1], [10, 11])
    answer_list = past.answers(AnswerList)
    past.add([2], [12])
    assert answer_list.pairs == [((10, 11), (1,)), ((12,), (2,))] and past.answers(AnswerList) is answer_list
    # Without the answer to the prompt 12.
    assert past.excluding([12]).answers(AnswerList).pairs == [((10, 11), (1,))]
    past.add([3], [13])
    rebuilt = past._indexes.copy()
    # The index is rebuilt once; asking for it again changes nothing.
    assert past.answers(AnswerList).pairs == [((12,), (2,)), ((13,), (3,))] and past._indexes == rebuilt
